"""Log lines about suspended coordinators: one for many partitions, since what suspends one usually suspends all.

A coordinator is reported when a request was refused because of its suspension. One that is suspended while nobody uses
it, as at the stop of a cluster, is not.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog.types import Millis, PartitionIndex

_log = logging.getLogger("node.coordinators")

GATHER_MS: Final = 100
"""From the first suspension to its line: those that follow at once share it."""

PAUSE_MS: Final = 10_000
"""Between two lines."""

SHOWN_MAX: Final = 10
"""Partitions that a line names."""


class SuspensionLog:
    """The lines about the coordinators of one kind."""

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
