"""A bounded cache of verified ranges and indexes of remote segments, shared by all readers of a process.

Invariants:
  1. The bytes held are at most the limit. An entry larger than it is used and not kept.
  2. What is here was verified when it was read. Objects never change, so nothing has to be dropped when a segment is
     deleted: it gets old.
  3. While one thread reads a part of an object, others that need parts of it wait and then look again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final, NamedTuple

from tidelog.tiering.remote_segment import SectionKind

_OVERHEAD_BYTES: Final = 512
"""Of an entry beside its bytes."""


class Part(NamedTuple):
    """A part of an object."""

    key: str
    """Store and key of the object."""
    kind: SectionKind
    number: int = 0
    """Of the log: which of the ranges that have a checksum."""


class RemoteCache:
    """Least recently used parts leave first. Thread-safe. `hits`: parts that were here. `misses`: parts that
    were read from a store, `missed_bytes` their bytes."""

    def __init__(self, size_max: int) -> None:
        """size_max: bytes."""
        self.size_max = size_max
        self.size = 0
        self.hits = self.misses = self.missed_bytes = 0
        self._lock = Lock()
        self._parts: OrderedDict[Part, bytes] = OrderedDict()
        self._loading: dict[str, tuple[Lock, int]] = {}
        """By key, for objects that are being read: a lock, and how many threads use it."""

    def get(self, part: Part) -> bytes | None:
        with self._lock:
            data = self._parts.get(part)
            if data is not None:
                self.hits += 1
                self._parts.move_to_end(part)
            return data

    def __contains__(self, part: object) -> bool:
        """True if a part is here; it does not count as used."""
        with self._lock:
            return part in self._parts

    def put(self, part: Part, data: bytes) -> None:
        size = len(data) + _OVERHEAD_BYTES
        with self._lock:
            self.misses += 1
            self.missed_bytes += len(data)
            if part in self._parts or size > self.size_max:
                return
            self._parts[part] = data
            self.size += size
            while self.size > self.size_max:
                _, dropped = self._parts.popitem(last=False)
                self.size -= len(dropped) + _OVERHEAD_BYTES

    @contextmanager
    def loading(self, key: str) -> Iterator[None]:
        """One thread at a time reads from an object."""
        with self._lock:
            lock, users = self._loading.get(key) or (Lock(), 0)
            self._loading[key] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._lock:
                _, users = self._loading[key]
                if users == 1:
                    del self._loading[key]
                else:
                    self._loading[key] = lock, users - 1
