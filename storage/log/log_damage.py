"""The damage of one log, and which operations it forbids.

Invariants: damage found when the log was opened, or at its end, rejects appends, because the end itself may be missing.
Damage found later lies below a known log end: reads of the lost offsets are rejected. If it breaks the chain of batches
in the active segment, the next append starts a new segment.
"""

from __future__ import annotations

from storage.recovery.loaded import Damage
from storage.segment.batch_walk import BrokenChain, Hole
from storage.segment.segments import LogSegments
from tidelog.types import Offset


class LogDamage:
    """The lost records of one log. `takes_appends`: False if appends are rejected."""

    __slots__ = ("chain_is_broken", "damage", "takes_appends")

    def __init__(self, *found: Damage | None) -> None:
        """found: damage detected when the log was opened."""
        self.reset(None)
        for damage in found:
            if damage is not None:
                self.note(damage)
                self.takes_appends = False

    def reset(self, damage: Damage | None) -> None:
        """The log was truncated or emptied: `damage` is what remains lost."""
        self.damage = damage
        self.takes_appends = damage is None
        self.chain_is_broken = False
        """True if the chain of batches of the active segment is broken: the next append starts a new segment."""

    def note(self, damage: Damage) -> None:
        """Record that records which had been durable are lost."""
        self.damage = damage if self.damage is None else self.damage.joined(damage)

    def record_break(
        self,
        segments: LogSegments,
        broken: BrokenChain,
        offset: Offset,
        log_start: Offset,
        log_end: Offset,
        *,
        unreadable: bool,
    ) -> Damage:
        """A break in the chain of batches was found at `offset`: determine where the damage begins, and record it.
        unreadable: `offset` itself cannot be read. Raises OSError."""
        segment, *behind = segments.from_offset(offset)
        exact = broken if isinstance(broken, Hole) else segment.check_from(offset) or broken
        first = Offset(max(min(exact.next_offset, offset) if unreadable else exact.next_offset, log_start))
        end = max(behind[0].base_offset if behind else log_end, Offset(first + 1))
        damage = Damage(segment.path, exact.position, first, end, exact.reason)
        self.note(damage)
        self.chain_is_broken |= not behind
        return damage
