"""Kafka's small text files: offsets by partition, leader epochs of a log, topic id of a partition directory.

    0                      version
    2                      number of lines that follow
    orders 0 17            topic partition offset       (…-offset-checkpoint)
    3 17                   epoch start-offset           (leader-epoch-checkpoint)

Invariants: a file that does not parse completely raises CorruptLog; no part of it is used. `write_file` replaces the
files atomically.
Source: Kafka's CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile and PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from storage.files.file_system import Files, read_file, write_file
from tidelog.errors import CorruptLog
from tidelog.types import (
    DirectoryId,
    EpochStart,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
    TopicPartition,
    is_topic_name,
)

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
CLEANING_CHECKPOINT: Final = "cleaning-offset-checkpoint"
"""Tidelog's own: below these offsets a cleaning round, finished or not, may have emptied segments."""
LOCAL_START_CHECKPOINT: Final = "local-log-start-offset-checkpoint"
"""Tidelog's own: below these offsets segments have left the log for the remote tier."""
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
MOVED_FROM: Final = "moved-from.metadata"
"""Tidelog's own: in the partition directory of a log that was moved here from another log directory, until the metadata
name this one (future_log.py)."""
PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d{1,10})")
"""Name of a partition directory."""

_VERSION: Final = "0"


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The contents of an offset checkpoint, sorted by topic and partition."""
    return _encode(f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items()))


def read_offsets(files: Files, path: str) -> dict[TopicPartition, Offset]:
    """Offsets by partition, empty if there is no such file. Raises CorruptLog if it does not parse."""
    offsets = {}
    for line in _lines(read_file(files, path), path):
        topic, partition, offset = _fields(path, line, 3)
        if not is_topic_name(topic):
            raise CorruptLog(f"{path}: {topic!r} in line {line!r} is no topic name: the file is damaged")
        offsets[TopicPartition(topic, PartitionIndex(_number(path, line, partition)))] = Offset(
            _number(path, line, offset)
        )
    return offsets


def encode_epochs(entries: Sequence[EpochStart]) -> bytes:
    return _encode(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def read_epochs(files: Files, path: str) -> tuple[EpochStart, ...] | None:
    """Entries in order, None if there is no such file. Raises CorruptLog if it does not parse or is out of order."""
    data = read_file(files, path)
    return None if data is None else decode_epochs(data, path)


def decode_epochs(data: bytes, path: str) -> tuple[EpochStart, ...]:
    """The entries of a leader-epoch-checkpoint, in order. path: for messages. Raises CorruptLog as `read_epochs`."""
    entries: list[EpochStart] = []
    for line in _lines(data, path):
        epoch, start = _fields(path, line, 2)
        entry = EpochStart(LeaderEpoch(_number(path, line, epoch)), Offset(_number(path, line, start)))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset):
            raise CorruptLog(
                f"{path}: epoch or start offset in line {line!r} is not larger than in the line before: rebuild the "
                "file from the log"
            )
        entries.append(entry)
    return tuple(entries)


def encode_topic_id(topic_id: UUID) -> str:
    """A 128-bit id in Kafka's text form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")


def decode_topic_id(text: str) -> UUID:
    """The id in Kafka's text form. Raises ValueError for any other text."""
    try:
        data = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    return UUID(bytes=data)


def write_partition_metadata(files: Files, directory: str, topic_id: TopicId, *, sync: bool) -> None:
    """Write the topic id of a partition directory (KIP-516)."""
    text = f"version: 0\ntopic_id: {encode_topic_id(topic_id)}"
    write_file(files, f"{directory}/{PARTITION_METADATA}", text.encode(), sync=sync)


def read_partition_metadata(files: Files, directory: str) -> TopicId | None:
    """The topic id of a partition directory, None if it has no readable one."""
    data = read_file(files, f"{directory}/{PARTITION_METADATA}")
    if data is None:
        return None
    fields = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    try:
        return TopicId(decode_topic_id(fields["topic_id"])) if fields.get("version") == _VERSION else None
    except (KeyError, ValueError):
        return None


def write_moved_from(files: Files, directory: str, source: DirectoryId) -> None:
    """Record durably, in a partition directory, the log directory that its log is moved from. Raises OSError."""
    text = f"version: {_VERSION}\ndirectory_id: {source}"
    write_file(files, f"{directory}/{MOVED_FROM}", text.encode())


def read_moved_from(files: Files, directory: str) -> DirectoryId | None:
    """The log directory that a log was moved from; None if it was not, or if the metadata name its present one."""
    data = read_file(files, f"{directory}/{MOVED_FROM}") or b""
    fields = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    try:
        return DirectoryId(UUID(fields["directory_id"])) if fields.get("version") == _VERSION else None
    except (KeyError, ValueError):
        return None


def _encode(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "".join(f"{line}\n" for line in [_VERSION, str(len(body)), *body]).encode()


def _lines(data: bytes | None, path: str) -> list[str]:
    """The lines behind the head; none if there is no file."""
    if data is None:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise CorruptLog(
            f"{path} is not a checkpoint of version {_VERSION}, or its line count is wrong: it is damaged or truncated"
        )
    return lines[2:]


def _fields(path: str, line: str, count: int) -> list[str]:
    fields = line.split(" ")
    if len(fields) != count:
        raise CorruptLog(f"{path}: line {line!r} does not have {count} fields: the file is damaged")
    return fields


def _number(path: str, line: str, text: str) -> int:
    if not text.isascii() or not text.lstrip("-").isdigit():
        raise CorruptLog(f"{path}: {text!r} in line {line!r} is not a number: the file is damaged")
    return int(text)
