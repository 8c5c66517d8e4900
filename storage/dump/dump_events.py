"""The values that a dump yields one after the other: files, batches, records, entries, and findings.

Invariants: every value is self-contained, so that a file of any size can be streamed. The fields are the stable format
that `--json` prints (json_lines.py), documented in docs/storage.md.
Not here: how the values are found (log_file.py, segment_files.py, small_files.py), the text for people (text.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TypeAlias


class Severity(Enum):
    DAMAGE = "damage"
    """Written data is lost, or a file contradicts the log: the dump ends with exit code 1."""
    NOTE = "note"
    """Worth knowing, but nothing is lost: a torn tail that the next start truncates, a file to be deleted."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a file."""

    path: str


@dataclass(frozen=True, slots=True)
class DumpFinding:
    """A problem: the file, the byte in it (None: the whole file), the offsets (None: none or unknown; the last one is
    inclusive), the cause, and what to do."""

    severity: Severity
    path: str
    position: int | None
    first_offset: int | None
    last_offset: int | None
    cause: str
    next_step: str


@dataclass(frozen=True, slots=True)
class FileFound(Found):
    """The start of a file."""

    kind: str
    """`log`, `index`, `timeindex`, `txnindex`, `snapshot`, `epochs`, `offsets`, `properties`, `marks`, `agreements`, or
    `other` for a file that is not read."""
    size: int
    """Size in bytes."""


@dataclass(frozen=True, slots=True)
class BatchFound(Found):
    """One record batch; of v0 and v1 one outer message, plain or wrapper. Fields that a format lacks are None, as are
    `base_offset` and `count` of a wrapper that cannot be decompressed."""

    position: int
    """Position and size in bytes."""
    size: int
    magic: int
    base_offset: int | None
    last_offset: int
    count: int | None
    leader_epoch: int | None
    codec: str
    """Codec and timestamp type by Kafka's names."""
    timestamp_type: str
    max_timestamp: int
    producer_id: int | None
    producer_epoch: int | None
    base_sequence: int | None
    last_sequence: int | None
    is_transactional: bool
    is_control: bool
    control: tuple[str, ...]
    """Names of the control records in it (`COMMIT`, `ABORT`, `LEADER_CHANGE` ...)."""
    delete_horizon_ms: int | None
    crc: int
    crc_ok: bool
    """True if the stored checksum is correct."""


@dataclass(frozen=True, slots=True)
class RecordFound(Found):
    """A record of the preceding batch."""

    offset: int
    timestamp: int
    sequence: int
    """-1 for a record without a sequence number."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control: str | None
    """The type of a control record; None for data."""
    coordinator_epoch: int | None


@dataclass(frozen=True, slots=True)
class OffsetEntryFound(Found):
    """An entry of an .index: last offset of a batch (absolute), and the byte where the batch begins."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntryFound(Found):
    """An entry of a .timeindex: the largest timestamp so far, and the last offset (absolute) of its batch."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedFound(Found):
    """An entry of a .txnindex: an aborted transaction, from its first record to its marker."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerFound(Found):
    """A producer of a .snapshot. All fields of its last batch are None if it has appended none since its last epoch;
    current_txn_first_offset is None if no transaction is open."""

    producer_id: int
    producer_epoch: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    offset_delta: int | None
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int | None


@dataclass(frozen=True, slots=True)
class EpochFound(Found):
    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class OffsetFound(Found):
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class MarkFound(Found):
    """A durable-offset mark: the log had reported everything below this offset as durable."""

    topic_id: str
    partition: int
    durable_offset: int


@dataclass(frozen=True, slots=True)
class AgreementFound(Found):
    """The sizes of a segment and its transaction index when they agreed. open_since: first offset of the oldest
    transaction that was open at its end, -1 if there was none."""

    base_offset: int
    log_bytes: int
    index_entries: int
    index_checksum: int
    open_since: int


@dataclass(frozen=True, slots=True)
class PropertyFound(Found):
    """A named value of a small text file."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class LogSummed(Found):
    """The end of a log, or of a single .log file."""

    segments: int
    log_start_offset: int | None
    """None if unknown."""
    log_end_offset: int
    """One past the last offset found."""
    batches: int
    records: int | None
    """None if damage hides the number."""
    size: int
    damage: int
    notes: int


Event: TypeAlias = DumpFinding | Found
Events: TypeAlias = Iterator[Event]


def _finding(
    severity: Severity,
    path: str,
    cause: str,
    next_step: str,
    *,
    position: int | None = None,
    first: int | None = None,
    last: int | None = None,
) -> DumpFinding:
    return DumpFinding(severity, path, position, first, last, cause, next_step)


damage = partial(_finding, Severity.DAMAGE)
"""A finding of lost or contradictory data."""
note = partial(_finding, Severity.NOTE)
"""A finding without loss of data."""
