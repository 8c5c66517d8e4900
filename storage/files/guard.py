"""Access functions for mapped files: compiled if the extension was built, else the pure-Python reference.

    load     read bytes from a mapping
    store    write bytes to a mapping
    search   the last of the sorted entries of a mapping whose field is at most a target

The compiled functions raise OSError (EIO) if the kernel sends SIGBUS: for a page that the disk cannot provide, that
lies beyond the end of a file truncated while mapped, or for which there is no free space. They accept any buffer.
The reference functions cannot do that; the mapping then requests the pages from the kernel before each access
(os_files.py).
`TIDELOG_PURE_PYTHON=1` in the environment selects the reference functions even if the compiled ones exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.records.v2.fast_paths import is_pure_python_requested
from tidelog.types import Buffer


class Bytes(Protocol):
    """The part of a buffer that the reference functions need: length and slices."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: slice, /) -> Buffer: ...


class WritableBytes(Bytes, Protocol):
    """A buffer whose slices can be assigned."""

    def __setitem__(self, place: slice, data: bytes, /) -> None: ...


def _load(buffer: Bytes, position: int, size: int) -> bytes:
    if position < 0 or size < 0 or position + size > len(buffer):
        raise IndexError(f"bytes {position} to {position + size} of {len(buffer)}")
    return bytes(buffer[position : position + size])


def _store(buffer: WritableBytes, position: int, data: bytes) -> None:
    if position < 0 or position + len(data) > len(buffer):
        raise IndexError(f"bytes {position} to {position + len(data)} of {len(buffer)}")
    buffer[position : position + len(data)] = data


def _search(buffer: Bytes, entries: int, warm: int, size: int, at: int, wide: int, target: int) -> int:
    """The slot, -1 if the field of the first entry is above the target. entries: number of entries, sorted by the
    field. warm: how many of the last entries are searched first. size: of an entry. at, wide: position and length of
    the field within an entry, a signed big-endian number (all in bytes)."""
    if entries < 0 or at < 0 or at + wide > size or entries * size > len(buffer) or wide not in (4, 8):
        raise IndexError(f"{entries} entries of {size} bytes in {len(buffer)}")

    def field(slot: int) -> int:
        begin = slot * size + at
        return int.from_bytes(buffer[begin : begin + wide], "big", signed=True)

    if entries == 0:
        return -1
    low, high = max(0, entries - 1 - warm), entries - 1
    if field(low) > target:
        low, high = 0, low
        if field(0) > target:
            return -1
    while low < high:
        middle = (low + high + 1) // 2
        if field(middle) > target:
            high = middle - 1
        else:
            low = middle
    return low


if TYPE_CHECKING:
    COMPILED: bool
    load, store, search = _load, _store, _search
else:
    try:
        if is_pure_python_requested():
            raise ImportError
        from storage.files._guard import load, search, store

        COMPILED = True
    except ImportError:
        load, store, search = _load, _store, _search
        COMPILED = False
