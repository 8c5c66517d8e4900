"""The scrub of one log directory: reads closed segments again, the longest unread first, at a limited rate, forever.

Invariants:
  1. It reads no more bytes than the rate allows, and uses at most a tenth of one processor.
  2. Damage is reported only if it was seen twice: by the check, and by the owner in the segment as it is then. So a
     truncation, a cleaning or a deletion meanwhile is no finding.
  3. A wrong index is replaced. The log itself is never written.
Not here: what is compared (scrub_segment.py), the consequences of damage (node/replicas/replica_damage.py). The times
of the checks are not stored: a new process begins with the oldest segment of each log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from storage.directory.log_directory import LogDirectory
from storage.directory.scrub_segment import Finding, FindingKind, SegmentCheck
from storage.files.disk_executor import Executor
from storage.log.log import Log
from storage.segment.segment import LogSegment
from tidelog.errors import TidelogError
from tidelog.types import Millis, Offset

PIECE_BYTES: Final = 256 << 10
"""Bytes per piece: limits how long other work on the same executor waits."""
SHARE: Final = 10
"""One part in this many of the elapsed time may be spent on the scrub."""
_SEARCH_MS_MIN: Final = 1_000
_SEARCH_MS_MAX: Final = 60_000
"""Pause before looking for segments to check again: the scrub interval within these bounds."""
_NEVER: Final = Millis(-1)


class Scrub:
    """The scrub of one log directory. For the owner's thread, except the pieces of a check."""

    def __init__(
        self,
        directory: LogDirectory,
        executor: Executor,
        *,
        rate_max: int,
        interval_ms: int,
        monotonic_ms: Callable[[], Millis],
        on_finding: Callable[[LogDirectory, Log, Finding], None],
        on_failure: Callable[[TidelogError], None],
    ) -> None:
        """rate_max: bytes per second. interval_ms: until a segment is read again. on_finding: a finding of kind LOG or
        HEADER is damage of that log."""
        self._directory, self._executor = directory, executor
        self._rate_max, self._interval_ms, self._monotonic_ms = rate_max, interval_ms, monotonic_ms
        self._on_finding, self._on_failure = on_finding, on_failure
        self._checked: dict[LogSegment, Millis] = {}
        self._round: deque[tuple[Log, LogSegment]] = deque()
        self._search_at = monotonic_ms()
        self._ticked = self._search_at
        self._check: tuple[Log, SegmentCheck] | None = None
        self._busy = self._stopped = False
        self._bytes_left = self._ms_left = 0
        self.bytes_read = 0
        """Since the process started."""
        self.segments_read = 0
        """Since the process started."""
        self.findings = dict.fromkeys(FindingKind, 0)
        """Number of findings by kind."""

    @property
    def waiting(self) -> int:
        """Segments still to be read in this round, including the current one."""
        return len(self._round) + (self._check is not None)

    def tick(self, now: Millis) -> None:
        """Continue, as far as rate and share allow until the next tick. now: monotonic milliseconds."""
        passed, self._ticked = max(now - self._ticked, 0), now
        self._bytes_left = min(self._bytes_left + self._rate_max * passed // 1_000, self._rate_max)
        self._ms_left = min(self._ms_left + passed // SHARE, 1_000 // SHARE)
        if not self._busy:
            self._proceed()

    def stop(self) -> None:
        self._stopped = True

    def _proceed(self) -> None:
        if self._stopped or self._bytes_left <= 0 or self._ms_left <= 0 or self._directory.offline is not None:
            return
        if self._check is None:
            self._check = self._next()
        if self._check is None:
            return
        log, check = self._check
        began = self._monotonic_ms()
        self._busy = True
        self._executor.submit(
            lambda: check.step(min(PIECE_BYTES, max(self._bytes_left, 1))),
            lambda result: self._piece_done(log, check, began, result),
        )

    def _piece_done(self, log: Log, check: SegmentCheck, began: Millis, result: int | BaseException) -> None:
        self._busy = False
        if isinstance(result, BaseException):
            self._abort(log, check, result)
        else:
            self.bytes_read += result
            self._bytes_left -= result
            self._ms_left -= self._monotonic_ms() - began
            if check.done:
                self._end(log, check)
        self._proceed()

    def _next(self) -> tuple[Log, SegmentCheck] | None:
        now = self._monotonic_ms()
        if not self._round and now >= self._search_at:
            self._begin_round(now)
        while self._round:
            log, segment = self._round.popleft()
            end_offset = _end_of(log, segment)
            if end_offset is None:
                continue
            try:
                holes = end_offset <= log.log_start_offset or not log.is_hole(segment, end_offset)
                return log, SegmentCheck(log, segment, end_offset=end_offset, holes=holes)
            except FileNotFoundError:
                self._report_missing(log, segment, end_offset)
            except OSError as error:
                self._on_failure(self._directory.fail(f"opening {segment.path}", error))
                return None
        return None

    def _begin_round(self, now: Millis) -> None:
        """Collect the segments that are due, the longest unread first."""
        closed = [(log, segment) for log in self._directory.logs.values() for segment in log.segments[:-1]]
        self._checked = {segment: self._checked.get(segment, _NEVER) for _, segment in closed}
        due = [
            entry
            for entry in closed
            if (checked := self._checked[entry[1]]) == _NEVER or now - checked >= self._interval_ms
        ]
        self._round.extend(sorted(due, key=lambda entry: self._checked[entry[1]]))
        self._search_at = Millis(now + min(max(self._interval_ms, _SEARCH_MS_MIN), _SEARCH_MS_MAX))

    def _end(self, log: Log, check: SegmentCheck) -> None:
        self._check = None
        self.segments_read += 1
        self._checked[check.segment] = self._monotonic_ms()
        try:
            still = _end_of(log, check.segment) is not None and check.segment.size == check.size
            if still:
                self._commit(log, check)
            elif check.rebuilt is not None:
                check.rebuilt.remove()
        except OSError as error:
            self._on_failure(self._directory.fail(f"checking {check.segment.path}", error))
        finally:
            check.close()

    def _commit(self, log: Log, check: SegmentCheck) -> None:
        """Install rebuilt indexes, and report the findings. Raises OSError."""
        if check.rebuilt is not None:
            check.segment.take_indexes(check.rebuilt)
        for finding in check.findings:
            if finding.repaired or check.confirms(finding):
                self.findings[finding.kind] += 1
                self._on_finding(self._directory, log, finding)

    def _report_missing(self, log: Log, segment: LogSegment, end_offset: Offset) -> None:
        """Report a closed segment whose file was removed from outside."""
        self.findings[FindingKind.LOG] += 1
        reason = "the file is missing"
        finding = Finding(FindingKind.LOG, segment.path, 0, segment.base_offset, end_offset, reason, repaired=False)
        self._on_finding(self._directory, log, finding)

    def _abort(self, log: Log, check: SegmentCheck, error: BaseException) -> None:
        self._check = None
        check.close()
        if not isinstance(error, OSError):
            raise error
        if not log.closed and _end_of(log, check.segment) is not None:
            self._on_failure(self._directory.fail(f"reading {check.segment.path} again", error))


def _end_of(log: Log, segment: LogSegment) -> Offset | None:
    """Base offset of the segment after a closed one; None if the segment is no longer a closed segment of the log."""
    if log.closed or log.damage is not None or log.truncation is not None:
        return None
    segments = log.segments
    for position, other in enumerate(segments[:-1]):
        if other is segment:
            return segments[position + 1].base_offset
    return None
