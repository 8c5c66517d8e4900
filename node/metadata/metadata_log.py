"""This node's replica of the metadata log, and the cluster image that its committed part makes.

Kept true:
  1. `image` is made of committed records only, batch by batch, and goes forward only.
  2. What is appended is asked to be fsynced at once; `on_moved` tells when the log holds more.
  3. Nothing committed is ever cut.

Left to others: who appends and what is committed (driver.py, fetcher.py), what records say
(replication/).
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
from node.runtime.clock import Clock
from node.runtime.work import run_in
from replication.controller.image import EMPTY, ClusterImage, advance, apply
from replication.controller.metadata import MetadataRecord, VotersRecord
from replication.raft.log_view import MetadataLogView, SnapshotId
from replication.raft.voters import Voter, VoterSet
from storage.append_info import Origin
from storage.config import LogConfig
from storage.directory.group_commit import GroupCommit
from storage.directory.log_directory import LogDirectory
from storage.files.executor import Executor
from storage.files.file_system import Buffer
from storage.log.log import Log
from tidelog.errors import CorruptLog, CorruptRecord, DiskFull, TidelogError
from tidelog.records import LeaderChange, control_batch
from tidelog.types import (
    METADATA_TOPIC,
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
"""A batch is one atomic change; the largest, a topic of 10,000 partitions, has some 2 MB."""

READ_BYTES: Final = 4 << 20

SEGMENT_BYTES: Final = 64 << 20
"""Dropped behind a snapshot are whole segments only."""

T = TypeVar("T")


def open_log(directory: LogDirectory) -> Log:
    """The metadata log of a log directory, made where there is none. May take long: recovery reads it.

    Raises CorruptLog where there was one, since what it had and how this node voted is promised to others;
    KafkaStorageError, DiskFull.
    """
    config = LogConfig(
        max_message_bytes=BATCH_BYTES_MAX, segment_bytes=SEGMENT_BYTES, delete=False
    )  # snapshots shorten it
    logs = directory.load_logs(lambda _name, _id: config, only=lambda name: name == METADATA)
    found = logs.get(METADATA)
    gone = directory.is_gone(METADATA_KEY)
    if gone is not None:
        raise CorruptLog(
            f"{directory.path} has lost its metadata log, which reached offset {gone.end_offset} ({gone.reason}), and "
            "with it how this node voted: give that directory back, or start the node with an empty log "
            "directory: then it "
            "joins anew"
        )
    return directory.create_log(METADATA, METADATA_TOPIC_ID, config) if found is None else found


class MetadataLog:
    """See the module's words. All on the loop; only fsyncs run elsewhere."""

    def __init__(self, log: Log, *, clock: Clock, executor: Executor, snapshot_bytes: int = SNAPSHOT_BYTES) -> None:
        """log: open and recovered. executor: where it is fsynced. snapshot_bytes: from one snapshot to the next.
        Raises CorruptLog, UnsupportedVersion, KafkaStorageError."""
        self.log = log
        self._executor, self._snapshot_bytes = executor, snapshot_bytes
        self._bytes_since_snapshot = 0
        self.snapshots = self._guard("listing", lambda: MetadataSnapshots(log.files, log.path))
        self.image = EMPTY
        self.failure: BaseException | None = None
        """What made the log unusable: a failed fsync."""
        self.on_moved: Callable[[], None] = _nothing
        """Told when the log's end, what it holds, its watermark or its voters have moved."""
        self.on_full: Callable[[DiskFull], None] = _ignore
        """A flush found no room for a file beside the log: the next append asks for another."""
        self._clock = clock
        self._one_snapshot = asyncio.Lock()
        """One at a time is written and takes its place: the node's own, or the leader's."""
        self._commit = GroupCommit(executor, self._durable_moved, self._flush_failed)
        self._pending: deque[MetadataBatch] = deque()
        self._subscribers: list[Callable[[ClusterImage], None]] = []
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._read_back()

    # --- looking --------------------------------------------------------------------------------------------------

    @property
    def end(self) -> Offset:
        """One past the last record."""
        return self.log.log_end_offset

    @property
    def durable_offset(self) -> Offset:
        """Everything below is fsynced."""
        return self.log.durable_offset

    @property
    def high_watermark(self) -> Offset:
        """Everything below is committed, as far as this node knows."""
        return self.log.high_watermark

    def replayed(self) -> ClusterImage:
        """The image of the whole log, committed or not."""
        image = self.image
        for batch in self._pending:
            image = _apply(image, batch)
        return image

    @property
    def voters(self) -> tuple[Voter, ...]:
        """By the last voters record of the whole log, committed or not; empty before the first."""
        return self._voters()[0]

    def view(self) -> MetadataLogView:
        """The log as the quorum's rules see it."""
        log = self.log
        voters, end, before = self._voters()
        return MetadataLogView(
            log.log_start_offset,
            log.log_end_offset,
            log.durable_offset,
            log.high_watermark,
            log.epoch_entries(),
            VoterSet.of(voters),
            end,
            self.snapshots.latest,
            VoterSet.of(before),
        )

    def _voters(self) -> tuple[tuple[Voter, ...], Offset, tuple[Voter, ...]]:
        """The newest voters, one past their record, 0 where that is applied, and the voters before them."""
        found = (
            (record.voters, Offset(offset + 1))
            for batch in reversed(self._pending)
            for offset, record in reversed(batch.records)
            if isinstance(record, VotersRecord)
        )
        applied = (self.image.voters, Offset(0))
        newest, end = next(found, applied)
        before = next(found, applied)[0]
        return newest, end, before

    def subscribe(self, on_image: Callable[[ClusterImage], None]) -> None:
        """Call with each new committed image, on the loop; with the present one now, if there is any."""
        self._subscribers.append(on_image)
        if self.image is not EMPTY:
            on_image(self.image)

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        """Return once `reached()` is true; asked again whenever the log's end, what it holds or its watermark moves.
        Raises what made the log unusable."""
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
        """Let all who wait look again."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    # --- writing --------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[MetadataRecord], leader_epoch: LeaderEpoch) -> MetadataBatch:
        """As the leader: one atomic batch, behind the end. Raises DiskFull, KafkaStorageError."""
        data = encode_batch(records, leader_epoch=leader_epoch, timestamp=self._clock.wall_ms())
        base = self.end
        located = tuple((Offset(base + index), record) for index, record in enumerate(records))
        return self._append_own(data, leader_epoch, located)

    def append_leader_change(self, change: LeaderChange, leader_epoch: LeaderEpoch) -> MetadataBatch:
        """As the leader: the control record that opens its epoch. Raises DiskFull, KafkaStorageError."""
        return self._append_own(control_batch(change, timestamp=self._clock.wall_ms()), leader_epoch, ())

    def _append_own(
        self, data: bytes, leader_epoch: LeaderEpoch, located: tuple[tuple[Offset, MetadataRecord], ...]
    ) -> MetadataBatch:
        info = self.log.append(data, assign_offsets=True, leader_epoch=leader_epoch, origin=Origin.COORDINATOR)
        batch = MetadataBatch(info.first_offset, self.end, leader_epoch, located)
        self._appended([batch], len(data))
        return batch

    def append_fetched(self, records: Buffer, epochs: Sequence[EpochStart], leader_epoch: LeaderEpoch) -> None:
        """As a follower or observer: whole batches as the leader has them, and its epoch entries over them, none of
        a later epoch than the leader's.

        Raises CorruptRecord, CorruptLog, OffsetsNotMonotonic, UnsupportedVersion, DiskFull, KafkaStorageError, and then
        nothing was appended.
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
        """Everything below `offset` is committed: apply it, tell the subscribers."""
        if not self.log.advance_high_watermark(offset):
            return
        self._apply_committed()
        self._moved()

    def truncate_to(self, offset: Offset) -> None:
        """Cut everything at and above `offset`, which another leader's log does not have.

        Raises CorruptLog where that was committed, KafkaStorageError, DiskFull.
        """
        if offset < self.image.offset:
            raise CorruptLog(
                f"the quorum's leader lacks metadata from offset {offset} on that was committed up to "
                f"{self.image.offset}: its log was lost or put back from an old copy. Give it back its metadata "
                "directory"
            )
        self.log.truncate_to(offset)
        while self._pending and self._pending[-1].end > self.end:
            self._pending.pop()
        self._moved()

    def request_flush(self) -> None:
        """Make durable what is not yet, after a flush that found no room."""
        self._commit.request(self.log)

    def empty(self) -> None:
        """Forget a damaged replica: all of it is fetched again. Raises KafkaStorageError, DiskFull."""
        self.log.truncate_fully_and_start_at(Offset(0))
        self._pending.clear()
        self.log.high_watermark = Offset(0)
        self.image = EMPTY

    def _moved(self) -> None:
        self.on_moved()
        self.wake()

    # --- snapshots ------------------------------------------------------------------------------------------------

    @property
    def wants_snapshot(self) -> bool:
        """Has the log grown so much that what is committed should stand in a snapshot?"""
        latest = self.snapshots.latest
        done = Offset(0) if latest is None else latest.end_offset
        return self._bytes_since_snapshot >= self._snapshot_bytes and self.image.offset > done

    async def write_snapshot(self) -> None:
        """Put what is committed into a snapshot and drop the log before it. Raises KafkaStorageError, DiskFull."""
        async with self._one_snapshot:
            if self.wants_snapshot:  # the leader's may have come meanwhile
                await self._write_own()

    async def _write_own(self) -> None:
        image, stamped = self.image, self._clock.wall_ms()
        entries = [entry for entry in self.log.epoch_entries() if entry.start_offset < image.offset]
        latest = self.snapshots.latest
        snapshot = SnapshotId(image.offset, entries[-1].epoch if entries or latest is None else latest.epoch)
        await self._write(snapshot, lambda: encode_snapshot(image, snapshot.epoch, stamped))
        self._keep(snapshot)
        self._bytes_since_snapshot = 0
        await self._drop_before(snapshot.end_offset)
        self._moved()

    async def _drop_before(self, offset: Offset) -> None:
        """Drop the segments below a snapshot. Raises KafkaStorageError, DiskFull."""
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
        """The whole size of a snapshot, and a piece of it. Raises OffsetOutOfRange where it is gone, InvalidRequest,
        KafkaStorageError."""
        return self._guard("reading a snapshot in", lambda: self.snapshots.read(snapshot, position, max_bytes))

    async def install_snapshot(self, snapshot: SnapshotId, data: bytes, wanted: Callable[[], bool]) -> None:
        """Begin anew behind a snapshot that the leader gave. It may end where this image does: then nothing behind it
        agrees with the leader's log. wanted: asked once the snapshot is on the disk; the log stays as it is where that
        leader leads no more. Raises CorruptLog, UnsupportedVersion, KafkaStorageError, DiskFull."""
        image = decode_snapshot(data, snapshot)
        async with self._one_snapshot:
            if image.offset < self.image.offset:
                return
            await self._write(snapshot, lambda: data)
            if wanted():
                self._begin_behind(snapshot, image)

    def _begin_behind(self, snapshot: SnapshotId, image: ClusterImage) -> None:
        self._keep(snapshot)
        self.log.truncate_fully_and_start_at(snapshot.end_offset)
        self._pending.clear()
        self._bytes_since_snapshot = 0
        if image.offset > self.image.offset:
            self._publish(image)
        self._moved()

    def _keep(self, snapshot: SnapshotId) -> None:
        """It is the newest one; older ones go in the background."""
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

    # --- inside ---------------------------------------------------------------------------------------------------

    def _read_back(self) -> None:
        """Take in the newest snapshot and the log behind it; what was known to be committed makes the first image."""
        snapshot = self.snapshots.latest
        if snapshot is not None:
            self.image = self._guard("reading a snapshot in", lambda: self.snapshots.load(snapshot))
            if not self._reaches(snapshot):  # it was fetched, and the log not begun anew behind it yet
                _log.warning(
                    "%s does not hold what its snapshot of offset %d says: begun anew behind it",
                    self.log.path,
                    snapshot.end_offset,
                )
                self.log.truncate_fully_and_start_at(snapshot.end_offset)
            self.log.advance_high_watermark(snapshot.end_offset)
        position = max(self.log.log_start_offset, self.image.offset)
        if position > self.image.offset:
            raise CorruptLog(
                f"the metadata log in {self.log.path} begins at offset {position}, and no snapshot says what was before"
            )
        end = self.end if self.log.damage is None else min(self.end, self.log.damage.first_offset)
        while position < end:
            read = self.log.read(position, READ_BYTES, up_to=end)
            self._pending.extend(decode_batches(read.records))
            self._bytes_since_snapshot += len(read.records)
            position = read.next_offset
        self._apply_committed()

    def _reaches(self, snapshot: SnapshotId) -> bool:
        """Does the log hold what is in a snapshot, or begin behind it? One that does not may be the longer one, of
        records that nobody else has."""
        log, end = self.log, snapshot.end_offset
        if log.log_end_offset < end or log.log_start_offset >= end or log.damage is not None:
            return log.log_end_offset >= end
        below = [entry.epoch for entry in log.epoch_entries() if entry.start_offset < end]
        return not below or below[-1] == snapshot.epoch  # none: it began behind the snapshot once, its start was lost

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

    def _durable_moved(self, _log_of_ours: Log) -> None:
        self._moved()

    def _flush_failed(self, error: BaseException) -> None:
        """After a failed fsync nobody can tell what is on the disk: the replica is out of use (design section 3)."""
        if isinstance(error, DiskFull):
            _log.error("the metadata log is not durable yet: %s", error.message)
            self.on_full(error)
            return
        _log.error("the metadata log cannot be made durable: %s", error)
        self.failure = error
        self.wake()


def _apply(image: ClusterImage, batch: MetadataBatch) -> ClusterImage:
    return advance(apply(image, batch.records), batch.end)


def _nothing() -> None:
    """Nobody has asked to be told yet."""


def _ignore(_: DiskFull) -> None:
    """An observer has promised nothing: it holds more again with the next record."""
