"""The handler of DeleteRecords: it deletes the first records of partitions that this node leads.

Not here: which offsets may be deleted, and which replicas an answer waits for (replication/partition/leader.py).
Source: KIP-107; Kafka's ReplicaManager.deleteRecords and Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from node.api.deletions import DeletedRecords, DeleteRecordsAnswer, DeleteRecordsRequest, PartitionDeletion
from node.api.table import DATA_DELETE_RECORDS
from node.replicas.leader_replica import DeletionDone
from node.replicas.replica import Replica
from node.replicas.replica_manager import ReplicaManager
from node.requests.context import RequestContext
from node.requests.permitted import locate_permitted
from node.runtime.limits import ensure_few
from replication.controller.pinned_topics import ensure_unpinned
from tidelog.clock import Clock
from tidelog.errors import InvalidTopic, NodeShuttingDown, PolicyViolation, TidelogError
from tidelog.types import INTERNAL_TOPICS, NO_LEADER_EPOCH, Millis, Offset

DELETIONS_PER_TURN: Final = 100
"""Deletions that begin in one turn of the loop: some ms."""


class _DeletionOutcomes:
    """The outcomes of the deletions of one request."""

    def __init__(self, deletions: tuple[PartitionDeletion, ...]) -> None:
        self._deletions = deletions
        self._found: dict[int, DeletedRecords] = {}
        self._complete = asyncio.Event()

    def add(self, number: int, low_watermark: Offset, error: TidelogError | None) -> None:
        """Note the outcome of one deletion."""
        deletion = self._deletions[number]
        self._found[number] = DeletedRecords(deletion.topic_id, deletion.partition, error, low_watermark)
        if len(self._found) == len(self._deletions):
            self._complete.set()

    async def answer(self) -> DeleteRecordsAnswer:
        """Return the answer once all outcomes are known."""
        if self._deletions:
            await self._complete.wait()
        return DeleteRecordsAnswer(tuple(self._found[number] for number in range(len(self._deletions))))


class DeletionHandlers:
    """The handlers, one method for each API."""

    def __init__(self, manager: ReplicaManager, clock: Clock, wait_ms_max: int) -> None:
        """wait_ms_max: how long a request may wait at most for other replicas."""
        self._manager, self._clock, self._wait_ms_max = manager, clock, wait_ms_max

    async def delete_records(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsAnswer:
        """Delete records; answer when every replica that counts has deleted them, or at the timeout. Raises
        InvalidRequest for too many partitions."""
        ensure_few(request.partitions, "partitions")
        deadline = Millis(self._clock.monotonic_ms() + max(0, min(request.max_wait_ms, self._wait_ms_max)))
        outcomes = _DeletionOutcomes(request.partitions)
        for number, deletion in enumerate(request.partitions, 1):
            self._delete(deletion, deadline, partial(outcomes.add, number - 1), context)
            if number % DELETIONS_PER_TURN == 0:
                await self._clock.sleep_ms(0)
        return await outcomes.answer()

    def _delete(
        self, deletion: PartitionDeletion, deadline: Millis, done: DeletionDone, context: RequestContext
    ) -> None:
        replica: Replica | None = None

        def ended(low_watermark: Offset, error: TidelogError | None) -> None:
            if error is not None:
                error = self._manager.registry.with_leader(error, replica, context.listener)
            done(low_watermark, error)

        try:
            replica = locate_permitted(
                self._manager, context, DATA_DELETE_RECORDS, deletion.topic_id, deletion.partition
            )
            self._begin(replica, deletion.offset, deadline, ended)
        except TidelogError as error:
            ended(Offset(-1), error)

    def _begin(self, replica: Replica, offset: Offset, deadline: Millis, done: DeletionDone) -> None:
        """Begin a deletion. Raises the reason if it is refused."""
        if self._manager.stopping:
            raise NodeShuttingDown("the node is stopping and deletes no records: send to the next leader")
        topic = replica.name.topic
        if topic in INTERNAL_TOPICS:
            raise InvalidTopic(f"{topic} is an internal topic: its records cannot be deleted")
        leader = replica.leading_in(NO_LEADER_EPOCH)
        if not replica.log.config.delete:
            raise PolicyViolation(
                f"records of {replica} cannot be deleted: cleanup.policy of {topic} is compact; a tombstone removes "
                "a key, cleanup.policy=compact,delete allows deletions"
            )
        if replica.log.pinned:
            image = self._manager.image
            ensure_unpinned(image, image.topics[replica.key.topic_id], f"records of {replica} cannot be deleted")
        leader.delete_records(offset, deadline=deadline, done=done)
