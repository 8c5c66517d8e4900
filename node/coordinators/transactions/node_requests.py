"""Sends what waits for a node, many items in a request, and several requests at once.

Invariants:
  1. At most `REQUESTS_MAX` requests are under way to a node. What is added in one turn of the loop goes together, and
     what is added while all requests are under way goes with the next.
  2. Items with the same key are in one request, or in requests one after another: what waits for one key delays no
     other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import field
from typing import Final, Generic, TypeVar

from tidelog.types import NodeId
from tidelog.values import dataclass

Item = TypeVar("Item")

REQUESTS_MAX: Final = 8
"""Requests that are under way to one node."""

ITEMS_MAX: Final = 1_000
"""Items in one request, each for one partition: markers take some 100 ms of the leader's loop, in several turns."""


@dataclass(slots=True)
class _Queue(Generic[Item]):
    """The items for one node: those that wait, by key, and the keys that are under way."""

    waiting: dict[Hashable, list[Item]] = field(default_factory=dict)
    under_way: set[Hashable] = field(default_factory=set)
    requests: int = 0
    starting: bool = False
    """A task for one more request begins with the next turn of the loop."""

    def take(self) -> dict[Hashable, list[Item]]:
        """The items of the next request, in order for each key; their keys are under way from now on."""
        taken: dict[Hashable, list[Item]] = {}
        count = 0
        for key in [key for key in self.waiting if key not in self.under_way]:
            count += len(self.waiting[key])
            if taken and count > ITEMS_MAX:
                break
            taken[key] = self.waiting.pop(key)
        self.under_way.update(taken)
        return taken


class NodeRequests(Generic[Item]):
    """The items for all nodes."""

    def __init__(self, send: Callable[[NodeId, list[Item]], Awaitable[None]]) -> None:
        """send: sends one request, and handles its answer and its errors."""
        self._send = send
        self._queues: dict[NodeId, _Queue[Item]] = {}
        self.tasks: asyncio.TaskGroup | None = None
        """The tasks of this sender, also of its user; None unless it runs."""

    async def run(self, began: Callable[[], None] = lambda: None) -> None:
        """Send until cancelled. began: called when `tasks` is set."""
        async with asyncio.TaskGroup() as tasks:
            self.tasks = tasks
            began()
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                self.tasks = None

    def add(self, node: NodeId, key: Hashable, item: Item) -> None:
        """Send this item with the next request to the node. Only while it runs."""
        queue = self._queues.setdefault(node, _Queue())
        queue.waiting.setdefault(key, []).append(item)
        self._start(node, queue)

    def unsent(self) -> Iterator[Item]:
        """What still waits."""
        return (item for queue in self._queues.values() for items in queue.waiting.values() for item in items)

    def _start(self, node: NodeId, queue: _Queue[Item]) -> None:
        if self.tasks is not None and queue.waiting and not queue.starting and queue.requests < REQUESTS_MAX:
            queue.starting = True
            queue.requests += 1
            self.tasks.create_task(self._send_all(node, queue))

    async def _send_all(self, node: NodeId, queue: _Queue[Item]) -> None:
        """Send one request after another. It takes its items only now: a task that is cancelled before it begins must
        leave them among those that wait."""
        queue.starting = False
        while taken := queue.take():
            self._start(node, queue)
            try:
                await self._send(node, [item for items in taken.values() for item in items])
            finally:
                queue.under_way.difference_update(taken)
        queue.requests -= 1
