"""Durations of the work on log directories, by directory and operation."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from node.runtime.histogram import Histogram

APPEND: Final = "append"
"""A batch is written into the page cache, on the event loop."""

_OF_SUFFIX: Final = {"sync": "fsync", "read": "read", "maintenance": "maintenance", "quorum": "metadata_fsync"}
"""The operation of an executor by the end of its name (node/process/node.py); one without is the directory's writer."""

WRITER: Final = "writer"


class DiskOperation(NamedTuple):
    """One kind of work on one directory."""

    directory: str
    operation: str


def operation_of(executor: str, directories: Collection[str]) -> DiskOperation | None:
    """What an executor of this name does; None if it does not work on a log directory."""
    if executor in directories:
        return DiskOperation(executor, WRITER)
    directory, _, suffix = executor.rpartition(" ")
    if directory in directories and suffix in _OF_SUFFIX:
        return DiskOperation(directory, _OF_SUFFIX[suffix])
    return None


class DiskTimes:
    """The durations of one node's work on its disks."""

    def __init__(self) -> None:
        self._times: dict[DiskOperation, Histogram] = {}

    def of(self, directory: str, operation: str) -> Histogram:
        """The durations of that work; empty the first time."""
        return self._times.setdefault(DiskOperation(directory, operation), Histogram())

    def __iter__(self) -> Iterator[tuple[DiskOperation, Histogram]]:
        return iter(list(self._times.items()))
