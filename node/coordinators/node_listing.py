"""A listing of all that the coordinators of this node have: each of them is asked, and named in the answer.

A client that asks all nodes can tell from the names whether a coordinator is missing, because it moves or loads while
the nodes are asked, or because its partition cannot be read.
Not here: the client's part (tidelog/client/coordinator_listing.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from node.coordinators.runtime import CoordinatorRuntime
from replication.coordination.group_requests import ListedCoordinator
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
    RequestTimedOut,
    TidelogError,
    UnreadableCoordinatorRecord,
)
from tidelog.types import PartitionIndex

Result = TypeVar("Result")

COORDINATOR_ERRORS: Final = (
    NotCoordinator,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    RequestTimedOut,
    UnreadableCoordinatorRecord,
)
"""Errors that concern one coordinator, not what was asked: the others decide as if it had not been asked."""


@dataclass(frozen=True, slots=True)
class CoordinatorListing:
    """The answers of the coordinators of a node."""

    answers: list[Any]
    """Of the coordinators that answered."""
    coordinators: tuple[ListedCoordinator, ...]
    """All whose partition this node leads, by partition."""
    partition_count: int
    """Of the internal topic; 0 if it does not exist, as far as this node knows."""


async def all_of(calls: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results of concurrent calls. Raises the error of the first that failed."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(call) for call in calls]
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return [task.result() for task in running]


async def list_coordinators(runtime: CoordinatorRuntime, request: Any) -> CoordinatorListing:
    """Send the request to the coordinators of all partitions that this node leads according to its newest image. Those
    that have not begun to lead, that load or that cannot read their partition are named with their error. Raises every
    other error of a coordinator, as of a wrong request."""

    async def ask(partition: PartitionIndex) -> Any:
        try:
            return await runtime.submit(partition, request)
        except COORDINATOR_ERRORS as error:
            return error

    count, partitions = runtime.partition_count, runtime.led_partitions
    found = await all_of(ask(partition) for partition in partitions)
    coordinators = tuple(
        ListedCoordinator(partition, answer if isinstance(answer, TidelogError) else None)
        for partition, answer in zip(partitions, found, strict=True)
    )
    return CoordinatorListing([answer for answer in found if not isinstance(answer, TidelogError)], coordinators, count)
