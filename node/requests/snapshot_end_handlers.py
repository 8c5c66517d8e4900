"""The handler of LookAtEnds: the present, committed end of partitions, for a topic snapshot.

Not here: why these ends make a consistent cut (topic_snapshot_handlers.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from node.api.marker_requests import PartitionId
from node.api.snapshot_requests import LookAtEndsAnswer, LookAtEndsRequest, PartitionEnd
from node.api.table import DATA_LOOK_AT_ENDS
from node.replicas.leader_replica import LeaderReplica
from node.replicas.replica import Replica
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from node.runtime.limits import ensure_few
from replication.controller.pinned_topics import compacted
from tidelog.clock import Clock
from tidelog.epochs import epoch_before
from tidelog.errors import NotLeaderOrFollower, RequestTimedOut, TidelogError
from tidelog.topic_snapshots import LeftOutProducer, SnapshotPartition
from tidelog.types import Millis, PartitionIndex

PAUSE_MS: Final = 2
"""Between two looks at what is waited for."""

WAIT_MS: Final = 1_000
"""How long a request waits for the metadata, and for the commit of the ends."""


class SnapshotEndHandlers:
    """The handler."""

    def __init__(self, manager: ReplicaManager, clock: Clock) -> None:
        self._manager, self._clock = manager, clock

    async def look_at_ends(self, request: LookAtEndsRequest, context: RequestContext) -> LookAtEndsAnswer:
        """State the log start of each replica and, where this node leads, the log end of the moment; answer when all of
        it is committed. A partition that cannot be answered gets its error."""
        context.ensure_for_nodes(DATA_LOOK_AT_ENDS)
        ensure_few(request.partitions, "partitions")
        deadline = Millis(self._clock.monotonic_ms() + WAIT_MS)
        looks = [await self._look(partition, request, deadline, context) for partition in request.partitions]
        return LookAtEndsAnswer(tuple([await self._committed(each, deadline) for each in looks]))

    async def _look(
        self, asked: PartitionId, request: LookAtEndsRequest, deadline: Millis, context: RequestContext
    ) -> tuple[PartitionEnd, Replica | None, LeaderReplica | None]:
        try:
            replica = self._manager.registry.locate(asked.topic_id, asked.partition, context.listener)
            await self._wait(
                lambda: self._manager.has_applied(replica.key, request.metadata_offset),
                f"{replica}: the metadata are not applied up to offset {request.metadata_offset}",
                deadline,
            )
            if request.metadata_offset > 0:
                await _moves_done(replica)
            if replica.follower is not None:
                start = replica.log.log_start_offset
                return PartitionEnd(asked.topic_id, asked.partition, None, start), None, None
            return _end_of(asked, replica), replica, replica.leader
        except TidelogError as error:
            return PartitionEnd(asked.topic_id, asked.partition, error), None, None

    async def _committed(
        self, look: tuple[PartitionEnd, Replica | None, LeaderReplica | None], deadline: Millis
    ) -> PartitionEnd:
        stated, replica, leader = look
        if replica is None or stated.end is None:
            return stated
        end = stated.end.end_offset
        try:
            # The log end and not the high watermark: a new leader may not know yet that a marker is committed, and an
            # end below it would tear the transaction.
            await self._wait(
                lambda: replica.leader is not leader or replica.log.high_watermark >= end,
                f"{replica}: the in-sync replicas have not confirmed all up to offset {end}",
                deadline,
            )
            if replica.leader is not leader:
                raise NotLeaderOrFollower(f"this node no longer leads {replica} in the epoch in which it stated an end")
        except TidelogError as error:
            return PartitionEnd(stated.topic_id, stated.partition, error)
        return stated

    async def _wait(self, condition: Callable[[], bool], unless: str, deadline: Millis) -> None:
        while not condition():
            if self._clock.monotonic_ms() >= deadline:
                raise RequestTimedOut(f"{unless} within {WAIT_MS} ms")
            await self._clock.sleep_ms(PAUSE_MS)


async def _moves_done(replica: Replica) -> None:
    """Return when no move of the log start is under way that was decided before the log was pinned."""
    done: asyncio.Future[TidelogError | None] = asyncio.get_running_loop().create_future()

    def settle(failure: TidelogError | None) -> None:
        if not done.done():
            done.set_result(failure)

    # To the present log start, that is nowhere: the changes of a directory are made in their order.
    replica.directory.changes.move_start(replica.log, replica.log.log_start_offset, settle)
    if (failure := await done) is not None:
        raise failure


def _end_of(asked: PartitionId, replica: Replica) -> PartitionEnd:
    leader = replica.leader
    if leader is None:
        raise NotLeaderOrFollower(f"{replica} has no leader at the moment, as far as this node knows")
    log = replica.log
    if log.config.compact:
        raise compacted(replica.name.topic)
    end = log.log_end_offset
    opened = sorted((producer_id, start) for start, producer_id in log.producers.state.open_transactions.items())
    return PartitionEnd(
        asked.topic_id,
        asked.partition,
        None,
        log.log_start_offset,
        leads=True,
        end=SnapshotPartition(
            PartitionIndex(asked.partition),
            log.log_start_offset,
            end,
            epoch_before(log.epochs.entries, end),
            leader.core.leader_epoch,
            tuple(LeftOutProducer(producer_id, start) for producer_id, start in opened),
        ),
    )
