"""The node's replica of the metadata log, and the cluster image that results from its committed records.

Invariants:
  1. `image` contains committed records only. It advances by whole batches and never goes back.
  2. Each append requests an fsync at once. `on_moved` reports when the durable offset advances.
  3. Committed records are never truncated.

Not here: when to append and what is committed (node/quorum/driver.py, node/quorum/fetcher.py), the meaning of records
(replication/controller/).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from node.config import SNAPSHOT_BYTES
from node.metadata.metadata_codec import MetadataBatch, decode_batches, encode_batch
from node.metadata.metadata_snapshots import MetadataSnapshots, decode_snapshot, encode_snapshot
from node.runtime.work import run_in
from replication.controller.image import EMPTY, ClusterImage, advance, apply
from replication.controller.metadata_records import MetadataRecord, VotersRecord
from replication.raft.log_view import MetadataLogView, SnapshotId
from replication.raft.voters import Voter, VoterSet
from storage.append_info import Origin
from storage.directory.group_commit import GroupCommit
from storage.directory.log_directory import LogDirectory
from storage.files.disk_executor import Executor
from storage.log.log import Log
from storage.log_config import LogConfig
from tidelog.clock import Clock
from tidelog.errors import CorruptLog, CorruptRecord, DiskFull, TidelogError
from tidelog.records import LeaderChange, control_batch
from tidelog.types import (
    METADATA_TOPIC,
    Buffer,
    EpochStart,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
    TopicPartition,
)

_log = logging.getLogger("node.metadata")

METADATA: Final = TopicPartition(METADATA_TOPIC, PartitionIndex(0))
METADATA_TOPIC_ID: Final = TopicId(UUID(int=1))
"""The fixed topic id of the metadata log, as in KRaft."""

METADATA_KEY: Final = PartitionKey(METADATA_TOPIC_ID, METADATA.partition)

BATCH_BYTES_MAX: Final = 64 << 20
"""A batch is one atomic change. The largest one creates a topic of 10,000 partitions and has about 2 MB."""

READ_BYTES: Final = 4 << 20

SEGMENT_BYTES: Final = 64 << 20
"""After a snapshot, only whole segments are deleted."""

T = TypeVar("T")


def open_log(directory: LogDirectory) -> Log:
    """The metadata log of a log directory; created if there never was one. Recovery reads it, which may take long.

    Raises CorruptLog if the directory has lost its log: other nodes rely on its records and on this node's vote. Raises
    KafkaStorageError, DiskFull.
    """
    config = LogConfig(
        max_message_bytes=BATCH_BYTES_MAX, segment_bytes=SEGMENT_BYTES, delete=False
    )  # snapshots replace its start
    logs = directory.load_logs(lambda _name, _id: config, only=lambda name: name == METADATA)
    log = logs.get(METADATA)
    lost = directory.is_gone(METADATA_KEY)
    if lost is not None:
        raise CorruptLog(
            f"{directory.path} has lost its metadata log, which reached offset {lost.end_offset} ({lost.reason}), and "
            "with it the record of how this node voted. Restore the directory, or start the node with an empty log "
            "directory; it then joins as a new replica"
        )
    return directory.create_log(METADATA, METADATA_TOPIC_ID, config) if log is None else log


class MetadataLog:
    """The replica of the metadata log. Runs on the event loop; fsyncs and snapshot files run on the executor."""

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock,
        executor: Executor,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        on_moved: Callable[[], None] = lambda: None,
        on_full: Callable[[DiskFull], None] = lambda _error: None,
    ) -> None:
        """log: open and recovered.
        executor: runs its fsyncs.
        snapshot_bytes: bytes appended between two snapshots.
        on_moved: called when the log's end, durable offset, high watermark or voters change.
        on_full: called when a flush fails on a full disk; the next append requests another flush.
        Raises CorruptLog, UnsupportedVersion, KafkaStorageError."""
        self.log = log
        self._executor, self._snapshot_bytes = executor, snapshot_bytes
        self._bytes_since_snapshot = 0
        self.snapshots = self._guard("listing", lambda: MetadataSnapshots(log.files, log.path))
        self.image = EMPTY
        self.failure: BaseException | None = None
        """The error that made the log unusable; None while it is usable."""
        self._on_moved, self._on_full = on_moved, on_full
        self._clock = clock
        self._one_snapshot = asyncio.Lock()
        """Locked while a snapshot, the node's own or the leader's, is written and put in place."""
        self._commit = GroupCommit(executor, self._durable_moved, self._flush_failed)
        self._pending: deque[MetadataBatch] = deque()
        """The batches that are not applied to the image yet, in order."""
        self._subscribers: list[Callable[[ClusterImage], None]] = []
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._read_back()

    # --- reading --------------------------------------------------------------------------------------------------

    @property
    def end(self) -> Offset:
        """One past the last record."""
        return self.log.log_end_offset

    @property
    def durable_offset(self) -> Offset:
        """All records below it are fsynced."""
        return self.log.durable_offset

    @property
    def high_watermark(self) -> Offset:
        """All records below it are known to be committed."""
        return self.log.high_watermark

    def replayed(self) -> ClusterImage:
        """The image of the whole log, committed or not."""
        image = self.image
        for batch in self._pending:
            image = _apply(image, batch)
        return image

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters of the last voters record in the log, committed or not; empty before the first."""
        return self._voters()[0]

    def view(self) -> MetadataLogView:
        """The state of the log, for the rules of the quorum."""
        log = self.log
        voters, end, before = self._voters()
        return MetadataLogView(
            log.log_start_offset,
            log.log_end_offset,
            log.durable_offset,
            log.high_watermark,
            log.epochs.entries,
            VoterSet.of(voters),
            end,
            self.snapshots.latest,
            VoterSet.of(before),
        )

    def _voters(self) -> tuple[tuple[Voter, ...], Offset, tuple[Voter, ...]]:
        """The newest voters, the offset after their record (0 if that is applied), and the voters before them."""
        newest_first = (
            (record.voters, Offset(offset + 1))
            for batch in reversed(self._pending)
            for offset, record in reversed(batch.records)
            if isinstance(record, VotersRecord)
        )
        applied = (self.image.voters, Offset(0))
        newest, end = next(newest_first, applied)
        before = next(newest_first, applied)[0]
        return newest, end, before

    def subscribe(self, on_image: Callable[[ClusterImage], None]) -> None:
        """Call `on_image` with each new committed image, on the event loop, and with the present one now, if any."""
        self._subscribers.append(on_image)
        if self.image is not EMPTY:
            on_image(self.image)

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Return once `reached()` is true. It is evaluated whenever the log's end, durable offset or high watermark
        changes. Raises the error that made the log unusable."""
        while True:
            if self.failure is not None:
                raise self.failure
            if reached():
                return
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = None
            try:
                await waiter
            finally:
                self._waiting.pop(waiter, None)

    def wake(self) -> None:
        """Let every `wait_until` evaluate its condition again."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    # --- writing --------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[MetadataRecord], leader_epoch: LeaderEpoch) -> MetadataBatch:
        """As leader, append one atomic batch. Raises DiskFull, KafkaStorageError."""
        data = encode_batch(records, leader_epoch=leader_epoch, timestamp=self._clock.wall_ms())
        base = self.end
        located = tuple((Offset(base + index), record) for index, record in enumerate(records))
        return self._append_own(data, leader_epoch, located)

    def append_leader_change(self, change: LeaderChange, leader_epoch: LeaderEpoch) -> MetadataBatch:
        """As leader, append the control record that opens its epoch. Raises DiskFull, KafkaStorageError."""
        return self._append_own(control_batch(change, timestamp=self._clock.wall_ms()), leader_epoch, ())

    def _append_own(
        self, data: bytes, leader_epoch: LeaderEpoch, located: tuple[tuple[Offset, MetadataRecord], ...]
    ) -> MetadataBatch:
        info = self.log.append(data, assign_offsets=True, leader_epoch=leader_epoch, origin=Origin.COORDINATOR)
        batch = MetadataBatch(info.first_offset, self.end, leader_epoch, located)
        self._appended([batch], len(data))
        return batch

    def append_fetched(self, records: Buffer, epochs: Sequence[EpochStart], leader_epoch: LeaderEpoch) -> None:
        """As follower or observer, append whole batches of the leader with its epoch entries for their range.

        Raises CorruptRecord, also for a batch of a later epoch than the leader's; CorruptLog, OffsetsNotMonotonic,
        UnsupportedVersion, DiskFull, KafkaStorageError. Nothing is appended then.
        """
        batches = list(decode_batches(records))
        if not batches:
            return
        latest = max(batch.leader_epoch for batch in batches)
        if latest > leader_epoch:
            raise CorruptRecord(f"the leader of epoch {leader_epoch} sent a batch of epoch {latest}: it is faulty")
        self.log.append(
            records,
            assign_offsets=False,
            leader_epoch=batches[-1].leader_epoch,
            origin=Origin.REPLICATION,
            epochs=epochs,
        )
        self._appended(batches, len(records))

    def _appended(self, batches: list[MetadataBatch], size: int) -> None:
        self._pending.extend(batches)
        self._bytes_since_snapshot += size
        self._commit.request(self.log)
        self._moved()

    def commit(self, offset: Offset) -> None:
        """Apply the records below `offset`, which are committed, and publish the new image."""
        if not self.log.advance_high_watermark(offset):
            return
        self._apply_committed()
        self._moved()

    def truncate_to(self, offset: Offset) -> None:
        """Truncate the log to `offset`: the leader's log differs from there on.

        Raises CorruptLog if committed records would be lost, KafkaStorageError, DiskFull.
        """
        # A correct leader has all committed records: truncating them would hide that its log was lost.
        if offset < self.image.offset:
            raise CorruptLog(
                f"the quorum's leader lacks metadata from offset {offset} on, but metadata up to "
                f"{self.image.offset} was committed: its log was lost or put back from an old copy. Restore the "
                "leader's metadata directory"
            )
        self.log.truncate_to(offset)
        while self._pending and self._pending[-1].end > self.end:
            self._pending.pop()
        self._moved()

    def request_flush(self) -> None:
        """Request another flush, after one that failed on a full disk."""
        self._commit.request(self.log)

    def empty(self) -> None:
        """Remove all records of a damaged replica, which is then fetched again. Raises KafkaStorageError, DiskFull."""
        self.log.truncate_fully_and_start_at(Offset(0))
        self._pending.clear()
        self.log.high_watermark = Offset(0)
        self.image = EMPTY

    def _moved(self) -> None:
        self._on_moved()
        self.wake()

    # --- snapshots ------------------------------------------------------------------------------------------------

    @property
    def is_snapshot_due(self) -> bool:
        """True if the log has grown by `snapshot_bytes` and has committed records that no snapshot contains."""
        latest = self.snapshots.latest
        done = Offset(0) if latest is None else latest.end_offset
        return self._bytes_since_snapshot >= self._snapshot_bytes and self.image.offset > done

    async def write_snapshot(self) -> None:
        """Write a snapshot of the committed image and delete segments below it. Raises KafkaStorageError, DiskFull."""
        async with self._one_snapshot:
            if self.is_snapshot_due:  # a snapshot of the leader may have been installed meanwhile
                await self._write_own()

    async def _write_own(self) -> None:
        image, stamped = self.image, self._clock.wall_ms()
        entries = [entry for entry in self.log.epochs.entries if entry.start_offset < image.offset]
        latest = self.snapshots.latest
        # Without an entry below, the log begins at the latest snapshot, whose epoch is then still that of the image.
        snapshot = SnapshotId(image.offset, entries[-1].epoch if entries or latest is None else latest.epoch)
        await self._write(snapshot, lambda: encode_snapshot(image, snapshot.epoch, stamped))
        self._keep(snapshot)
        self._bytes_since_snapshot = 0
        await self._drop_before(snapshot.end_offset)
        self._moved()

    async def _drop_before(self, offset: Offset) -> None:
        """Delete the segments below a snapshot. Raises KafkaStorageError, DiskFull."""
        dropped: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(failure: TidelogError | None) -> None:
            if dropped.done():
                return
            if failure is None:
                dropped.set_result(None)
            else:
                dropped.set_exception(failure)

        self.log.directory.drop_before(self.log, offset, done)
        await dropped

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> tuple[int, bytes]:
        """The size of a snapshot in bytes, and a part of it. Raises OffsetOutOfRange if it no longer exists,
        InvalidRequest, KafkaStorageError."""
        return self._guard("reading a snapshot in", lambda: self.snapshots.read(snapshot, position, max_bytes))

    async def install_snapshot(self, snapshot: SnapshotId, data: bytes, still_leads: Callable[[], bool]) -> None:
        """Install a snapshot of the leader and restart the log after it. The snapshot may end where this image ends: no
        record after it agrees with the leader's log.

        still_leads: False once a newer leader epoch is known; the log is then left unchanged. Raises CorruptLog,
        UnsupportedVersion, KafkaStorageError, DiskFull.
        """
        image = decode_snapshot(data, snapshot)
        async with self._one_snapshot:
            if image.offset < self.image.offset:  # records were committed meanwhile: the image must not go back
                return
            await self._write(snapshot, lambda: data)
            # If this node was elected during the write, its log has records of its own epoch: they stay.
            if still_leads():
                self._begin_after(snapshot, image)

    def _begin_after(self, snapshot: SnapshotId, image: ClusterImage) -> None:
        self._keep(snapshot)
        self.log.truncate_fully_and_start_at(snapshot.end_offset)
        self._pending.clear()
        self._bytes_since_snapshot = 0
        if image.offset > self.image.offset:
            self._publish(image)
        self._moved()

    def _keep(self, snapshot: SnapshotId) -> None:
        """Make this snapshot the latest one and delete older ones in the background."""
        self.snapshots.latest = snapshot

        def done(result: object) -> None:
            if isinstance(result, OSError):
                _log.warning(
                    "%s", self.log.directory.fail(f"removing older snapshots in {self.log.path}", result).message
                )

        self._executor.submit(lambda: self.snapshots.remove_older(snapshot), done)

    async def _write(self, snapshot: SnapshotId, make: Callable[[], bytes]) -> None:
        try:
            await run_in(self._executor, lambda: self.snapshots.write(snapshot, make()))
        except OSError as error:
            raise self.log.directory.fail(f"writing a snapshot in {self.log.path}", error) from error

    # --- state ---------------------------------------------------------------------------------------------------

    def _read_back(self) -> None:
        """Load the latest snapshot and the log after it. The first image contains what was known to be committed."""
        snapshot = self.snapshots.latest
        if snapshot is not None:
            self.image = self._guard("reading a snapshot in", lambda: self.snapshots.load(snapshot))
            # The process ended after a fetched snapshot was written and before the log was restarted after it.
            if not self._reaches(snapshot):
                _log.warning(
                    "%s does not match its snapshot of offset %d: the log restarts after the snapshot",
                    self.log.path,
                    snapshot.end_offset,
                )
                self.log.truncate_fully_and_start_at(snapshot.end_offset)
            self.log.advance_high_watermark(snapshot.end_offset)
        position = max(self.log.log_start_offset, self.image.offset)
        if position > self.image.offset:
            raise CorruptLog(
                f"the metadata log in {self.log.path} begins at offset {position}, and no snapshot covers the metadata "
                "before it: restore the directory, or start the node with an empty log directory"
            )
        # What follows damage is fetched again: applying it would make an image that lacks the damaged records.
        end = self.end if self.log.damage is None else min(self.end, self.log.damage.first_offset)
        while position < end:
            read = self.log.read(position, READ_BYTES, up_to=end)
            self._pending.extend(decode_batches(read.records))
            self._bytes_since_snapshot += len(read.records)
            position = read.next_offset
        self._apply_committed()

    def _reaches(self, snapshot: SnapshotId) -> bool:
        """True if the log contains the records of a snapshot or begins after it. A log of which this is false may still
        be longer than the snapshot, with records that no other replica has."""
        log, end = self.log, snapshot.end_offset
        if log.log_end_offset < end or log.log_start_offset >= end or log.damage is not None:
            return log.log_end_offset >= end
        below = [entry.epoch for entry in log.epochs.entries if entry.start_offset < end]
        # Without an entry below, the log began after the snapshot, and only the record of its start was lost.
        return not below or below[-1] == snapshot.epoch

    def _guard(self, doing: str, work: Callable[[], T]) -> T:
        try:
            return work()
        except OSError as error:
            raise self.log.directory.fail(f"{doing} {self.log.path}", error) from error

    def _apply_committed(self) -> None:
        image = self.image
        while self._pending and self._pending[0].end <= self.high_watermark:
            image = _apply(image, self._pending.popleft())
        if image is not self.image:
            self._publish(image)

    def _publish(self, image: ClusterImage) -> None:
        self.image = image
        for subscriber in list(self._subscribers):
            subscriber(image)

    def _durable_moved(self, _log: Log) -> None:
        self._moved()

    def _flush_failed(self, error: BaseException) -> None:
        """Stop using the replica: after a failed fsync the contents on disk are unknown. A full disk is only
        reported."""
        if isinstance(error, DiskFull):
            _log.error("the metadata log cannot be flushed for now: %s", error.message)
            self._on_full(error)
            return
        _log.error("the metadata log cannot be flushed, its contents on disk are unknown; the node stops: %s", error)
        self.failure = error
        self.wake()


def _apply(image: ClusterImage, batch: MetadataBatch) -> ClusterImage:
    return advance(apply(image, batch.records), batch.end)
