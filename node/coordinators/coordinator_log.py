"""Log lines of coordinators: what they decided by themselves, and which are suspended. Neither floods the log."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.types import Millis, PartitionIndex

_log = logging.getLogger("node.coordinators")

LINES_MAX: Final = 20
WINDOW_MS: Final = 10_000
"""At most so many notices in this time: a network that fails removes thousands of members at once."""

GATHER_MS: Final = 100
"""From the first suspension to its line: those that follow at once share it."""

PAUSE_MS: Final = 10_000
"""Between two lines."""

SHOWN_MAX: Final = 10
"""Partitions that a line names."""


class NoticeLog:
    """The lines about what the coordinators of one kind decided: removed members, aborted transactions. The next line
    says how many were left out."""

    def __init__(self) -> None:
        self._window_ends = Millis(0)
        self._lines = 0
        self._left_out = 0

    def write(self, coordinator: object, notice: str, now: Millis) -> None:
        """Write a line, unless there were too many. now: monotonic time."""
        if now >= self._window_ends:
            self._window_ends, self._lines = Millis(now + WINDOW_MS), 0
        if self._lines == LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        more = f"; {left_out} earlier lines of this kind were left out" if left_out else ""
        _log.info("%s: %s%s", coordinator, notice, more)


class SuspensionLog:
    """The lines about suspended coordinators of one kind: one for many partitions, since what suspends one usually
    suspends all. A coordinator is reported when a request was refused because of its suspension. One that is suspended
    while nobody uses it, as at the stop of a cluster, is not."""

    def __init__(self, kind: str, topic: str) -> None:
        self._kind, self._topic = kind, topic
        self._noted: dict[PartitionIndex, str] = {}
        self._earliest = Millis(0)
        self.due: Millis | None = None
        """When the next line is to be written; None: nothing is to be reported."""

    def note(self, partition: PartitionIndex, why: str, now: Millis) -> Millis:
        """Report a coordinator. Returns when `write` is due."""
        self._noted[partition] = why
        if self.due is None:
            self.due = max(Millis(now + GATHER_MS), self._earliest)
        return self.due

    def write(self, now: Millis) -> None:
        """Write the line if it is due."""
        if self.due is None or now < self.due:
            return
        self.due, self._earliest = None, Millis(now + PAUSE_MS)
        noted, self._noted = sorted(self._noted.items()), {}
        first, why = noted[0]
        if len(noted) == 1:
            _log.warning(
                "%s coordinator %s-%d: suspended, and loaded again once appends are possible: %s",
                *(self._kind, self._topic, first, why),
            )
            return
        shown = ", ".join(str(partition) for partition, _ in noted[:SHOWN_MAX])
        more = f" and {len(noted) - SHOWN_MAX} more" if len(noted) > SHOWN_MAX else ""
        _log.warning(
            "%s coordinators of %d partitions of %s (%s%s): suspended, and loaded again once appends are possible; "
            "partition %d: %s",
            *(self._kind, len(noted), self._topic, shown, more, first, why),
        )
