"""Reads the logs of a simulated cluster for the checkers: without planned failures, virtual time or corruption."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from storage.log.log import Log
from testbed.fake_disk import FakeDisk
from testbed.sim import views
from testbed.sim.checkers import ReadableLog
from testbed.sim.ledger import Ledger, Violation
from tidelog.errors import CorruptLog


@contextlib.contextmanager
def without_hooks(disk: FakeDisk) -> Iterator[None]:
    """Access a disk without hooks, planned failures and costs."""
    faults, calls, crash_at, on_step = disk._faults, disk.calls, disk._crash_at, disk.on_step
    disk._faults, disk._crash_at, disk.on_step = [], None, None
    try:
        yield
    finally:
        disk._faults, disk.calls, disk._crash_at, disk.on_step = faults, calls, crash_at, on_step


class UndisturbedLogs:
    """Reads logs of nodes. disk_of: returns the disk of a node by its name."""

    def __init__(self, disk_of: Callable[[str], FakeDisk]) -> None:
        self._disk_of = disk_of
        self._places = views.Places()

    def has(self, node: str, log: ReadableLog, ledger: Ledger, start: int, end: int) -> bool:
        """Whether the ledger's bytes of a range are known to be in a log without reading it."""
        disk = self._disk_of(node)
        with disk.as_written() if disk.rots else contextlib.nullcontext():
            return isinstance(log, Log) and self._places.has(log, disk, ledger, start, end)

    def read(self, node: str, log: ReadableLog, start: int, end: int) -> bytes:
        """The bytes of whole batches from `start` to `end`, as originally written: the node must find corruption
        itself."""
        disk = self._disk_of(node)
        with disk.as_written() if disk.rots else contextlib.nullcontext():
            return self._read_as_written(node, disk, log, start, end)

    def _read_as_written(self, node: str, disk: FakeDisk, log: ReadableLog, start: int, end: int) -> bytes:
        read = self._places.read_on(log, disk, start, end) if isinstance(log, Log) else None
        if read is not None:
            return read
        if isinstance(log, Log) and (
            log.closed or log.directory.offline is not None or (disk.rots and log.damage is not None)
        ):
            return views.read_files(log, disk, start, end)
        with without_hooks(disk):
            try:
                return views.read(log, start, end)
            except CorruptLog as error:
                raise Violation(f"on {node}: {error.message}") from error
