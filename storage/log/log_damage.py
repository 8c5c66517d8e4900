"""What one log has lost, and what that forbids.

Kept true: damage found when the log was opened, or at its end, refuses appends: what is missing may be the end itself.
Damage met later lies below an end that is known: it refuses reads of what is lost, and where it breaks the chain of the
active segment the next append begins another one.
"""

from __future__ import annotations

from storage.recovery.loaded import Damage
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.segments import LogSegments
from tidelog.errors import CorruptLog
from tidelog.types import Offset, TopicPartition


class LogDamage:
    """See the module's words."""

    __slots__ = ("_chain_is_broken", "damage", "takes_appends")

    def __init__(self, *found: Damage | None) -> None:
        """found: when the log was opened."""
        self.reset(None)
        for damage in found:
            if damage is not None:
                self.note(damage)
                self.takes_appends = False

    def reset(self, damage: Damage | None) -> None:
        """The log was cut, or emptied: this is what is lost of the rest."""
        self.damage = damage
        self.takes_appends = damage is None
        self._chain_is_broken = False

    def note(self, damage: Damage) -> None:
        """Records that had been durable are lost."""
        self.damage = damage if self.damage is None else self.damage.joined(damage)

    def met(
        self,
        segments: LogSegments,
        broken: BrokenChain,
        offset: Offset,
        log_start: Offset,
        log_end: Offset,
        *,
        asked: bool,
    ) -> Damage:
        """A break in the chain of batches was met at `offset`: find where the damage begins, and note it. asked:
        `offset` itself cannot be read. Raises OSError."""
        segment, *behind = segments.from_offset(offset)
        exact = broken if isinstance(broken, Hole) else segment.check_from(offset) or broken
        first = Offset(max(min(exact.next_offset, offset) if asked else exact.next_offset, log_start))
        end = max(behind[0].base_offset if behind else log_end, Offset(first + 1))
        damage = Damage(segment.path, exact.position, first, end, exact.reason)
        self.note(damage)
        self._chain_is_broken |= not behind
        return damage

    def ensure_takes_appends(self, name: TopicPartition) -> None:
        """Raises CorruptLog where the end is not sound."""
        if not self.takes_appends:
            raise CorruptLog(f"{name} takes no appends: it lost {self.damage}; it must be refetched first")

    def take_break(self) -> bool:
        """Is the chain of the active segment broken, so that nothing behind could be found but through its indexes? The
        caller begins another segment."""
        broken, self._chain_is_broken = self._chain_is_broken, False
        return broken
