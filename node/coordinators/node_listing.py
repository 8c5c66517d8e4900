"""A listing of the groups or transactional ids of all coordinators of this node. The answer names the coordinators.

From these names a client that queries all nodes sees whether a coordinator is missing: because it moves or loads during
the queries, or because its partition cannot be read.
Not here: the client's part (tidelog/client/coordinator_listing.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
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
from tidelog.values import dataclass

Result = TypeVar("Result")

COORDINATOR_ERRORS: Final = (
    NotCoordinator,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    RequestTimedOut,
    UnreadableCoordinatorRecord,
)
"""Errors of one coordinator that say nothing about the request: the answers of the others are still used."""


@dataclass(frozen=True, slots=True)
class CoordinatorListing:
    """The answers of the coordinators of a node."""

    answers: list[Any]
    """The answers of the coordinators that have answered."""
    coordinators: tuple[ListedCoordinator, ...]
    """All coordinators whose partition this node leads, by partition."""
    partition_count: int
    """Number of partitions of the internal topic; 0 if it does not exist according to this node's metadata."""


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
    that have not begun to lead, that load or that cannot read their partition are named with their error. Any other
    error of a coordinator, for example about a wrong request, is raised."""

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
