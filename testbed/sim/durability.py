"""Checks on the fake disk, without a crash, that what a replica reports as durable is durable.

Invariants: the bytes of every offset below the durable offset, and the names of their files, survive any crash; later
corruption is not covered. Not here: epoch entries and durable marks, which only crash tests check.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.log.log import Log
from storage.segment.segment import LogSegment
from testbed.fake_disk import FakeDisk
from tidelog.records import walk_headers


@dataclass(slots=True)
class Verified:
    """How much of one log is verified: offsets below the durable offset, and by segment the bytes below a position."""

    durable_offset: int = 0
    positions: dict[int, int] = field(default_factory=dict)


class Safety:
    """What is verified for the logs of one incarnation of a node. To stay cheap, only newly durable data is checked."""

    def __init__(self, disk: FakeDisk) -> None:
        self._disk = disk
        self._verified: dict[Log, Verified] = {}

    def possible_loss(self, log: Log) -> str | None:
        """What the log reports as durable but a crash could lose; None if there is nothing."""
        if log.closed:  # deleted, or set aside
            return None
        if self._disk.rots:
            with self._disk.as_written():
                return self._possible_loss(log)
        return self._possible_loss(log)

    def _possible_loss(self, log: Log) -> str | None:
        seen = self._verified.get(log)
        if seen is None:
            seen = self._verified[log] = Verified()
        durable_offset = log.durable_offset
        if durable_offset <= seen.durable_offset:
            if durable_offset < seen.durable_offset:  # it was truncated
                seen.durable_offset = durable_offset
                seen.positions.clear()
            return None
        active = log.active
        if seen.durable_offset >= active.base_offset:  # the usual case
            whole = durable_offset == log.log_end_offset
            lie = self._lie_in(active, durable_offset, seen, active.size if whole else None)
            if lie is None:
                seen.durable_offset = durable_offset
            return lie
        segments = log.segments
        ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
        for segment, end in zip(segments, ends, strict=True):
            if segment.base_offset < durable_offset and end > seen.durable_offset:
                lie = self._lie_in(segment, durable_offset, seen)
                if lie is not None:
                    return lie
        seen.durable_offset = durable_offset
        return None

    def _lie_in(self, segment: LogSegment, durable_offset: int, seen: Verified, end: int | None = None) -> str | None:
        """end: end of the durable bytes, if known."""
        start = seen.positions.get(segment.base_offset, 0)
        path = segment.path
        if end is None:
            end = start
            for header in walk_headers(bytes(memoryview(self._disk._file(path).seen.data)[start:])):
                if header.base_offset >= durable_offset:
                    break
                end = start + header.end
        safe = self._disk.safe_end(path, start, end)
        if safe < end:
            return f"holds offsets below {durable_offset}, but a crash may lose {path} from byte {safe} on, of {end}"
        seen.positions[segment.base_offset] = end
        return None
