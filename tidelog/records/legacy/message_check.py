"""Deep validation of messages of v0 and v1: as record_check.py does it for records of v2.

Left to others: the messages themselves (message_set.py), what follows from the facts (assignment.py).
Source: Kafka's LogValidator.validateRecord; KIP-467 (errors per record).
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.errors import CorruptRecord
from tidelog.records.legacy.message import InnerMessage, message_crc, payload_bounds
from tidelog.records.v2.header import ByteBuffer
from tidelog.records.v2.record_check import Problem, ProblemKind, RecordFacts, Rules, note
from tidelog.types import NO_TIMESTAMP


def check_messages(
    data: ByteBuffer,
    messages: Iterable[InnerMessage],
    magic: int,
    rules: Rules,
    *,
    what: str,
    check_crcs: bool = True,
) -> RecordFacts:
    """Check the messages of a message set of format v0 or v1, as `LegacyRecordBatch.inner_messages` found them.

    magic: what each must have: inside a wrapper, the wrapper's. what: names the set in errors. Whether offsets are
    consecutive is only said, not refused: old clients wrote them in many ways, and a leader numbers them anew.
    check_crcs: False where the checksums were compared already.
    Raises CorruptRecord for a checksum that does not fit, another magic, and fields that do not fill their message.
    """
    problems: list[Problem] = []
    count, max_timestamp, max_index, in_sequence = 0, int(NO_TIMESTAMP), -1, True
    for index, message in enumerate(messages):
        try:
            if message.magic != magic:
                raise CorruptRecord(f"it is of format v{message.magic}, what it lies in of v{magic}")
            if check_crcs and (computed := message_crc(data, message.at, message.end)) != message.crc:
                raise CorruptRecord(f"it has checksum {computed:#010x}, and says {message.crc:#010x}")
            _, key_end, _ = payload_bounds(data, message.at, message.end, magic)
        except CorruptRecord as error:
            raise CorruptRecord(
                f"message {index + 1} inside {what} cannot be believed: {error.message}; "
                "it was damaged or written by a faulty producer"
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
