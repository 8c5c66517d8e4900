"""Deletions of records that operators request, and the rules for what they may take and must leave deleted.

  - Only what a request names is deleted, only below the high watermark, and by a leader first.
  - Once a deletion is acknowledged, no replica that leads or is in sync has the records again. Replicas that were down
    meanwhile learn of it before they may lead.

Not here: the requests themselves (workload.py), retention (checkers.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.errors import TidelogError
from tidelog.types import HIGH_WATERMARK


@dataclass(slots=True, eq=False)
class Deletion:
    """One request. offset: -1 for all that is committed."""

    offset: int


@dataclass(slots=True)
class Deletions:
    """The deletions of one partition."""

    accepted: int = 0
    """Everything below may be deleted: a leader has, or may have, accepted a request for it."""
    acknowledged: int = 0
    """Everything below is deleted on all replicas that may lead."""
    _open: set[Deletion] = field(default_factory=set)

    @property
    def is_settled(self) -> bool:
        """True if every request is answered."""
        return not self._open

    def begin(self, offset: int) -> Deletion:
        """A request is sent now."""
        deletion = Deletion(offset)
        self._open.add(deletion)
        return deletion

    def limit(self, committed: int) -> int:
        """Everything below may be deleted. committed: the end of the committed log."""
        asked = (committed if each.offset == HIGH_WATERMARK else each.offset for each in self._open)
        return max(self.accepted, *asked, 0)

    def acknowledge(self, deletion: Deletion, low_watermark: int) -> None:
        """The request is answered."""
        self._open.discard(deletion)
        self.accepted = max(self.accepted, low_watermark)
        self.acknowledged = max(self.acknowledged, low_watermark)

    def fail(self, deletion: Deletion, error: TidelogError, committed: int) -> None:
        """The request is answered with an error, by the node that got it. One without an answer stays open: it may
        still arrive."""
        if error.written is None:
            self.accepted = self.limit(committed)
        self._open.discard(deletion)

    def lost_above(self, offset: int) -> None:
        """Committed records from `offset` on may be lost, with the knowledge that they were deleted."""
        self.acknowledged = min(self.acknowledged, offset)
