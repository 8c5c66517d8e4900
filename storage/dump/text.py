"""A dump for people: a heading for each file, aligned tables that still stream, findings in sentences.

Invariants: columns are as wide as the values shown so far, a screenful at a time. Timestamps and sizes are shown as raw
numbers and in readable form.
Not here: the events (dump_events.py), the format for scripts (json_lines.py).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Final

from storage.dump.dump_events import (
    AbortedFound,
    AgreementFound,
    BatchFound,
    DumpFinding,
    EpochFound,
    Event,
    FileFound,
    LogSummed,
    MarkFound,
    OffsetEntryFound,
    OffsetFound,
    ProducerFound,
    PropertyFound,
    RecordFound,
    Severity,
    TimeEntryFound,
)

_ROWS: Final = 40
_WIDTH: Final = 120
_SHOWN: Final = 60
_LAST_YEAR_MS: Final = 253_402_300_799_999

_HEADINGS: Final[dict[type[Event], tuple[str, ...]]] = {
    BatchFound: (
        *("byte", "size", "offsets", "records", "epoch", "format"),
        *("codec", "largest timestamp", "producer", "CRC", "what"),
    ),
    OffsetEntryFound: ("offset", "byte of the batch"),
    TimeEntryFound: ("timestamp", "", "offset"),
    AbortedFound: ("producer", "first offset", "last offset", "last stable offset"),
    ProducerFound: ("producer", "epoch", "sequences", "last offset", "timestamp", "coordinator epoch", "open since"),
    EpochFound: ("epoch", "start offset"),
    OffsetFound: ("topic", "partition", "offset"),
    MarkFound: ("topic id", "partition", "durable below"),
    AgreementFound: ("segment", "bytes of the .log", "index entries", "their CRC-32C", "open since"),
    PropertyFound: ("name", "value"),
}
_KIND_NAMES: Final = {
    "log": "record batches",
    "index": "offset index",
    "timeindex": "time index",
    "txnindex": "aborted transactions",
    "snapshot": "producer snapshot",
    "epochs": "leader epochs",
    "offsets": "offset checkpoint",
    "properties": "properties",
    "marks": "durable-offset marks",
    "agreements": "transaction indexes that agree with their segments",
    "other": "not read",
}
_TO_THE_LEFT: Final = frozenset(
    {"format", "codec", "largest timestamp", "producer", "what", "topic", "name", "value", ""}
)


class TextWriter:
    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._table: _Table | None = None
        self._table_of: type[Event] | None = None

    def event(self, event: Event) -> None:
        if isinstance(event, RecordFound):
            self._flush()
            self._write(_record_line(event))
        elif type(event) in _HEADINGS:
            if self._table_of is not type(event):
                self._close_table()
                self._table_of = type(event)
                self._table = _Table(self._write, _HEADINGS[type(event)])
            assert self._table is not None
            self._table.row(_row(event))
        elif isinstance(event, DumpFinding):
            self._flush()
            self._write(_finding_text(event))
        else:
            self._close_table()
            if isinstance(event, FileFound):
                self._write(f"\n{event.path}  {_KIND_NAMES[event.kind]}, {size_text(event.size)}\n")
            elif isinstance(event, LogSummed):
                self._write(_sum_text(event))

    def end(self, damage: int, notes: int) -> None:
        self._close_table()
        if damage:
            self._write(f"\nDAMAGED: {_counted(damage, 'finding')} of damage, {_counted(notes, 'note')}\n")
        else:
            self._write(f"\nNo damage found; {_counted(notes, 'note')}\n")

    def _flush(self) -> None:
        if self._table is not None:
            self._table.flush()

    def _close_table(self) -> None:
        self._flush()
        self._table = self._table_of = None


class _Table:
    """Rows with columns aligned to the widest value so far."""

    def __init__(self, write: Callable[[str], object], headings: Sequence[str]) -> None:
        self._write = write
        self._headings = headings
        self._widths = [len(heading) for heading in headings]
        self._rows: list[Sequence[str]] = []
        self._headed = False

    def row(self, cells: Sequence[str]) -> None:
        self._rows.append(cells)
        if len(self._rows) >= _ROWS:
            self.flush()

    def flush(self) -> None:
        for row in self._rows:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if self._rows and not self._headed:
            self._headed = True
            self._line(self._headings)
        for row in self._rows:
            self._line(row)
        self._rows.clear()

    def _line(self, cells: Sequence[str]) -> None:
        padded = (
            cell.ljust(width) if heading in _TO_THE_LEFT else cell.rjust(width)
            for cell, width, heading in zip(cells, self._widths, self._headings, strict=True)
        )
        self._write(("  " + "  ".join(padded)).rstrip() + "\n")


def _row(event: Event) -> Sequence[str]:
    match event:
        case BatchFound():
            return _batch_row(event)
        case TimeEntryFound():
            return str(event.timestamp), time_text(event.timestamp), str(event.offset)
        case AbortedFound():
            return [str(getattr(event, field.name)) for field in fields(event)[2:]]
        case ProducerFound():
            return _producer_row(event)
        case AgreementFound():
            sizes = str(event.base_offset), str(event.log_bytes), str(event.index_entries)
            return *sizes, str(event.index_checksum), "–" if event.open_since < 0 else str(event.open_since)
        case _:
            return [_shown(getattr(event, field.name)) for field in fields(event)[1:]]  # all but the path


def _batch_row(batch: BatchFound) -> Sequence[str]:
    offsets = f"{_or(batch.base_offset)}–{batch.last_offset}"
    timestamp = f"{batch.max_timestamp} {time_text(batch.max_timestamp)}" if batch.max_timestamp >= 0 else "–"
    producer = "–"
    if batch.producer_id is not None and batch.producer_id >= 0:
        sequences = f" seq {batch.base_sequence}–{batch.last_sequence}" if (batch.base_sequence or 0) >= 0 else ""
        producer = f"{batch.producer_id}/{batch.producer_epoch}{sequences}"
    facts = list(batch.control)
    if batch.is_control and not batch.control:
        facts.append("control")
    elif batch.is_transactional and not batch.is_control:
        facts.append("transactional")
    if batch.timestamp_type == "LogAppendTime":
        facts.append("log append time")
    if batch.delete_horizon_ms is not None:
        facts.append(f"delete horizon {time_text(batch.delete_horizon_ms)}")
    return (
        str(batch.position),
        str(batch.size),
        offsets,
        _or(batch.count),
        _or(batch.leader_epoch),
        f"v{batch.magic}",
        batch.codec,
        timestamp,
        producer,
        "ok" if batch.crc_ok else "WRONG",
        ", ".join(facts),
    )


def _producer_row(producer: ProducerFound) -> Sequence[str]:
    sequences = "–" if producer.last_sequence is None else f"{producer.first_sequence}–{producer.last_sequence}"
    return (
        str(producer.producer_id),
        str(producer.producer_epoch),
        sequences,
        _or(producer.last_offset),
        f"{producer.timestamp} {time_text(producer.timestamp)}",
        str(producer.coordinator_epoch),
        _or(producer.current_txn_first_offset),
    )


def _record_line(record: RecordFound) -> str:
    parts = [f"offset {record.offset}", f"{record.timestamp} {time_text(record.timestamp)}".strip()]
    if record.sequence >= 0:
        parts.append(f"seq {record.sequence}")
    if record.control is not None:
        epoch = f" by coordinator epoch {record.coordinator_epoch}" if record.coordinator_epoch is not None else ""
        parts.append(f"{record.control}{epoch}")
    else:
        parts += [f"key {bytes_text(record.key)}", f"value {bytes_text(record.value)}"]
    if record.headers:
        parts.append("headers " + ", ".join(f"{name!r}={bytes_text(value)}" for name, value in record.headers))
    return f"      | {'  '.join(parts)}\n"


def _finding_text(finding: DumpFinding) -> str:
    where = finding.path
    if finding.position is not None:
        where += f", byte {finding.position}"
    if finding.first_offset is not None and finding.last_offset is not None:
        where += f", offsets {finding.first_offset} to {finding.last_offset}"
    elif finding.first_offset is not None:
        where += f", from offset {finding.first_offset} on"
    word = "DAMAGE" if finding.severity is Severity.DAMAGE else "note"
    text = f"{word}: {where}: {finding.cause.rstrip('.')}. What to do: {finding.next_step}."
    lines = textwrap.wrap(text, _WIDTH - 4, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "".join(
        f"  {sign} {line}\n"
        for sign, line in zip(("!" if word == "DAMAGE" else "-", *" " * len(lines)), lines, strict=False)
    )


def _sum_text(log: LogSummed) -> str:
    start = "?" if log.log_start_offset is None else str(log.log_start_offset)
    records = "?" if log.records is None else f"{log.records:,}"
    text = f"{_counted(log.damage, 'finding')} of damage" if log.damage else "no damage"
    if log.notes:
        text += f", {_counted(log.notes, 'note')}"
    return (
        f"\n{log.path}: offsets {start} to {log.log_end_offset} (end), {_counted(log.segments, 'segment')}, "
        f"{_counted(log.batches, 'batch', 'batches')}, {records} records, {size_text(log.size)}: {text}\n"
    )


def time_text(timestamp: int) -> str:
    """A timestamp in milliseconds as date and time in UTC; empty for an invalid one."""
    if not 0 <= timestamp <= _LAST_YEAR_MS:
        return ""
    moment = datetime.fromtimestamp(timestamp // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp % 1000:03d}Z"


def size_text(size: int) -> str:
    """A number of bytes, from 1 KiB on also in binary units."""
    amount, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{size:,} bytes" if unit == "bytes" else f"{amount:.1f} {unit} ({size:,} bytes)"


def bytes_text(data: bytes | None) -> str:
    """Bytes as text if they are text; long values are shortened, with their length."""
    if data is None:
        return "null"
    most = _SHOWN
    try:
        shown = repr(data[:_SHOWN].decode("utf-8"))
    except UnicodeDecodeError:
        shown, most = f"0x{data[: _SHOWN // 2].hex()}", _SHOWN // 2
    return shown if len(data) <= most else f"{shown}… ({len(data):,} bytes)"


def _shown(value: object) -> str:
    """A cell in printable characters: what a file names as a topic or a property may be anything."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _or(number: int | None) -> str:
    return "–" if number is None else str(number)


def _counted(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"
