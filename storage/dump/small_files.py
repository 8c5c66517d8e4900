"""The small files around a log, read whole: snapshots, checkpoints, marks, properties.

A file that cannot be parsed is a finding.

Invariants: the parsers are those of the storage engine. Nothing is opened for writing.
Not here: .log files and their indexes (log_file.py, segment_files.py), which files exist (walk.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from storage.checkpoints.checkpoint_file import (
    LEADER_EPOCH_CHECKPOINT,
    MOVED_FROM,
    PARTITION_METADATA,
    encode_topic_id,
    read_epochs,
    read_offsets,
    read_partition_metadata,
)
from storage.checkpoints.directory_identity import CLEAN_SHUTDOWN, META_PROPERTIES, REGISTRATION, parse_properties
from storage.checkpoints.durable_offsets import DURABLE_MARKS, parse_marks
from storage.dump.dump_events import (
    AgreementFound,
    DumpFinding,
    EpochFound,
    Events,
    FileFound,
    MarkFound,
    OffsetFound,
    ProducerFound,
    PropertyFound,
    damage,
    note,
)
from storage.files.file_system import Files, read_file
from storage.producers.snapshot_files import SNAPSHOT_SUFFIX
from storage.segment.abstract_index import CorruptIndex
from storage.segment.agreed_indexes import AGREEMENT_FILE, parse_agreements
from storage.segment.transaction_index import AbortedTransaction, TransactionIndex
from tidelog.errors import CorruptLog
from tidelog.records.producer_snapshot import ProducerSnapshot, decode_snapshot
from tidelog.types import NO_SEQUENCE, Offset

ASIDE: Final = (".deleted", ".swap", ".cleaned", ".stray", ".tmp")
"""Suffixes of files that are being added or removed, or were set aside."""
TXN_ENTRY_BYTES: Final = 34
_KINDS: Final = {
    ".log": "log",
    ".checkpoint": "log",
    ".index": "index",
    ".timeindex": "timeindex",
    ".txnindex": "txnindex",
    SNAPSHOT_SUFFIX: "snapshot",
    "-offset-checkpoint": "offsets",
}
_NAMES: Final = {
    LEADER_EPOCH_CHECKPOINT: "epochs",
    DURABLE_MARKS: "marks",
    AGREEMENT_FILE: "agreements",
    PARTITION_METADATA: "properties",
    MOVED_FROM: "properties",
    META_PROPERTIES: "properties",
    CLEAN_SHUTDOWN: "properties",
    REGISTRATION: "properties",
    "quorum-state": "properties",
}
_DERIVED: Final = "nothing: the file is rebuilt from the log when that is next opened"


def kind_of(name: str) -> str:
    """The kind of a file (FileFound.kind) by its name, without such a suffix."""
    for suffix in ASIDE:
        name = name.removesuffix(suffix)
    if name in _NAMES:
        return _NAMES[name]
    return next((kind for suffix, kind in _KINDS.items() if name.endswith(suffix)), "other")


def dump_small(files: Files, path: str) -> Events:
    """A file of any kind except log and index. Raises OSError."""
    kind, size = kind_of(path.rpartition("/")[2]), files.size(path)
    if size is None:
        return  # removed since the directory was listed
    yield FileFound(path, kind, size)
    if kind == "other":
        yield note(path, "a log or log directory has no file of this name", "nothing: it is not used")
    elif kind in _READERS:
        yield from _READERS[kind](files, path)


def aborted(files: Files, path: str, base: int) -> tuple[Sequence[AbortedTransaction], list[DumpFinding]]:
    """The entries of a .txnindex, and the findings about the file. Raises OSError."""
    try:
        entries = TransactionIndex(files, path, Offset(base)).entries
    except CorruptIndex as error:
        return (), [damage(path, str(error), _DERIVED)]
    size = files.size(path) or 0
    if not size % TXN_ENTRY_BYTES:
        return entries, []
    cause = f"{size} bytes are no whole number of entries of {TXN_ENTRY_BYTES} bytes: it was truncated"
    return entries, [damage(path, cause, _DERIVED, position=size - size % TXN_ENTRY_BYTES)]


def _snapshot(files: Files, path: str) -> Events:
    data = read_file(files, path)
    if data is None:
        return
    try:
        producers = decode_snapshot(data, path)
    except CorruptLog as error:
        yield damage(path, error.message.removeprefix(f"{path} "), _DERIVED)
        return
    for producer in sorted(producers):
        yield _producer(path, producer)


def _producer(path: str, producer: ProducerSnapshot) -> ProducerFound:
    last, delta = producer.last_sequence, producer.offset_delta
    some = producer.last_offset >= 0
    return ProducerFound(
        path=path,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        first_sequence=(NO_SEQUENCE if last == NO_SEQUENCE else (last - delta) & 0x7FFFFFFF) if some else None,
        last_sequence=last if some else None,
        last_offset=producer.last_offset if some else None,
        offset_delta=delta if some else None,
        timestamp=producer.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=producer.transaction_start if producer.transaction_start >= 0 else None,
    )


def _epochs(files: Files, path: str) -> Events:
    try:
        entries = read_epochs(files, path) or ()
    except CorruptLog as error:
        yield damage(path, error.message, "delete the file while the node is stopped: it is rebuilt from the log")
        return
    for entry in entries:
        yield EpochFound(path, entry.epoch, entry.start_offset)


def _offsets(files: Files, path: str) -> Events:
    if not files.size(path):
        yield note(path, "the file is empty, as Kafka creates it before the first write", "nothing: it has no entries")
        return
    try:
        offsets = read_offsets(files, path)
    except CorruptLog as error:
        yield damage(
            path,
            error.message,
            "delete the file while the node is stopped: logs are then recovered from their beginning",
        )
        return
    for tp, offset in sorted(offsets.items()):
        yield OffsetFound(path, tp.topic, tp.partition, offset)


def _marks(files: Files, path: str) -> Events:
    for mark in parse_marks(read_file(files, path) or b""):
        if mark is not None:
            key, durable_offset = mark
            yield MarkFound(path, encode_topic_id(key.topic_id), key.partition, durable_offset)


def _agreements(files: Files, path: str) -> Events:
    agreements = parse_agreements(read_file(files, path) or b"")
    if agreements is None:
        cause = "the file is truncated or corrupt: its checksum or line count is wrong"
        yield damage(path, cause, "nothing: transaction indexes are then compared with the log before they are used")
        return
    for base, agreement in sorted(agreements.items()):
        yield AgreementFound(path, base, *agreement)


def _properties(files: Files, path: str) -> Events:
    name, data = path.rpartition("/")[2], read_file(files, path) or b""
    if name == PARTITION_METADATA:
        topic_id = read_partition_metadata(files, path.rpartition("/")[0] or ".")
        if topic_id is None:
            step = "write it again with the topic's id; otherwise the node sets the whole directory aside"
            yield damage(path, "it has no topic id: the file is damaged", step)
            return
        yield PropertyFound(path, "topic_id", encode_topic_id(topic_id))
    elif name == REGISTRATION:
        yield PropertyFound(path, "registration", data.decode("ascii", "replace").partition("\n")[2].partition("\n")[0])
    elif name == META_PROPERTIES:
        for key, value in sorted(parse_properties(data).items()):
            yield PropertyFound(path, key, value)
    elif data:
        try:
            fields = json.loads(data)
        except ValueError:
            yield damage(path, "the file is not valid JSON", "nothing: it is not used then")
            return
        if isinstance(fields, dict):
            for key, value in fields.items():
                yield PropertyFound(path, str(key), value if isinstance(value, str) else json.dumps(value))


_READERS: Final = {
    "snapshot": _snapshot,
    "epochs": _epochs,
    "offsets": _offsets,
    "marks": _marks,
    "agreements": _agreements,
    "properties": _properties,
}
