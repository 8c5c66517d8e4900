"""The fields of requests to coordinators: what no correct client sends is refused before a coordinator gets it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from node.requests.group_checks import (
    METADATA_BYTES_MAX,
    ensure_continues,
    ensure_heartbeat,
    ensure_join,
    ensure_producer,
    ensure_transaction_version,
)
from replication.coordination.classic_requests import JoinGroup
from replication.coordination.group_records import ClassicProtocol, TopicPartitions
from replication.coordination.group_requests import ConsumerGroupHeartbeat
from replication.coordination.transaction_requests import InitTransactionalProducer
from tidelog.errors import InvalidGroupId, InvalidRequest, InvalidTopic, TidelogError, UnsupportedVersion
from tidelog.types import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, PartitionIndex, ProducerId

JOINS = ConsumerGroupHeartbeat(
    "g", "m1", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=("t",), topic_partitions=()
)
OWNED = (TopicPartitions(UUID(int=1), (PartitionIndex(0),)),)


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"group_id": ""}, InvalidGroupId, "empty"),
        ({"group_id": "g" * 1_025}, InvalidGroupId, "1025 bytes"),
        ({"member_id": ""}, InvalidRequest, "empty"),
        ({"member_id": "m" * 256}, InvalidRequest, "256 bytes"),
        ({"instance_id": ""}, InvalidRequest, "the instance id is empty"),
        ({"rack_id": ""}, InvalidRequest, "the rack is empty"),
        ({"member_epoch": -3}, InvalidRequest, "-1 or -2 to leave"),
        ({"member_epoch": LEAVE_STATIC_EPOCH}, InvalidRequest, "only static members"),
        ({"rebalance_timeout_ms": -1}, InvalidRequest, "needs a rebalance timeout"),
        ({"rebalance_timeout_ms": -2, "member_epoch": 1}, InvalidRequest, "use 0 or more"),
        ({"subscribed_topic_names": None}, InvalidRequest, "needs topics"),
        ({"subscribed_topic_names": ("no topic",)}, InvalidTopic, "no topic"),
        ({"topic_partitions": OWNED}, InvalidRequest, "give them up first"),
    ],
)
def test_a_heartbeat_that_no_member_sends_is_refused(
    fields: dict[str, object], error: type[TidelogError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        ensure_heartbeat(replace(JOINS, **fields))  # type: ignore[arg-type]


def test_the_metadata_of_a_classic_member_are_bounded() -> None:
    """Each of them was kept for minutes, before anything was recorded: a client without any group filled the memory."""
    half = b"x" * (METADATA_BYTES_MAX // 2)
    joins = JoinGroup("g", "", None, "consumer", (ClassicProtocol("a", half), ClassicProtocol("b", half)), 6_000, 6_000)
    ensure_join(joins)
    with pytest.raises(InvalidRequest, match="1048577 bytes of metadata"):
        ensure_join(replace(joins, protocols=(*joins.protocols, ClassicProtocol("c", b"x"))))


def test_the_heartbeats_of_correct_members_pass() -> None:
    ensure_heartbeat(JOINS)
    ensure_heartbeat(replace(JOINS, subscribed_topic_names=()))  # a pattern of its client matches nothing yet
    ensure_heartbeat(replace(JOINS, subscribed_topic_names=None, subscribed_topic_regex="t.*"))
    ensure_heartbeat(ConsumerGroupHeartbeat("g", "m1", 3, topic_partitions=OWNED))
    ensure_heartbeat(ConsumerGroupHeartbeat("g", "m1", LEAVE_EPOCH))
    ensure_heartbeat(ConsumerGroupHeartbeat("g", "m1", LEAVE_STATIC_EPOCH, "i"))


@pytest.mark.parametrize("version", [-1, 0, 3])
def test_an_unknown_transaction_version_is_refused(version: int) -> None:
    with pytest.raises(UnsupportedVersion, match="use 1 or 2"):
        ensure_transaction_version(version)


@pytest.mark.parametrize("name", ["", "é" * 513])
def test_a_transactional_id_that_no_producer_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="transactional id"):
        ensure_producer(name, 5, 0)


@pytest.mark.parametrize("expected", [(5, -1), (-1, 5), (5, 32_767), (-5, 1)])
def test_a_producer_that_continues_names_its_id_and_epoch(expected: tuple[int, int]) -> None:
    """KIP-360. The largest epoch is used by coordinators only, to fence."""
    with pytest.raises(InvalidRequest, match="those of no producer"):
        ensure_continues(InitTransactionalProducer("t", 1_000, ProducerId(expected[0]), expected[1], 2))


def test_a_producer_may_start_or_continue() -> None:
    ensure_continues(InitTransactionalProducer("t", 1_000, ProducerId(-1), -1, 2))
    ensure_continues(InitTransactionalProducer("t", 1_000, ProducerId(5), 32_766, 2))
