"""Data folders that Kafka wrote, unpacked and opened here, and asked what Kafka's broker was asked.

Names and shapes of the answers are those of the JSON files (tests/vectors/README.md), so that a test compares whole
answers. Clock and settings are those of the run that wrote the folder.
"""

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

from storage.config import LogConfig
from storage.data_folder import ConfigOf, DataFolder
from storage.log import Log
from storage.os_files import OsFiles
from tests.storage.workbench import SetClock
from tidelog.errors import CorruptLog, CorruptRecord
from tidelog.records import RecordBatch, iter_batches
from tidelog.types import Durability, Offset, PartitionIndex, TimestampType, TopicId, TopicPartition

VECTORS: Final = Path(__file__).parent.parent / "vectors"
ROOTS: Final = {"cluster": "node1", "unclean": "killed", "old": "broker0"}
RECOVERIES: Final = {"recovery": "unclean", "old-recovery": "old"}
_READ_BYTES: Final = 4096
"""Small, so that a log is read in many steps."""

Ranges = list[list[int]]
_FORMATS: Final = {"0.9": 0, "0.1": 1}


@cache
def told(name: str) -> dict[str, Any]:
    """One of the JSON files."""
    with lzma.open(VECTORS / f"{name}.json.xz") as file:
        found: dict[str, Any] = json.load(file)
    return found


@dataclass(frozen=True)
class Start:
    """One start of a broker over a folder with planned damage, and what became of its partitions."""

    archive: str
    name: str
    clock: int
    edits: list[dict[str, Any]]
    partitions: dict[str, dict[str, Any]]
    fatal: str | None

    def all_edits(self) -> Iterator[dict[str, Any]]:
        """What was changed in the folder before the start, in order."""
        yield from self.edits
        for partition in self.partitions.values():
            yield from partition["edits"]


@cache
def starts() -> dict[tuple[str, str], Start]:
    """Every start that was tried, by archive and name."""
    found = {}
    for name, archive in RECOVERIES.items():
        for start in told(name)["starts"]:
            found[archive, start["name"]] = Start(
                archive, start["name"], start["clock"], start["edits"], start["partitions"], start.get("fatal")
            )
    return found


def unpack(archive: str, into: Path) -> Path:
    """Lay a folder out as it was, holes included. Returns it."""
    with tarfile.open(VECTORS / f"{archive}.tar.xz") as tar:
        tar.extractall(into, filter="data")
    return into / ROOTS[archive]


def damage(root: Path, edits: Iterable[dict[str, Any]]) -> None:
    """Change files as the JSON says."""
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
    """The settings that a topic of the folder had, as far as its log is concerned; durable as Kafka's are."""

    def find(tp: TopicPartition, _: TopicId) -> LogConfig:
        said = told(archive)["partitions"].get(str(tp), {}).get("config") or {}
        return LogConfig(
            segment_bytes=int(said.get("internal.segment.bytes", said.get("segment.bytes", 1 << 30))),
            segment_ms=int(said.get("segment.ms", 604_800_000)),
            index_interval_bytes=int(said.get("index.interval.bytes", 4096)),
            segment_index_bytes=int(said.get("segment.index.bytes", 10 << 20)),
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


def open_folder(root: Path, archive: str, clock: int) -> DataFolder:
    """Open the folder and all logs in it; everything found is committed, as on a single replica."""
    folder = DataFolder.open(str(root), files=OsFiles(), clock=SetClock(clock), rng=random.Random(1))
    folder.load_logs(config_of(archive))
    for log in folder.logs.values():
        log.advance_high_watermark(log.log_end_offset)
    return folder


def log_of(folder: DataFolder, partition: str) -> Log:
    """The log of "topic-partition"."""
    topic, _, index = partition.rpartition("-")
    return folder.logs[TopicPartition(topic, PartitionIndex(int(index)))]


# --- asking ---------------------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What a reader got: offsets of records, and where it was refused or found damage, as (offset, error)."""

    offsets: list[int]
    trouble: list[tuple[int, str]]


def read_all(log: Log, up_to: Offset, seen: Seen) -> Iterator[RecordBatch]:
    """Batches from the log start on, each checked as a consumer checks it; what is lost or damaged is skipped."""
    offset = log.log_start_offset
    while offset < up_to:
        try:
            read = log.read(offset, _READ_BYTES, up_to=up_to)
        except CorruptLog as error:
            seen.trouble.append((offset, error.message))
            assert log.damage is not None
            offset = log.damage.end_offset
            continue
        if not len(read.records):
            return
        for batch in iter_batches(read.records):
            try:
                batch.ensure_valid()
                yield batch
            except CorruptRecord as error:
                seen.trouble.append((batch.base_offset, error.message))
        offset = read.next_offset


def read_uncommitted(log: Log) -> Seen:
    """What a consumer of this isolation level gets, from the earliest record on."""
    seen = Seen([], [])
    for batch in read_all(log, log.high_watermark, seen):
        if not batch.is_control:
            seen.offsets.extend(record.offset for record in batch.records() if record.offset >= log.log_start_offset)
    return seen


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
    """The segments with their batches, as the JSON of a recovery has them."""
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
