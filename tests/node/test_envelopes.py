"""Changes that a node forwards to the active controller in envelopes (KIP-590), and envelopes that no node sends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from node.api.admin_requests import CreateTopicsRequest
from node.api.controller_requests import Envelope
from node.api.table import ADMIN_CREATE_TOPICS, APIS, CONTROLLER_ENVELOPE
from node.boundary.boundary import REQUEST_BYTES_MAX, ensure_small
from node.listeners.grpc.codecs import codec_of
from node.listeners.grpc.grpc_peers import GrpcPeers
from replication.controller.events import CreateTopic
from testbed.topic_requests import changed, creating, deleting
from tests.node.message_services import enveloped
from tests.node.metadata_world import MetadataWorld
from tidelog.errors import InconsistentTopicId, InvalidRequest, UnknownServerError, UnsupportedVersion
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, controller_pb2
from tidelog.types import Endpoint

NEW = creating(name="new", partitions=1, replication_factor=1)
CODEC = codec_of(CONTROLLER_ENVELOPE.name)


def hostile() -> Iterator[tuple[str, controller_pb2.EnvelopeRequest, type[Exception], str]]:
    """Envelopes by what is wrong with them, each with its error."""
    made, whole = controller_pb2.EnvelopeRequest, NEW.SerializeToString()
    inner = enveloped(methods.ADMIN_CREATE_TOPICS, NEW)
    yield "no API", made(request=whole), UnsupportedVersion, "does not know the request ''"
    yield "unknown API", made(api="Admin.Format"), UnsupportedVersion, "'Admin.Format': run the same version"
    yield "long name", made(api="x" * 1_000_000), UnsupportedVersion, "'x{100}'"
    yield "in an envelope", enveloped(methods.CONTROLLER_ENVELOPE, inner), InvalidRequest, "Controller.Envelope is not"
    for api in APIS.values():
        if not api.is_forwarded:
            yield api.name, made(api=api.name), InvalidRequest, f"{api.name} is not a request that nodes forward"
    yield "truncated", made(api="Admin.CreateTopics", request=whole[:-1]), InvalidRequest, "are no CreateTopicsRequest"
    short = enveloped(methods.ADMIN_DELETE_TOPICS, deleting(topic_id=b"short"))
    yield "short id", short, InvalidRequest, "Admin.DeleteTopics: an id has 16 bytes, this one 5"
    huge = made(api="Admin.CreateTopics", request=bytes(REQUEST_BYTES_MAX + 1))
    yield "huge", huge, InvalidRequest, f"the request to Admin.CreateTopics has {REQUEST_BYTES_MAX + 1} bytes"
    fields = made(api="Admin.ElectLeaders", request=b"\x12\x00" * 200_000)
    yield "many fields", fields, InvalidRequest, "more than 100000 fields"
    for_group = enveloped(methods.ADMIN_CREATE_TOPICS, NEW, "Group:admins")
    yield "no user", for_group, InvalidRequest, "'Group:admins', which is not a principal"


@pytest.mark.parametrize(("message", "error", "text"), [pytest.param(*rest, id=name) for name, *rest in hostile()])
def test_an_envelope_that_no_node_sends_is_refused(
    message: controller_pb2.EnvelopeRequest, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        CODEC.decode(message.SerializeToString())


def test_an_envelope_that_is_cut_anywhere_is_refused_or_still_whole() -> None:
    data = enveloped(methods.ADMIN_CREATE_TOPICS, NEW, "User:alice").SerializeToString()
    for end in range(len(data)):
        with suppress(InvalidRequest, UnsupportedVersion):
            assert isinstance(CODEC.decode(data[:end]), Envelope)


def test_what_a_client_may_send_fits_into_an_envelope() -> None:
    largest = controller_pb2.EnvelopeRequest(
        api="Admin.AlterPartitionReassignments", request=bytes(REQUEST_BYTES_MAX), principal="User:" + "x" * 1_024
    )
    ensure_small(CONTROLLER_ENVELOPE, largest.ByteSize())
    with pytest.raises(InvalidRequest, match=r"to Controller\.Envelope has"):
        ensure_small(CONTROLLER_ENVELOPE, 2 * REQUEST_BYTES_MAX)


def test_a_node_that_is_not_the_controller_forwards_changes_and_their_errors() -> None:
    with MetadataWorld() as world:
        world.begin()
        topic_id = world.create("orders", at=2)
        gone = deleting(name="orders", topic_id=bytes(16))
        with pytest.raises(InconsistentTopicId):
            changed(world.call(2, methods.ADMIN_DELETE_TOPICS, gone))
        place = admin_pb2.TopicPartitionId(topic="orders")
        asked = admin_pb2.ElectLeadersRequest(partitions=[place])
        (outcome,) = world.call(2, methods.ADMIN_ELECT_LEADERS, asked).partitions
        assert (outcome.partition.topic, outcome.partition.topic_id) == ("orders", topic_id)
        with pytest.raises(InvalidRequest, match="partition 0 of topic 'orders' was forwarded without its topic id"):
            world.call(0, methods.CONTROLLER_ENVELOPE, enveloped(methods.ADMIN_ELECT_LEADERS, asked))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (controller_pb2.EnvelopeResponse(api="Admin.Format"), "'Admin.Format' is not forwarded"),
        (controller_pb2.EnvelopeResponse(api="Controller.Envelope"), "'Controller.Envelope' is not forwarded"),
        (controller_pb2.EnvelopeResponse(api="Admin.CreateTopics", response=b"\x0a"), "Admin.CreateTopics: "),
        (
            controller_pb2.EnvelopeResponse(api="Admin.CreateTopics", response=b"\x0a\x03\x1a\x01a"),
            "an id has 16 bytes",
        ),
    ],
    ids=("unknown", "not forwarded", "truncated", "short id"),
)
def test_a_malformed_answer_is_an_error_of_the_other_node(answer: controller_pb2.EnvelopeResponse, text: str) -> None:
    class Answers:
        async def call(self, *_: object, **__: object) -> Any:
            return answer

    asked = Envelope(ADMIN_CREATE_TOPICS, CreateTopicsRequest((CreateTopic("new", 1, 1, {}),)))
    peers = GrpcPeers(Answers())  # type: ignore[arg-type]
    with pytest.raises(UnknownServerError, match=text):
        asyncio.run(peers.call(Endpoint("node-2", 9092), CONTROLLER_ENVELOPE, asked, timeout_ms=1))
