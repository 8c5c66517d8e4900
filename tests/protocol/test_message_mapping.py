"""A mapping between a dataclass and a message is derived from their fields, or refused when it is constructed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from replication.controller.events import DamagedReplica
from tidelog.protocol.message_mapping import Converter, MessageMapping
from tidelog.protocol.v1 import controller_pb2
from tidelog.protocol.v1 import metadata_records_pb2 as pb
from tidelog.types import DirectoryId, LeaderEpoch, NodeEpoch, NodeId, PartitionIndex, PartitionKey, ProducerId, TopicId


@dataclass(frozen=True, slots=True)
class Removal:
    """The only field may be absent."""

    topic_id: TopicId | None


@dataclass(frozen=True, slots=True)
class Block:
    """The request id is not part of the message."""

    request_id: int
    node_id: NodeId
    node_epoch: NodeEpoch
    next_producer_id: ProducerId


@dataclass(frozen=True, slots=True)
class Directories:
    """A set."""

    intact_directories: frozenset[DirectoryId]


@dataclass(frozen=True, slots=True)
class Misnamed:
    """The message calls it topic_id."""

    topic: TopicId


@dataclass(frozen=True, slots=True)
class Unknown:
    """A complex number has no conversion."""

    topic_id: complex


def test_the_default_of_a_field_without_presence_means_none() -> None:
    mapping = MessageMapping(Removal, pb.TopicRemovalRecord.DESCRIPTOR)
    for removal in (Removal(None), Removal(TopicId(UUID(int=7)))):
        message = pb.TopicRemovalRecord(**mapping.to_fields(removal))
        assert mapping.from_message(message) == removal
    assert mapping.to_fields(Removal(None)) == {"topic_id": None}


def test_fields_that_the_message_does_not_have_are_given() -> None:
    mapping = MessageMapping(Block, pb.ProducerIdsRecord.DESCRIPTOR, given=["request_id"])
    block = Block(9, NodeId(1), NodeEpoch(2), ProducerId(3))
    message = pb.ProducerIdsRecord(**mapping.to_fields(block))
    assert message == pb.ProducerIdsRecord(node_id=1, node_epoch=2, next_producer_id=3)
    assert mapping.from_message(message, request_id=9) == block


def test_a_dataclass_without_a_field_of_its_own_is_part_of_the_message() -> None:
    mapping = MessageMapping(DamagedReplica, controller_pb2.DamagedReplica.DESCRIPTOR)
    damaged = DamagedReplica(PartitionKey(TopicId(UUID(int=3)), PartitionIndex(4)), "a reason", LeaderEpoch(5))
    message = controller_pb2.DamagedReplica(**mapping.to_fields(damaged))
    assert (message.topic_id, message.partition, message.reason) == (UUID(int=3).bytes, 4, "a reason")
    assert mapping.from_message(message) == damaged


def test_a_converter_is_chosen_by_name_before_type() -> None:
    def refuse(value: Any) -> Any:
        raise ValueError(value)

    doubled = Converter(read=lambda value: value * 2)
    mapping = MessageMapping(
        Block,
        pb.ProducerIdsRecord.DESCRIPTOR,
        given=["request_id"],
        converters={"node_id": doubled, NodeId: Converter(read=refuse), ProducerId: Converter(read=lambda _: 5)},
    )
    message = pb.ProducerIdsRecord(node_id=4, node_epoch=2, next_producer_id=3)
    assert mapping.from_message(message, request_id=1) == Block(1, NodeId(8), NodeEpoch(2), ProducerId(5))


def test_sets_are_written_in_order() -> None:
    mapping = MessageMapping(Directories, controller_pb2.RegisterNodeRequest.DESCRIPTOR)
    ids = [DirectoryId(UUID(int=number)) for number in (9, 2, 7, 4)]
    written = controller_pb2.RegisterNodeRequest(**mapping.to_fields(Directories(frozenset(ids))))
    assert list(written.intact_directories) == [UUID(int=number).bytes for number in (2, 4, 7, 9)]
    assert mapping.from_message(written) == Directories(frozenset(ids))


@pytest.mark.parametrize("size", [0, 15, 17])
def test_an_id_of_another_length_is_no_value(size: int) -> None:
    mapping = MessageMapping(Directories, controller_pb2.RegisterNodeRequest.DESCRIPTOR)
    with pytest.raises(ValueError, match=f"an id has 16 bytes, this one {size}"):
        mapping.from_message(controller_pb2.RegisterNodeRequest(intact_directories=[bytes(size)]))


@pytest.mark.parametrize(("wrong", "why"), [(Misnamed, "has no field topic of"), (Unknown, "no conversion is known")])
def test_a_field_that_cannot_be_mapped_is_refused_at_once(wrong: type[Any], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        MessageMapping(wrong, pb.TopicRemovalRecord.DESCRIPTOR)
