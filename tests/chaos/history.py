"""What the workers did and saw, as events: written while the faults last, judged afterwards (verdict.py).

A file of lines, each a JSON array: the name of the event, then its fields. Times are seconds of the machine's monotonic
clock, which all its processes share.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO

Records = list[tuple[int, str]]
"""Offsets with values."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker has begun: it must succeed until the end."""

    t: float
    worker: str
    places: list[tuple[str, int]]
    """The topics and partitions in each of which it must succeed; none: anywhere."""


@dataclass(frozen=True, slots=True)
class Acked:
    t: float
    worker: str
    topic: str
    partition: int
    offset: int | None
    """None: the client was not told. librdkafka is not, if the leader has had the record for longer than it remembers
    offsets."""
    value: str
    ms: float
    """From the call to the acknowledgement."""


@dataclass(frozen=True, slots=True)
class Refused:
    t: float
    worker: str
    topic: str
    partition: int
    value: str
    error: str
    written: bool | None
    """Whether the client says that it is in the log; None: unknown."""


@dataclass(frozen=True, slots=True)
class Assigned:
    t: float
    worker: str
    group: str
    partitions: list[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Polled:
    t: float
    worker: str
    group: str
    topic: str
    partition: int
    records: Records


@dataclass(frozen=True, slots=True)
class Committing:
    """An offset commit was begun: it may have any outcome."""

    t: float
    worker: str
    group: str
    offsets: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Committed:
    """The offsets are stored."""

    t: float
    worker: str
    group: str
    offsets: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class Transaction:
    t: float
    worker: str
    name: str
    """The first part of each value that belongs to it."""
    outcome: str
    """committed, aborted or unknown."""
    records: int


@dataclass(frozen=True, slots=True)
class Topic:
    t: float
    worker: str
    name: str
    state: str
    """creating, created, deleting or deleted."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something else succeeded."""

    t: float
    worker: str
    what: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Something failed that may fail during a fault; the worker continues."""

    t: float
    worker: str
    what: str


@dataclass(frozen=True, slots=True)
class Probed:
    """A probe of a container has another outcome than before."""

    t: float
    node: int
    probe: str
    """startup, readiness or liveness."""
    state: str
    """started, ready, not ready, or killed: so often did it fail."""
    since: float
    """The first of the failures in a row."""


@dataclass(frozen=True, slots=True)
class Stored:
    """After the end: the records of a partition that a reader with read_committed gets."""

    topic: str
    partition: int
    records: Records


@dataclass(frozen=True, slots=True)
class Replica:
    """After the end: the records in the files of an in-sync replica, of any outcome."""

    node: int
    topic: str
    partition: int
    records: Records
    damage: list[str]
    """What is wrong with the files."""


@dataclass(frozen=True, slots=True)
class StoredOffsets:
    """After the end: the committed offsets of a group."""

    group: str
    offsets: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class StoredTopics:
    """After the end: all topics."""

    names: list[str]


@dataclass(frozen=True, slots=True)
class Undrained:
    """After the end of the faults something did not come to its end in time: what was read then is not the end."""

    what: str


OfWorker = Begun | Acked | Refused | Assigned | Polled | Committing | Committed | Transaction | Topic | Step | Failed
"""They have a moment and a worker."""
Event = OfWorker | Probed | Stored | Replica | StoredOffsets | StoredTopics | Undrained
_CLASSES: Final[dict[str, type[Any]]] = {each.__name__: each for each in Event.__args__}


class History:
    """Writes events to a file, or behind those that are there; any thread may."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self._file = path.open("a" if append else "w", encoding="utf-8", buffering=1 << 16)
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._file.close()

    def note(self, event: Event) -> None:
        line = json.dumps([type(event).__name__, *astuple(event)])
        with self._lock:
            self._file.write(line + "\n")


def now() -> float:
    return time.monotonic()


def read(path: Path) -> Iterator[Event]:
    """The events of a file, in their order."""
    with path.open(encoding="utf-8") as file:
        yield from read_on(file)


def read_on(file: TextIO) -> Iterator[Event]:
    """The events that were added to a file since it was last read."""
    while line := file.readline():
        if not line.endswith("\n"):
            file.seek(file.tell() - len(line.encode()))  # the rest of the line is not written yet
            return
        name, *fields = json.loads(line)
        event: Event = _CLASSES[name](*fields)
        yield event
