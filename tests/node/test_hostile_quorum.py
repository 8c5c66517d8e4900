"""Requests of the Quorum service that would end a cluster for good, over real gRPC and on whole metadata nodes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node.api.table import QUORUM_BEGIN_QUORUM_EPOCH
from node.process.metadata_node import MetadataNode
from node.quorum.state import QuorumView, read_state
from replication.common_events import ClockTicked
from replication.raft.epoch_limits import EPOCH_LAST, EPOCH_MAX
from replication.raft.quorum_events import BeginEpoch
from tests.node.hostile_epochs import EPOCHS, create_topic
from tests.node.metadata_world import MetadataWorld
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog.errors import (
    InconsistentClusterId,
    InvalidRequest,
    InvalidVoterKey,
    NotLeaderOrFollower,
    TidelogError,
    UnknownServerError,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import quorum_pb2
from tidelog.types import NodeId


def hostile(cluster: str, key: quorum_pb2.ReplicaKey) -> list[tuple[Any, Any]]:
    """Messages of a stranger: leaders, and epochs that never existed."""
    found: list[tuple[Any, Any]] = []
    for epoch in EPOCHS:
        for named in ("", cluster):
            begin = quorum_pb2.BeginQuorumEpochRequest(cluster_id=named, leader_id=7, epoch=epoch, receiver=key)
            end = quorum_pb2.EndQuorumEpochRequest(cluster_id=named, leader_id=7, epoch=epoch, receiver=key)
            found += [(methods.QUORUM_BEGIN_QUORUM_EPOCH, begin), (methods.QUORUM_END_QUORUM_EPOCH, end)]
            begin = quorum_pb2.BeginQuorumEpochRequest(cluster_id=named, leader_id=7, epoch=epoch)
            found.append((methods.QUORUM_BEGIN_QUORUM_EPOCH, begin))
    return found


def view_of(nodes: RealNodes, number: int) -> QuorumView:
    """What a node knows of the quorum."""
    metadata = nodes.nodes[number].node._metadata
    assert metadata is not None
    return metadata.view


@pytest.mark.parametrize("method", [methods.QUORUM_BEGIN_QUORUM_EPOCH, methods.QUORUM_END_QUORUM_EPOCH], ids=str)
async def test_the_last_epoch_and_a_missing_cluster_end_no_node(method: Any, tmp_path: Path) -> None:
    """A former version ended at its next election and at each further start."""
    async with real_nodes(tmp_path) as nodes:
        with pytest.raises(InvalidRequest, match="names no cluster"):
            await nodes.call(0, method, method.request(leader_id=7, epoch=EPOCH_MAX))
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_whole()
        await create_topic(nodes, "orders")


async def test_three_nodes_ignore_a_stranger_and_elect_again(tmp_path: Path) -> None:
    async with real_nodes(tmp_path, 3) as nodes:
        for number in range(3):
            who = await nodes.call(number, methods.QUORUM_INTRODUCE, quorum_pb2.IntroduceRequest())
            key = quorum_pb2.ReplicaKey(node_id=number, directory_id=who.directory_id)
            for method, request in hostile(who.cluster_id, key):
                with contextlib.suppress(TidelogError):
                    await nodes.call(number, method, request)
            assert nodes.nodes[number].defects == []
        await create_topic(nodes, "before")
        epochs = [view_of(nodes, number).leader_epoch for number in nodes.nodes]
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_whole()
        await create_topic(nodes, "after")
        assert max(epochs) < 10


async def test_a_false_resignation_keeps_no_node_from_its_leader(tmp_path: Path) -> None:
    """A stranger ends the leader's epoch at a follower, again and again. Such a follower followed none until the next
    election, and sent its fetches without a pause."""
    async with real_nodes(tmp_path, 3) as nodes:
        await create_topic(nodes, "before")
        views = {number: view_of(nodes, number) for number in nodes.nodes}
        leader = next(number for number, view in views.items() if view.leads)
        node = next(number for number in views if number != leader)
        who = await nodes.call(node, methods.QUORUM_INTRODUCE, quorum_pb2.IntroduceRequest())
        me = quorum_pb2.ReplicaKey(node_id=node, directory_id=who.directory_id)
        end = quorum_pb2.EndQuorumEpochRequest(
            cluster_id=who.cluster_id,
            leader_id=leader,
            epoch=views[leader].leader_epoch,
            successors=[me],
            receiver=me,
        )
        fetches = nodes.nodes[leader].meters.of("Quorum.FetchMetadata")

        def has_topic(name: str) -> bool:
            image = nodes.nodes[node].node.image
            return image is not None and image.topic(name) is not None

        for attempt in range(20):
            before = fetches.answered
            await nodes.call(node, methods.QUORUM_END_QUORUM_EPOCH, end)
            await create_topic(nodes, f"after-{attempt}")
            await nodes.wait_until(lambda: has_topic(f"after-{attempt}"))  # noqa: B023 - called in this round
            assert fetches.answered - before < 200
        assert views[leader].leads and views[leader].leader_epoch == end.epoch


# --- what is refused ----------------------------------------------------------------------------------------------


def refusal(world: MetadataWorld, node: int, method: Any, request: Any) -> str:
    """The name of the error, whether the call ends with it or the answer carries it."""
    try:
        answer = world.call(node, method, request)
    except TidelogError as error:
        return type(error).__name__
    return str(answer.error.name) if answer.DESCRIPTOR.fields_by_name.get("error") else ""


def test_requests_without_cluster_or_receiver_are_rejected() -> None:
    with MetadataWorld() as world:
        world.begin()
        cluster, mine, other = world.image().cluster_id, world.key(0), world.key(1)
        directory = quorum_pb2.ReplicaKey(node_id=0, directory_id=b"\x01" * 16)
        for method in (methods.QUORUM_BEGIN_QUORUM_EPOCH, methods.QUORUM_END_QUORUM_EPOCH):
            for named, key, expected in (
                ("", mine, InvalidRequest),
                ("another", mine, InconsistentClusterId),
                (cluster, other, InvalidVoterKey),
                (cluster, directory, InvalidVoterKey),
                (cluster, quorum_pb2.ReplicaKey(), InvalidRequest),
            ):
                request = method.request(cluster_id=named, leader_id=1, epoch=1, receiver=key)
                assert refusal(world, 0, method, request) == expected.__name__
        for fetch in (methods.QUORUM_FETCH_METADATA, methods.QUORUM_FETCH_SNAPSHOT):
            assert refusal(world, 0, fetch, fetch.request(cluster_id=cluster, receiver=other)) == "INVALID_VOTER_KEY"
            assert refusal(world, 0, fetch, fetch.request(cluster_id="another", receiver=mine)).startswith("INCONSIST")
        nameless = quorum_pb2.FetchMetadataRequest(receiver=mine, fetch_offset=1)
        assert refusal(world, 0, methods.QUORUM_FETCH_METADATA, nameless) == "INVALID_REQUEST"
        empty = quorum_pb2.FetchMetadataRequest(
            node_id=9, receiver=mine, current_leader_epoch=1, last_fetched_epoch=-1, max_bytes=100
        )
        assert refusal(world, 0, methods.QUORUM_FETCH_METADATA, empty) == ""
        vote = quorum_pb2.VoteRequest(epoch=1, candidate=other, voter=mine)
        assert refusal(world, 0, methods.QUORUM_VOTE, vote) == "InvalidRequest"


def test_values_that_no_node_has_are_refused() -> None:
    with MetadataWorld() as world:
        world.begin()
        cluster, mine = world.image().cluster_id, world.key(0)
        for field, value in (
            ("fetch_offset", -1),
            ("durable_offset", -1),
            ("current_leader_epoch", EPOCH_MAX),
            ("current_leader_epoch", -2),
            ("last_fetched_epoch", EPOCH_LAST + 1),
        ):
            request = quorum_pb2.FetchMetadataRequest(cluster_id=cluster, receiver=mine)
            setattr(request, field, value)
            assert refusal(world, 0, methods.QUORUM_FETCH_METADATA, request) == "INVALID_REQUEST", field
        for epoch in (-1, EPOCH_LAST + 1, EPOCH_MAX):
            vote = quorum_pb2.VoteRequest(cluster_id=cluster, epoch=epoch, candidate=world.key(1), voter=mine)
            assert refusal(world, 0, methods.QUORUM_VOTE, vote) == "InvalidRequest"


# --- answers of a faulty node -------------------------------------------------------------------------------------


def follower_survives(world: MetadataWorld, monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], None]) -> None:
    """The leader answers fetches wrongly for a while; the others continue once it answers correctly again."""
    served: Any = world.node_runs[0].services[methods.QUORUM]
    fetch = served.fetch_metadata
    wrong: list[int] = []

    async def faulty(request: Any, context: Any) -> Any:
        answer = await fetch(request, context)
        if len(wrong) < 5 and not answer.HasField("error"):
            wrong.append(1)
            change(answer)
        return answer

    monkeypatch.setattr(served, "fetch_metadata", faulty)
    world.create("during", replicas=1)
    world.run_until(lambda: len(wrong) == 5)
    end = world.image().offset
    world.run_until(lambda: all(world.image(node).offset >= end for node in range(3)))
    assert [node_run.failure for node_run in world.node_runs.values()] == [None] * 3
    assert all(read_state(world.disks[node], world.side(node).metadata.log.path).leader_epoch < 10 for node in range(3))


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: setattr(answer, "cluster_id", "another"),
        lambda answer: setattr(answer, "leader_id", 2),
        lambda answer: setattr(answer, "leader_epoch", EPOCH_MAX),
        lambda answer: setattr(answer, "leader_epoch", -5),
        lambda answer: setattr(answer, "records", b"\xff" * 100),
        lambda answer: answer.diverging.SetInParent(),
        lambda answer: setattr(answer.snapshot, "end_offset", -7),
        lambda answer: setattr(answer.snapshot, "end_offset", 2**63 - 1),
        lambda answer: setattr(answer.snapshot, "epoch", EPOCH_MAX),
        lambda answer: setattr(answer, "high_watermark", -(2**63)),
    ],
    ids=range(10),
)
def test_a_faulty_answer_ends_no_node(change: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataWorld() as world:
        world.begin()
        follower_survives(world, monkeypatch, change)


def test_a_batch_of_an_epoch_to_come_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def poison(answer: Any) -> None:
        if answer.records:
            answer.records = answer.records[:12] + EPOCH_MAX.to_bytes(4, "big") + answer.records[16:]
            answer.ClearField("epochs")

    with MetadataWorld() as world:
        world.begin()
        follower_survives(world, monkeypatch, poison)
        for node in range(3):
            assert world.side(node).metadata.view().last_epoch < 10


# --- defects ------------------------------------------------------------------------------------------------------


def defective(side: MetadataNode, event: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's rules fail at every event, or request of another node, of that kind."""
    core = side._quorum.core
    assert core is not None
    take = core._take

    def broken(given: Any) -> Any:
        if isinstance(given, event) or isinstance(getattr(given, "request", None), event):
            raise ZeroDivisionError("a defect")
        return take(given)

    monkeypatch.setattr(core, "_take", broken)


