"""Assignments that were pushed to members, until the next heartbeat of the member.

A push may cross a heartbeat that the member sent before it. Members have at most one heartbeat in flight on a stream,
so that only the first one that arrives after a push can be older than it. That one may have an epoch from before the
push, and it is no evidence that the member gave up a partition that the push brought. Not recorded: when a coordinator
is replaced, members open new streams and report all they have.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from replication.coordination.groups.assignments import Assignment, as_sets
from replication.coordination.groups.member import CurrentAssignment


@dataclass(slots=True)
class Push:
    """epochs: of the member before each push. partitions: what the pushes brought."""

    epochs: set[int] = field(default_factory=set)
    partitions: dict[UUID, frozenset[int]] = field(default_factory=dict)


class Pushes:
    """The pushes that no heartbeat has followed yet, by group and member."""

    def __init__(self) -> None:
        self._pushes: dict[tuple[str, str], Push] = {}
        self._deferred: dict[tuple[str, str], Assignment] = {}

    def note(self, group_id: str, member_id: str, before: CurrentAssignment, after: CurrentAssignment) -> None:
        """The member is pushed from one assignment to the next."""
        push = self._pushes.setdefault((group_id, member_id), Push())
        if after.member_epoch != before.member_epoch:
            push.epochs.add(before.member_epoch)
        had = as_sets(before.assigned_partitions)
        for topic_id, partitions in as_sets(after.assigned_partitions).items():
            if gained := partitions - had.get(topic_id, frozenset()):
                push.partitions[topic_id] = push.partitions.get(topic_id, frozenset()) | gained

    def knows_epoch(self, group_id: str, member_id: str, epoch: int) -> bool:
        """Whether the member had this epoch before a push that no heartbeat has followed."""
        push = self._pushes.get((group_id, member_id))
        return push is not None and epoch in push.epochs

    def owned(self, group_id: str, member_id: str, reported: Assignment | None) -> Assignment | None:
        """A heartbeat arrived. reported: the partitions that it names. Returns those to count as the member's."""
        key = group_id, member_id
        push = self._pushes.pop(key, None)
        deferred = self._deferred.pop(key, None)
        if push is None or not push.partitions:
            return deferred if reported is None else reported
        if reported is None:
            return None
        counted = dict(reported)
        for topic_id, partitions in push.partitions.items():
            counted[topic_id] = counted.get(topic_id, frozenset()) | partitions
        if counted != reported:
            self._deferred[key] = reported  # it counts once a heartbeat without changes confirms it
        return counted

    def forget(self, group_id: str, member_id: str) -> None:
        """The member joins, or is gone."""
        self._pushes.pop((group_id, member_id), None)
        self._deferred.pop((group_id, member_id), None)
