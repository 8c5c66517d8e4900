"""A complete listing of the groups or transactional ids of all coordinators, from all nodes.

Each answer names the coordinators that it covers, by their partitions of the internal topic. While a coordinator moves
or loads, no node covers it, or two do: then all nodes are queried again.

Invariant: a listing that is returned without a call of `on_missing` comes from one pass over the nodes in which each
partition was covered exactly once. Whatever existed when the pass began is in it.
Not here: the requests (transaction_admin.py, group_admin.py), a node's part (node/coordinators/node_listing.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from tidelog.client.cluster import QUERY_TIMEOUT_MS
from tidelog.client.coordinators import helps_again
from tidelog.client.retries import Retries
from tidelog.errors import CoordinatorNotAvailable, TidelogError, UnreadableCoordinatorRecord
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.types import Endpoint, NodeId

NODE_TIMEOUT_MS: Final = 10_000
"""Timeout of one node's answer. Nodes without coordinators are not waited for."""

OnMissing: TypeAlias = Callable[[TidelogError], None]
"""Called with the error of a partition whose groups or transactional ids are missing from a listing."""

Listed = TypeVar("Listed", groups_pb2.ListGroupsResponse, transactions_pb2.ListTransactionsResponse)


async def list_all(
    topic: str,
    nodes: Callable[[], Awaitable[Mapping[NodeId, Endpoint]]],
    ask: Callable[[Endpoint, int], Awaitable[Listed]],
    retries: Retries,
    *,
    on_missing: OnMissing | None = None,
) -> dict[NodeId, Listed]:
    """Return the answers of the nodes, by node.

    topic: the internal topic.
    nodes: looks up all nodes.
    ask: queries one node, with a timeout in milliseconds.
    on_missing: called for each partition that cannot be read, or that no node covers when the time of `retries` is
    over; the rest is returned. None: the error is raised.
    Raises UnreadableCoordinatorRecord at once; CoordinatorNotAvailable, or the error of a node that did not answer,
    when the time is over; any error of a node that a repetition does not change, at once.
    """
    while True:
        for_each_ms = min(max(retries.left_ms, QUERY_TIMEOUT_MS), NODE_TIMEOUT_MS)
        answers, failures = await _asked(topic, await nodes(), ask, for_each_ms)
        if refusal := next((error for error in failures if not helps_again(error)), None):
            raise refusal
        gaps = _gaps(topic, list(answers.values()), failures)
        if not gaps:
            return answers
        may_pass = [gap for gap in gaps if not isinstance(gap, UnreadableCoordinatorRecord)]
        try:
            if not may_pass:
                raise gaps[0]
            await retries.pause(gaps[0])
        except TidelogError:
            if on_missing is None or not answers:
                raise
            for gap in gaps:
                on_missing(gap)
            return answers


async def _asked(
    topic: str,
    nodes: Mapping[NodeId, Endpoint],
    ask: Callable[[Endpoint, int], Awaitable[Listed]],
    timeout_ms: int,
) -> tuple[dict[NodeId, Listed], list[TidelogError]]:
    """The answers of nodes, and the errors of the others. Returns as soon as the answers cover all partitions: nodes
    without coordinators are not waited for."""

    async def one(to: Endpoint) -> Listed | TidelogError:
        try:
            return await ask(to, timeout_ms)
        except TidelogError as error:
            return error

    answers: dict[NodeId, Listed] = {}
    failures: list[TidelogError] = []
    async with asyncio.TaskGroup() as tasks:
        asking = {tasks.create_task(one(to)): node for node, to in nodes.items()}
        waiting = set(asking)
        while waiting and not _are_whole(topic, list(answers.values())):
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: asking[task]):
                answer = task.result()
                if isinstance(answer, TidelogError):
                    failures.append(answer)
                else:
                    answers[asking[task]] = answer
        for task in waiting:
            task.cancel()
    return answers, failures


def _are_whole(topic: str, answers: Sequence[Listed]) -> bool:
    """Return True if these answers cover all partitions of a topic that exists."""
    return any(answer.partition_count for answer in answers) and not _gaps(topic, answers, ())


def _gaps(topic: str, answers: Sequence[Listed], failures: Sequence[TidelogError]) -> list[TidelogError]:
    """An error for each partition that is not covered exactly once."""
    count = max((answer.partition_count for answer in answers), default=0)
    if count == 0:  # the topic does not exist yet, so nothing is missing, unless a node that did not answer knows it
        no_nodes = CoordinatorNotAvailable("no node is known to be running; check with `tidelog cluster status`")
        return list(failures) if answers or failures else [no_nodes]
    covered: Counter[int] = Counter()
    causes: dict[int, TidelogError] = {}
    for answer in answers:
        for each in answer.coordinators:
            if error := error_of(each):
                causes[each.partition] = error
            else:
                covered[each.partition] += 1
    silent = f"no node that answered leads it{f' ({failures[0].message})' if failures else ''}"
    gaps: list[TidelogError] = []
    for partition in range(count):
        cause = causes.get(partition)
        if covered[partition] == 1:
            continue
        if covered[partition] > 1:
            why = "it moved between nodes while they were asked"
        else:
            why = silent if cause is None else cause.message
        kind = (
            UnreadableCoordinatorRecord if isinstance(cause, UnreadableCoordinatorRecord) else CoordinatorNotAvailable
        )
        gaps.append(
            kind(
                f"what partition {topic}-{partition} coordinates is missing from the listing: {why}; check its leader "
                f"with `tidelog topic describe {topic}`"
            )
        )
    return gaps
