"""An index that is opened at first use: a log of a thousand segments starts without a thousand mappings.

Invariants: `get` returns an open index that has passed its sanity check. After `release`, the next `get` opens it
again.
Not here: the index (abstract_index.py), rebuilding it (segment.py). Source: Kafka's LazyIndex.
"""

from __future__ import annotations

from contextlib import closing
from typing import Generic, TypeVar

from storage.files.file_system import Files
from storage.segment.abstract_index import AbstractIndex, CorruptIndex
from tidelog.types import Offset

Index = TypeVar("Index", bound=AbstractIndex)


class LazyIndex(Generic[Index]):
    """One index of a segment, open or closed. path: of its file; may be changed only while the index is closed."""

    __slots__ = ("_base_offset", "_files", "_index", "_kind", "_max_bytes", "path")

    def __init__(self, kind: type[Index], files: Files, path: str, base_offset: Offset, max_bytes: int) -> None:
        """kind: class of the index. max_bytes: size of its file while entries can be added. Opens nothing."""
        self.path = path
        self._kind, self._files, self._base_offset, self._max_bytes = kind, files, base_offset, max_bytes
        self._index: Index | None = None

    @property
    def is_open(self) -> bool:
        return self._index is not None

    def get(self) -> Index:
        """The index, opened if necessary. Raises CorruptIndex, OSError."""
        if self._index is None:
            index = self._kind(self._files, self.path, self._base_offset, self._max_bytes)
            try:
                index.sanity_check()
            except (CorruptIndex, OSError):
                index.close()
                raise
            self._index = index
        return self._index

    def create(self) -> Index:
        """Create an empty index; existing contents of the file are discarded. Raises OSError."""
        self.release()
        if self._files.size(self.path):
            with closing(self._files.open(self.path)) as file:
                file.truncate(0)
        self._index = self._kind(self._files, self.path, self._base_offset, self._max_bytes, fresh=True)
        return self._index

    def trim(self) -> None:
        """Truncate the file to its entries and close the index. Raises CorruptIndex, OSError; entries that are held in
        memory stay there then."""
        index = self.get()
        try:
            index.trim()
        finally:
            if index.held is None:
                self._index = None

    def release(self) -> None:
        """Close the mapping. References to the index become unusable."""
        if self._index is not None:
            self._index.close()
            self._index = None
