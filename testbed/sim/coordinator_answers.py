"""What coordinators answer, compared with a replay of their committed logs, when nothing happens any more.

Groups, offsets and transactional ids of every log are asked for with the requests that tools use (KIP-664, KIP-848). A
difference may be a heartbeat in transit: it has to go away within a bound. Not here: the replay (group_log.py,
transaction_log.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from replication.coordination.transaction_records import TransactionState
from testbed.sim.group_log import LoggedGroup, LoggedMember, Owned
from testbed.sim.ledger import Violation
from testbed.sim.transaction_log import places_of
from testbed.sim.workload import CALL_MS, Client
from tidelog.errors import Retry, TidelogError
from tidelog.protocol import methods, status
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.v1 import groups_pb2, transactions_pb2

if TYPE_CHECKING:
    from testbed.sim.world import Simulation

AGREE_WITHIN: Final = 10.0
STATES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}

Assigned = frozenset[tuple[bytes, int]]


async def ask(
    client: Client,
    kind: groups_pb2.CoordinatorType.ValueType,
    key: str,
    method: Method[Request, Answer],
    request: Request,
) -> Answer:
    """Ask the coordinator of a key, with retries until it answers. Raises the error of the answer."""
    while True:
        try:
            lookup = groups_pb2.FindCoordinatorRequest(type=kind, keys=[key])
            to = client.rng.choice(client.bootstrap)
            found = await client.transport.call(to, methods.COORDINATORS_FIND_COORDINATOR, lookup, timeout_ms=CALL_MS)
            (coordinator,) = found.coordinators
            if coordinator.HasField("error"):
                raise status.from_proto(coordinator.error)
            endpoint = type(to)(coordinator.node.host, coordinator.node.port)
            return await client.transport.call(endpoint, method, request, timeout_ms=CALL_MS)
        except TidelogError as error:
            if error.retry is Retry.NEVER:
                raise
            await client.pause()


async def describe_group(client: Client, group: str) -> groups_pb2.DescribedGroup:
    """The group as its coordinator describes it; it may carry an error."""
    while True:
        answer = await ask(
            client,
            groups_pb2.COORDINATOR_TYPE_GROUP,
            group,
            methods.GROUPS_DESCRIBE_GROUPS,
            groups_pb2.DescribeGroupsRequest(group_ids=[group]),
        )
        (described,) = answer.groups
        if not described.HasField("error") or status.from_proto(described.error).retry is Retry.NEVER:
            return described
        await client.pause()


async def committed_offsets(client: Client, group: str) -> dict[tuple[str, int], int]:
    """All committed offsets of a group."""
    request = groups_pb2.OffsetFetchRequest(group_id=group, member_epoch=-1)
    answer = await ask(client, groups_pb2.COORDINATOR_TYPE_GROUP, group, methods.GROUPS_OFFSET_FETCH, request)
    return {(each.topic, each.partition): each.offset for each in answer.partitions if not each.HasField("error")}


async def describe_transaction(client: Client, transactional_id: str) -> transactions_pb2.DescribedTransaction:
    """The transactional id as its coordinator describes it; it may carry an error."""
    while True:
        answer = await ask(
            client,
            groups_pb2.COORDINATOR_TYPE_TRANSACTION,
            transactional_id,
            methods.TRANSACTIONS_DESCRIBE_TRANSACTIONS,
            transactions_pb2.DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        )
        (described,) = answer.transactions
        if not described.HasField("error") or status.from_proto(described.error).retry is Retry.NEVER:
            return described
        await client.pause()


def coordinators_agree(sim: Simulation) -> None:
    """Check that every coordinator answers what its committed log says. Raises Violation."""
    client = sim.client()
    task = client.start(_compare(sim, client), "compares coordinators with their logs")
    sim.run_until(task.done, within=60, what="every coordinator answers")
    task.result()


async def _compare(sim: Simulation, client: Client) -> None:
    until = sim.loop.time() + AGREE_WITHIN
    while differences := await _differences(sim, client):
        if sim.loop.time() > until:
            raise Violation("; ".join(differences[:3]))
        await client.pause()


async def _differences(sim: Simulation, client: Client) -> list[str]:
    found: list[str] = []
    for log in sim.coordination.group_logs.values():
        for group_id, group in sorted(log.groups.items()):
            if group.registered() or group.offsets:
                described, offsets = await describe_group(client, group_id), await committed_offsets(client, group_id)
                found += _of_group(group_id, group, described, offsets)
    for states in sim.coordination.transaction_logs.values():
        for transactional_id, value in sorted(states.states.items()):
            transaction = await describe_transaction(client, transactional_id)
            wanted = (
                int(value.producer_id),
                value.producer_epoch,
                STATES.get(value.transaction_status, ""),
                sorted(places_of(value)) if value.transaction_status is TransactionState.ONGOING else [],
            )
            answered = (
                transaction.producer_id,
                transaction.producer_epoch,
                transaction.state,
                sorted((each.topic, each.partition) for each in transaction.partitions),
            )
            found += _unequal(f"transactional id {transactional_id}", wanted, answered)
    return found


def _of_group(
    group_id: str,
    group: LoggedGroup,
    described: groups_pb2.DescribedGroup,
    offsets: Mapping[tuple[str, int], int],
) -> list[str]:
    name = f"group {group_id}"
    logged = {place: int(value.offset) for place, value in group.offsets.items()}
    found = _unequal(f"{name}: offsets", logged, dict(offsets))
    members = {member_id: _logged(group.members[member_id]) for member_id in group.registered()}
    answered = {
        each.member_id: (each.member_epoch, _flat(each.assignment), _flat(each.target)) for each in described.members
    }
    found += _unequal(f"{name}: members", members, answered)
    if members:
        epochs = group.epoch, group.assignment_epoch
        found += _unequal(f"{name}: epochs", epochs, (described.group_epoch, described.assignment_epoch))
    return found


def _logged(member: LoggedMember) -> tuple[int, Assigned, Assigned]:
    return member.epoch, _as_sent(member.assigned), _as_sent(member.target)


def _as_sent(owned: Iterable[Owned]) -> Assigned:
    return frozenset((topic_id.bytes, partition) for topic_id, partition in owned)


def _flat(partitions: Iterable[Any]) -> Assigned:
    return frozenset((each.topic_id, partition) for each in partitions for partition in each.partitions)


def _unequal(name: str, logged: object, answered: object) -> list[str]:
    return [] if logged == answered else [f"{name}: the log has {logged}, the coordinator answers {answered}"]
