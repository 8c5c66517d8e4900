"""Which members of a group own which partitions by their own callbacks, compared with the coordinator's log.

  - A member is assigned a partition only while its coordinator's committed log gives it to that member, or the member
    is fenced and does not know it yet.
  - No other member still owns it then, unless that one is fenced: a member stops before it confirms a revocation.
  - A member is not assigned a partition twice, and gives up only what it owns.
  - Once faults have ended, every partition has one owner again within a bound.

Not here: the log (group_log.py), what owners read (member_readings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Violation


class Owners:
    """The owners of the partitions of one group.

    logged: the partitions that a member owns by the committed log; None if the log has no such member.
    """

    def __init__(self, group: str, *, logged: Callable[[str], set[Place] | None]) -> None:
        self.group = group
        self._logged = logged
        self._owned: dict[str, set[Place]] = {}

    def of(self, member_id: str) -> set[Place]:
        """What a member owns by its callbacks."""
        return self._owned.setdefault(member_id, set())

    def assigned(self, member_id: str, places: Iterable[Place]) -> None:
        """A member's callback: it owns these partitions from now on."""
        for place in sorted(places):
            name = f"group {self.group}: {place[0]}-{place[1]}"
            if place in self.of(member_id):
                raise Violation(f"{name} is assigned to {member_id} a second time")
            logged = self._logged(member_id)
            if logged is not None and place not in logged:
                raise Violation(f"{name} is assigned to {member_id}, but not in its coordinator's log")
            for other_id, owned in sorted(self._owned.items()):
                if other_id == member_id or place not in owned:
                    continue
                theirs = self._logged(other_id)
                if logged is not None and theirs is not None:
                    raise Violation(f"{name} is assigned to {member_id} while {other_id} owns it and is not fenced")
            self.of(member_id).add(place)

    def revoked(self, member_id: str, places: Iterable[Place]) -> None:
        """A member's callback: it gives these partitions up, or has lost them."""
        for place in sorted(places):
            if place not in self.of(member_id):
                name = f"{place[0]}-{place[1]}"
                raise Violation(f"group {self.group}: {member_id} gives up {name}, which it does not own")
            self.of(member_id).remove(place)

    def ended(self, member_id: str) -> None:
        """The process of a member has ended: it owns nothing any more."""
        self._owned.pop(member_id, None)

    def missing(self, places: Iterable[Place], members: Iterable[str]) -> Iterator[str]:
        """The partitions that do not have exactly one owner among these members, for messages."""
        alive = [(member_id, self.of(member_id)) for member_id in sorted(members)]
        for place in sorted(places):
            owners = [member_id for member_id, owned in alive if place in owned]
            if len(owners) != 1:
                yield f"{place[0]}-{place[1]} of group {self.group} is owned by {owners or 'no member'}"
