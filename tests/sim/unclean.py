"""What an unclean election has cost one partition, and from where on it is judged again.

The new leader's log says what is committed: from its first moment on all rules hold for it, and for what follows it.
Kept true: a replica is judged once it leads by that history, or is counted on by it; before, its log may be of the old
one. Records are judged of which no leader of an older epoch can have said anything.
Left to others: the rules (checkers.py), who was elected (views.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.sim.loop import MICROS

ON_THE_WAY_US: Final = 10 * MICROS
"""So long an answer of a leader of an older epoch may take."""


@dataclass(slots=True)
class Loss:
    """epoch: of the newest unclean leader. now_us: the moment of virtual time."""

    epoch: int
    now_us: Callable[[], int]
    sound: set[str] = field(default_factory=set)
    """Nodes whose replicas are of the new history."""
    gone: set[tuple[int, bytes | None]] = field(default_factory=set)
    """By offset, what was committed and is not any more."""
    others_us: int = 0
    """When a leader of an older epoch was last seen."""

    def elected(self, epoch: int) -> None:
        """Another unclean leader."""
        self.epoch = epoch
        self.sound.clear()
        self.saw_other()

    def saw_other(self) -> None:
        """A leader of an older epoch is there: what it says is worth nothing."""
        self.others_us = self.now_us()

    def explains(self, offset: int, value: bytes | None) -> bool:
        """May a reader be given this, which is not committed?"""
        return (offset, value) in self.gone or self.now_us() < self.others_us + ON_THE_WAY_US
