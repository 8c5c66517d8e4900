"""Reads a segment once, from an offset on: for jobs, which take each byte of history one time.

Invariants:
  1. As of RemoteSegmentReader, but only one thread at a time may call it.
  2. What is returned is a view of the store's answer: it is copied only where a batch crosses from one into the next.
  3. No range of the log enters the cache, from which nothing would read it. One answer is kept: the rest of it begins
     with a batch that crosses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.records.v2.header import HEADER_BYTES, BatchHeader
from tidelog.tiering.object_store import ObjectStore
from tidelog.tiering.remote_cache import RemoteCache
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.tiering.remote_segment_reader import RemoteRead, RemoteSegmentReader
from tidelog.tiering.segment_object import CHECKSUM_RANGE_BYTES
from tidelog.types import Buffer, Offset


class _Answer(NamedTuple):
    """Consecutive ranges of the log, verified."""

    start: int
    data: memoryview

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class RemoteSegmentScan(RemoteSegmentReader):
    """Reads one segment from front to back."""

    def __init__(self, store: ObjectStore, cache: RemoteCache, key: str, segment: RemoteSegment) -> None:
        """cache: for the indexes. Raises as RemoteSegmentReader."""
        super().__init__(store, cache, key, segment)
        self._request_bytes = CHECKSUM_RANGE_BYTES
        self._answer: _Answer | None = None
        self._seam: _Answer | None = None
        """The last header that crossed into `_answer`: its batch begins in the answer before, which is gone."""

    def read_some(self, offset: Offset, request_bytes: int, *, until: Offset) -> Sequence[RemoteRead]:
        """What one request of about `request_bytes` gives, from the batch that contains `offset` on. A batch that has
        crossed into it is a read of its own; what follows is left out if it begins at `until` or behind it. Raises as
        `read`."""
        self._request_bytes = request_bytes
        end = self.segment.end_offset
        first = self.read(offset, 0, up_to=end)
        position = self._read_to[1]
        answer = self._answer_with(position)
        has_crossed = answer is not None and position - len(first.records) < answer.start
        if first.next_offset >= until or not has_crossed:
            return (first,)
        return first, self.read(first.next_offset, 0, up_to=end)

    def _size_of_read(self, first: BatchHeader, max_bytes: int) -> int:
        """What is there already, if that is a batch; otherwise the batch alone, which has to be copied together."""
        del max_bytes
        answer = self._answer_with(first.position)
        return first.size if answer is None else max(first.size, answer.end - first.position)

    def _log(self, start: int, size: int) -> Buffer:
        parts = []
        at, end = start, start + size
        while at < end:
            answer = self._answer_with(at) or _with(self._seam, at) or self._ask(at)
            parts.append(answer.data[at - answer.start : end - answer.start])
            at += len(parts[-1])
        if len(parts) == 1:
            return parts[0]
        data = memoryview(b"".join(parts))
        if size <= HEADER_BYTES:
            self._seam = _Answer(start, data)
        return data

    def _answer_with(self, position: int) -> _Answer | None:
        return _with(self._answer, position)

    def _ask(self, position: int) -> _Answer:
        with self._cache.loading(self._cache_key):
            checksums = self._checksums()
        first = position // CHECKSUM_RANGE_BYTES
        count = max(1, -(-self._request_bytes // CHECKSUM_RANGE_BYTES))
        self._answer = _Answer(first * CHECKSUM_RANGE_BYTES, self._request(first, first + count, checksums))
        return self._answer


def _with(answer: _Answer | None, position: int) -> _Answer | None:
    return answer if answer is not None and answer.start <= position < answer.end else None
