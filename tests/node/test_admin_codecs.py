"""The gRPC codecs of the Admin and Controller services: values survive the wire, malformed ids are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import NoneType, UnionType
from typing import Any, Final, NewType, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.api.admin_requests import DescribeLogDirsRequest, DescribeReplicaLogsRequest, TopicPartitionId
from node.api.controller_requests import Envelope, EnvelopeAnswer
from node.api.metadata import GetMetadataAnswer, PartitionMetadata, SharedPartitions, TopicMetadata
from node.api.table import ADMIN_DESCRIBE_LOG_DIRS, ADMIN_GET_METADATA, APIS
from node.controller.controller_handlers import ControllerHandlers
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.grpc_peers import GrpcPeers
from node.requests.admin_handlers import AdminHandlers
from node.requests.context import RequestContext
from node.requests.gate import Gate
from replication.controller.events import AlteredPartition, AlteredPartitions
from replication.controller.image import PartitionState
from testbed.topic_requests import deleting
from tests.node.message_services import MessageService, codecs_of, enveloped, written
from tidelog.errors import (
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    TidelogError,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods, wire
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import admin_pb2, common_pb2, controller_pb2
from tidelog.types import (
    DirectoryId,
    Endpoint,
    LeaderEpoch,
    Millis,
    NodeAddress,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    PartitionKey,
    ProducerId,
    TopicId,
    TopicPartition,
)

CODECS: Final = (*codecs_of("Admin"), *codecs_of("Controller"))
TOPIC: Final = TopicId(UUID(int=7))
KEY: Final = PartitionKey(TOPIC, PartitionIndex(3))
ADDRESS: Final = NodeAddress(NodeId(2), Endpoint("node-2", 9092), "rack", LeaderEpoch(4))

INT32: Final = st.integers(-(2**31), 2**31 - 1)
INT64: Final = st.integers(-(2**63), 2**63 - 1)
ERRORS: Final = st.sampled_from([NotController("node 2 is", leader=ADDRESS), UnknownTopicOrPartition("no topic"), None])
LEAVES: Final[dict[object, st.SearchStrategy[Any]]] = {
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    int: INT32,
    str: st.text(max_size=5),
    bytes: st.binary(max_size=20),
    UUID: st.uuids(),
    TidelogError: ERRORS.filter(bool),
    **dict.fromkeys((Offset, NodeEpoch, ProducerId, Millis), INT64),
    Endpoint: st.builds(Endpoint, st.text(max_size=5), INT32),
}


FORWARDED: Final = tuple(api for api in APIS.values() if api.is_forwarded)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Every value of a type that requests are made of."""
    if hint in LEAVES:
        return LEAVES[hint]
    if hint is TopicPartition:  # nodes also tell the id
        return values(TopicPartitionId)
    if hint is DescribeReplicaLogsRequest:  # an empty list of a message is all partitions, as None
        return st.builds(hint, partitions=values(frozenset[TopicPartition] | None).map(lambda asked: asked or None))
    if isinstance(hint, NewType):
        return values(hint.__supertype__)
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return st.one_of([st.none() if part is NoneType else values(part) for part in parts])
    if origin in (tuple, frozenset):
        return st.lists(values(parts[0]), max_size=3).map(origin)
    if origin is Mapping:
        pairs = st.dictionaries(values(parts[0]), values(parts[1]), max_size=3)
        return pairs.map(lambda found: dict(sorted(found.items())))  # as it is read
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    if hint in (Envelope, EnvelopeAnswer):
        return st.sampled_from(FORWARDED).flatmap(
            lambda api: st.builds(
                hint, api=st.just(api), **{hint.__slots__[1]: values(getattr(api, hint.__slots__[1]))}
            )
        )
    assert isinstance(hint, type), hint
    assert is_dataclass(hint), hint
    hints = get_type_hints(hint)
    return st.builds(hint, **{field.name: values(hints[field.name]) for field in fields(hint)})


