"""The cluster image: batches are atomic, images never change, contradictions are refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from replication.controller.image import EMPTY, ClusterImage, advance, apply
from replication.controller.metadata_records import (
    ClusterRecord,
    DirectoryState,
    MetadataRecord,
    NodeChangeRecord,
    NodeRegistrationRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    TopicRemovalRecord,
)
from tidelog.errors import CorruptLog
from tidelog.types import (
    NO_NODE,
    DirectoryId,
    Durability,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    TopicId,
)

TOPIC = TopicId(UUID(int=1))
DIRECTORY = DirectoryId(UUID(int=2))


def located(image: ClusterImage, *records: MetadataRecord) -> list[tuple[Offset, MetadataRecord]]:
    return [(Offset(image.offset + index), record) for index, record in enumerate(records)]


def after(image: ClusterImage, *records: MetadataRecord) -> ClusterImage:
    return apply(image, located(image, *records))


def partition(index: int = 0, topic: TopicId = TOPIC) -> PartitionRecord:
    return PartitionRecord(
        topic,
        PartitionIndex(index),
        replicas=(NodeId(1), NodeId(2)),
        directories=(DIRECTORY, DIRECTORY),
        isr=(NodeId(1), NodeId(2)),
        elr=(),
        last_known_elr=(),
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
    )


def registration(run_number: int = 1, **directories: int) -> NodeRegistrationRecord:
    states = tuple(
        DirectoryState(DirectoryId(UUID(bytes=name.encode().ljust(16))), NodeEpoch(number))
        for name, number in directories.items()
    )
    return NodeRegistrationRecord(NodeId(1), Incarnation(UUID(int=run_number)), {}, "", b"boot", states)


def with_topic() -> ClusterImage:
    return after(EMPTY, ClusterRecord("cluster", 1), TopicRecord("t", TOPIC, {}), partition(0), partition(1))


def test_a_batch_makes_a_new_image_and_leaves_the_old_one_alone() -> None:
    old = with_topic()
    new = after(old, PartitionChangeRecord(TOPIC, PartitionIndex(0), isr=(NodeId(1),)))
    assert old.topics[TOPIC].partitions[0].isr == (1, 2)
    assert new.topics[TOPIC].partitions[0].isr == (1,)
    assert new.topics[TOPIC].partitions[1] is old.topics[TOPIC].partitions[1]
    assert new.nodes is old.nodes
    assert (old.offset, new.offset) == (4, 5)


def test_unchanged_parts_are_the_same_object() -> None:
    other = TopicId(UUID(int=9))
    old = after(with_topic(), TopicRecord("u", other, {}), partition(0, other))
    new = after(old, PartitionChangeRecord(TOPIC, PartitionIndex(0), isr=(NodeId(1),)))
    assert new.topics[other] is old.topics[other]
    assert new.topics[TOPIC] is not old.topics[TOPIC]
    assert new.topic_ids is old.topic_ids


def test_each_change_raises_the_partition_epoch_and_each_leadership_the_leader_epoch() -> None:
    image = after(with_topic(), PartitionChangeRecord(TOPIC, PartitionIndex(0)))
    assert (image.topics[TOPIC].partitions[0].partition_epoch, image.topics[TOPIC].partitions[0].leader_epoch) == (1, 0)
    image = after(image, PartitionChangeRecord(TOPIC, PartitionIndex(0), leader=NodeId(1)))
    state = image.partition(PartitionKey(TOPIC, PartitionIndex(0)))
    assert state is not None
    assert (state.partition_epoch, state.leader_epoch, state.leader) == (2, 1, 1)
    image = after(image, PartitionChangeRecord(TOPIC, PartitionIndex(0), leader=NO_NODE))
    assert image.topics[TOPIC].partitions[0].leader_epoch == 2


def test_a_topic_is_found_by_name_only_until_it_is_deleted() -> None:
    image = with_topic()
    assert image.topic("t") is image.topics[TOPIC]
    assert image.topic("t").durability is Durability.FSYNC  # type: ignore[union-attr]
    gone = after(image, TopicRemovalRecord(TOPIC))
    assert gone.topic("t") is None
    assert gone.partition(PartitionKey(TOPIC, PartitionIndex(0))) is None
    again = after(gone, TopicRecord("t", TopicId(UUID(int=5)), {"durability": "page-cache"}))
    assert again.topic("t").durability is Durability.PAGE_CACHE  # type: ignore[union-attr]


def test_a_topic_made_and_removed_in_one_batch_leaves_nothing() -> None:
    image = after(EMPTY, TopicRecord("t", TOPIC, {}), partition(0), TopicRemovalRecord(TOPIC))
    assert (image.topics, image.topic_ids) == ({}, {})


@pytest.mark.parametrize(
    "records",
    [
        (PartitionChangeRecord(TopicId(UUID(int=7)), PartitionIndex(0)),),
        (PartitionChangeRecord(TOPIC, PartitionIndex(2)),),
        (partition(3),),
        (TopicRecord("t", TopicId(UUID(int=7)), {}),),
        (TopicRemovalRecord(TopicId(UUID(int=7))),),
        (NodeChangeRecord(NodeId(1), NodeEpoch(0), fenced=True),),
    ],
)
def test_a_contradiction_is_refused_whole(records: tuple[MetadataRecord, ...]) -> None:
    image = with_topic()
    with pytest.raises(CorruptLog, match="offset 5"):
        after(image, PartitionChangeRecord(TOPIC, PartitionIndex(0)), *records)
    assert image == with_topic()


def test_offsets_only_grow() -> None:
    image = with_topic()
    with pytest.raises(CorruptLog):
        apply(image, [(Offset(image.offset - 1), ClusterRecord("other", 1))])
    assert advance(image, Offset(9)).offset == 9
    assert advance(image, Offset(1)) is image


def test_a_directory_is_known_by_the_number_of_the_last_unfenced_registration() -> None:
    image = after(EMPTY, registration(1, a=-1))
    assert image.nodes[NodeId(1)].known_directories() == {DirectoryId(UUID(bytes=b"a".ljust(16))): -1}
    image = after(image, NodeChangeRecord(NodeId(1), NodeEpoch(0), fenced=False))
    (known,) = image.nodes[NodeId(1)].known_directories().values()
    assert known == 0
    image = after(image, registration(2, a=0, b=-1))  # never unfenced: the number of `a` stays what it was
    image = after(image, registration(3, a=2))
    node = image.nodes[NodeId(1)]
    assert [directory.last_registration for directory in node.directories] == [0]
    assert [directory.last_registration for directory in node.former_directories] == [-1]
