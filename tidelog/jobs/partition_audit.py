"""Audits one partition: reads every replica directly, in lockstep, up to the high watermark of the leader.

Invariant: at most one answer of each replica (`FETCH_BYTES`) is in memory, with what is decoded of it.
Not here: comparing (replica_comparison.py), checks (replica_check.py, receipt_check.py), reports (audit.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tidelog.client.cluster import TopicView
from tidelog.client.replica_reader import WAIT_MS, ReplicaRead
from tidelog.clock import Clock
from tidelog.errors import (
    ConnectionFailed,
    CorruptLog,
    CorruptRecord,
    NodeNotAvailable,
    RequestTimedOut,
    TidelogError,
    TopicAuthorizationFailed,
)
from tidelog.jobs.receipt_check import FiledReceipt, ReceiptCheck, ReceiptVerdict
from tidelog.jobs.replica_check import ReplicaCheck, ReplicaProblem, audited_batch, audited_records, batches_of
from tidelog.jobs.replica_comparison import AuditedRecord, BatchComparison, CompactedComparison, Difference
from tidelog.jobs.stored_replicas import AuditedReplicas
from tidelog.records.v2.batch import RecordBatch
from tidelog.types import NodeId, Offset, TopicPartition

CLEANUP_POLICY: Final = "cleanup.policy"

READ = "read"
LAGGING = "lagging"
OFFLINE = "offline"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What one replica has."""

    node: NodeId
    state: str
    """read (to the end of the audit), lagging (its high watermark stays below), offline (its node is not alive),
    unreadable."""
    note: str
    """Why it is not read."""
    log_start: Offset
    """-1: unknown."""
    high_watermark: Offset
    """-1: unknown."""
    checked_to: Offset
    """Offsets below were checked; -1: none."""
    batches: int
    bytes: int
    problem_count: int
    """Problems in this replica by itself."""
    problems: tuple[ReplicaProblem, ...]
    """The first ones."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """What was found in one partition: offsets `start` to `end` - 1."""

    topic: str
    topic_id: UUID
    partition: int
    leader: NodeId
    leader_epoch: int
    start: Offset
    end: Offset
    compacted: bool
    compared: int
    """Batches (compacted topics: records) that were compared on at least two replicas."""
    difference: Difference | None
    uncompared_keys: int
    """Number of keys of a compacted topic that were not compared because of the memory limit."""
    replicas: tuple[ReplicaReport, ...]
    receipts: tuple[ReceiptVerdict, ...] = field(repr=False)

    @property
    def is_well(self) -> bool:
        """True if nothing was found, and at least one replica was read to the end."""
        return (
            self.difference is None
            and not self.uncompared_keys
            and not any(replica.problem_count or replica.state == UNREADABLE for replica in self.replicas)
            and any(replica.state == READ for replica in self.replicas)
            and not any(each.verdict.is_failure for each in self.receipts)
        )


class _ReplicaStream:
    """One replica while it is read."""

    def __init__(self, node: NodeId, *, compacted: bool) -> None:
        self.node = node
        self.check = ReplicaCheck(compacted=compacted)
        self.state, self.note = READ, ""
        self.log_start = self.high_watermark = self.position = Offset(-1)
        self.ready: ReplicaRead | None = None
        """An answer that is not used yet."""
        self.ended = False
        self.refused: TopicAuthorizationFailed | None = None

    def fail(self, error: TidelogError) -> None:
        """The replica cannot be read any further."""
        is_away = isinstance(error, ConnectionFailed | NodeNotAvailable | RequestTimedOut)
        self.state, self.note, self.ended = OFFLINE if is_away else UNREADABLE, error.message, True
        if isinstance(error, TopicAuthorizationFailed):
            self.refused = error
        if isinstance(error, CorruptLog | CorruptRecord):
            self.check.note(max(self.position, Offset(0)), "records", error.message)

    def report(self) -> ReplicaReport:
        check = self.check
        return ReplicaReport(
            self.node,
            self.state,
            self.note,
            self.log_start,
            self.high_watermark,
            self.position,
            check.batches,
            check.size,
            check.problem_count,
            tuple(check.problems),
        )


class PartitionAudit:
    """The audit of one partition. Use `run` once."""

    def __init__(
        self,
        reader: AuditedReplicas,
        clock: Clock,
        topic: TopicView,
        index: int,
        receipts: Sequence[FiledReceipt],
        *,
        from_receipts: bool,
        patience_ms: int,
    ) -> None:
        """from_receipts: begin at the first receipt, not at the log start. patience_ms: how long a replica may show
        nothing below the high watermark of the leader before it counts as lagging."""
        self._reader, self._clock, self._topic, self._patience_ms = reader, clock, topic, patience_ms
        self._partition = topic.partitions[index]
        self._key = TopicPartition(topic.name, index)
        self._compacted = "compact" in topic.configs.get(CLEANUP_POLICY, "delete")
        self._receipts = ReceiptCheck(receipts, compacted=self._compacted)
        self._from = min((each.receipt.base_offset for each in receipts), default=Offset(0)) if from_receipts else None
        self._streams = {
            node: _ReplicaStream(node, compacted=self._compacted) for node in sorted(self._partition.replicas)
        }
        self._start = self._end = Offset(0)

    async def run(self) -> PartitionReport:
        """Read and compare all replicas."""
        await self._probe()
        readable = [stream for stream in self._streams.values() if not stream.ended]
        nodes = [stream.node for stream in readable]
        comparison: BatchComparison | CompactedComparison
        comparison = CompactedComparison(nodes) if self._compacted else BatchComparison(nodes)
        leader = self._streams.get(self._partition.leader)
        if readable:
            self._start = Offset(max(self._from or 0, min(stream.log_start for stream in readable)))
            highest = max(stream.high_watermark for stream in readable)
            self._end = leader.high_watermark if leader is not None and not leader.ended else highest
            for stream in readable:
                self._begin_at(stream, Offset(max(self._start, stream.log_start)), comparison)
        while not all(stream.ended for stream in readable):
            await self._step(readable, comparison)
        comparison.finish()
        return self._report(comparison, leader)

    def _begin_at(
        self, stream: _ReplicaStream, start: Offset, comparison: BatchComparison | CompactedComparison
    ) -> None:
        stream.position = start
        stream.check.skip_to(start)
        comparison.begin_at(stream.node, start)

    async def _probe(self) -> None:
        """Learn log start and high watermark of every replica. Raises TopicAuthorizationFailed."""
        async with asyncio.TaskGroup() as tasks:
            for stream in self._streams.values():
                if stream.node not in self._reader.view.nodes:
                    stream.state, stream.ended = OFFLINE, True
                    stream.note = f"node {stream.node} is not alive"
                else:
                    tasks.create_task(self._probe_one(stream))
        for stream in self._streams.values():
            if stream.refused is not None:
                raise stream.refused

    async def _probe_one(self, stream: _ReplicaStream) -> None:
        try:
            read = await self._read(stream, self._from or Offset(0))
            if read.is_below_start:
                read = await self._read(stream, read.log_start)
        except TidelogError as error:
            stream.fail(error)
            return
        stream.log_start, stream.high_watermark = read.log_start, read.high_watermark

    async def _read(self, stream: _ReplicaStream, offset: Offset, *, wait_ms: int = 0) -> ReplicaRead:
        return await self._reader.read(
            stream.node, self._topic, self._key, offset, patience_ms=self._patience_ms, wait_ms=wait_ms
        )

    async def _step(
        self, readable: Sequence[_ReplicaStream], comparison: BatchComparison | CompactedComparison
    ) -> None:
        """Read the replicas that the comparison waits for; after a difference, each by itself."""
        hungry = set(comparison.hungry())
        due = [stream for stream in readable if not stream.ended and (not hungry or stream.node in hungry)]
        async with asyncio.TaskGroup() as tasks:
            for stream in due:
                tasks.create_task(self._fill(stream))
        for stream in due:
            self._take(stream, comparison)

    async def _fill(self, stream: _ReplicaStream) -> None:
        """Get the next answer of a replica. It lags if it shows nothing for `patience_ms`."""
        if stream.position >= self._end:
            return
        start = self._clock.monotonic_ms()
        try:
            while True:
                read = stream.ready = await self._read(stream, stream.position, wait_ms=WAIT_MS)
                stream.log_start = max(stream.log_start, read.log_start)
                stream.high_watermark = max(stream.high_watermark, read.high_watermark)
                if read.is_below_start or len(read.records):
                    return
                if self._clock.monotonic_ms() - start >= self._patience_ms:
                    break
            if read.high_watermark < self._end:
                stream.state = LAGGING
                stream.note = f"its high watermark stays at {read.high_watermark}, the leader's was {self._end}"
        except TidelogError as error:
            stream.fail(error)

    def _take(self, stream: _ReplicaStream, comparison: BatchComparison | CompactedComparison) -> None:
        """Check and compare the answer of a replica."""
        read, stream.ready = stream.ready, None
        if read is not None and read.is_below_start and not stream.ended:
            self._begin_at(stream, read.log_start, comparison)  # retention has removed the next records
            return
        if read is not None and not stream.ended:
            try:
                self._take_batches(stream, read, comparison)
            except TidelogError as error:
                stream.fail(error)
        is_at_end = stream.position >= self._end or (read is not None and not len(read.records))
        if is_at_end and not stream.ended:
            stream.check.end_at(min(self._end, stream.high_watermark))
            if stream.state == READ:
                stream.position = self._end
            stream.ended = True
        if stream.ended:
            # What the replica did not show is unknown from here on: one that lags must not be called different.
            comparison.close(stream.node, stream.position)

    def _take_batches(
        self, stream: _ReplicaStream, read: ReplicaRead, comparison: BatchComparison | CompactedComparison
    ) -> None:
        batches = [each for each in batches_of(read.records) if stream.position <= each.last_offset]
        batches = [each for each in batches if each.header.base_offset < self._end]
        if not batches and len(read.records):
            stream.position = self._end  # compaction has removed the rest of the records below the end
        records: list[AuditedRecord] = []
        for batch in batches:
            is_valid = stream.check.check(batch)
            found = self._records_of(stream, batch) if self._compacted and is_valid else []
            offsets = {record.offset for record in found} if self._compacted and is_valid else None
            self._receipts.note(stream.node, batch, is_valid=is_valid, offsets=offsets)
            records += [record for record in found if stream.position <= record.offset < self._end]
            stream.position = Offset(max(stream.position, batch.last_offset + 1))
        if isinstance(comparison, CompactedComparison):
            comparison.feed(stream.node, records)
        else:
            comparison.feed(stream.node, [audited_batch(batch) for batch in batches])

    def _records_of(self, stream: _ReplicaStream, batch: RecordBatch) -> list[AuditedRecord]:
        try:
            return audited_records(batch)
        except TidelogError as error:
            stream.check.note(batch.header.base_offset, "records", error.message)
            return []

    def _report(
        self, comparison: BatchComparison | CompactedComparison, leader: _ReplicaStream | None
    ) -> PartitionReport:
        streams = list(self._streams.values())
        known = [stream.log_start for stream in streams if stream.log_start >= 0]
        leads = leader is not None and leader.log_start >= 0
        log_start = leader.log_start if leader is not None and leads else min(known, default=Offset(0))
        read = [stream.node for stream in streams if stream.state == READ]
        judge = leader.node if leader is not None and leads else None
        verdicts = self._receipts.verdicts(judge, read, log_start, self._end)
        return PartitionReport(
            self._topic.name,
            self._topic.topic_id,
            self._key.partition,
            self._partition.leader,
            self._partition.leader_epoch,
            self._start,
            self._end,
            self._compacted,
            comparison.compared,
            comparison.difference,
            comparison.uncompared_keys if isinstance(comparison, CompactedComparison) else 0,
            tuple(stream.report() for stream in streams),
            tuple(verdicts),
        )
