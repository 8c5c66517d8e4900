"""What the members of a group are given, partition by partition: Jepsen's anomalies of polls.

Within one assignment of a partition a member is given each committed record once and in order (no skipped and no
non-monotonic polls, within a poll and between polls; readings.py checks that). Each assignment begins at the committed
offset, without skipping a record before its first one, and begins again there once a commit has told of a loss.

Not here: who owns the partition (owners.py), what may be committed (group_log.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Ledger, Violation
from testbed.sim.readings import Reading
from tidelog.records.v2.record import Record


@dataclass(slots=True)
class Assignment:
    """One partition as long as one member owns it, or believes so. committed: when it was assigned; -1 for none. A
    member that was removed and does not know it yet may be given its first record after its successor has committed.
    reading: None until the first record arrives."""

    place: Place
    committed: int
    reading: Reading | None = None


class MemberReadings:
    """What one member is given.

    ledger: of a partition. committed: the offset that the group has committed; -1 for none. begin: where a partition
    without a committed offset begins.
    """

    def __init__(
        self,
        member: str,
        *,
        ledger: Callable[[Place], Ledger],
        committed: Callable[[Place], int],
        decided: bool,
        keep: Callable[[Reading], Reading],
    ) -> None:
        """keep: registers a reading with the checkers of the world. decided: the member reads with read_committed."""
        self._member, self._ledger, self._committed = member, ledger, committed
        self._decided, self._keep = decided, keep
        self._assigned: dict[Place, Assignment] = {}
        self._former: dict[Place, Assignment] = {}
        """The last assignment of each partition that was given up: a commit of it may still be under way."""

    def assigned(self, places: list[Place]) -> None:
        for place in places:
            self._assigned[place] = Assignment(place, self._committed(place))

    def revoked(self, places: list[Place]) -> None:
        for place in places:
            found = self._assigned.pop(place, None)
            if found is not None:
                self._former[place] = found

    def continues(self, place: Place, position: int) -> None:
        """A commit has failed, and the member continues at this position. If it lies before what it was given, the
        commit has told of a loss: what was returned since the member joined again is returned once more, from the
        committed offset on."""
        found = self._assigned.get(place)
        if found is not None and found.reading is not None and position < found.reading.position:
            found.reading = None

    def got(self, place: Place, record: Record) -> None:
        """The member was given a record."""
        found = self._assigned.get(place)
        if found is None:
            name = f"offset {record.offset} of {place[0]}-{place[1]}"
            raise Violation(f"{self._member} was given {name}, which it does not own")
        if found.reading is None:
            found.reading = self._begun(found, int(record.offset))
        found.reading.got(record)

    def _begun(self, assignment: Assignment, offset: int) -> Reading:
        """The reading of an assignment that begins with a record at `offset`."""
        place, committed, ledger = assignment.place, assignment.committed, self._ledger(assignment.place)
        if offset < committed and not ledger.lossy:
            raise Violation(
                f"{self._member} begins {place[0]}-{place[1]} at offset {offset}, but {committed} is committed"
            )
        return self._keep(Reading(ledger, self._decided, max(committed, 0)))

    def given_to(self, place: Place) -> int | None:
        """The offset below which the member was given everything, or nothing had to be given; None if it does not know
        that, because it was given nothing of the present assignment."""
        found = self._assigned.get(place) or self._former.get(place)
        if found is None or found.reading is None:
            return None
        ledger, position = found.reading.ledger, found.reading.position
        if ledger.lossy or found.reading.astray:
            return None
        return position

    def may_commit(self, place: Place, offset: int) -> int | None:
        """As given_to, beyond which only records lie that a reader need not be given."""
        given = self.given_to(place)
        if given is None:
            committed, ledger = self._committed(place), self._ledger(place)
            given = max(committed, ledger.start, 0)
        if offset > given and self._ledger(place).passed_over(given, offset, decided=self._decided) is None:
            return offset
        return given
