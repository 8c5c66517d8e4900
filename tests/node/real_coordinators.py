"""Groups and transactions on real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from tests.node.real_nodes import CALL_MS, OPERATOR, RealNodes
from tidelog.clock import MachineClock
from tidelog.errors import Retry, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.rpc import Method
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.types import Endpoint


async def make_group_and_transaction(
    nodes: RealNodes, group: str, transactional_id: str, topic: str
) -> transactions_pb2.InitTransactionalProducerResponse:
    """As the operator, commit an offset of a group in partition 0 of the topic, and give the transactional id a
    producer, which is returned. This creates both internal topics, which are led after a moment."""
    committed = groups_pb2.OffsetCommitRequest(
        group_id=group,
        member_epoch=-1,
        partitions=[groups_pb2.OffsetToCommit(topic=topic, partition=0, offset=0, leader_epoch=-1)],
    )
    producer = transactions_pb2.InitTransactionalProducerRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=60_000,
        producer_id=-1,
        producer_epoch=-1,
        transaction_version=2,
    )
    group_type, transaction_type = groups_pb2.COORDINATOR_TYPE_GROUP, groups_pb2.COORDINATOR_TYPE_TRANSACTION
    at = nodes.further.get(OPERATOR, nodes.addresses)[0]
    find_group = groups_pb2.FindCoordinatorRequest(type=group_type, keys=[group])
    find_transaction = groups_pb2.FindCoordinatorRequest(type=transaction_type, keys=[transactional_id])
    await until_done(nodes, at, methods.COORDINATORS_FIND_COORDINATOR, find_group)
    await until_done(nodes, at, methods.GROUPS_OFFSET_COMMIT, committed)
    await until_done(nodes, at, methods.COORDINATORS_FIND_COORDINATOR, find_transaction)
    made = await until_done(nodes, at, methods.TRANSACTIONS_INIT_PRODUCER_ID, producer)
    assert isinstance(made, transactions_pb2.InitTransactionalProducerResponse)
    return made


async def make_internal_topics(nodes: RealNodes) -> None:
    """Create both internal topics. Returns when each partition has a leader."""
    at = nodes.further.get(OPERATOR, nodes.addresses)[0]
    for kind in (groups_pb2.COORDINATOR_TYPE_GROUP, groups_pb2.COORDINATOR_TYPE_TRANSACTION):
        keys = [f"key-{number}" for number in range(500)]
        find = groups_pb2.FindCoordinatorRequest(type=kind, keys=keys)
        await until_done(nodes, at, methods.COORDINATORS_FIND_COORDINATOR, find)


async def until_done(nodes: RealNodes, at: Endpoint, method: Method[Any, Any], request: Any) -> Any:
    """The answer once no part of it is an error. Raises an error that another attempt does not change."""
    clock = MachineClock()
    while True:
        try:
            answer = await nodes.transport.call(at, method, request, timeout_ms=CALL_MS)
        except TidelogError as error:
            if error.retry is Retry.NEVER:
                raise
        else:
            failed = [each for each in errors_in(answer) if each is not None]
            if not failed:
                return answer
            for each in failed:
                if each.retry is Retry.NEVER:
                    raise each
        nodes.ensure_running()
        await clock.sleep_ms(10)


def errors_in(answer: Any) -> Iterator[TidelogError | None]:
    """The error of each part of an answer; None for a part without."""
    for name in ("partitions", "topics", "coordinators", "groups", "transactions", "resources"):
        parts = getattr(answer, name, ())
        for part in () if isinstance(parts, int) else parts:
            error = getattr(part, "error", None)
            yield error_of(part) if isinstance(error, Message) else error
