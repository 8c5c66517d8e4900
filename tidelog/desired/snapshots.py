"""Takes a snapshot of the metadata of a cluster: the state that files describe, and the offsets of its groups.

It is no single moment: the requests follow each other, and a change between them may be in it or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.client.admin import Admin
from tidelog.cluster_descriptions import ClusterDescription
from tidelog.desired.change_driver import look_at_state
from tidelog.desired.desired_state import DesiredState, ResourceKind
from tidelog.types import INTERNAL_TOPICS, TopicPartition


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The state of a cluster, and what it lacks."""

    state: DesiredState
    hidden: int
    """Topics that the caller may not describe."""
    deleted: tuple[str, ...] = ()
    """Topics that were deleted while it was taken."""


async def take_snapshot(admin: Admin, cluster: ClusterDescription) -> StateSnapshot:
    """Take a snapshot. cluster: as it was before. Raises ClusterAuthorizationFailed, and the error of a coordinator
    whose groups cannot be read."""
    groups = [group.group_id for group in await admin.list_groups()]
    deleted: list[str] = []
    state = await look_at_state(admin, ResourceKind, groups=groups, on_deleted=deleted.append)
    internal = await admin.describe_topics(INTERNAL_TOPICS)
    seen = len(state.topics) + sum(not isinstance(each, Exception) for each in internal.values())
    # An offset of a topic that is gone would refuse the others of its group at the restore.
    offsets = {
        group: {key: each for key, each in committed.items() if _has(state, key)}
        for group, committed in state.group_offsets.items()
    }
    known = {group: committed for group, committed in offsets.items() if committed}
    # Asked again: a topic that was created meanwhile would count in place of one that is hidden.
    topics = max(cluster.topics - len(deleted), (await admin.describe_cluster()).topics)
    return StateSnapshot(replace(state, group_offsets=known), max(0, topics - seen), tuple(deleted))


def _has(state: DesiredState, key: TopicPartition) -> bool:
    topic = state.topics.get(key.topic)
    return topic is not None and key.partition < (topic.partitions or 0)
