"""Producer state of a log at its truncation offset, rebuilt from snapshots and batches on any thread.

Invariants: only files are read, through own handles. The indexes, which belong to the owner, are used in the
constructor.
Not here: the truncation (log_truncation.py), the use of the state (log_producers.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from storage.files.file_system import Files
from storage.producers.producer_recovery import Replayed, rebuild
from storage.producers.producer_state import ProducerStateManager
from storage.segment.segment import LogSegment
from storage.segment.segment_bytes import SegmentBytes
from tidelog.types import Millis, Offset


class ProducersAfterTruncation:
    """Created on the owner's thread, read on any thread, then taken over by the log (`state`, `replayed`)."""

    def __init__(
        self,
        files: Files,
        directory: str,
        expiration_ms: int,
        segments: Sequence[LogSegment],
        *,
        last_size: int,
        snapshots: Sequence[Offset],
        log_start: Offset,
        log_end: Offset,
        high_watermark: Offset,
        now: Millis,
    ) -> None:
        """segments: the remaining ones, the last one truncated to `last_size` bytes. snapshots: offsets at which the
        replay may begin. high_watermark: not above `log_end`. Raises BrokenChain, OSError."""
        self._files, self._directory, self._expiration_ms = files, directory, expiration_ms
        self._segments = [SegmentBytes(files, each) for each in segments]
        self._segments[-1].size = last_size
        bases = [segment.base_offset for segment in segments]
        for start in (log_start, *snapshots):
            holder = bisect_right(bases, start) - 1
            if holder >= 0 and bases[holder] < start <= log_end:
                self._segments[holder].note(start, segments[holder].start_for(start))
        self._log_start, self._high_watermark, self._now = log_start, high_watermark, now
        self.log_end = log_end
        self.last_base = segments[-1].base_offset
        self.state: ProducerStateManager | None = None
        self.replayed = Replayed([], [])

    def read(self) -> None:
        """Rebuild the state. Call once the log ends at `log_end` and has no snapshots above. Raises OSError."""
        self.state = ProducerStateManager(self._files, self._directory, self._expiration_ms)
        try:
            self.replayed = rebuild(
                self.state,
                self._segments,
                log_start=self._log_start,
                log_end=self.log_end,
                high_watermark=self._high_watermark,
                now=self._now,
            )
        finally:
            for segment in self._segments:
                segment.close()