def test_a_request_that_the_rules_cannot_take_is_answered_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with MetadataWorld() as world, caplog.at_level(logging.ERROR, "node.quorum"):
        world.begin()
        defective(world.side(0), BeginEpoch, monkeypatch)
        begin = quorum_pb2.BeginQuorumEpochRequest(
            cluster_id=world.image().cluster_id, leader_id=1, epoch=1, receiver=world.key(0)
        )
        for _ in range(3):
            with pytest.raises(UnknownServerError, match="ZeroDivisionError: a defect"):
                world.call(0, methods.QUORUM_BEGIN_QUORUM_EPOCH, begin)
        (line,) = caplog.records
        assert line.exc_info is not None
        assert world.side(0).view.leads, "it is as it was"
        world.create()


def test_a_leader_whose_rules_fail_resigns_and_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.run_until(lambda: len(world.image().voters) == 3)
        defective(world.side(0), ClockTicked, monkeypatch)
        for node in (1, 2):
            world.kill(node)
        world.run_until(lambda: not world.side(0).view.leads, what="it steps down, though it cannot check its quorum")
        world.start(1, 2)
        world.run_until(lambda: any(world.side(node).view.leads for node in (1, 2) if world.node_runs[node].node))
        assert world.node_runs[0].failure is None


def test_a_failing_request_does_not_end_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    with MetadataWorld(voters=3) as world:
        world.begin()
        world.run_until(lambda: len(world.image().voters) == 3)

        def broken(*_: object) -> None:
            raise ValueError("Value out of range: 2147483648")

        monkeypatch.setattr(world.side(1)._quorum, "_send", broken)
        world.kill(0)
        world.run_until(lambda: world.side(2).view.leads)
        assert world.node_runs[1].failure is None


