"""What one partition lost by an unclean election, and from where on the rules hold again.

The new leader's log decides what is committed: all rules hold for it from its first event on, and for every replica
that follows it. Invariants: a replica is checked once it leads by that history or is a member of a set by it; before,
its log may have the old one. A record is checked only if no leader of an older epoch can have answered for it. Not
here: the rules (checkers.py), the elections (views.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from testbed.sim.loop import MICROS

ON_THE_WAY_US: Final = 10 * MICROS
"""Upper bound of the time that an answer of an older leader is in transit."""


@dataclass(slots=True)
class Loss:
    """The loss of one partition. epoch: of the newest unclean leader. now_us: the virtual time."""

    epoch: int
    now_us: Callable[[], int]
    sound: set[str] = field(default_factory=set)
    """Nodes whose replicas have the new history."""
    gone: set[tuple[int, bytes | None]] = field(default_factory=set)
    """By offset: what was committed and no longer is."""
    accepted: list[range] = field(default_factory=list)
    """Offsets inside the log that the elections gave up because the new leader cannot read them. A replica that has
    them may keep them."""
    brought: int = 0
    """The high watermark with which the newest unclean leader began: it knew it from an earlier leader, whose set has
    committed what is below."""
    others_us: int = 0
    """When a leader of an older epoch was last seen."""

    @property
    def given_up(self) -> set[bytes | None]:
        """The values of the records at the offsets in `accepted`."""
        return {value for offset, value in self.gone if any(offset in lost for lost in self.accepted)}

    def elected(self, epoch: int) -> None:
        """Another unclean leader."""
        self.epoch = epoch
        self.sound.clear()
        self.saw_other()

    def saw_other(self) -> None:
        """A leader of an older epoch still runs: its answers do not count."""
        self.others_us = self.now_us()

    def explains(self, offset: int, value: bytes | None) -> bool:
        """Whether a reader may receive this record although it is not committed."""
        return (offset, value) in self.gone or self.now_us() < self.others_us + ON_THE_WAY_US
