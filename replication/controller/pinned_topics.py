"""Snapshots of topics in the metadata log: recorded, extended, deleted, and what is refused meanwhile.

Invariants:
  1. A recorded snapshot is a consistent cut: it is recorded only if every leader and every transaction coordinator that
     took part in it still leads in the same epoch. A leader or coordinator that was replaced does not know it, and what
     it states may contradict its successor (decision 0034).
  2. While a topic is in a snapshot, none of its records is removed: not by retention (`TopicState.pinned`),
     DeleteRecords or compaction, and not with the topic.
  3. The controller removes a snapshot after its expiry, and never before.

Not here: taking the ends (node/requests/topic_snapshot_handlers.py), the clock (node/controller/snapshot_expiry.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from replication.controller import features
from replication.controller.image import ClusterImage, TopicState
from replication.controller.metadata_records import TopicSnapshotRecord, TopicSnapshotRemovalRecord
from replication.controller.snapshot_events import DeleteTopicSnapshot, ExtendTopicSnapshot, RecordTopicSnapshot
from tidelog.errors import (
    DuplicateResource,
    InvalidRequest,
    PolicyViolation,
    ResourceNotFound,
)
from tidelog.topic_snapshots import SnapshotTopic, TopicSnapshot, TopicSnapshotInterrupted
from tidelog.types import INTERNAL_TOPICS, TRANSACTIONS_TOPIC, LeaderEpoch, Millis, is_topic_name

SNAPSHOTS_MAX: Final = 100
"""Each keeps records that retention would remove."""

PARTITIONS_MAX: Final = 5_000
"""Partitions in one snapshot: its record has some 30 bytes for each."""

LEFT_OUT_MAX: Final = 5_000
"""Producers with an open transaction in one snapshot, some 12 bytes each."""

CLEANUP_POLICY: Final = "cleanup.policy"


def recorded(image: ClusterImage, request: RecordTopicSnapshot) -> TopicSnapshotRecord:
    """The record of a new snapshot. Raises UnsupportedVersion, InvalidRequest, DuplicateResource, PolicyViolation;
    TopicSnapshotInterrupted if the cut may be inconsistent."""
    taken = request.snapshot
    ensure_possible(image, taken.name)
    partitions = [each for topic in taken.topics for each in topic.partitions]
    _ensure_few(taken.name, len(partitions))
    if (left_out := sum(len(each.left_out) for each in partitions)) > LEFT_OUT_MAX:
        raise PolicyViolation(
            f"{left_out} transactions are open in the topics of snapshot {taken.name!r}, and it may leave out "
            f"{LEFT_OUT_MAX}: take it when fewer are open (`tidelog txn list --state Ongoing`)"
        )
    for topic in taken.topics:
        _ensure_same_leaders(image, topic)
    # Without this a coordinator that was replaced in the meantime could vouch that nothing was committed, while its
    # successor has committed a transaction of which one partition of the snapshot has the records and another has not.
    if coordinator_epochs(image) != request.coordinator_epochs:
        raise TopicSnapshotInterrupted("a transaction coordinator moved while the ends were taken: try again")
    return record_of(taken)


def record_of(snapshot: TopicSnapshot) -> TopicSnapshotRecord:
    """The record of a snapshot."""
    return TopicSnapshotRecord(
        snapshot.name,
        snapshot.snapshot_id,
        snapshot.taken_from_ms,
        snapshot.taken_until_ms,
        snapshot.expires_ms,
        snapshot.topics,
    )


def coordinator_epochs(image: ClusterImage) -> tuple[LeaderEpoch, ...]:
    """The leader epochs of the partitions of `__transaction_state`; none before its first use."""
    topic = image.topic(TRANSACTIONS_TOPIC)
    return () if topic is None else tuple(state.leader_epoch for state in topic.partitions)


def ensure_possible(image: ClusterImage, name: str) -> None:
    """Raise UnsupportedVersion, InvalidRequest, DuplicateResource or PolicyViolation if there can be no new snapshot of
    that name."""
    features.require(image, features.TOPIC_SNAPSHOTS, "a snapshot of topics")
    if not is_topic_name(name):
        raise InvalidRequest(
            f"{name[:100]!r} is no name for a snapshot: use 1 to 249 letters, digits, dots, underscores and hyphens"
        )
    if name in image.topic_snapshots:
        raise DuplicateResource(
            f"a snapshot {name!r} exists already: choose another name, or delete it (`tidelog snapshot delete {name}`)"
        )
    if len(image.topic_snapshots) >= SNAPSHOTS_MAX:
        raise PolicyViolation(
            f"the cluster has {SNAPSHOTS_MAX} snapshots, as many as it may have: delete one that is not needed "
            "(`tidelog snapshot list`)"
        )


def ensure_suitable(name: str, topics: Sequence[TopicState]) -> None:
    """Raise PolicyViolation if these topics cannot be in a snapshot, before commits wait for it."""
    _ensure_few(name, sum(len(topic.partitions) for topic in topics))
    for topic in topics:
        if compacts(topic.configs):
            raise compacted(topic.name)


def _ensure_few(name: str, partitions: int) -> None:
    if partitions > PARTITIONS_MAX:
        raise PolicyViolation(
            f"snapshot {name!r} would have {partitions} partitions, and may have {PARTITIONS_MAX}: take several "
            "snapshots of fewer topics"
        )


def _ensure_same_leaders(image: ClusterImage, taken: SnapshotTopic) -> None:
    topic = image.topics.get(taken.topic_id)
    if topic is None:
        raise TopicSnapshotInterrupted(f"topic {taken.name} was deleted while the ends were taken")
    if topic.name in INTERNAL_TOPICS:
        raise InvalidRequest(f"{topic.name} is an internal topic of the cluster, and cannot be in a snapshot")
    if compacts(topic.configs):
        raise compacted(topic.name)
    for each in taken.partitions:
        known = 0 <= each.partition < len(topic.partitions)
        # Without this the end may be that of a deposed leader, which has records that its successor has not.
        if not known or topic.partitions[each.partition].leader_epoch != each.leader_epoch:
            raise TopicSnapshotInterrupted(
                f"the leader of {taken.name}-{each.partition} changed while the ends were taken: try again"
            )


def compacts(configs: Mapping[str, str]) -> bool:
    """Whether the topic itself asks for compaction."""
    return "compact" in configs.get(CLEANUP_POLICY, "")


def compacted(topic: str) -> PolicyViolation:
    """The refusal of a compacted topic."""
    return PolicyViolation(
        f"{topic} has cleanup.policy compact and cannot be in a snapshot: each replica compacts by itself, so that the "
        "records below an end depend on which replica is read"
    )


def extended(image: ClusterImage, request: ExtendTopicSnapshot) -> TopicSnapshotRecord:
    """The record that changes the expiry. Raises ResourceNotFound, InvalidRequest."""
    snapshot = _same(image, request)
    if request.expires_ms <= 0:
        raise InvalidRequest(f"snapshot {request.name!r} cannot expire before 1970")
    return TopicSnapshotRecord(
        snapshot.name,
        snapshot.snapshot_id,
        snapshot.taken_from_ms,
        snapshot.taken_until_ms,
        request.expires_ms,
        snapshot.topics,
    )


def removed(image: ClusterImage, request: DeleteTopicSnapshot) -> TopicSnapshotRemovalRecord:
    """The record that removes a snapshot. Raises ResourceNotFound."""
    return TopicSnapshotRemovalRecord(_same(image, request).name)


def _same(image: ClusterImage, request: ExtendTopicSnapshot | DeleteTopicSnapshot) -> TopicSnapshotRecord:
    """The snapshot that a request is for. Raises ResourceNotFound."""
    snapshot = named(image, request.name)
    if request.snapshot_id not in (None, snapshot.snapshot_id):
        raise ResourceNotFound(f"snapshot {request.name!r} was deleted and taken again: this is another one")
    return snapshot


def named(image: ClusterImage, name: str) -> TopicSnapshotRecord:
    """The snapshot of that name. Raises ResourceNotFound."""
    found = image.topic_snapshots.get(name)
    if found is None:
        raise ResourceNotFound(
            f"there is no snapshot {name[:249]!r}: it has expired, was deleted or never taken (`tidelog snapshot list`)"
        )
    return found


def expired(image: ClusterImage, now_ms: Millis) -> list[DeleteTopicSnapshot]:
    """Removals of the snapshots whose time has passed."""
    return [
        DeleteTopicSnapshot(each.name, each.snapshot_id)
        for each in image.topic_snapshots.values()
        if each.expires_ms <= now_ms
    ]


def ensure_unpinned(image: ClusterImage, topic: TopicState, what: str) -> None:
    """Raise PolicyViolation while the topic is in a snapshot. what: cannot be done, as `records of orders-0 cannot be
    deleted`."""
    if topic.pinned:
        names = [
            each.name
            for each in image.topic_snapshots.values()
            if any(in_it.topic_id == topic.topic_id for in_it in each.topics)
        ]
        raise PolicyViolation(
            f"{what}: snapshots of {topic.name} need its records ({', '.join(sorted(names))}); wait until they expire, "
            "or delete them first (`tidelog snapshot delete NAME`)"
        )