def test_a_leader_that_cannot_send_its_announcement_resigns_and_keeps_running(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[MetadataNode] = []

    def break_once(side: MetadataNode) -> None:
        call = side._quorum._peers.call

        async def broken(to: Any, api: Any, asked: Any, *, timeout_ms: int) -> Any:
            if api is QUORUM_BEGIN_QUORUM_EPOCH and not failed:
                assert side.view.leads
                failed.append(side)
                raise ValueError("Value out of range: 2147483648")
            return await call(to, api, asked, timeout_ms=timeout_ms)

        monkeypatch.setattr(side._quorum._peers, "call", broken)

    with MetadataWorld(voters=3) as world:
        world.begin()
        world.run_until(lambda: len(world.image().voters) == 3)
        for node in (1, 2):
            break_once(world.side(node))
        world.kill(0)
        world.run_until(lambda: bool(failed) and not failed[0].view.leads)
        world.run_until(lambda: world.side(1).view.leads or world.side(2).view.leads)
        assert [node_run.failure for node_run in world.node_runs.values()] == [None] * 2


def test_a_node_asks_only_so_many_at_once_whether_they_lead() -> None:
    with MetadataWorld() as world:
        world.begin()
        asked = world.side(1)._quorum._confirming
        for leader in range(100, 200):
            begin = quorum_pb2.BeginQuorumEpochRequest(
                cluster_id=world.image().cluster_id, leader_id=leader, epoch=2, receiver=world.key(1)
            )
            world.asking(1, methods.QUORUM_BEGIN_QUORUM_EPOCH, begin)
        world.run_until(lambda: len(asked) == 8)
        world.run_until(lambda: not asked)
        assert NodeId(0) == world.side(1).view.leader_id


def test_before_its_vote_is_read_a_node_answers_no_election() -> None:
    with MetadataWorld() as world:
        world.start(1)
        world.run_until(lambda: bool(world.node_runs[1].node) and world.side(1)._quorum.core is not None)
        world.side(1)._quorum.core = None
        vote = quorum_pb2.VoteRequest(cluster_id="c", epoch=1, candidate=world.key(1), voter=world.key(1))
        with pytest.raises(NotLeaderOrFollower):
            world.call(1, methods.QUORUM_VOTE, vote)
