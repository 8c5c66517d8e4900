"""Our dump, in the very lines that Kafka's DumpLogSegments prints: whatever it says beyond them is a complaint."""

from __future__ import annotations

import re
from pathlib import Path

from storage.dump.dump_events import (
    AbortedFound,
    BatchFound,
    Event,
    OffsetEntryFound,
    ProducerFound,
    RecordFound,
    TimeEntryFound,
)
from storage.dump.walk import dump
from storage.files.os_files import OsFiles

_INNER = re.compile(r" isValid: true crc: \d+}")
"""Of a v0 or v1 message, Kafka tells the inner checksum too; it must be right."""


def our_lines(directory: Path, partition: str) -> dict[str, list[str]]:
    """By file, below the directory: the lines for everything that our dump found in a partition directory."""
    found: dict[str, list[str]] = {}
    for event in dump(OsFiles(), str(directory / partition), records=True):
        line = _line(event)
        if line is not None:
            found.setdefault(str(Path(event.path).relative_to(directory)), []).append(line)
    return found


def kafkas_lines(printed: list[str]) -> list[str]:
    """What Kafka printed of one file, less what it says of every one, and of an empty index."""
    return [
        _INNER.sub("", line)
        for line in printed
        if not line.startswith("Log starting offset: ") and not line.endswith("index is empty.")
    ]


def holes(directory: Path, partition: str) -> list[str]:
    """What Kafka's tool says of logs in which offsets are missing: no complaint, where followers or cleaners left
    them out."""
    said: dict[str, list[str]] = {}
    last: dict[str, int] = {}
    for event in dump(OsFiles(), str(directory / partition), records=True):
        if isinstance(event, RecordFound):
            path = str(Path(event.path).relative_to(directory))
            before = last.get(path)
            if before is not None and event.offset != before + 1:
                header = [f"Non-consecutive offsets in {path}"]
                said.setdefault(path, header).append(f"  {before} is followed by {event.offset}")
            last[path] = event.offset
    return [line for lines in said.values() for line in lines]


def _line(event: Event) -> str | None:
    match event:
        case BatchFound():
            return _batch(event)
        case RecordFound():
            return _record(event)
        case OffsetEntryFound(offset=offset, position=position):
            return f"offset: {offset} position: {position}"
        case TimeEntryFound(timestamp=timestamp, offset=offset):
            return f"timestamp: {timestamp} offset: {offset}"
        case AbortedFound():
            return (
                f"version: {event.version} producerId: {event.producer_id} firstOffset: {event.first_offset} "
                f"lastOffset: {event.last_offset} lastStableOffset: {event.last_stable_offset}"
            )
        case ProducerFound():
            return _producer(event)
        case _:
            return None


def _batch(batch: BatchFound) -> str:
    head = f"offset: {batch.last_offset}"
    if batch.magic == 2:
        head = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.leader_epoch} isTransactional: {_word(batch.is_transactional)} "
            f"isControl: {_word(batch.is_control)} deleteHorizonMs: {_optional(batch.delete_horizon_ms)}"
        )
    return (
        f"{head} position: {batch.position} {batch.timestamp_type}: {batch.max_timestamp} size: {batch.size} "
        f"magic: {batch.magic} compresscodec: {batch.codec} crc: {batch.crc} isvalid: {_word(batch.crc_ok)}"
    )


def _record(record: RecordFound) -> str:
    """The type of the timestamp is that of the batch; `named` replaces it."""
    sizes = f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    line = f"| offset: {record.offset} TYPE: {record.timestamp} {sizes}"
    line += f" sequence: {record.sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    if record.control in ("COMMIT", "ABORT"):
        return f"{line} endTxnMarker: {record.control} coordinatorEpoch: {record.coordinator_epoch}"
    if record.key is not None:
        line += f" key: {record.key.decode()}"
    if record.value is not None:
        line += f" payload: {record.value.decode()}"
    return line


def named(lines: list[str]) -> list[str]:
    """Records with their batch's timestamp type; those of v0 and v1 have neither sequence nor headers."""
    kind, old, repaired = "", False, []
    for line in lines:
        if line.startswith("| "):
            line = line.replace("TYPE", kind, 1)
            if old:
                line = re.sub(r" sequence: -1 headerKeys: \[\]", "", line, count=1)
        else:
            found = re.search(r"(CreateTime|LogAppendTime|NoTimestampType): ", line)
            kind = found[1] if found else kind
            old = line.startswith("offset: ")
        repaired.append(line)
    return repaired


def _producer(producer: ProducerFound) -> str:
    line = (
        f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch} "
        f"coordinatorEpoch: {producer.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(producer.current_txn_first_offset)} lastTimestamp: {producer.timestamp}"
    )
    if producer.last_offset is not None:
        line += (
            f" firstSequence: {producer.first_sequence} lastSequence: {producer.last_sequence} "
            f"lastOffset: {producer.last_offset} offsetDelta: {producer.offset_delta} timestamp: {producer.timestamp}"
        )
    return line


def _optional(number: int | None) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{number}]"


def _word(value: bool) -> str:
    return "true" if value else "false"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)
