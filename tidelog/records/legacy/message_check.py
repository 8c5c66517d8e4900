"""Deep validation of v0 and v1 messages; the counterpart of record_check.py.

Not here: decoding (message_set.py), the consequences of the result (assignment.py).
Source: Kafka's LogValidator.validateRecord; KIP-467 (errors per record).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.errors import CorruptRecord
from tidelog.records.legacy.message import InnerMessage, message_crc, payload_bounds
from tidelog.records.v2.record_check import Problem, ProblemKind, RecordFacts, Rules, note
from tidelog.types import NO_TIMESTAMP, Buffer


def check_messages(
    data: Buffer,
    messages: Iterable[InnerMessage],
    magic: int,
    rules: Rules,
    *,
    what: str,
    check_crcs: bool = True,
) -> RecordFacts:
    """Validate the messages of a v0 or v1 message set, as returned by `LegacyRecordBatch.inner_messages`.

    magic: required of each message; inside a wrapper, the wrapper's. what: name of the set in errors. Non-consecutive
    offsets are reported, not rejected: old clients wrote them in many ways, and the leader renumbers them. check_crcs:
    False if the checksums were already verified.
    Raises CorruptRecord for a wrong checksum, another magic, and fields that do not fill their message.
    """
    problems: list[Problem] = []
    count, max_timestamp, max_index, in_sequence = 0, int(NO_TIMESTAMP), -1, True
    for index, message in enumerate(messages):
        try:
            if message.magic != magic:
                raise CorruptRecord(f"it has format v{message.magic}, its message set has v{magic}")
            if check_crcs and (computed := message_crc(data, message.at, message.end)) != message.crc:
                raise CorruptRecord(f"it has checksum {computed:#010x}, but its header has {message.crc:#010x}")
            _, key_end, _ = payload_bounds(data, message.at, message.end, magic)
        except CorruptRecord as error:
            raise CorruptRecord(
                f"message {index + 1} inside {what} is not valid: {error.message}; "
                "it is corrupt or was written by a faulty producer"
            ) from error
        in_sequence = in_sequence and message.offset == index
        if key_end < 0 and rules.key_required:
            note(problems, index, ProblemKind.NO_KEY)
        timestamp = message.timestamp
        if not rules.timestamp_min <= timestamp <= rules.timestamp_max and timestamp != NO_TIMESTAMP:
            note(problems, index, ProblemKind.TIMESTAMP, timestamp)
        if timestamp > max_timestamp:
            max_timestamp, max_index = timestamp, index
        count += 1
    return RecordFacts(count, max_timestamp, max_index, in_sequence, 0, tuple(problems))
