"""Blocks of producer ids: each is allocated once, also after changes and restarts of the controller."""

from __future__ import annotations

import pytest

from replication.controller.controller import PRODUCER_ID_BLOCK
from replication.controller.events import AllocateProducerIds, ProducerIdBlock
from replication.controller.image import apply
from replication.controller.metadata_records import ProducerIdsRecord
from tests.replication.controlled import Controlled
from tidelog.errors import CorruptLog, NodeIdNotRegistered, StaleNodeEpoch, TidelogError
from tidelog.types import NodeEpoch, NodeId, Offset, ProducerId


def allocate(world: Controlled, node: int, epoch: int | None = None) -> object:
    number = world.numbers[NodeId(node)] if epoch is None else NodeEpoch(epoch)
    return world.ask(AllocateProducerIds(NodeId(node), number))


def test_nodes_are_given_one_block_after_the_other() -> None:
    world = Controlled()
    world.start(1, 2)
    blocks = [allocate(world, 1), allocate(world, 2), allocate(world, 1)]
    assert blocks == [ProducerIdBlock(ProducerId(n * PRODUCER_ID_BLOCK), PRODUCER_ID_BLOCK) for n in range(3)]


def test_the_next_controller_continues_at_the_end_of_the_log() -> None:
    world = Controlled()
    world.start(1)
    allocate(world, 1)
    world.activate(2)
    assert allocate(world, 1) == ProducerIdBlock(ProducerId(PRODUCER_ID_BLOCK), PRODUCER_ID_BLOCK)


def test_a_block_is_given_only_once_it_is_committed() -> None:
    world = Controlled()
    world.start(1)
    world.hold_commits = True
    assert allocate(world, 1) is None
    assert allocate(world, 1) is None
    world.commit()
    firsts = [reply.first_producer_id for reply in world.replies.values() if isinstance(reply, ProducerIdBlock)]
    assert firsts == [0, PRODUCER_ID_BLOCK]


@pytest.mark.parametrize(("node", "epoch", "error"), [(1, 0, StaleNodeEpoch), (7, 0, NodeIdNotRegistered)])
def test_an_earlier_incarnation_of_a_node_gets_none(node: int, epoch: int, error: type[TidelogError]) -> None:
    world = Controlled()
    world.start(1)
    assert isinstance(allocate(world, node, epoch), error)
    assert world.image.next_producer_id == 0


def test_a_block_that_was_given_before_contradicts_the_log() -> None:
    world = Controlled()
    record = ProducerIdsRecord(NodeId(1), NodeEpoch(1), ProducerId(5))
    image = apply(world.image, [(world.end, record)])
    with pytest.raises(CorruptLog, match="producer ids below 5"):
        apply(image, [(Offset(world.end + 1), record)])
