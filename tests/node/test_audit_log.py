"""The audit log: its events, its bounds, and its file."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.api import marker_requests as markers
from node.api.admin_requests import ChangedPartitions, ChangedTopics, CreateTopicsRequest, TopicPartitionId
from node.api.table import ADMIN_CREATE_TOPICS, DATA_ABORT_TRANSACTION, GROUPS_DELETE_GROUPS, GROUPS_OFFSET_DELETE
from node.boundary.boundary import Boundary
from node.listeners.grpc.server import GrpcServer
from node.listeners.grpc.server_tls import ServerTls
from node.requests.gate import Gate
from node.security import audit_file
from node.security.audit_file import AuditFile
from node.security.audit_log import EVENTS_MAX, LINE_CHARACTERS_MAX, WINDOW_MS, AuditLog
from node.security.principals import parse_rules
from replication.controller.events import AclsCreated, ChangedTopic, CreateAcls, CreateTopic
from replication.coordination import group_requests as groups
from storage.files.disk_executor import InlineExecutor
from testbed.fake_disk import FakeDisk
from tests.certificates import Authority
from tests.node.audit_world import ALICE, DENIED, HandClock, World
from tidelog.clock import MachineClock
from tidelog.cluster_descriptions import PartitionResult
from tidelog.errors import (
    ClusterAuthorizationFailed,
    ElectionNotNeeded,
    InvalidConfig,
    InvalidTxnState,
    NonEmptyGroup,
    TopicExists,
)
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from tidelog.types import Endpoint, Offset, PartitionIndex, ProducerId


def acl(name: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, PatternType.LITERAL, "User:bob", "*", AclOperation.READ, AclPermission.ALLOW
    )


def test_a_change_is_recorded_with_who_asked_for_what_from_where() -> None:
    world = World()
    asked = CreateTopicsRequest((CreateTopic("orders", 3, 1, {"retention.ms": "5"}),))
    assert world.change(asked, None) == {
        "at": "2023-11-14T22:13:20.000+00:00",
        "node": 3,
        "event": "change",
        "principal": "User:alice",
        "address": "ipv4:10.0.0.1:40000",
        "listener": "client",
        "client_id": "loader",
        "request": "Admin.CreateTopics",
        "outcome": "unknown",
        "asked": {
            "topics": [
                {
                    "name": "orders",
                    "partitions": 3,
                    "replication_factor": 1,
                    "configs": {"retention.ms": "5"},
                    "validate_only": False,
                    "assignments": [],
                }
            ]
        },
    }


def test_the_outcome_is_ok_or_the_error_or_the_count_of_each() -> None:
    world = World()
    asked = CreateTopic("orders", 3, 1, {})
    assert world.change(asked, TopicExists("it exists"))["outcome"] == "TOPIC_ALREADY_EXISTS"
    assert world.change(CreateAcls((acl("orders"),)), AclsCreated(1, Offset(7)))["outcome"] == "ok"
    place = TopicPartitionId("orders", PartitionIndex(0))
    parts = ChangedPartitions((PartitionResult(place), PartitionResult(place, ElectionNotNeeded("it leads"))))
    assert world.change(asked, parts)["outcome"] == {"ok": 1, "ELECTION_NOT_NEEDED": 1}
    topics = ChangedTopics((ChangedTopic("orders"), ChangedTopic("orders", TopicExists("it exists"))))
    assert world.change(asked, topics)["outcome"] == {"ok": 1, "TOPIC_ALREADY_EXISTS": 1}


def test_deleted_groups_and_offsets_and_aborted_transactions_are_recorded() -> None:
    world = World()
    delete = groups.DeleteGroups(("readers", "others"))
    deleted = groups.DeleteGroupsAnswer(
        (groups.DeletedGroup("readers"), groups.DeletedGroup("others", NonEmptyGroup("it has members")))
    )
    event = world.change(delete, deleted, GROUPS_DELETE_GROUPS)
    assert event["outcome"] == {"ok": 1, "NON_EMPTY_GROUP": 1}
    assert event["asked"] == {"group_ids": ["readers", "others"]}

    forget = groups.OffsetDelete("readers", (groups.NamedPartition("orders", PartitionIndex(3)),))
    forgotten = groups.CommittedPartitions((groups.CommittedPartition("orders", PartitionIndex(3)),))
    event = world.change(forget, forgotten, GROUPS_OFFSET_DELETE)
    assert event["outcome"] == {"ok": 1}
    assert event["asked"] == {"group_id": "readers", "partitions": [{"topic": "orders", "partition": 3}]}

    abort = markers.AbortTransactionRequest(bytes(15) + b"\x07", 3, ProducerId(1000), 5, Offset(42))
    event = world.change(abort, InvalidTxnState("no such transaction"), DATA_ABORT_TRANSACTION)
    assert event["outcome"] == "INVALID_TXN_STATE"
    assert event["asked"]["producer_id"] == 1000
    assert event["asked"]["transaction_start"] == 42
    assert event["asked"]["topic_id"] == "00000000000000000000000000000007"


def test_a_change_with_many_parts_shows_the_first_ones_in_a_bounded_line() -> None:
    world = World()
    asked = world.change(CreateAcls(tuple(acl(f"t{number}") for number in range(30))), None)["asked"]
    assert asked["bindings"][0]["resource_name"] == "t0"
    assert asked["bindings"][-1] == "10 more"
    asked = world.change(CreateAcls(tuple(acl("€" * 170) for _ in range(30))), None)["asked"]
    assert asked["bindings"][-1] == "25 more"
    assert all(len(line) <= LINE_CHARACTERS_MAX for line in world.lines)


def test_fields_with_secrets_are_left_out() -> None:
    @dataclass(frozen=True)
    class SetPassword:
        user: str
        password: bytes = field(repr=False)

    world = World()
    assert world.change(SetPassword("bob", b"hunter2"), None)["asked"] == {"user": "bob"}
    assert "hunter2" not in world.lines[0]
    assert b"hunter2".hex() not in world.lines[0]


@given(st.text(max_size=2_000), st.text(max_size=2_000), st.text(max_size=300))
def test_any_name_makes_one_short_line_of_json(principal: str, topic: str, client_id: str) -> None:
    world = World()
    context = replace(ALICE, principal=principal, client_id=client_id, connection=principal, listener=topic)
    decision = replace(DENIED, reason=f"denied by the ACL: {topic}")
    world.log.denied(context, ADMIN_CREATE_TOPICS.name, AclOperation.CREATE, ResourceType.TOPIC, topic, decision.reason)
    world.log.changed(context, ADMIN_CREATE_TOPICS, CreateTopic(topic, 1, 1, {topic: principal}), None)
    for line in world.lines:
        assert line.isascii()
        assert line.isprintable()
        assert len(line) <= LINE_CHARACTERS_MAX
        json.loads(line)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_a_text(value: float) -> None:
    """A refused quota of NaN made a line that strict readers reject."""
    assert World().change({"value": value}, None)["asked"] == {"value": str(value)}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.uuids(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.text()),
        max_leaves=60,
    )
)
def test_any_request_can_be_recorded(asked: Any) -> None:
    world = World()
    world.log.changed(ALICE, ADMIN_CREATE_TOPICS, asked, UUID(int=1))
    assert len(world.lines[0]) <= LINE_CHARACTERS_MAX
    json.loads(world.lines[0])


def test_a_repeated_denial_is_written_once_and_counted() -> None:
    world = World()
    for _ in range(1_000):
        world.deny()
    world.deny("others")
    assert [event["resource"] for event in world.events] == ["orders", "others"]
    world.clock.now = WINDOW_MS
    world.deny()
    assert [(event["event"], event.get("count")) for event in world.events[2:]] == [
        ("suppressed", 999),
        ("denied", None),
    ]
    counted = world.events[2]
    assert (counted["of"], counted["principal"], counted["resource"]) == ("denied", "User:alice", "orders")


def test_a_flood_of_denials_of_names_of_its_choice_makes_bounded_lines_and_hides_no_change() -> None:
    world = World()
    for number in range(10_000):
        world.deny(f"topic-{number}")
        world.deny(f"topic-{number}")
    world.change(CreateTopic("orders", 1, 1, {}), None)
    world.log.authentication_failed(listener="client", address="10.0.0.9:1", mechanism="SCRAM-SHA-256", reason="wrong")
    world.log.close()
    assert len(world.lines) == 2 * EVENTS_MAX + 1 + 2
    assert world.events[-1] == {**world.events[-1], "event": "suppressed", "of": "denied", "count": 2 * 9_900}
    assert [event["event"] for event in world.events[EVENTS_MAX : EVENTS_MAX + 2]] == [
        "change",
        "authentication_failed",
    ]


def test_a_failed_authentication_names_the_claimed_user_and_guessed_names_are_one_kind() -> None:
    world = World()
    for name in ("billing\n{}", *(f"guess-{number}" for number in range(1_000))):
        world.log.authentication_failed(
            listener="client", address="10.0.0.9:1", mechanism="SCRAM-SHA-256", reason="wrong", claimed_user=name * 100
        )
    world.log.close()
    (failed, suppressed) = world.events
    assert failed["claimed_user"] == f"{('billing' + chr(10) + '{}') * 25}billin... (1000 characters)"
    assert (suppressed["event"], suppressed["count"]) == ("suppressed", 1_000)
    assert "claimed_user" not in suppressed
    assert not any("\n" in line for line in world.lines)


def test_a_request_for_nodes_of_another_caller_is_recorded_without_an_authorizer_too() -> None:
    world = World()
    with pytest.raises(ClusterAuthorizationFailed):
        replace(ALICE, for_nodes=False, audit=world.log).ensure_for_nodes("Quorum.Vote")
    replace(ALICE, for_nodes=True, audit=world.log).ensure_for_nodes("Quorum.Vote")
    (denied,) = world.events
    assert (denied["event"], denied["principal"], denied["request"]) == ("denied", "User:alice", "Quorum.Vote")
    assert (denied["operation"], denied["resource_type"]) == ("CLUSTER_ACTION", "CLUSTER")


async def test_a_certificate_that_belongs_to_no_principal_is_a_failed_authentication(tmp_path: Path) -> None:
    authority, world = Authority(tmp_path), World()
    tls = replace(authority.node(), mapping_rules=parse_rules("RULE:^CN=(a.*)$/$1/"))
    boundary = Boundary(audit=world.log)
    server = GrpcServer("outside", boundary=boundary, tls=ServerTls("outside", tls, MachineClock()))
    address, transport = server.bind(Endpoint("127.0.0.1", 0)), GrpcTransport(tls=authority.client("bob"))
    server.serve({"Admin": Gate("Admin")})
    await server.start()
    try:
        with pytest.raises(ClusterAuthorizationFailed):
            request = admin_pb2.DescribeClusterRequest()
            await transport.call(address, methods.ADMIN_DESCRIBE_CLUSTER, request, timeout_ms=20_000)
    finally:
        await transport.close()
        await server.stop(0)
    (failed,) = world.events
    assert (failed["event"], failed["listener"], failed["mechanism"]) == ("authentication_failed", "outside", "SSL")
    assert failed["address"].startswith("ipv4:127.0.0.1:")
    assert "no rule of ssl.principal.mapping.rules matches" in failed["reason"]


def test_what_was_left_out_is_reported_when_the_window_ends_also_without_further_events() -> None:
    class Paced(HandClock):
        async def sleep_ms(self, ms: int) -> None:
            self.now += ms
            if self.now > WINDOW_MS:
                raise asyncio.CancelledError

    world = World()
    world.log = AuditLog(world.lines.append, clock=Paced(), node_id=3)
    world.deny()
    world.deny()
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(world.log.run())
    assert [event["event"] for event in world.events] == ["denied", "suppressed"]


# --- the file ---------------------------------------------------------------------------------------------------------


PATH = "/var/audit/audit.log"


def disk_with_directory() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("/var/audit")
    return disk


def content(disk: FakeDisk, path: str = PATH) -> list[str]:
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0).decode().splitlines()
    finally:
        file.close()


def test_lines_are_appended_and_full_files_are_renamed() -> None:
    disk = disk_with_directory()
    file = AuditFile(PATH, disk, InlineExecutor(), bytes_max=30, files_max=3)
    for number in range(12):
        file.write(f"line {number:03}")  # 9 bytes with its end
    assert content(disk) == ["line 009", "line 010", "line 011"]
    assert content(disk, f"{PATH}.1") == ["line 006", "line 007", "line 008"]
    assert content(disk, f"{PATH}.2") == ["line 003", "line 004", "line 005"]
    assert disk.size(f"{PATH}.3") is None


def test_a_file_that_cannot_be_opened_is_an_error_of_the_configuration() -> None:
    disk = FakeDisk()
    file = AuditFile(PATH, disk, InlineExecutor(), bytes_max=1_000, files_max=2)
    with pytest.raises(
        InvalidConfig, match=rf"audit\.log\.file = '{PATH}': it cannot be written .* Make its directory"
    ):
        asyncio.run(file.open())
    disk.make_directory("/var/audit")
    asyncio.run(file.open())
    assert content(disk) == []
    file.write("first")
    assert content(disk) == ["first"]


def test_a_line_torn_by_a_crash_does_not_swallow_the_next_one() -> None:
    disk = disk_with_directory()
    torn = disk.open(PATH, create=True)
    torn.pwritev([b'{"event": "cha'], 0)
    torn.close()
    file = AuditFile(PATH, disk, InlineExecutor(), bytes_max=1_000, files_max=2)
    file.write("whole")
    assert content(disk) == ['{"event": "cha', "whole"]


class HeldExecutor:
    """Runs what was submitted when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []

    def submit(self, work: Any, done: Any) -> None:
        self.waiting.append((work, done))

    def run(self) -> None:
        while self.waiting:
            InlineExecutor().submit(*self.waiting.pop(0))


def test_writing_waits_for_no_disk_and_what_does_not_fit_in_memory_goes_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_file, "PENDING_MAX", 5)
    disk, executor = disk_with_directory(), HeldExecutor()
    file = AuditFile(PATH, disk, executor, bytes_max=1_000, files_max=2)
    with caplog.at_level(logging.INFO, "node.audit"):
        for number in range(8):
            file.write(f"line {number}")
    assert [record.getMessage() for record in caplog.records] == ["line 6", "line 7"], "one is being written, five wait"
    executor.run()
    assert content(disk) == [f"line {number}" for number in range(6)]


def test_what_cannot_be_written_goes_to_the_log_and_a_repaired_disk_is_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = FakeDisk()
    file = AuditFile(PATH, disk, InlineExecutor(), bytes_max=1_000, files_max=2)
    with caplog.at_level(logging.INFO, "node.audit"):
        file.write("first")
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith(f"the audit log {PATH} cannot be written, its lines follow here: ")
    assert said[1:] == ["first"]
    disk.make_directory("/var/audit")
    file.write("second")
    assert content(disk) == ["second"]
