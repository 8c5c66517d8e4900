"""What the remote tier needs of an object store.

Calls are synchronous and may come from any thread, several at a time: a node makes them on an executor, as it does with
files, so that a simulated store can answer when and how it likes.

Invariants of every store:
  1. An object appears whole or not at all, and `put` returns only once it would survive a crash of the store.
  2. What `put` has returned for is found by every later call, from any process.
  3. An object is never changed. Keys contain the id of a copy, so that a repeated `put` writes the same bytes.
Not here: a store (obstore_store.py), what the objects contain (segment_object.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from tidelog.types import Buffer, Millis


class StoredObject(NamedTuple):
    """An object, as a listing shows it."""

    key: str
    size: int
    """Bytes."""
    modified_ms: Millis
    """When it was written, by the store's clock."""


class ObjectStore(Protocol):
    """Objects by key. Every call raises ObjectStoreUnavailable and ObjectStoreRefused."""

    @property
    def url(self) -> str:
        """Where the objects are, for messages: without credentials."""
        ...

    def put(self, key: str, parts: Iterable[Buffer]) -> None:
        """Write an object of these parts, which are taken one after the other as they are sent and must not change
        later. An error of the iterable is raised as it is, and there is no object then. Also raises ObjectStoreFull.
        After ObjectStoreUnavailable the object may exist."""
        ...

    def size(self, key: str) -> int:
        """Bytes of an object. Raises RemoteObjectMissing."""
        ...

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        """`size` bytes, at least 1, of an object, from byte `start` on. Raises RemoteObjectMissing, RemoteObjectDamaged
        if the object ends before."""
        ...

    def drop_cached(self, key: str) -> None:
        """Give up the memory that this machine's page cache has for an object that is not read soon. Raises
        RemoteObjectMissing, if it notices."""
        ...

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """The objects below a folder, in no certain order. prefix: without a slash at its end; "" for all objects."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; it need not exist."""
        ...
