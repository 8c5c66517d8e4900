"""The controller on whole metadata nodes, and a follower's log, where another node is faulty or a handler fails."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from node.config import GRPC_LISTENER
from node.replicas.follower_log import prepare_append
from replication.common_events import ClockTicked
from tests.node.metadata_world import MetadataWorld
from tests.storage.workbench import Bench, stamped
from tidelog.errors import (
    CorruptRecord,
    DuplicateNodeRegistration,
    InvalidRequest,
    NotController,
    RequestTimedOut,
    UnknownServerError,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import common_pb2, controller_pb2
from tidelog.record_exchange import FetchedPartition
from tidelog.types import EpochStart, LeaderEpoch, NodeId, Offset


def defective(world: MetadataWorld, node: int, event: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's controller fails at every event of that kind, after it has decided something."""
    core = world.side(node).controller._controller
    take = core._take

    def broken(given: Any) -> Any:
        effects = take(given)
        if isinstance(given, event):
            raise ZeroDivisionError("a defect")
        return effects

    monkeypatch.setattr(core, "_take", broken)


def test_a_request_that_the_controller_cannot_take_is_answered_and_nothing_is_decided(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with MetadataWorld() as world, caplog.at_level(logging.ERROR, "node.controller"):
        world.begin()
        with monkeypatch.context() as patch:
            patch.setattr("replication.controller.controller.PRODUCER_ID_BLOCK", "a thousand")
            number = world.image().nodes[NodeId(0)].node_epoch
            request = controller_pb2.AllocateProducerIdsRequest(node_id=0, node_epoch=number)
            with pytest.raises(UnknownServerError, match="TypeError"):
                world.call(0, methods.CONTROLLER_ALLOCATE_PRODUCER_IDS, request)
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert world.call(0, methods.CONTROLLER_ALLOCATE_PRODUCER_IDS, request).count == 1_000
        world.create()


def test_a_failed_controller_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.run_until(lambda: len(world.image().voters) == 3)
        defective(world, 0, ClockTicked, monkeypatch)
        world.run_until(lambda: any(world.side(node).view.leads for node in (1, 2)))
        assert world.node_runs[0].failure is None
        world.create("orders", at=1)


def test_records_that_cannot_be_written_down_end_the_controllership_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.run_until(lambda: len(world.image().voters) == 3)

        def broken(*_: object, **__: object) -> None:
            raise ValueError("Value out of range: 2147483648")

        monkeypatch.setattr(world.side(0).metadata, "append", broken)
        with pytest.raises(RequestTimedOut):
            world.create("orders")
        world.run_until(lambda: any(world.side(node).view.leads for node in (1, 2)))
        world.create("orders", at=1)
        assert world.node_runs[0].failure is None
        assert not world.side(0).view.leads


def test_a_heartbeat_beyond_the_committed_metadata_is_rejected() -> None:
    with MetadataWorld() as world:
        world.begin()
        entry = world.image().nodes[NodeId(1)]
        beat = controller_pb2.HeartbeatRequest(node_id=1, node_epoch=entry.node_epoch, metadata_offset=2**63 - 1)
        with pytest.raises(InvalidRequest, match="which ends at"):
            world.call(0, methods.CONTROLLER_HEARTBEAT, beat)


def test_a_heartbeat_of_another_registration_does_not_keep_a_session_for_the_next_controller() -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.run_until(lambda: len(world.image().voters) == 3)
        sessions = world.side(1).controller._controller._sessions
        world.run_until(lambda: NodeId(2) in sessions._last_contact)
        world.kill(2)
        world.loop.run_for(0.1)  # what was on its way has arrived
        before = sessions._last_contact[NodeId(2)]
        for node in (2, 77):
            for number in (0, 2**63 - 1):
                beat = controller_pb2.HeartbeatRequest(node_id=node, node_epoch=number)
                with pytest.raises(NotController):
                    world.call(1, methods.CONTROLLER_HEARTBEAT, beat)
        assert sessions._last_contact[NodeId(2)] == before
        assert NodeId(77) not in sessions._last_contact


def forged_registration(world: MetadataWorld, node: int) -> controller_pb2.RegisterNodeRequest:
    """Another process claims to be the node, and that the one before it has ended: all of it can be read in the
    metadata log."""
    image = world.image()
    entry = image.nodes[NodeId(node)]
    return controller_pb2.RegisterNodeRequest(
        cluster_id=image.cluster_id,
        node_id=node,
        incarnation=b"somebody else 16",
        boot_id=entry.boot_id,
        listeners=[common_pb2.Listener(name=GRPC_LISTENER, host="attacker", port=1)],
        directories=[
            controller_pb2.DirectoryState(directory_id=each.directory_id.bytes, last_registration=entry.node_epoch)
            for each in entry.directories
        ],
        metadata_offset=image.offset,
    )


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_that_answers_is_not_replaced_by_a_forged_registration(victim: int) -> None:
    """It ended: one request to a node took it, three took the cluster."""
    with MetadataWorld() as world:
        world.begin()
        before = world.image().nodes[NodeId(victim)]
        with pytest.raises(DuplicateNodeRegistration, match="that process answers at node-"):
            world.call(0, methods.CONTROLLER_REGISTER_NODE, forged_registration(world, victim))
        world.loop.run_for(3)
        assert world.node_runs[victim].failure is None
        assert world.image().nodes[NodeId(victim)] == before
        world.create()


def test_a_process_whose_address_does_not_answer_is_replaced_within_its_session() -> None:
    with MetadataWorld() as world:
        world.begin()
        claim = forged_registration(world, 1)
        world.kill(1)
        answer = world.call(0, methods.CONTROLLER_REGISTER_NODE, claim)
        assert world.image().nodes[NodeId(1)].node_epoch == answer.node_epoch


def test_a_follower_takes_no_records_of_an_epoch_after_its_leaders() -> None:
    """Once in its log, no later leader's records could follow them."""
    bench = Bench()
    ahead = stamped(0, b"a", epoch=2**31 - 1)
    nothing = FetchedPartition(b"", 0, LeaderEpoch(3), Offset(-1), Offset(-1), Offset(0))
    unnamed = nothing._replace(records=ahead)
    named = unnamed._replace(epochs=(EpochStart(LeaderEpoch(2**31 - 1), Offset(0)),))
    for answer in (unnamed, named):
        with pytest.raises(CorruptRecord, match="sent records of epoch"):
            prepare_append(bench.log, answer, LeaderEpoch(3))
    prepare_append(bench.log, nothing._replace(records=stamped(0, b"a", epoch=2)), LeaderEpoch(3))
