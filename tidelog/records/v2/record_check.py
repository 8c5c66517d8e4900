"""Deep validation: checks every record of a batch against the rules of its topic, without an object per record.

Two kinds of errors are distinguished. Invalid bytes raise CorruptRecord: nothing in the batch can be trusted. Valid
records that violate a rule are listed by index, so that the producer can report them.
Invariants: CorruptRecord is raised for exactly the bytes for which decoding raises it; nothing is copied.
Not here: headers and checksums of batches (batch.py), v0 and v1 messages (message_check.py), the consequences
(assignment.py).
Source: Kafka's LogValidator.validateRecord; KIP-467 (errors per record).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from tidelog.errors import CorruptRecord
from tidelog.records.v2.record import left_over, unreadable
from tidelog.records.v2.varint import UNFOLDED, read_varint, read_varlong
from tidelog.types import INT64_MAX, INT64_MIN, NO_TIMESTAMP, Buffer

PROBLEMS_MAX: Final = 100
"""Maximum number of listed problems per batch: enough to find the cause, and a bound on the answer."""


class Rules(NamedTuple):
    """Rules for records."""

    key_required: bool = False
    """A compacted topic rejects null keys."""
    timestamp_min: int = INT64_MIN
    """Bounds of a create time, inclusive; -1 (no timestamp) is always allowed."""
    timestamp_max: int = INT64_MAX
    consecutive: bool = True
    """Offsets increase by 1, as from a producer. Otherwise they only increase, as after compaction."""


class ProblemKind(IntEnum):
    """The rule that a record violates."""

    NO_KEY = 0
    TIMESTAMP = 1
    OFFSET = 2


class Problem(NamedTuple):
    """A record that violates a rule."""

    record: int
    """The index of the record."""
    kind: ProblemKind
    detail: int = 0
    """Its timestamp, or its offset relative to the batch's first record."""

    def describe(self, rules: Rules) -> str:
        """Return the sentence for the producer."""
        match self.kind:
            case ProblemKind.NO_KEY:
                return "it has no key, which a compacted topic needs"
            case ProblemKind.TIMESTAMP:
                return (
                    f"its timestamp {self.detail} is out of range: milliseconds since 1970 from {rules.timestamp_min} "
                    f"to {rules.timestamp_max} are allowed now"
                )
            case ProblemKind.OFFSET:
                return f"its offset delta {self.detail} does not follow that of the record before"


class RecordFacts(NamedTuple):
    """Result of deep validation of a batch."""

    record_count: int
    max_timestamp: int
    """The largest timestamp; -1 if there is none."""
    max_timestamp_index: int
    """The first record with that timestamp."""
    consecutive: bool
    """Whether the offset deltas are 0, 1, 2 ..."""
    with_headers: int
    """Number of records with headers."""
    problems: tuple[Problem, ...]
    """At most `PROBLEMS_MAX`."""


def check_records(
    data: Buffer,
    count: int,
    *,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    rules: Rules,
) -> RecordFacts:
    """Validate the records in the uncompressed `data` of a v2 batch; the numbers are those of its header.

    Raises CorruptRecord if the bytes are not exactly `count` records.
    """
    timestamp_min, timestamp_max = rules.timestamp_min, rules.timestamp_max
    problems: list[Problem] = []
    position, size = 0, len(data)
    max_timestamp, max_index, with_headers, expected, in_sequence = int(NO_TIMESTAMP), -1, 0, 0, True
    for index in range(count):
        try:
            timestamp, offset_delta, has_key, has_headers, position = measure_at(
                data, position, base_offset, base_timestamp
            )
        except (CorruptRecord, IndexError) as error:
            raise unreadable(index, count, base_offset, error) from error
        with_headers += has_headers
        if offset_delta != expected:
            in_sequence = False
            if rules.consecutive or not expected <= offset_delta <= last_offset_delta:
                note(problems, index, ProblemKind.OFFSET, offset_delta)
        expected = offset_delta + 1
        if not has_key and rules.key_required:
            note(problems, index, ProblemKind.NO_KEY)
        if not timestamp_min <= timestamp <= timestamp_max and timestamp != NO_TIMESTAMP:
            note(problems, index, ProblemKind.TIMESTAMP, timestamp)
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, index
    if position != size:
        raise left_over(size - position, count, base_offset)
    return RecordFacts(count, max_timestamp, max_index, in_sequence, with_headers, tuple(problems))


def note(problems: list[Problem], record: int, kind: ProblemKind, detail: int = 0) -> None:
    """Append a problem unless the list is full."""
    if len(problems) < PROBLEMS_MAX:
        problems.append(Problem(record, kind, detail))


def measure_at(data: Buffer, at: int, base_offset: int, base_timestamp: int) -> tuple[int, int, bool, bool, int]:
    """Read the record at `at`: (timestamp, offset delta, has a key, has headers, end position). Raises CorruptRecord,
    or IndexError if the data ends within it."""
    length, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    end = at + length
    if length < 0 or end > len(data):
        raise CorruptRecord(f"it claims {length} bytes, {len(data) - at} are left")
    delta, at = read_varlong(data, at + 1) if data[at + 1] > 0x7F else (UNFOLDED[data[at + 1]], at + 2)
    offset_delta, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    key_length, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    at = at + key_length if key_length >= 0 else _null(key_length, at)
    value_length, at = read_varint(data, at) if data[at] > 0x7F else (UNFOLDED[data[at]], at + 1)
    at = at + value_length if value_length >= 0 else _null(value_length, at)
    has_headers = data[at] != 0
    at = _skip_headers(data, at) if has_headers else at + 1
    if at != end:
        raise CorruptRecord("its fields do not fill its length")
    timestamp = base_timestamp + delta
    if not (INT64_MIN <= timestamp <= INT64_MAX and INT64_MIN <= base_offset + offset_delta <= INT64_MAX):
        raise CorruptRecord("its offset or timestamp exceeds 64 bits")
    return timestamp, offset_delta, key_length >= 0, has_headers, end


def _null(length: int, at: int) -> int:
    if length != -1:
        raise CorruptRecord(f"the length {length} is invalid")
    return at


def _skip_headers(data: Buffer, at: int) -> int:
    """Return the end position of the headers whose count is at `at`."""
    count, at = read_varint(data, at)
    if count < 0:
        raise CorruptRecord(f"it claims {count} headers")
    for _ in range(count):
        length, at = read_varint(data, at)
        if length < 0:
            _null(length, at)
            raise CorruptRecord("a header key is null")
        length, at = read_varint(data, at + length)
        at = at + length if length >= 0 else _null(length, at)
    return at