def test_every_rpc_has_a_codec_and_a_handler_of_its_name() -> None:
    for service, codecs, handlers in (
        (methods.ADMIN, codecs_of("Admin"), AdminHandlers),
        (methods.CONTROLLER, codecs_of("Controller"), ControllerHandlers),
    ):
        assert [codec.method for codec in codecs] == list(methods.of_service(service))
        for codec in codecs:
            assert codec.api.name == str(codec.method)
            assert codec.api.handler == codec.method.attribute
            assert hasattr(handlers, codec.api.handler)


@pytest.mark.parametrize("method", methods.ALL, ids=str)
def test_every_message_has_the_fields_of_its_value(method: Method[Any, Any]) -> None:
    """A node notices a missing one only when it reads or writes the first message of this kind."""
    codec = codec_of(str(method))
    for read, kind in ((codec.read_request, method.request), (codec.read_answer, method.answer)):
        if read is not None:
            with suppress(ValueError, TidelogError):  # an id of no bytes, an envelope without an API
                read(wire.reader(kind)(b""))


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.api.name)
@settings(max_examples=30)
@given(data=st.data())
def test_values_survive_the_wire(codec: ApiCodec[Any, Any], data: st.DataObject) -> None:
    if codec.write_request is not None:
        asked = data.draw(values(codec.api.asked))
        message = codec.method.request.FromString(codec.write_request(asked).SerializeToString())
        assert codec.decode(message.SerializeToString()) == asked
    if codec.read_answer is not None and codec.api is not ADMIN_GET_METADATA:  # no node reads that of another
        answered = data.draw(values(codec.api.answered))
        message = codec.method.answer.FromString(codec.encode(answered, 0))
        assert repr(codec.read_answer(message)) == repr(answered), "repr: errors are not equal to each other"


def test_an_error_keeps_the_address_that_it_names() -> None:
    codec = codec_of(str(methods.CONTROLLER_ALTER_PARTITION))
    assert codec.read_answer is not None
    refused = AlteredPartitions((AlteredPartition(KEY, NotController("node 2 is", leader=ADDRESS)),))
    outcome = codec.read_answer(written(codec, refused)).partitions[0].outcome
    assert (type(outcome), outcome.message, outcome.leader) == (NotController, "node 2 is", ADDRESS)


def test_a_rejected_proposal_has_no_state_on_the_wire() -> None:
    write = partial(written, codec_of(str(methods.CONTROLLER_ALTER_PARTITION)))
    (altered,) = write(AlteredPartitions((AlteredPartition(KEY, InvalidUpdateVersion("stale")),))).partitions
    assert [field.name for field, _ in altered.ListFields()] == ["topic_id", "partition", "error"]


def test_metadata_are_encoded_with_missing_topics() -> None:
    nodes = NodeId(1), NodeId(2)
    directories = (DirectoryId(TOPIC), DirectoryId(TOPIC))
    state = PartitionState(
        TOPIC,
        KEY.partition,
        nodes,
        directories,
        nodes[:1],
        (),
        (),
        nodes[0],
        LeaderEpoch(4),
        PartitionEpoch(5),
    )
    found = TopicMetadata(
        "orders", TOPIC.bytes, None, SharedPartitions([PartitionMetadata(state, [NodeId(2)])]), {"a": "b"}
    )
    missing = TopicMetadata(topic_id=b"short", error=UnknownTopicOrPartition("no such topic"))
    answer = GetMetadataAnswer("cluster", NodeId(1), (ADDRESS,), (found, missing), Offset(9))
    message = written(codec_of(str(methods.ADMIN_GET_METADATA)), answer)
    assert message == admin_pb2.GetMetadataResponse(
        cluster_id="cluster",
        controller_id=1,
        nodes=[common_pb2.NodeAddress(node_id=2, host="node-2", port=9092, rack="rack", leader_epoch=4)],
        topics=[
            admin_pb2.TopicMetadata(
                name="orders",
                topic_id=TOPIC.bytes,
                partitions=[
                    admin_pb2.PartitionMetadata(
                        partition=3, leader=1, leader_epoch=4, partition_epoch=5, replicas=[1, 2], isr=[1], offline=[2]
                    )
                ],
                configs={"a": "b"},
            ),
            admin_pb2.TopicMetadata(topic_id=b"short", error=message.topics[1].error),
        ],
        metadata_offset=9,
    )
    assert message.topics[1].error.message == "no such topic"


