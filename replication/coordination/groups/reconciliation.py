"""One step of a member towards its target assignment (KIP-848).

A partition moves in three steps: its old owner is asked to give it up, confirms by a heartbeat without it, and only
then its new owner gets it. Members whose partitions stay go on reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from replication.coordination.groups.assignments import AssignedTopics, Assignment, as_sets, as_topics
from replication.coordination.groups.member import CurrentAssignment
from replication.coordination.groups.states import MEMBER_TRANSITIONS, MemberCause, MemberState

NONE: Final[frozenset[int]] = frozenset()


def next_assignment(
    current: CurrentAssignment,
    target_topics: AssignedTopics,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[UUID, int], bool],
) -> CurrentAssignment:
    """The member's next assignment; `current` itself if nothing changes.

    target_topics, target_epoch: its target assignment, and the group epoch of that. owned: the partitions that the
    member reports; None: not reported, so assume that it still owns everything. is_free: whether no other member owns a
    partition, nor has been asked to give it up.
    The member stays in its epoch while it has to give partitions up; else it reaches the target epoch.
    """
    state = MemberState(current.state)
    epoch = current.member_epoch
    if state is MemberState.STABLE and epoch == target_epoch:
        return current
    if state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, as_sets(current.partitions_pending_revocation)):
            return current  # a newer target waits: a second request to revoke would hide which one is confirmed
        epoch += 1  # a confirmed revocation is an epoch of its own, as in Kafka's CurrentAssignmentBuilder
    target = as_sets(target_topics)
    had = as_sets(current.assigned_partitions)
    kept: dict[UUID, frozenset[int]] = {}
    revoking: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in had.items():
        wanted = target.get(topic_id, NONE)
        if staying := partitions & wanted:
            kept[topic_id] = staying
        if going := partitions - wanted:
            revoking[topic_id] = going
    # Partitions that the member does not own any more are released at once: nobody could confirm their revocation.
    if revoking and _owns_any(owned, revoking):
        cause = MemberCause.MUST_REVOKE
        assigned = kept
    else:
        cause, assigned = MemberCause.REACHED, dict(kept)
        epoch, revoking = target_epoch, {}
        for topic_id, partitions in target.items():
            missing = partitions - kept.get(topic_id, NONE)
            free = frozenset(partition for partition in missing if is_free(topic_id, partition))
            if free:
                assigned[topic_id] = kept.get(topic_id, NONE) | free
            if len(free) < len(missing):
                cause = MemberCause.MUST_WAIT
    new_state, new_assigned = MEMBER_TRANSITIONS[state, cause], as_topics(assigned)
    if (
        new_state is state
        and epoch == current.member_epoch
        and new_assigned == current.assigned_partitions
        and not revoking
    ):
        return current
    previous = current.member_epoch if epoch != current.member_epoch else current.previous_member_epoch
    return CurrentAssignment(epoch, previous, new_state, new_assigned, as_topics(revoking))


def _owns_any(owned: Assignment | None, revoking: Assignment) -> bool:
    if owned is None:
        return True
    return any(not partitions.isdisjoint(owned.get(topic_id, NONE)) for topic_id, partitions in revoking.items())
