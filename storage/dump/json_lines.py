"""A dump as JSON lines: one object per finding, file, batch, record or entry, in the order in which they are found.

Every object has `type`, and the fields of its class in dump_events.py by name. Bytes are in hex, missing values are
null, and control characters in text are escaped as in JSON. The last line has the type `summary`. Fields and types are
only ever added.
Not here: the events (dump_events.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from enum import Enum
from typing import Final

from storage.dump import dump_events as events

TYPES: Final[dict[type[events.Event], str]] = {
    events.DumpFinding: "finding",
    events.FileFound: "file",
    events.BatchFound: "batch",
    events.RecordFound: "record",
    events.OffsetEntryFound: "offset_entry",
    events.TimeEntryFound: "time_entry",
    events.AbortedFound: "aborted_transaction",
    events.ProducerFound: "producer",
    events.EpochFound: "epoch",
    events.OffsetFound: "offset",
    events.MarkFound: "held_mark",
    events.AgreementFound: "agreement",
    events.PropertyFound: "property",
    events.LogSummed: "log",
}


def plain(event: events.Event) -> dict[str, object]:
    line: dict[str, object] = {"type": TYPES[type(event)]}
    for field in fields(event):
        line[field.name] = _plain(getattr(event, field.name))
    return line


class JsonWriter:
    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def event(self, event: events.Event) -> None:
        self._line(plain(event))

    def end(self, damage: int, notes: int) -> None:
        self._line({"type": "summary", "damage": damage, "notes": notes})

    def _line(self, line: dict[str, object]) -> None:
        self._write(json.dumps(line, separators=(",", ":")) + "\n")


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value
