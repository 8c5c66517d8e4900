"""An index that is opened when it is first used: a log of a thousand segments starts without a thousand mappings.

Kept true: what `get` returns is open and has passed its sanity check; after `release` the next `get` opens it anew.
Left to others: the index (abstract_index.py), rebuilding it (segment.py). Source: Kafka's LazyIndex.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from storage.files.file_system import Files
from storage.segment.abstract_index import AbstractIndex
from storage.segment.index_errors import CorruptIndex
from tidelog.types import Offset

Index = TypeVar("Index", bound=AbstractIndex)


class LazyIndex(Generic[Index]):
    """One index of a segment, open or not. path: where its file is; to be changed only while it is released."""

    __slots__ = ("_base_offset", "_files", "_index", "_kind", "_max_bytes", "path")

    def __init__(self, kind: type[Index], files: Files, path: str, base_offset: Offset, max_bytes: int) -> None:
        """kind: which index. max_bytes: size of its file while it may grow. Nothing is opened yet."""
        self.path = path
        self._kind, self._files, self._base_offset, self._max_bytes = kind, files, base_offset, max_bytes
        self._index: Index | None = None

    @property
    def is_open(self) -> bool:
        """Has it a mapping?"""
        return self._index is not None

    def get(self) -> Index:
        """The index, opened where it is not. Raises CorruptIndex, OSError."""
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
        """An empty index, whatever the file holds. Raises OSError."""
        self.release()
        if self._files.size(self.path):
            file = self._files.open(self.path)
            try:
                file.truncate(0)
            finally:
                file.close()
        self._index = self._kind(self._files, self.path, self._base_offset, self._max_bytes, fresh=True)
        return self._index

    def trim(self) -> None:
        """Cut the file to the entries in use, and release it. Raises CorruptIndex, OSError."""
        index = self.get()
        self._index = None
        index.trim()

    def release(self) -> None:
        """Let go of the mapping; whoever still has the index cannot use it any more."""
        if self._index is not None:
            self._index.close()
            self._index = None