def test_the_id_of_a_topic_survives_the_wire() -> None:
    """Of its own: it does not count when partitions are compared."""
    topic_id = TopicId(UUID(int=7))
    request = admin_pb2.ElectLeadersRequest(
        partitions=[admin_pb2.TopicPartitionId(topic="orders", partition=1, topic_id=topic_id.bytes)]
    )
    codec = codec_of(str(methods.ADMIN_ELECT_LEADERS))
    (place,) = codec.decode(request.SerializeToString()).partitions
    assert (place.topic, place.partition, place.topic_id) == ("orders", 1, topic_id)


PLACE: Final = admin_pb2.TopicPartitionId(topic_id=b"short")
MALFORMED: Final[list[tuple[Method[Any, Any], Any]]] = [
    (methods.ADMIN_DELETE_TOPICS, deleting(topic_id=bytes(17))),
    (methods.ADMIN_ELECT_LEADERS, admin_pb2.ElectLeadersRequest(partitions=[PLACE])),
    (
        methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS,
        admin_pb2.AlterPartitionReassignmentsRequest(partitions=[admin_pb2.PartitionReassignment(partition=PLACE)]),
    ),
    (methods.ADMIN_EXPLAIN_PARTITIONS, admin_pb2.ExplainPartitionsRequest(partitions=[PLACE])),
    (methods.ADMIN_REMOVE_VOTER, admin_pb2.RemoveVoterRequest(directory_id=b"short")),
    (methods.CONTROLLER_REGISTER_NODE, controller_pb2.RegisterNodeRequest()),
    (
        methods.CONTROLLER_REGISTER_NODE,
        controller_pb2.RegisterNodeRequest(incarnation=bytes(16), intact_directories=[bytes(16), b""]),
    ),
    (methods.CONTROLLER_HEARTBEAT, controller_pb2.HeartbeatRequest(damaged=[controller_pb2.DamagedReplica()])),
    (
        methods.CONTROLLER_ALTER_PARTITION,
        controller_pb2.AlterPartitionRequest(partitions=[controller_pb2.AlterPartitionItem(topic_id=b"short")]),
    ),
]
MALFORMED_FORWARDED: Final = [
    (methods.CONTROLLER_ENVELOPE, enveloped(method, message))
    for method, message in MALFORMED
    if APIS[str(method)].is_forwarded
]


@pytest.mark.parametrize(
    ("method", "message"), [*MALFORMED, *MALFORMED_FORWARDED], ids=lambda given: str(given).strip()
)
def test_a_malformed_id_is_refused_before_a_handler_sees_it(method: Method[Any, Any], message: Any) -> None:
    class Unreached:
        def __getattr__(self, name: str) -> Any:
            return lambda *_: pytest.fail(f"{name} was called")

    served = MessageService(Gate(APIS[str(method)].service, Unreached()))
    named = message.api if method is methods.CONTROLLER_ENVELOPE else method
    with pytest.raises(InvalidRequest, match=f"{named}: an id has 16 bytes, this one"):
        asyncio.run(getattr(served, method.attribute)(message, RequestContext("client", "test")))


def test_a_malformed_answer_is_an_error_of_the_other_node() -> None:
    class Answers:
        async def call(self, *_: object, **__: object) -> admin_pb2.DescribeLogDirsResponse:
            return admin_pb2.DescribeLogDirsResponse(log_dirs=[admin_pb2.LogDir(directory_id=b"short")])

        async def open_stream(self, *_: object) -> Any:
            raise NotImplementedError

    peers = GrpcPeers(Answers())  # type: ignore[arg-type]
    with pytest.raises(UnknownServerError, match="an id has 16 bytes, this one 5"):
        asyncio.run(peers.call(ADDRESS.endpoint, ADMIN_DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(), timeout_ms=1))
