"""Log directories written by Kafka, unpacked and opened here, with the same requests that were sent to Kafka's broker.

Names and shapes of the answers are those of the JSON files (tests/vectors/README.md), so that a test compares whole
answers. Clock and settings are those of the run that wrote the directory."""

from __future__ import annotations

import json
import lzma
import random
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from storage.directory.log_directory import ConfigOf, LogDirectory
from storage.files.os_files import OsFiles
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.log_config import LogConfig
from storage.segment.time_lookup import TimestampedOffset
from tests.storage.workbench import SetClock
from tidelog.errors import CorruptLog, CorruptRecord
from tidelog.records import EndTxnMarker, decode_control, iter_batches
from tidelog.records.producer_snapshot import decode_snapshot
from tidelog.types import METADATA_TOPIC, Durability, Offset, PartitionIndex, TimestampType, TopicId, TopicPartition

VECTORS: Final = Path(__file__).parent.parent / "vectors"
ROOTS: Final = {"cluster": "node1", "unclean": "killed", "old": "broker0"}
RECOVERIES: Final = {"recovery": "unclean", "old-recovery": "old"}
_READ_BYTES: Final = 4096
"""Small, so that reading a log takes many steps."""

Ranges = list[list[int]]
_FORMATS: Final = {"0.9": 0, "0.1": 1}


@cache
def recorded(name: str) -> dict[str, Any]:
    """One of the JSON files."""
    with lzma.open(VECTORS / f"{name}.json.xz") as file:
        found: dict[str, Any] = json.load(file)
    return found


@dataclass(frozen=True)
class Start:
    """One start of a broker over a directory with planned damage, and the result for its partitions."""

    archive: str
    name: str
    clock: int
    edits: list[dict[str, Any]]
    partitions: dict[str, dict[str, Any]]
    fatal: str | None

    def all_edits(self) -> Iterator[dict[str, Any]]:
        """The changes made to the directory before the start, in order."""
        yield from self.edits
        for partition in self.partitions.values():
            yield from partition["edits"]


@cache
def starts() -> dict[tuple[str, str], Start]:
    """Every recorded start, by archive and name."""
    found = {}
    for name, archive in RECOVERIES.items():
        for start in recorded(name)["starts"]:
            found[archive, start["name"]] = Start(
                archive, start["name"], start["clock"], start["edits"], start["partitions"], start.get("fatal")
            )
    return found


def unpack(archive: str, into: Path) -> Path:
    """Unpack a directory, including sparse files. Returns its path."""
    with tarfile.open(VECTORS / f"{archive}.tar.xz") as tar:
        tar.extractall(into, filter="data")
    return into / ROOTS[archive]


def damage(root: Path, edits: Iterable[dict[str, Any]]) -> None:
    """Change files as the JSON describes."""
    for edit in edits:
        path = root / edit["file"]
        if edit.get("delete"):
            path.unlink()
        elif "copyOf" in edit:
            path.write_bytes((root / edit["copyOf"]).read_bytes())
        elif "content" in edit:
            path.write_text(edit["content"])
        else:
            with path.open("r+b") as file:
                if "truncate" in edit:
                    file.truncate(edit["truncate"])
                if "append" in edit:
                    file.seek(0, 2)
                    file.write(bytes.fromhex(edit["append"]))
                if "overwrite" in edit:
                    file.seek(edit["overwrite"])
                    file.write(bytes.fromhex(edit["with"]))


def config_of(archive: str) -> ConfigOf:
    """The settings of a topic of the directory that concern its log, with Kafka's durability."""

    def find(tp: TopicPartition, _: TopicId) -> LogConfig:
        said = recorded(archive)["partitions"].get(str(tp), {}).get("config") or {}
        return LogConfig(
            segment_bytes=int(said.get("internal.segment.bytes", said.get("segment.bytes", 1 << 30))),
            segment_ms=int(said.get("segment.ms", 604_800_000)),
            index_interval_bytes=int(said.get("index.interval.bytes", 4096)),
            segment_index_bytes=int(said.get("segment.index.bytes", _index_bytes(archive, tp))),
            magic=_FORMATS.get(said.get("message.format.version", "3.0")[:3], 2),
            timestamp_type=TimestampType.LOG_APPEND_TIME
            if said.get("message.timestamp.type") == "LogAppendTime"
            else TimestampType.CREATE_TIME,
            preallocate=said.get("preallocate") == "true",
            delete="compact" not in said.get("cleanup.policy", "delete"),
            compact="compact" in said.get("cleanup.policy", "delete"),
            durability=Durability.PAGE_CACHE,
        )

    return find


def _index_bytes(archive: str, tp: TopicPartition) -> int:
    """`log.index.size.max.bytes` of the broker; the metadata log has its own value."""
    return 65_536 if archive == "unclean" and tp.topic != METADATA_TOPIC else 10 << 20


def open_directory(root: Path, archive: str, clock: int) -> LogDirectory:
    """Open the directory and all logs in it. Everything found is committed, as on a single replica."""
    directory = LogDirectory(str(root), files=OsFiles(), clock=SetClock(clock), rng=random.Random(1))
    directory.load_logs(config_of(archive))
    for log in directory.logs.values():
        log.advance_high_watermark(log.log_end_offset)
    return directory


