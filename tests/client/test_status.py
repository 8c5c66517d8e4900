"""Every error is converted to the wire and back without loss."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from tidelog import sync
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    NotLeaderOrFollower,
    RequestTimedOut,
    TidelogError,
    UnknownServerError,
    all_errors,
)
from tidelog.protocol import status
from tidelog.protocol.v1 import common_pb2
from tidelog.types import Endpoint, LeaderEpoch, NodeAddress, NodeId

LEADER = NodeAddress(NodeId(2), Endpoint("node-2", 9092), "a", LeaderEpoch(7))


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_each_error_is_restored_from_its_message(kind: type[TidelogError]) -> None:
    error = kind("topic 'x', partition 3: because; do this", leader=LEADER)
    for back in (status.from_proto(status.to_proto(error)), status.from_details(status.to_details(error))):
        assert type(back) is kind
        assert back.message == error.message
        assert back.leader == LEADER


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_each_message_carries_retry_and_written(kind: type[TidelogError]) -> None:
    sent = status.to_proto(kind("sentence"))
    assert sent.written == {True: 2, False: 1, None: 3}[kind.written]
    assert sent.retry == {"NEVER": 1, "LATER": 2, "ELSEWHERE": 3}[kind.retry.name]
    assert sent.name == (kind.kafka_name or kind.__name__)
    assert status.status_code(kind("x")) is not grpc.StatusCode.OK
    assert not sent.HasField("leader")


def test_a_number_of_a_later_version_stays_readable() -> None:
    error = status.from_proto(common_pb2.Error(code=4711, name="NEW_THING", message="a new thing happened"))
    assert type(error) is UnknownServerError
    assert "a new thing happened" in error.message
    assert "4711, NEW_THING" in error.message


class _Failed:
    """A failed call as gRPC describes it."""

    def __init__(self, code: grpc.StatusCode, details: str, metadata: list[Any] | None = None) -> None:
        self._facts = code, details, metadata

    def code(self) -> grpc.StatusCode:
        return self._facts[0]

    def details(self) -> str:
        return self._facts[1]

    def trailing_metadata(self) -> list[Any] | None:
        return self._facts[2]


def test_the_error_in_the_details_takes_precedence_over_the_status() -> None:
    sent = NotLeaderOrFollower("orders-3 is led by node 2", leader=LEADER)
    metadata = [("other", "x"), (status.DETAILS_KEY, status.to_details(sent))]
    failed = _Failed(grpc.StatusCode.FAILED_PRECONDITION, "orders-3 ...", metadata)
    back = status.from_rpc_error(failed, address="a:1", phase="Data.Produce")
    assert isinstance(back, NotLeaderOrFollower)
    assert back.leader == LEADER


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: ...", ConnectionFailed),
        (grpc.StatusCode.UNAVAILABLE, "errors resolving host:9192: [...: Domain name not found]", ConnectionFailed),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", ConnectionLost),
        (grpc.StatusCode.CANCELLED, "", ConnectionLost),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", RequestTimedOut),
        (grpc.StatusCode.INTERNAL, "boom", UnknownServerError),
    ],
)
def test_a_status_without_details_names_address_and_phase(
    code: grpc.StatusCode, details: str, expected: type[TidelogError]
) -> None:
    error = status.from_rpc_error(_Failed(code, details), address="host:9192", phase="Admin.GetMetadata")
    assert type(error) is expected
    assert "Admin.GetMetadata at host:9192" in error.message


def test_a_web_server_is_no_node_to_be_upgraded() -> None:
    for code, number in ((grpc.StatusCode.UNIMPLEMENTED, 404), (grpc.StatusCode.PERMISSION_DENIED, 403)):
        failed = _Failed(code, f"Received http2 header with status: {number}")
        error = status.from_rpc_error(failed, address="ingress:443", phase="Admin.GetMetadata")
        assert type(error) is ConnectionFailed
        assert "no node answers there, but an HTTP server or a proxy" in error.message
        assert str(number) in error.message and "Upgrade" not in error.message


def test_invalid_status_details_are_ignored() -> None:
    assert status.from_details(b"\xff\xff\xff") is None
    assert status.from_details(b"") is None


@pytest.mark.parametrize("letter", ["x", "ä", "€", "\U0001f600", "\x00", "\ud800"])
def test_an_error_that_quotes_a_long_name_fits_into_the_trailing_metadata_of_a_status(letter: str) -> None:
    """gRPC replaced the error of a longer status by one of its own."""
    error = InvalidRequest(f"the topic {letter * 1_000_000} is not allowed: choose another name")
    back = status.from_details(status.to_details(error))
    assert type(back) is InvalidRequest
    assert len(status.short_message(error).encode()) <= status.MESSAGE_BYTES_MAX
    assert back.message.startswith("the topic ")
    assert back.message.endswith("…")
    assert status.from_proto(status.to_proto(error)).message == back.message


def test_an_error_of_the_largest_size_is_sent_whole() -> None:
    for text in ("x" * status.MESSAGE_BYTES_MAX, "€" * (status.MESSAGE_BYTES_MAX // 3)):
        assert status.short_message(InvalidRequest(text)) == text
        assert status.short_message(InvalidRequest(text + "x")).endswith("…")


def test_a_change_that_no_name_leads_to_was_certainly_not_made() -> None:
    """No name server is asked for a label of more than 63 characters (RFC 1035)."""
    with (
        sync.Admin(f"{'n' * 64}.invalid:9192") as admin,
        pytest.raises(ConnectionFailed, match=r"n\.invalid:9192: the name does not resolve .* DNS") as failed,
    ):
        admin.create_topic("orders")
    assert failed.value.written is False
