"""Assignments that were pushed to members and may not have arrived.

A push may cross a heartbeat that the member sent before it: that one may have an epoch from before the push, and it is
no evidence that the member gave up a partition that the push brought. A push is confirmed by a heartbeat that

  - has an epoch that only the push brought, or
  - reports all partitions that the push brought, or
  - cannot be older: a member has one heartbeat in flight, and sends one more at most for each message it gets, so that
    only the first one, and one for each unconfirmed push before, can be.

Until then the partitions of the push count as the member's. Not recorded: when a coordinator is replaced, members open
new streams and report all they have.
"""

from __future__ import annotations

from uuid import UUID

from replication.coordination.groups.assignments import Assignment, as_sets
from replication.coordination.groups.member import CurrentAssignment
from tidelog.values import dataclass


@dataclass(slots=True)
class _Push:
    """One unconfirmed push."""

    before: int
    """The member's epoch before it."""
    after: int
    partitions: dict[UUID, frozenset[int]]
    """The partitions that it brought, without those that the member has reported since."""
    older_max: int
    """How many of the next heartbeats may have been sent before it arrived."""


class Pushes:
    """The unconfirmed pushes by group and member, oldest first."""

    def __init__(self) -> None:
        self._pushes: dict[tuple[str, str], list[_Push]] = {}

    def note(self, group_id: str, member_id: str, before: CurrentAssignment, after: CurrentAssignment) -> None:
        """The member is pushed from one assignment to the next."""
        had = as_sets(before.assigned_partitions)
        gained = {
            topic_id: new
            for topic_id, partitions in as_sets(after.assigned_partitions).items()
            if (new := partitions - had.get(topic_id, frozenset()))
        }
        pushes = self._pushes.setdefault((group_id, member_id), [])
        pushes.append(_Push(before.member_epoch, after.member_epoch, gained, len(pushes) + 1))

    def is_unconfirmed(self, group_id: str, member_id: str) -> bool:
        """Whether there is a push that may not have arrived."""
        return (group_id, member_id) in self._pushes

    def knows_epoch(self, group_id: str, member_id: str, epoch: int) -> bool:
        """Whether the member had this epoch before an unconfirmed push."""
        return any(push.before == epoch for push in self._pushes.get((group_id, member_id), ()))

    def owned(self, group_id: str, member_id: str, epoch: int, reported: Assignment | None) -> Assignment | None:
        """A heartbeat with this epoch arrived. reported: the partitions that it names; None: it names none. Returns
        those to count as the member's, None if unknown."""
        key = group_id, member_id
        pushes = self._pushes.pop(key, None)
        if pushes is None:
            return reported
        unconfirmed = [push for push in pushes if not _confirms(push, epoch, reported)]
        if unconfirmed:
            self._pushes[key] = unconfirmed
        if reported is None:
            return None
        counted = dict(reported)
        for push in unconfirmed:
            for topic_id, partitions in push.partitions.items():
                counted[topic_id] = counted.get(topic_id, frozenset()) | partitions
        return counted

    def forget(self, group_id: str, member_id: str) -> None:
        """The member joins, or is gone."""
        self._pushes.pop((group_id, member_id), None)


def _confirms(push: _Push, epoch: int, reported: Assignment | None) -> bool:
    """Whether a heartbeat was sent after a push had arrived."""
    push.older_max -= 1
    if push.older_max < 0 or epoch >= push.after > push.before:
        return True
    if reported is not None and push.partitions:
        left = {topic: new - reported.get(topic, frozenset()) for topic, new in push.partitions.items()}
        push.partitions = {topic: partitions for topic, partitions in left.items() if partitions}
        return not push.partitions and epoch >= push.after
    return False