def partition_of(name: str) -> TopicPartition:
    """The partition named "topic-partition"."""
    topic, _, index = name.rpartition("-")
    return TopicPartition(topic, PartitionIndex(int(index)))


def log_of(directory: LogDirectory, name: str) -> Log:
    """The log named "topic-partition"."""
    return directory.logs[partition_of(name)]


# --- asking ---------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a reader received: offsets of records, and errors as (offset, error)."""

    offsets: list[int]
    trouble: list[tuple[int, str]]


READ_UNCOMMITTED: Final = FetchIsolation.HIGH_WATERMARK
READ_COMMITTED: Final = FetchIsolation.LAST_STABLE_OFFSET


def consume(log: Log, isolation: FetchIsolation) -> Seen:
    """What a consumer reads from the earliest record on. Each batch is verified. After a rejected read or a damaged
    batch the consumer continues behind it."""
    seen = Seen([], [])
    offset, end = log.log_start_offset, log.end_for(isolation)
    while offset < end:
        try:
            read = log.fetch(offset, _READ_BYTES, isolation)
        except CorruptLog as error:
            seen.trouble.append((offset, error.message))
            assert log.damage is not None
            lost = log.damage.at(offset) or log.damage
            offset = Offset(max(lost.end_offset, offset + 1))
            continue
        if not len(read.records):
            break
        _consume(read, log.log_start_offset, seen)
        offset = read.next_offset
    return seen


def _consume(read: LogRead, log_start: int, seen: Seen) -> None:
    """One fetch response without the records of its aborted transactions, as a consumer filters it."""
    aborted = sorted(read.aborted, key=lambda transaction: transaction.first_offset)
    hidden: set[int] = set()
    for batch in iter_batches(read.records):
        try:
            batch.ensure_valid()
        except CorruptRecord as error:
            seen.trouble.append((batch.base_offset, error.message))
            continue
        while aborted and aborted[0].first_offset <= batch.last_offset:
            hidden.add(aborted.pop(0).producer_id)
        if batch.is_control:
            for record in batch.records():  # the cleaner may have removed all records
                marker = decode_control(record)
                if isinstance(marker, EndTxnMarker) and not marker.committed:
                    hidden.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in hidden):
            seen.offsets.extend(record.offset for record in batch.records() if record.offset >= log_start)


def largest_timestamp(log: Log) -> list[int | None]:
    """`maxTimestamp`."""
    return _timestamped(log.largest_timestamp(up_to=log.high_watermark))


def offset_for_time(log: Log, timestamp: int) -> list[int | None]:
    """The answer for one line of `offsetsForTimes`."""
    return _timestamped(log.offset_for_timestamp(timestamp, up_to=log.high_watermark))


def _timestamped(found: TimestampedOffset | None) -> list[int | None]:
    if found is None:
        return [-1, -1, None]
    return [found.offset, found.timestamp, None if found.leader_epoch < 0 else found.leader_epoch]


def producer_states(log: Log) -> list[dict[str, int]]:
    """`producerStates`, by id."""
    states = sorted(
        (state.to_snapshot() for state in log.producers.state.active_producers()), key=lambda state: state.producer_id
    )
    return [
        {
            "producerId": state.producer_id,
            "producerEpoch": state.epoch,
            "lastSequence": state.last_sequence,
            "lastTimestamp": state.timestamp,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTransactionStartOffset": state.transaction_start,
        }
        for state in states
    ]


def ranges(offsets: Iterable[int]) -> Ranges:
    """Offsets as [first, last] of each run without a hole."""
    found: Ranges = []
    for offset in offsets:
        if found and offset == found[-1][1] + 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def batches(log: Log) -> list[dict[str, Any]]:
    """The segments with their batches, in the form of the JSON of a recovery."""
    return [
        {
            "baseOffset": segment.base_offset,
            "size": segment.size,
            "batches": [
                [batch.base_offset, batch.last_offset, batch.position, batch.size, batch.crc]
                for batch in iter_batches(segment.file.pread(segment.size, 0), partial_tail="raise")
            ],
        }
        for segment in log.segments
    ]


def snapshot(path: Path) -> list[dict[str, int]]:
    """The producers of a snapshot file in the form of the JSON, by id: the order in the file has no meaning."""
    entries = sorted(decode_snapshot(path.read_bytes(), str(path)), key=lambda entry: entry.producer_id)
    return [
        {
            "producerId": entry.producer_id,
            "producerEpoch": entry.epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": entry.transaction_start,
            "lastTimestamp": entry.timestamp,
            "lastSequence": entry.last_sequence,
            "lastOffset": entry.last_offset,
            "offsetDelta": entry.offset_delta,
        }
        for entry in entries
    ]


def recorded_snapshot(entries: list[dict[str, Any]]) -> list[dict[str, int]]:
    """The JSON of such a file, without its redundant fields."""
    kept = [{key: entry[key] for key in entry if key not in ("firstSequence", "timestamp")} for entry in entries]
    for entry in kept:
        if entry["currentTxnFirstOffset"] is None:
            entry["currentTxnFirstOffset"] = -1
    return sorted(kept, key=lambda entry: entry["producerId"])
