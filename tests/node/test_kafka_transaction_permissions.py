"""Who may send which request of a transaction through the listener of Kafka's protocol, by the numbers of Kafka 4.1."""

from __future__ import annotations

from typing import Any

import pytest

from node.boundary.boundary import Boundary
from node.listeners.kafka.exchange import KafkaApi
from node.listeners.kafka.kafka_transaction_tools import WRITE_TXN_MARKERS
from node.listeners.kafka.kafka_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from node.security.acl_authorizer import AclAuthorizer
from node.security.audit_log import AuditLog
from node.security.security_settings import AuthorizerConfig
from replication.controller.image import EMPTY
from tests.node.kafka_exchanges import name_of, request
from tests.node.kafka_frames import decoded, kafka_listener, request_frame
from tidelog.clock import MachineClock

CLUSTER, TRANSACTIONAL_ID = 31, 53
"""The number of a missing permission, by the resource."""

PRODUCER = {"transactional_id": "t1", "producer_id": 12, "producer_epoch": 3}


def added() -> dict[str, Any]:
    topics = (request("AddPartitionsToTxn").AddPartitionsToTxnTopic("orders", (0,)),)
    return {f"v3_and_below_{name}": value for name, value in {**PRODUCER, "topics": topics}.items()}


def committed() -> dict[str, Any]:
    module = request("TxnOffsetCommit")
    offset = module.TxnOffsetCommitRequestPartition(0, 7, "")
    topics = (module.TxnOffsetCommitRequestTopic("orders", (offset,)),)
    return {**PRODUCER, "group_id": "readers", "topics": topics}


def marked() -> dict[str, Any]:
    module = request("WriteTxnMarkers")
    topics = (module.WritableTxnMarkerTopic("orders", (0,)),)
    marker = module.WritableTxnMarker(12, 3, transaction_result=False, topics=topics, coordinator_epoch=0)
    return {"markers": (marker,)}


REFUSED = [
    (INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout_ms": 1_000}, CLUSTER),
    (INIT_PRODUCER_ID, {"transactional_id": "t1", "transaction_timeout_ms": 1_000}, TRANSACTIONAL_ID),
    (ADD_PARTITIONS_TO_TXN, added(), TRANSACTIONAL_ID),
    (ADD_OFFSETS_TO_TXN, {**PRODUCER, "group_id": "readers"}, TRANSACTIONAL_ID),
    (TXN_OFFSET_COMMIT, committed(), TRANSACTIONAL_ID),
    (END_TXN, {**PRODUCER, "committed": True}, TRANSACTIONAL_ID),
    (WRITE_TXN_MARKERS, marked(), CLUSTER),
]


def numbers(answer: Any) -> set[int]:
    """The numbers of errors that an answer has, wherever they are."""
    names = type(answer).__match_args__
    own = {getattr(answer, name) for name in names if name.endswith("error_code")}
    parts = (each for name in names if isinstance(each := getattr(answer, name), tuple))
    return own.union(*(numbers(each) for part in parts for each in part if hasattr(each, "__match_args__")))


@pytest.mark.parametrize(
    ("kafka", "fields", "number"),
    REFUSED,
    ids=[f"{name_of(kafka)}-{number}" for kafka, _, number in REFUSED],
)
async def test_without_permission_nothing_reaches_a_handler(
    kafka: KafkaApi, fields: dict[str, Any], number: int
) -> None:
    """A producer with a transactional id needs the permission for it, and no other to begin."""
    authorizer = AclAuthorizer(
        AuthorizerConfig(enabled=True), AuditLog(lambda _line: None, clock=MachineClock(), node_id=0)
    )
    authorizer.follow(EMPTY)
    name, version = name_of(kafka), kafka.versions[-1]
    message = request(name).__dict__[f"{name}Request"](**fields)
    async with kafka_listener(Boundary(authorizer=authorizer)) as listener:
        client = await listener.connect()
        client.send(request_frame(name, version, message))
        answer = decoded(name, version, await client.receive())[1]
        assert numbers(answer) - {0} == {number}
        assert listener.service.begun == []
