"""Takes a snapshot of the metadata of a cluster: the state that files describe, and the offsets of its groups.

It is no single moment: the requests follow each other, and a change between them may be in it or not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from tidelog.client.admin import Admin
from tidelog.desired.change_driver import look_at_state
from tidelog.desired.desired_state import DesiredState, ResourceKind
from tidelog.types import INTERNAL_TOPICS, TopicPartition

ROUNDS_MAX: Final = 5
"""Attempts to count the topics while none is created or deleted."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state of a cluster, and what it lacks."""

    state: DesiredState
    hidden: int
    """Topics that the caller may not describe, or that were created while it was taken."""
    deleted: tuple[str, ...] = ()
    """Topics that were deleted while it was taken."""


async def take_snapshot(admin: Admin) -> StateSnapshot:
    """Take a snapshot. Raises ClusterAuthorizationFailed, and the error of a coordinator whose groups cannot be
    read."""
    groups = [group.group_id for group in await admin.list_groups()]
    deleted: list[str] = []
    state = await look_at_state(admin, ResourceKind, groups=groups, on_deleted=deleted.append)
    # An offset of a topic that is gone would refuse the others of its group at the restore.
    offsets = {
        group: {key: each for key, each in committed.items() if _has(state, key)}
        for group, committed in state.group_offsets.items()
    }
    known = {group: committed for group, committed in offsets.items() if committed}
    hidden = await _count_hidden(admin, {*state.topics, *deleted, *INTERNAL_TOPICS})
    return StateSnapshot(replace(state, group_offsets=known), hidden, tuple(deleted))


async def _count_hidden(admin: Admin, seen: Collection[str]) -> int:
    """How many topics the cluster has that are not listed for the caller, or that are listed and were not seen."""
    topics = (await admin.describe_cluster()).topics
    for _ in range(ROUNDS_MAX):
        listed = [topic.name for topic in await admin.list_topics()]
        before, topics = topics, (await admin.describe_cluster()).topics
        # The cluster tells a number only: a topic that was deleted before the list would count as a hidden one, and
        # one that was created would count in place of one that is hidden.
        if before == topics:
            break
    return max(0, max(before, topics) - len(listed)) + sum(name not in seen for name in listed)


def _has(state: DesiredState, key: TopicPartition) -> bool:
    topic = state.topics.get(key.topic)
    return topic is not None and key.partition < (topic.partitions or 0)
