"""The offsets that the files of a log directory record about its logs: recovery points, high watermarks, log starts.

    DIRECTORY/recovery-point-offset-checkpoint   below it, everything is on the disk                  (Kafka's)
           replication-offset-checkpoint      high watermarks                                      (Kafka's)
           log-start-offset-checkpoint        log starts, if not at the first segment              (Kafka's)
     local-log-start-offset-checkpoint        local log starts, if above the log start
           cleaner-offset-checkpoint          offsets up to which compacted logs are clean         (Kafka's)
           cleaning-offset-checkpoint         offsets up to which a cleaning may have emptied segments
           held-offset-marks                  durable_offsets.py

Invariants: a recorded offset is true of the disk. An offset that must fall is lowered durably before bytes are removed.
A recovery point is recorded after a durable mark that is not below it: either file tells damage from a torn tail.
Not here: when to write (log_directory.py), how errors of the disk are handled (log_directory.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Lock

from storage.checkpoints.checkpoint_file import (
    CLEANER_CHECKPOINT,
    CLEANING_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOCAL_START_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    encode_offsets,
    read_offsets,
)
from storage.checkpoints.durable_offsets import DURABLE_MARKS, DurableOffsets
from storage.files.file_system import Files, write_file
from storage.log.log_positions import LogPositions
from storage.recovery.loaded import Known
from tidelog.errors import CorruptLog
from tidelog.types import Durability, Offset, PartitionKey, TopicPartition


class OffsetCheckpoint:
    """One …-offset-checkpoint file, written in the background and, by truncations, synchronously.

    Invariants: older contents never replace newer ones. `may_claim` is never less than what the file may contain,
    including a write in progress and a failed write.
    """

    def __init__(
        self, files: Files, path: str, claimed: Mapping[TopicPartition, Offset], *, is_damaged: bool = False
    ) -> None:
        """is_damaged: the file cannot be read: it is replaced at the next occasion, even if nothing changes."""
        self._files = files
        self._path = path
        self._lock = Lock()
        self._written = 0
        self._version = 1 if is_damaged else 0
        self.claimed: dict[TopicPartition, Offset] = dict(claimed)
        """The contents of the last write, whether finished, in progress or failed."""
        self._upper_bounds: dict[TopicPartition, Offset] = dict(claimed)
        """Upper bounds of the offsets that the file may contain apart from `claimed`."""

    def may_claim(self, tp: TopicPartition) -> Offset:
        """The largest offset that the file may contain for a log, 0 for none."""
        return max(self.claimed.get(tp, Offset(0)), self._upper_bounds.get(tp, Offset(0)))

    def prepare(self, offsets: Mapping[TopicPartition, Offset]) -> int | None:
        """Set the contents of the next write; on the owner's thread. Returns the version for `write`, None if the file
        has these contents already."""
        if offsets == self.claimed and self._written == self._version:
            return None
        self.claimed = dict(offsets)
        self._version += 1
        return self._version

    def write(self, version: int, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Write and fsync the offsets, unless a newer version has been written. Any thread. Raises OSError."""
        with self._lock:
            if version > self._written:
                try:
                    write_file(self._files, self._path, encode_offsets(offsets))
                except OSError:
                    before = self._upper_bounds
                    either = {tp: max(before.get(tp, Offset(0)), offset) for tp, offset in offsets.items()}
                    self._upper_bounds = {**before, **either}
                    raise
                self._written = version
                self._upper_bounds = dict(offsets)


