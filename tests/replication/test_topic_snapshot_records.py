"""What the controller records of topic snapshots, and refuses because of them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from replication.controller import events, features, image_records, pinned_topics
from replication.controller.events import (
    AlterConfigs,
    ConfigChange,
    CreateTopic,
    DeleteTopic,
)
from replication.controller.image import EMPTY, ClusterImage, TopicState, apply
from replication.controller.image_changes import changes_between
from replication.controller.snapshot_events import (
    DeleteTopicSnapshot,
    ExtendTopicSnapshot,
    RecordTopicSnapshot,
    TopicSnapshotChanged,
)
from tests.replication.controlled import Controlled
from tidelog.errors import (
    DuplicateResource,
    InvalidRequest,
    PolicyViolation,
    ResourceNotFound,
    TidelogError,
    UnsupportedVersion,
)
from tidelog.topic_snapshots import (
    LeftOutProducer,
    SnapshotPartition,
    SnapshotTopic,
    TopicSnapshot,
    TopicSnapshotInterrupted,
)
from tidelog.types import TRANSACTIONS_TOPIC, LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, ProducerId

TOPICS = ("orders", "payments", TRANSACTIONS_TOPIC)


def cluster(level: int = features.LATEST) -> Controlled:
    world = Controlled(level=level)
    world.start(0, 1)
    for name in TOPICS:
        world.ask(CreateTopic(name, 2, 2, {}))
    return world


def topic_of(image: ClusterImage, name: str) -> TopicState:
    found = image.topic(name)
    assert found is not None
    return found


def taken(world: Controlled, *names: str, called: str = "friday", left_out: int = 0) -> RecordTopicSnapshot:
    """As a node takes it now."""
    producers = tuple(LeftOutProducer(ProducerId(each), Offset(0)) for each in range(left_out))
    topics = tuple(
        SnapshotTopic(
            topic_of(world.image, name).topic_id,
            name,
            tuple(
                SnapshotPartition(
                    PartitionIndex(state.partition),
                    Offset(0),
                    Offset(9),
                    LeaderEpoch(0),
                    state.leader_epoch,
                    producers,
                )
                for state in topic_of(world.image, name).partitions
            ),
        )
        for name in names
    )
    snapshot = TopicSnapshot(called, UUID(int=5), Millis(10), Millis(20), Millis(1_000), topics)
    return RecordTopicSnapshot(snapshot, pinned_topics.coordinator_epochs(world.image))


def refusal(answer: object, kind: type[TidelogError]) -> str:
    assert type(answer) is kind, answer
    return str(answer)


def test_a_snapshot_pins_its_topics_until_the_last_one_is_gone() -> None:
    world = cluster()
    before = world.image
    assert isinstance(world.ask(taken(world, "orders")), TopicSnapshotChanged)
    assert topic_of(world.image, "orders").pinned
    assert not topic_of(world.image, "payments").pinned
    changed = changes_between(before, world.image).partitions
    assert {key.topic_id for key in changed} == {topic_of(world.image, "orders").topic_id}
    assert len(changed) == 2, "each replica learns that its log is pinned"

    world.ask(taken(world, "orders", "payments", called="monday"))
    world.ask(DeleteTopicSnapshot("friday"))
    assert topic_of(world.image, "orders").pinned
    world.ask(DeleteTopicSnapshot("monday"))
    assert not any(topic.pinned for topic in world.image.topics.values())
    assert world.image.topic_snapshots == {}


def test_snapshots_outlive_the_controller_and_are_in_a_snapshot_of_the_metadata() -> None:
    world = cluster()
    world.ask(taken(world, "orders", left_out=2))
    assert world.replayed() == world.image
    records = list(image_records.records_of(world.image))
    again = apply(EMPTY, [(Offset(number), record) for number, record in enumerate(records)])
    assert again.topic_snapshots == world.image.topic_snapshots
    assert again.topics == world.image.topics


def test_a_topic_in_a_snapshot_is_neither_deleted_nor_compacted() -> None:
    world = cluster()
    world.ask(taken(world, "orders"))
    said = refusal(world.ask(DeleteTopic("orders")), PolicyViolation)
    assert "topic orders cannot be deleted: snapshots of orders need its records (friday)" in said
    compact = AlterConfigs("orders", (ConfigChange("cleanup.policy", "compact,delete"),))
    assert "topic orders cannot be compacted" in refusal(world.ask(compact), PolicyViolation)
    assert isinstance(world.ask(AlterConfigs("payments", compact.changes)), events.ChangedTopic)
    assert "cannot be in a snapshot" in refusal(world.ask(taken(world, "payments", called="b")), PolicyViolation)
    world.ask(DeleteTopicSnapshot("friday"))
    assert isinstance(world.ask(DeleteTopic("orders")), events.ChangedTopic)


def test_nothing_is_recorded_if_a_leader_or_a_coordinator_has_changed_meanwhile() -> None:
    """Without that, what a deposed leader or coordinator states would be believed."""
    world = cluster()
    of_orders = taken(world, "orders")
    state = topic_of(world.image, "orders").partitions[0]
    moved = NodeId(1 - state.leader)
    world.pass_time(10_000, int(moved))
    assert topic_of(world.image, "orders").partitions[0].leader == moved
    assert "leader of orders-0 changed" in refusal(world.ask(of_orders), TopicSnapshotInterrupted)

    fresh = taken(world, "orders")
    stale = replace(fresh, coordinator_epochs=of_orders.coordinator_epochs)
    assert "coordinator moved" in refusal(world.ask(stale), TopicSnapshotInterrupted)
    assert "coordinator moved" in refusal(world.ask(replace(fresh, coordinator_epochs=())), TopicSnapshotInterrupted)
    assert isinstance(world.ask(fresh), TopicSnapshotChanged)

    gone = taken(world, "payments", called="b")
    world.ask(DeleteTopic("payments"))
    assert "payments was deleted" in refusal(world.ask(gone), TopicSnapshotInterrupted)


def test_names_and_numbers_are_bounded() -> None:
    world = cluster()
    world.ask(taken(world, "orders"))
    assert "exists already" in refusal(world.ask(taken(world, "orders")), DuplicateResource)
    assert "no name" in refusal(world.ask(taken(world, "orders", called="a/b")), InvalidRequest)
    internal = taken(world, TRANSACTIONS_TOPIC, called="b")
    assert "internal topic" in refusal(world.ask(internal), InvalidRequest)
    many = taken(world, "orders", called="b", left_out=pinned_topics.LEFT_OUT_MAX)
    assert "transactions are open" in refusal(world.ask(many), PolicyViolation)
    for number in range(pinned_topics.SNAPSHOTS_MAX - 1):
        assert isinstance(world.ask(taken(world, "orders", called=f"s{number}")), TopicSnapshotChanged)
    assert "as many as it may have" in refusal(world.ask(taken(world, "orders", called="b")), PolicyViolation)


def test_what_cannot_be_in_a_snapshot_is_refused_before_commits_wait_for_it() -> None:
    world = cluster()
    world.ask(CreateTopic("customers", 1, 2, {"cleanup.policy": "compact"}))
    with pytest.raises(PolicyViolation, match=r"customers has cleanup\.policy compact"):
        pinned_topics.ensure_suitable("b", [topic_of(world.image, "customers")])
    orders = topic_of(world.image, "orders")
    most = orders.partitions[:1] * pinned_topics.PARTITIONS_MAX
    pinned_topics.ensure_suitable("b", [replace(orders, partitions=most)])
    with pytest.raises(PolicyViolation, match="would have 5002 partitions"):
        pinned_topics.ensure_suitable("b", [replace(orders, partitions=most), orders])


def test_a_snapshot_expires_when_it_is_said_to() -> None:
    world = cluster()
    world.ask(taken(world, "orders"))
    assert pinned_topics.expired(world.image, Millis(999)) == []
    world.ask(ExtendTopicSnapshot("friday", Millis(2_000)))
    assert pinned_topics.expired(world.image, Millis(1_999)) == []
    (removal,) = pinned_topics.expired(world.image, Millis(2_000))
    another = replace(removal, snapshot_id=UUID(int=6))
    late = ExtendTopicSnapshot("friday", Millis(9_000), UUID(int=6))
    assert "another one" in refusal(world.ask(late), ResourceNotFound), "of one that was deleted and taken again"
    assert pinned_topics.expired(world.image, Millis(2_000)) == [removal]
    assert "another one" in refusal(world.ask(another), ResourceNotFound)
    assert isinstance(world.ask(removal), TopicSnapshotChanged)
    assert "it has expired" in refusal(world.ask(ExtendTopicSnapshot("friday", Millis(9))), ResourceNotFound)


def test_below_its_feature_level_there_are_none() -> None:
    """A node of an older version would stop at the record."""
    world = cluster(level=features.TOPIC_SNAPSHOTS - 1)
    assert "needs feature level 11" in refusal(world.ask(taken(world, "orders")), UnsupportedVersion)
