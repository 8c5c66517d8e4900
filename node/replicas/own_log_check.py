"""Checks of a replica's own log: when a reader rejected its records (design, section 4, rule 4), and before an unclean
election of a damaged replica.

Not here: the effect of damage on the replica (replica_damage.py), checks of the whole log (the scrub).
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable

from node.runtime.work import run_in
from storage.directory.log_directory import LogDirectory
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.recovery.loaded import Damage
from storage.segment.batch_walk import BrokenChain
from storage.segment.epoch_cache import ensure_agreed
from tidelog.errors import CorruptLog, CorruptRecord, KafkaStorageError, TidelogError
from tidelog.records import iter_batches, walk_headers
from tidelog.records.v2.header import LEADER_EPOCH_AT
from tidelog.types import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset

_log = logging.getLogger("node.partition")


def check_own(log: Log, offset: Offset, max_bytes: int, on_damage: Callable[[Damage], None]) -> None:
    """Call `on_damage` if `damage_at` finds damage in records that a follower rejected.

    Bytes that are not in memory are first read on another thread; then `on_damage` is called later, and not at all if
    the log was closed or is being truncated by then. Raises as `damage_at`."""

    def judge() -> None:
        damage = damage_at(log, offset, max_bytes)
        if damage is None:
            _log.warning("%s: a follower rejected records from offset %d, sound here", log.topic_partition, offset)
        else:
            on_damage(damage)

    found = log.try_fetch(offset, max_bytes, FetchIsolation.LOG_END) if log.damage is None else None
    if found is None or isinstance(found, LogRead):
        judge()
        return
    ticket = found

    def read(_: object) -> None:
        ticket.release()
        if log.closed or log.truncation is not None:
            return
        try:
            judge()
        except TidelogError as error:
            _log.warning("%s: records from offset %d were not checked: %s", log.topic_partition, offset, error.message)

    log.directory.reader.submit(ticket.run, read)


def damage_at(log: Log, offset: Offset, max_bytes: int) -> Damage | None:
    """The first damage in the batches that answer a fetch of `offset`, found by checksum and leader epoch; None if they
    are sound. They were just read, so checking them costs no disk access. A batch with only a wrong leader epoch, which
    no checksum covers, counts as readable. Raises KafkaStorageError, OffsetOutOfRange."""
    try:
        read = log.read(offset, max_bytes, up_to=log.log_end_offset)
        for batch in iter_batches(read.records):
            try:
                batch.ensure_valid()
            except CorruptRecord as error:
                return _damage(log, batch.base_offset, batch.next_offset, error.message)
            try:
                ensure_agreed([batch.header], read.epochs)
            except CorruptRecord as error:
                return _damage(log, batch.base_offset, batch.next_offset, error.message, readable=True)
    except CorruptLog:
        return log.damage
    except CorruptRecord as error:  # its length cannot be trusted either
        return _damage(log, offset, Offset(offset + 1), error.message)
    return None


def read_again(log: Log, read: LogRead, offset: Offset, last_epoch: LeaderEpoch, *, is_follower: bool) -> LogRead:
    """The records to send to a reader that rejected them before. last_epoch: of the reader's record before `offset`.

    A follower gets corrupt leader epochs replaced by those of the epoch cache, so that the only in-sync replica can be
    copied (decision 0013). A consumer gets `read` unchanged. Raises CorruptLog as `ensure_sound`, for a consumer."""
    if not is_follower:
        ensure_sound(log, offset, read)
        return read
    headers = list(walk_headers(read.records))
    epochs = [int(header.leader_epoch) for header in headers]
    records = bytearray(read.records)
    for at, header in enumerate(headers):
        known = bisect_right(read.epochs, header.base_offset, key=lambda entry: entry.start_offset) - 1
        if header.magic != 2 or known < 0:
            continue
        meant = read.epochs[known].epoch
        least = epochs[at - 1] if at else last_epoch
        most = epochs[at + 1] if at + 1 < len(epochs) else log.epochs.entries[-1].epoch
        if least <= meant <= most and not least <= epochs[at] <= most:  # otherwise the cache may be wrong
            epochs[at] = meant
            place = header.position + LEADER_EPOCH_AT
            records[place : place + 4] = meant.to_bytes(4, "big", signed=True)
    return read._replace(records=bytes(records))


def ensure_sound(log: Log, offset: Offset, read: LogRead) -> None:
    """Check records that a consumer rejected before, starting at `offset`. Only the records of its next answer are
    checked, which costs as little as sending them. Raises CorruptLog if a checksum is wrong; `log.lost` then has the
    damage."""
    damage = None
    try:
        for batch in iter_batches(read.records):
            try:
                batch.ensure_valid()
            except CorruptRecord as error:
                damage = _damage(log, batch.base_offset, batch.next_offset, error.message)
                break
    except CorruptRecord as error:  # its length cannot be trusted either
        damage = _damage(log, offset, Offset(offset + 1), error.message)
    if damage is not None:
        log.lost.note(damage)
        raise CorruptLog(f"{log.topic_partition} lost {damage}")


def sound_end(log: Log) -> EpochEnd:
    """The offset up to which a log is certainly usable by a leader: its end, or the start of damage that reaches the
    end. The epoch is that of the last record before it; -1 if there is none."""
    end = log.log_end_offset
    if log.damage is not None and not log.lost.takes_appends:
        for part in sorted(log.damage.parts or (log.damage,), key=lambda part: part.end_offset, reverse=True):
            if not part.readable and part.first_offset < end <= part.end_offset:
                end = max(part.first_offset, log.log_start_offset)
    return _epoch_end(log, end)


def _epoch_end(log: Log, end: Offset) -> EpochEnd:
    below = [entry.epoch for entry in log.epochs.entries if entry.start_offset < end]
    return EpochEnd(below[-1] if below and end > log.log_start_offset else NO_LEADER_EPOCH, end)


async def look_at_damage(log: Log, directory: LogDirectory, look_ms: int) -> tuple[EpochEnd, str]:
    """The offset up to which a damaged log is usable by a leader, and the offsets that cannot be read, as text.

    Reads the whole log. If that takes longer than `look_ms`, the result is what is known already. Raises
    KafkaStorageError."""
    damage = log.damage
    if damage is None or damage.readable:
        return sound_end(log), ""
    salvage = directory.salvage(log)
    try:
        async with asyncio.timeout(look_ms / 1_000):
            await run_in(directory.background, salvage.search)
    except TimeoutError:
        return sound_end(log), f"some of {damage.first_offset}..{damage.end_offset - 1}"
    except OSError as error:
        raise KafkaStorageError(f"{log.path} cannot be read: {error}") from error
    return _epoch_end(log, salvage.end), ", ".join(map(str, salvage.lost))


def _damage(log: Log, first: Offset, end: Offset, reason: str, *, readable: bool = False) -> Damage:
    segment = next(segment for segment in reversed(log.segments) if segment.base_offset <= first)
    try:
        header = segment.find(first)
        position = 0 if header is None else header.position
    except BrokenChain as error:  # batch headers before it are corrupt
        position = error.position
    return Damage(segment.path, position, first, end, reason, readable)