class DirectoryClaims:
    """The recorded offsets of one log directory. `notes`: problems with the files, in sentences."""

    def __init__(self, files: Files, path: str) -> None:
        """Syncs the directory, then reads the files. A process that stopped after renaming a file and before syncing
        the directory has left a name that a power failure would revert. Raises OSError."""
        files.sync_directory(path)
        self.notes: list[str] = []
        self._foreign = files.size(f"{path}/{DURABLE_MARKS}") is None
        """True if the directory comes from Kafka and is opened here for the first time."""
        self.marks = DurableOffsets(files, path)
        self._files, self._path = files, path
        self._damaged: set[str] = set()
        """The names of the checkpoints that could not be read."""
        self._recovery_points = self._checkpoint(RECOVERY_POINT_CHECKPOINT)
        self._high_watermarks = self._checkpoint(HIGH_WATERMARK_CHECKPOINT)
        self._log_starts = self._checkpoint(LOG_START_CHECKPOINT)
        self._local_starts = self._checkpoint(LOCAL_START_CHECKPOINT)
        self._cleaned = self._checkpoint(CLEANER_CHECKPOINT)
        self._cleaning = self._checkpoint(CLEANING_CHECKPOINT)
        self._found_high_watermarks = dict(self._high_watermarks.claimed)
        self._found_recovery_points = dict(self._recovery_points.claimed)
        self._moving: dict[TopicPartition, Offset] = {}
        """Log starts that are recorded but not yet valid in memory."""

    def _checkpoint(self, name: str) -> OffsetCheckpoint:
        path = f"{self._path}/{name}"
        try:
            claimed = read_offsets(self._files, path)
        except CorruptLog as error:
            self.notes.append(f"{error.message}; all logs are recovered from their beginning")
            self._damaged.add(name)
            claimed = {}
        return OffsetCheckpoint(self._files, path, claimed, is_damaged=name in self._damaged)

    def known(self, tp: TopicPartition, key: PartitionKey, *, clean: bool) -> Known:
        """What the files recorded about a log when this process started."""
        return Known(
            self._found_recovery_points.get(tp, Offset(0)),
            self.marks.get(key),
            self._log_starts.claimed.get(tp, Offset(0)),
            clean,
            max(self._cleaned.claimed.get(tp, Offset(0)), self._cleaning.claimed.get(tp, Offset(0))),
            self._foreign,
            self._local_starts.claimed.get(tp, Offset(0)),
            LOG_START_CHECKPOINT in self._damaged,
        )

    def high_watermark(self, tp: TopicPartition) -> Offset:
        return self._found_high_watermarks.get(tp, Offset(0))

    def lowering(self, log: LogPositions, offset: Offset) -> Callable[[], None]:
        """Lower all recorded offsets of the log to at most `offset`, and a recorded log start above its log start,
        which a full disk may have left. Returns a function that makes this durable; it may run on any thread and raises
        OSError. Raises OSError."""
        tp = log.topic_partition
        sync_mark = self.marks.lowering(PartitionKey(log.topic_id, tp.partition), offset)
        writes = []
        self._moving.pop(tp, None)
        if self._log_starts.may_claim(tp) > log.log_start_offset:
            writes.append(self.starting(tp, log.log_start_offset))
        lowered = (self._recovery_points, self._high_watermarks, self._local_starts, self._cleaned, self._cleaning)
        for checkpoint in lowered:
            if checkpoint.may_claim(tp) > offset:
                claimed = checkpoint.claimed
                writes.append(_writing(checkpoint, {**claimed, tp: min(offset, claimed.get(tp, offset))}))
        return in_order(sync_mark, *writes)

    def recovering_from(self, log: LogPositions, offset: Offset) -> Callable[[], None]:
        """Let the next start recover the log from `offset`, which is not above its recovery point. Returns a function
        that makes this durable, see `lowering`. Raises OSError."""
        tp, claimed = log.topic_partition, self._recovery_points.claimed
        key, durable_offset = (
            PartitionKey(log.topic_id, tp.partition),
            max(log.durable_offset, claimed.get(tp, Offset(0))),
        )
        if self.marks.get(key) < durable_offset:
            self.marks.put(key, durable_offset)
        # The mark first: without it, damage above the recovery point looks like a torn tail.
        return in_order(self.marks.sync, _writing(self._recovery_points, {**claimed, tp: offset}))

    def bound_watermarks(self, logs: Collection[LogPositions]) -> None:
        """Make durable that no high watermark is above the end of its log, after recovery truncated logs: the records
        fetched in place of the lost ones may not be committed. Raises OSError."""
        claimed = self._high_watermarks.claimed
        bounded = {log.topic_partition: log.high_watermark for log in logs}
        lower = {tp: offset for tp, offset in bounded.items() if offset < claimed.get(tp, 0)}
        if lower:
            _write_now(self._high_watermarks, {**claimed, **lower})

    def starting(self, tp: TopicPartition, offset: Offset) -> Callable[[], None]:
        """Set the recorded log start to `offset`. Returns a function that makes this durable, see `lowering`."""
        return _writing(self._log_starts, {**self._log_starts.claimed, tp: offset})

    def starting_locally(self, tp: TopicPartition, offset: Offset) -> Callable[[], None]:
        """Record that segments below `offset` leave the log for the remote tier. Returns a function that makes this
        durable, see `lowering`."""
        return _writing(self._local_starts, {**self._local_starts.claimed, tp: offset})

    def local_start(self, tp: TopicPartition) -> Offset:
        """The recorded local log start; a truncation since then may have lowered it."""
        return self._local_starts.claimed.get(tp, Offset(0))

    def allow_holes(self, log: LogPositions, end: Offset) -> None:
        """Record durably the log's recovery point, and that segments below `end`, which is not above it, may be
        emptied: offsets missing there are no loss. Raises OSError."""
        tp = log.topic_partition
        for checkpoint, least in ((self._recovery_points, log.recovery_point), (self._cleaning, end)):
            claimed = checkpoint.claimed
            _write_now(checkpoint, {**claimed, tp: max(least, claimed.get(tp, least))})

    def cleaned(self, tp: TopicPartition) -> Offset | None:
        """The offset up to which the log was compacted; None if it never was."""
        return self._cleaned.claimed.get(tp)

    def note_cleaned(self, tp: TopicPartition, offset: Offset) -> None:
        """Record durably the offset up to which the log is compacted. Raises OSError."""
        _write_now(self._cleaned, {**self._cleaned.claimed, tp: offset})

    def salvaged(self, tp: TopicPartition, key: PartitionKey, end: Offset) -> Callable[[], None]:
        """Record that a closed log ends at `end`, that no higher offset is committed, and that offsets may be missing
        in it. Returns a function that makes this durable, see `lowering`. Raises OSError."""
        sync_mark = self.marks.lowering(key, end)
        points, cleaning = self._recovery_points.claimed, self._cleaning.claimed
        watermarks = self._high_watermarks.claimed
        point = min(points.get(tp, end), end)
        self._found_recovery_points[tp] = point
        self._found_high_watermarks[tp] = min(self._found_high_watermarks.get(tp, Offset(0)), end)
        allow_holes = _writing(self._cleaning, {**cleaning, tp: max(end, cleaning.get(tp, end))})
        lower = _writing(self._recovery_points, {**points, tp: point})
        bound = _writing(self._high_watermarks, {**watermarks, tp: min(watermarks.get(tp, Offset(0)), end)})
        return in_order(allow_holes, lower, bound, sync_mark)

    def arriving(
        self, log: LogPositions, key: PartitionKey, *, log_start: Offset, high_watermark: Offset
    ) -> Callable[[], None]:
        """Record what `opening` must know about a closed log that comes from another log directory: all of it is on the
        disk. Returns a function that makes this durable, see `lowering`. Raises OSError."""
        tp, end = log.topic_partition, log.log_end_offset
        self._found_recovery_points[tp], self._found_high_watermarks[tp] = end, high_watermark
        if log.config.durability is Durability.FSYNC:
            self.marks.put(key, end)
        points, watermarks = self._recovery_points.claimed, self._high_watermarks.claimed
        cleaned = [
            _writing(file, {each: offset for each, offset in file.claimed.items() if each != tp})
            for file in (self._cleaned, self._cleaning)
            if file.may_claim(tp)
        ]
        local_start = log.local_log_start_offset if log.local_log_start_offset > log.log_start_offset else Offset(0)
        if local_start > 0 or self._local_starts.may_claim(tp):
            cleaned.append(self.starting_locally(tp, local_start))  # else segments below it would be missed, or not
        return in_order(
            self.marks.sync,
            *cleaned,  # also of an earlier log with this name
            self.starting(tp, log_start),
            _writing(self._recovery_points, {**points, tp: end}),
            _writing(self._high_watermarks, {**watermarks, tp: high_watermark}),
        )

    def leaving(self, log: LogPositions, key: PartitionKey) -> Callable[[], None]:
        """Keep a mark of a log that was moved to another log directory, until the metadata name that one: if it is lost
        before, the records are missing, and this replica must not count as complete. Returns a function that makes this
        durable, see `lowering`. Raises OSError."""
        self.marks.put(key, log.log_end_offset)
        return self.marks.sync

    def is_moving_start(self, tp: TopicPartition) -> bool:
        """True if a log start of this log is recorded and not valid in memory yet."""
        return tp in self._moving

    def starting_all(self, starts: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """Set the recorded starts of these logs with one write. `take_start` must follow for each. Returns a function
        that makes this durable, see `lowering`."""
        self._moving.update(starts)
        return _writing(self._log_starts, {**self._log_starts.claimed, **starts})

    def take_start(self, tp: TopicPartition, offset: Offset) -> bool:
        """Called after the write of `starting_all`. Returns False if a truncation has lowered the start since."""
        if self._moving.get(tp) != offset:
            return False
        del self._moving[tp]
        return True

    def forgetting(
        self, logs: Collection[tuple[TopicPartition, PartitionKey]], unmarked: Collection[PartitionKey] = ()
    ) -> Callable[[], None]:
        """Remove everything recorded about these logs, and the marks of those in `unmarked`. Each file is written once.
        Returns a function that makes this durable, see `lowering`. Raises OSError."""
        sync_marks = self.marks.dropping([*(key for _, key in logs), *unmarked])
        gone = {tp for tp, _ in logs}
        for tp in gone:
            self._found_high_watermarks.pop(tp, None)
            self._moving.pop(tp, None)
        files = (
            self._recovery_points,
            self._high_watermarks,
            self._log_starts,
            self._local_starts,
            self._cleaned,
            self._cleaning,
        )
        writes = [
            _writing(file, {tp: offset for tp, offset in file.claimed.items() if tp not in gone})
            for file in files
            if any(file.may_claim(tp) for tp in gone)
        ]
        return in_order(sync_marks, *writes)

    def prepare(self, logs: Collection[LogPositions]) -> Callable[[], None] | None:
        """On the owner's thread: collect the offsets to record now. Returns the write, for any thread, which raises
        OSError; None if the files are current. Raises OSError."""
        self._mark_recovery_points(logs)
        prepared = [(file, file.prepare(offsets), offsets) for file, offsets in self._current(logs)]
        changed = [(file, version, offsets) for file, version, offsets in prepared if version is not None]
        if not changed:
            return None

        def write() -> None:
            if any(file is self._recovery_points for file, _, _ in changed):
                self.marks.sync()
            for file, version, offsets in changed:
                file.write(version, offsets)

        return write

    def write(self, logs: Collection[LogPositions]) -> None:
        """Write everything durably before returning. Raises OSError."""
        self._mark_recovery_points(logs)
        self.marks.sync()
        for file, offsets in self._current(logs):
            _write_now(file, offsets)

    def _mark_recovery_points(self, logs: Collection[LogPositions]) -> None:
        """Raise the mark of each log to its recovery point at least. Where the checkpoint of recovery points is damaged
        later, the marks still tell damage from a torn tail. Page-cache logs have no marks."""
        for log in logs:
            if log.config.durability is Durability.FSYNC and log.truncation is None and log.damage is None:
                key = PartitionKey(log.topic_id, log.topic_partition.partition)
                if self.marks.get(key) < log.recovery_point:
                    self.marks.put(key, log.recovery_point)

    def _current(self, logs: Collection[LogPositions]) -> list[tuple[OffsetCheckpoint, dict[TopicPartition, Offset]]]:
        """The offsets to record now. A log that is not loaded keeps the offsets found at the start; a log under
        truncation keeps the recorded ones."""
        points = {**self._recovery_points.claimed}
        marks = {**self._found_high_watermarks}
        starts = {**self._log_starts.claimed}
        for log in logs:
            tp = log.topic_partition
            if log.truncation is not None:
                marks[tp] = self._high_watermarks.claimed.get(tp, Offset(0))
                continue
            marks[tp] = log.high_watermark
            if log.damage is None:
                points[tp] = log.recovery_point
            if log.log_start_offset > log.segments[0].base_offset or starts.get(tp, 0) != 0:
                starts[tp] = log.log_start_offset
        starts.update(self._moving)
        return [
            (self._recovery_points, points),
            (self._high_watermarks, marks),
            (self._log_starts, {tp: offset for tp, offset in starts.items() if offset > 0}),
        ]

    def close(self) -> None:
        self.marks.close()


def in_order(*steps: Callable[[], None]) -> Callable[[], None]:
    """Returns a function that runs these one after the other."""

    def run() -> None:
        for step in steps:
            step()

    return run


def _writing(checkpoint: OffsetCheckpoint, offsets: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
    """Returns the write of these offsets, for any thread."""
    version = checkpoint.prepare(offsets)

    def write() -> None:
        if version is not None:
            checkpoint.write(version, offsets)

    return write


def _write_now(checkpoint: OffsetCheckpoint, offsets: Mapping[TopicPartition, Offset]) -> None:
    _writing(checkpoint, offsets)()
