"""The batches of a .log file of any format, as events for the dump, with their records if requested.

Not here: which bytes are a batch (segment/verifier.py), the rules between batches (log_chain.py), indexes
(segment_files.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from storage.dump.dump_events import BatchFound, RecordFound
from storage.files.file_system import File
from storage.segment.verifier import Fault, Gap, verify_around_gaps
from tidelog.errors import TidelogError, UnsupportedCompressionType
from tidelog.records.v2.batch import CODEC_BITS, RecordBatch
from tidelog.records.v2.control import ControlType, EndTxnMarker, decode_control
from tidelog.records.v2.header import BatchHeader
from tidelog.records.v2.record import Record
from tidelog.types import INT32_MAX, METADATA_TOPIC, NO_SEQUENCE, Codec, TimestampType

_TIMESTAMP_TYPES: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}

_SECRET_KINDS: Final = (b"\xca\x02", b"\xda\x02")
"""How the values of ScramCredentialRecord and SaslSecretRecord begin in the metadata log: the tags of their fields in
MetadataRecord (proto/tidelog/protocol/v1/metadata_records.proto)."""


@dataclass(frozen=True, slots=True)
class Read:
    """A batch that could be read."""

    batch: BatchFound
    header: BatchHeader
    """Its `position` is that in the file."""
    problem: str | None
    """Why the batch is invalid, or None."""
    records: tuple[RecordFound, ...]
    """The readable records, if they were requested."""


def read_log(file: File, path: str, size: int, *, records: bool) -> Iterator[Read | Gap]:
    """All batches and gaps in file order. records: also read the records, with decompression. Raises OSError."""
    for step in verify_around_gaps(file, size):
        if isinstance(step, Gap):
            yield step
        else:
            assert step.batch is not None
            assert step.header is not None
            yield _describe(step.batch, step.header, step.fault, path, records=records)


def _describe(batch: RecordBatch, header: BatchHeader, fault: Fault | None, path: str, *, records: bool) -> Read:
    """Read what the dump prints of a batch, and check the batch."""
    problem = None if fault is None else fault.reason
    crc_ok = fault is None or (computed := batch.computed_crc()) == batch.crc
    if not crc_ok:
        problem = f"the bytes of the batch have checksum {computed:#010x}, but its header has {batch.crc:#010x}"
    base_offset: int | None = None
    count: int | None = None
    try:
        base_offset, count = batch.base_offset, batch.count  # of a wrapper, they need decompression, which may fail
    except TidelogError:
        problem = problem or "its wrapped messages cannot be read"
    read: list[Record] = []
    if crc_ok and (records or batch.is_control):
        try:
            read = batch.record_list()
        except TidelogError as error:
            problem = problem or error.message
    described = [_record(batch, path, record) for record in read]
    v2 = batch.magic == 2
    event = BatchFound(
        path=path,
        position=header.position,
        size=batch.size,
        magic=batch.magic,
        base_offset=base_offset,
        last_offset=batch.header.last_offset,
        count=count,
        leader_epoch=batch.partition_leader_epoch if v2 else None,
        codec=_codec(batch),
        timestamp_type=_TIMESTAMP_TYPES[batch.timestamp_type],
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id if v2 else None,
        producer_epoch=batch.producer_epoch if v2 else None,
        base_sequence=batch.base_sequence if v2 else None,
        last_sequence=batch.last_sequence if v2 else None,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        control=tuple(record.control for record in described if record.control is not None),
        delete_horizon_ms=batch.delete_horizon_ms,
        crc=batch.crc,
        crc_ok=crc_ok,
    )
    return Read(event, header, problem, tuple(described) if records else ())


def _codec(batch: RecordBatch) -> str:
    try:
        return batch.codec.name.lower()
    except UnsupportedCompressionType:
        number = batch.attributes & CODEC_BITS
        return Codec(number).name.lower() if number <= Codec.ZSTD else f"unknown ({number})"


def _record(batch: RecordBatch, path: str, record: Record) -> RecordFound:
    control, coordinator_epoch = _control(record) if batch.is_control else (None, None)
    base = batch.base_sequence
    sequence = NO_SEQUENCE if base == NO_SEQUENCE else (base + record.offset - batch.base_offset) & INT32_MAX
    value = record.value
    # A dump is often copied into reports and tickets: it must not contain passwords or keys.
    if value is not None and value.startswith(_SECRET_KINDS) and PurePath(path).parent.name.startswith(METADATA_TOPIC):
        value = b"a secret, not shown"
    return RecordFound(
        path, record.offset, record.timestamp, sequence, record.key, value, record.headers, control,
        coordinator_epoch,
    )  # fmt: skip


def _control(record: Record) -> tuple[str, int | None]:
    """The name of a control record's type, and the coordinator epoch if it is a transaction marker."""
    try:
        control = decode_control(record)
    except TidelogError:
        return "unreadable", None
    if isinstance(control, EndTxnMarker):
        return ("COMMIT" if control.committed else "ABORT"), control.coordinator_epoch
    number = int.from_bytes((record.key or b"")[2:4])
    return (ControlType(number).name if control is not None else f"unknown ({number})"), None
