"""A disk that is slow, full or broken on demand: the files of the machine, with the faults that a file names.

The process of a test writes that file (`write_faults`), the process of a node looks at it before each call that a fault
can change. Invariants: a full disk refuses only what needs more space, and nothing of it is written; what is there can
be read, overwritten and synced. A disk that refuses writes changes no byte of a file, and can be read.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from storage.files.file_system import File, Mapping, Space
from storage.files.os_files import OsFile, OsFiles, OsMapping
from tidelog.types import Buffer


@dataclass(frozen=True, slots=True)
class DiskFaults:
    """The faults of one disk."""

    sync_ms: float = 0
    """Each sync takes so many milliseconds more."""
    is_full: bool = False
    """There is no free space."""
    write_errno: int = 0
    """Each write and sync fails with this error (`errno.EIO`, `errno.EROFS`); 0: none does."""


def write_faults(path: Path, faults: DiskFaults) -> None:
    """Let the disk that reads `path` have these faults, whenever its process was or is started."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(faults)), encoding="ascii")
    new.replace(path)


class Faults:
    """The faults that a file names at present; a missing file names none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = (-1, -1)
        self._present = DiskFaults()

    @property
    def present(self) -> DiskFaults:
        try:
            status = os.stat(self._path)  # noqa: PTH116 - before each write
        except FileNotFoundError:
            return DiskFaults()
        seen = status.st_mtime_ns, status.st_ino  # two changes may have one time: clocks of file systems are coarse
        if seen != self._seen:
            self._present = DiskFaults(**json.loads(Path(self._path).read_text(encoding="ascii")))
            self._seen = seen
        return self._present

    def wait(self) -> None:
        """Called by a sync."""
        if (wait_ms := self.present.sync_ms) > 0:
            time.sleep(wait_ms / 1_000)

    def refuse_write(self, path: str) -> None:
        """Called by what writes, or makes it durable."""
        if number := self.present.write_errno:
            raise OSError(number, os.strerror(number), path)

    def refuse_growth(self, path: str) -> None:
        """Called by what needs more space."""
        self.refuse_write(path)
        if self.present.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class FaultyFile(OsFile):
    """An open file on such a disk."""

    __slots__ = ("_faults",)

    def __init__(self, fd: int, path: str, faults: Faults) -> None:
        super().__init__(fd, path)
        self._faults = faults

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._faults.refuse_write(self.path)
        if position + sum(map(len, buffers)) > self.size():
            self._faults.refuse_growth(self.path)
        super().pwritev(buffers, position)

    def reserve(self, size: int) -> None:
        if size > self.size():
            self._faults.refuse_growth(self.path)
        super().reserve(size)

    def sync(self) -> None:
        self._faults.wait()
        self._faults.refuse_write(self.path)
        super().sync()


class FaultyMapping(OsMapping):
    """A mapping of a file on such a disk."""

    __slots__ = ("_faults",)

    def __init__(self, path: str, size: int, faults: Faults, *, writable: bool) -> None:
        super().__init__(path, size, writable=writable)
        self._faults = faults

    def reserve(self, end: int) -> None:
        if end > self._reserved:
            self._faults.refuse_growth(self._path)
        super().reserve(end)


class FaultyFiles(OsFiles):
    """The files of this machine, as `Files`, with the faults that the file `path` names."""

    def __init__(self, path: str) -> None:
        self._faults = Faults(path)

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if create:
            self._faults.refuse_write(path)
        return FaultyFile(self.descriptor(path, create=create, read_only=read_only), path, self._faults)

    def map(self, path: str, size: int, *, writable: bool) -> Mapping:
        return FaultyMapping(path, size, self._faults, writable=writable)

    def sync_directory(self, path: str) -> None:
        self._faults.wait()
        self._faults.refuse_write(path)
        super().sync_directory(path)

    def space(self, path: str) -> Space:
        found = super().space(path)
        return Space(0, found.total) if self._faults.present.is_full else found
