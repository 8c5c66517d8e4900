"""Retention and the deletion of records at once, on the caller's thread. A node does the same on executors
(LogDirectory.drop_expired, move_log_start)."""

from __future__ import annotations

from storage.log.log import Log
from tidelog.errors import OffsetOutOfRange
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Millis, Offset


def delete_records(log: Log, offset: Offset) -> None:
    """Set the log start to `offset`, durably, unless it is there already. Raises OffsetOutOfRange above the high
    watermark, KafkaStorageError, DiskFull."""
    if not 0 <= offset <= log.high_watermark:
        raise OffsetOutOfRange(f"cannot delete records of {log.topic_partition} below offset {offset}")
    log.guard("moving the start of", lambda: _move_start(log, offset))


def delete_old_segments(log: Log, now: int) -> int:
    """Remove the segments that retention and the log start allow. Returns their number. Raises CorruptLog,
    KafkaStorageError, DiskFull."""

    def delete() -> int:
        at = Millis(now)
        expired, before = log.front.expired(at), len(log.segments)
        if expired is not None:
            base, keep = expired
            keep()
            _move_start(log, base)
            leaving = log.front.take_out()
            if leaving is not None:
                leaving.run()
                log.front.left(leaving, at)
        return before - len(log.segments)

    return log.guard("deleting old segments of", delete)


def latest_epoch(log: Log) -> LeaderEpoch:
    """The largest epoch in the epoch cache, with or without records; -1 if there is none."""
    entries = log.epochs.entries
    return entries[-1].epoch if entries else NO_LEADER_EPOCH


def _move_start(log: Log, offset: Offset) -> None:
    if offset > log.log_start_offset:
        log.directory.note_changed(log)
        log.directory.claims.starting(log.topic_partition, offset)()
        log.started_at(offset)
