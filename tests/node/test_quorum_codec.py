"""The gRPC form of the requests of the metadata quorum."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from node.api import quorum_requests as values
from node.api.quorum_requests import UncheckedReplicaKey
from node.listeners.grpc import codecs
from node.listeners.grpc.codec import ApiCodec
from replication.raft.log_view import SnapshotId
from replication.raft.quorum_events import LeaderAndEpoch, VoteAnswer
from tests.node.message_services import codecs_of, written
from tidelog.errors import NotLeaderOrFollower, TidelogError
from tidelog.protocol import methods
from tidelog.types import Endpoint, EpochEnd, EpochStart, LeaderEpoch, NodeAddress, NodeId, Offset

KEY = UncheckedReplicaKey(3, UUID(int=7).bytes)
HOSTILE = UncheckedReplicaKey(-(2**31), b"short")
SNAPSHOT = SnapshotId(Offset(900), LeaderEpoch(4))
LEADER = NodeId(1), LeaderEpoch(5)

REQUESTS: tuple[tuple[str, object], ...] = (
    ("Introduce", values.IntroduceRequest(NodeId(2))),
    ("Vote", values.QuorumVoteRequest("c", 5, KEY, HOSTILE, -1, 17, pre_vote=True)),
    ("Vote", values.QuorumVoteRequest("", 2**31 - 1, HOSTILE, KEY, -(2**31), -(2**63), pre_vote=False)),
    ("BeginQuorumEpoch", values.BeginQuorumEpochRequest("c", 1, 5, KEY)),
    ("EndQuorumEpoch", values.EndQuorumEpochRequest("c", 1, 5, (KEY, HOSTILE), KEY)),
    ("FetchMetadata", values.FetchMetadataRequest("c", 3, KEY.directory_id, 5, 100, 4, 500, 1 << 20, 90, 80, KEY)),
    ("FetchMetadata", values.FetchMetadataRequest("", -5, b"", -1, -1, -7, -1, -1, -1, None, HOSTILE)),
    ("FetchMetadata", values.FetchMetadataRequest("", 0, b"", 0, 0, 0, 0, 0, 0, 0, KEY)),
    ("FetchSnapshot", values.FetchSnapshotRequest("c", KEY, 5, SNAPSHOT, 4096, 1 << 20, HOSTILE)),
)

ANSWERS: tuple[tuple[str, object], ...] = (
    ("Introduce", values.IntroduceAnswer(2, "c", KEY.directory_id, *LEADER, (KEY, HOSTILE), bytes(16))),
    ("Vote", VoteAnswer(LeaderEpoch(5), NodeId(-1), granted=True)),
    ("BeginQuorumEpoch", LeaderAndEpoch(LeaderEpoch(5), NodeId(1))),
    ("EndQuorumEpoch", LeaderAndEpoch(LeaderEpoch(0), NodeId(-1))),
    (
        "FetchMetadata",
        values.FetchMetadataAnswer(
            "c",
            *LEADER,
            high_watermark=Offset(80),
            log_start_offset=Offset(10),
            epochs=(EpochStart(LeaderEpoch(4), Offset(90)), EpochStart(LeaderEpoch(5), Offset(95))),
            records=b"batch",
        ),
    ),
    ("FetchMetadata", values.FetchMetadataAnswer("c", *LEADER, diverging=EpochEnd(LeaderEpoch(0), Offset(0)))),
    ("FetchMetadata", values.FetchMetadataAnswer("c", *LEADER, snapshot=SnapshotId(Offset(0), LeaderEpoch(0)))),
    ("FetchSnapshot", values.FetchSnapshotAnswer(*LEADER, size=5, data=b"bytes")),
)


def codec_of(name: str) -> ApiCodec[Any, Any]:
    return codecs.codec_of(f"Quorum.{name}")


def test_every_rpc_of_the_service_has_a_codec() -> None:
    assert [codec.method for codec in codecs_of("Quorum")] == list(methods.of_service(methods.QUORUM))
    assert [str(codec.api) for codec in codecs_of("Quorum")] == [str(codec.method) for codec in codecs_of("Quorum")]


@pytest.mark.parametrize(("name", "value"), REQUESTS)
def test_a_request_arrives_as_it_was_sent(name: str, value: object) -> None:
    """Also one that no node sends: the handlers check it."""
    codec = codec_of(name)
    assert codec.write_request is not None
    data = codec.write_request(value).SerializeToString()
    assert codec.decode(data) == value


@pytest.mark.parametrize(("name", "value"), ANSWERS)
def test_an_answer_arrives_as_it_was_sent(name: str, value: object) -> None:
    codec = codec_of(name)
    assert codec.read_answer is not None
    data = codec.encode(value, 0)
    assert codec.read_answer(codec.method.answer.FromString(data)) == value


def test_a_request_without_fields_is_read_without_an_error() -> None:
    for codec in codecs_of("Quorum"):
        codec.decode(b"")
    fetch = codec_of("FetchMetadata").decode(b"")
    assert fetch.receiver == UncheckedReplicaKey(0, b"")
    assert fetch.high_watermark is None


@pytest.mark.parametrize("name", ["FetchMetadata", "FetchSnapshot"])
def test_a_rejection_arrives_with_its_class_and_the_leader(name: str) -> None:
    codec = codec_of(name)
    assert codec.read_answer is not None
    sent = NotLeaderOrFollower("not here", leader=NodeAddress(NodeId(1), Endpoint("node-1", 9092)))
    cluster = ("c",) if name == "FetchMetadata" else ()
    message = written(codec, codec.api.answered(*cluster, *LEADER, sent))
    error: TidelogError | None = codec.read_answer(message).error
    assert isinstance(error, NotLeaderOrFollower)
    assert (error.message, error.leader) == ("not here", sent.leader)
