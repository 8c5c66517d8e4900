"""A leader's look at its own bytes, after a follower has refused them (design, section 4, rule 4).

Left to others: what damage means for the replica (replica_manager.py), the rest of the log (the scrub).
"""

from __future__ import annotations

from storage.loaded import Damage
from storage.log import Log
from tidelog.errors import CorruptLog, CorruptRecord
from tidelog.records import iter_batches
from tidelog.types import Offset


def damage_at(log: Log, offset: Offset, max_bytes: int) -> Damage | None:
    """What is damaged in the bytes that a fetch of `offset` is answered with, checksums included: they have just been
    read, so that looking again costs no disk. Raises KafkaStorageError, OffsetOutOfRange."""
    try:
        read = log.read(offset, max_bytes, up_to=log.log_end_offset)
        for batch in iter_batches(read.records):
            try:
                batch.ensure_valid()
            except CorruptRecord as error:
                return _damage(log, batch.base_offset, batch.next_offset, error.message)
    except CorruptLog:
        return log.damage
    except CorruptRecord as error:  # not even its length can be believed
        return _damage(log, offset, Offset(offset + 1), error.message)
    return None


def _damage(log: Log, first: Offset, end: Offset, reason: str) -> Damage:
    segment = next(segment for segment in reversed(log.segments) if segment.base_offset <= first)
    header = segment.find(first)
    return Damage(segment.path, 0 if header is None else header.position, first, end, reason)
