"""Log lines about decisions that coordinators make by themselves, and about suspended coordinators. Their number is
limited."""

from __future__ import annotations

import logging
from typing import Final

from tidelog.types import Millis, PartitionIndex

_log = logging.getLogger("node.coordinators")

LINES_MAX: Final = 20
WINDOW_MS: Final = 10_000
"""Period for which the number of notices is limited: a network failure removes thousands of members at once."""

GATHER_MS: Final = 100
"""Delay of the line about a suspension: coordinators that are suspended meanwhile share the line."""

PAUSE_MS: Final = 10_000
"""Minimum time between two such lines."""

SHOWN_MAX: Final = 10
"""Partitions that a line names."""


class NoticeLog:
    """The lines about decisions of one kind of coordinator: removed members, aborted transactions. If lines were left
    out, the next line gives their number."""

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
    """The lines about suspended coordinators of one kind. One line is about many partitions, since the cause usually
    suspends all of them. A suspended coordinator is reported when it has refused a request: one that nobody uses, as
    during the stop of a cluster, is not reported."""

    def __init__(self, kind: str, topic: str) -> None:
        self._kind, self._topic = kind, topic
        self._noted: dict[PartitionIndex, str] = {}
        self._earliest = Millis(0)
        self.due: Millis | None = None
        """When the next line is written; None if there is nothing to report."""

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
