"""Groups over real wires: lookup and creation of the internal topic, members and their streams, offsets, bad input."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings
from node.coordinators.group_lag import GroupsCollected
from node.coordinators.runtime import CoordinatorRuntime
from replication.coordination.group_requests import OffsetFetch
from replication.coordination.partitioning import partition_of
from testbed.topic_requests import altering, changed, deleting, growing
from tests.fakes.log_start import delete_records
from tests.node.coordinator_requests import (
    GROUP,
    TRANSACTION,
    ask,
    beat,
    commit,
    create,
    fetch,
    find,
    join,
    offsets,
    story,
)
from tests.node.real_nodes import CALL_MS, RealNodes
from tests.node.wires import batch
from tidelog.clock import MachineClock
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidGroupId,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTopic,
    NotCoordinator,
    TidelogError,
    UnknownMemberId,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, common_pb2, groups_pb2, transactions_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import Offset, PartitionIndex, PartitionKey, TopicId


def produce(topic_id: bytes, partition: int, *values: bytes) -> ProduceRequest:
    entry = ProduceBatch(correlation_id=0, topic_id=topic_id, partition=partition, records=batch(*values))
    return ProduceRequest(acks=-1, timeout_ms=CALL_MS, partitions=[entry])


async def produced(nodes: RealNodes, topic_id: bytes, partition: int, *values: bytes) -> None:
    """Produce to the leader, again while it has not heard of the partition yet."""
    while True:
        answer = await nodes.call(0, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=["orders"]))
        [leader] = [each.leader for each in answer.topics[0].partitions if each.partition == partition]
        request = produce(topic_id, partition, *values)
        [outcome] = (await nodes.call(leader, methods.DATA_PRODUCE, request)).partitions
        if not outcome.HasField("error"):
            return
        assert outcome.error.written == common_pb2.WRITTEN_NO, outcome
        await MachineClock().sleep_ms(20)


def assigned(answer: groups_pb2.ConsumerGroupHeartbeatResponse) -> set[int]:
    return {partition for topic in answer.assignment.topics for partition in topic.partitions}


async def open_stream(nodes: RealNodes, group: str) -> Any:
    number = await find(nodes, group)
    return await nodes.transport.open_stream(nodes.addresses[number], methods.GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM)


async def joined(nodes: RealNodes, group: str, member: str, *topics: str) -> tuple[Any, Any]:
    """A member's stream and its first answer; opened again while the coordinator is loaded."""
    while True:
        stream = await open_stream(nodes, group)
        try:
            await stream.send(join(group, member, *topics))
            return stream, await stream.receive()
        except (CoordinatorLoadInProgress, NotCoordinator, CoordinatorNotAvailable):
            await MachineClock().sleep_ms(20)


def test_the_topic_is_created_once_whichever_node_is_asked(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        found = await asyncio.gather(*(find(nodes, f"group {at}", ask=at % 3) for at in range(30)))
        assert set(found) == {0, 1, 2}
        answer = await nodes.call(
            1, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=["__consumer_offsets"])
        )
        [topic] = answer.topics
        assert len(topic.partitions) == 50
        assert {len(partition.replicas) for partition in topic.partitions} == {3}
        assert topic.configs["cleanup.policy"] == "compact"
        assert topic.configs["durability"] == "fsync"

    story(tmp_path, 3, steps)


def test_a_topic_that_cannot_be_created_yet_is_a_coordinator_that_is_not_available(tmp_path: Path) -> None:
    """Trap 7: what has no leader is an error that clients repeat, not the address of node -1. A client repeats the
    lookup until enough nodes run."""

    async def steps(nodes: RealNodes) -> None:
        request = groups_pb2.FindCoordinatorRequest(type=GROUP, keys=["g"])
        answer = await nodes.call(0, methods.COORDINATORS_FIND_COORDINATOR, request)
        assert answer.coordinators[0].error.name == "COORDINATOR_NOT_AVAILABLE"
        assert "2 replicas" in answer.coordinators[0].error.message
        with pytest.raises(CoordinatorNotAvailable):
            await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch())

    story(tmp_path, 1, steps, CoordinatorSettings(GroupSettings(replication_factor=2)))


def test_offsets_are_answered_in_the_order_of_the_request(tmp_path: Path) -> None:
    """Trap 12: clients match answers by position, whatever is refused in between. Trap 18: a partition without a
    committed offset has offset -1, never 0."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await create(nodes, "others")
        answer = await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(missing=1, orders=2, gone=3, others=4))
        assert [(each.topic, each.HasField("error")) for each in answer.partitions] == [
            ("missing", True),
            ("orders", False),
            ("gone", True),
            ("others", False),
        ]
        wanted = fetch()
        for topic in ("others", "missing", "orders", "others"):
            wanted.partitions.partitions.add(topic=topic, partition=0)
        found = (await ask(nodes, methods.GROUPS_OFFSET_FETCH, wanted)).partitions
        assert [(each.topic, each.offset, each.leader_epoch) for each in found] == [
            ("others", 4, -1),
            ("missing", -1, -1),
            ("orders", 2, -1),
            ("others", 4, -1),
        ]

    story(tmp_path, 1, steps)


def test_clients_cannot_write_or_change_internal_topics(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        with pytest.raises(InvalidTopic):
            await create(nodes, "__consumer_offsets")
        await find(nodes, "g")
        answer = await nodes.call(
            0, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=["__consumer_offsets"])
        )
        topic_id = answer.topics[0].topic_id
        await ask(nodes, methods.GROUPS_OFFSET_FETCH, fetch())  # it is led
        partition = partition_of("g", 50)
        produced = await nodes.call(0, methods.DATA_PRODUCE, produce(topic_id, partition, b"forged"))
        assert produced.partitions[0].error.name == "INVALID_TOPIC_EXCEPTION"
        for request in (
            deleting(name="__consumer_offsets"),
            deleting(topic_id=topic_id),
        ):
            with pytest.raises(InvalidTopic):
                changed(await nodes.call(0, methods.ADMIN_DELETE_TOPICS, request))
        with pytest.raises(InvalidTopic):
            changed(
                await nodes.call(
                    0,
                    methods.ADMIN_CREATE_PARTITIONS,
                    growing(topic="__consumer_offsets", count=60),
                )
            )
        change = admin_pb2.ConfigChange(key="cleanup.policy", value="delete")
        with pytest.raises(InvalidTopic):
            changed(
                await nodes.call(
                    0,
                    methods.ADMIN_INCREMENTAL_ALTER_CONFIGS,
                    altering(topic="__consumer_offsets", changes=[change]),
                )
            )

    story(tmp_path, 1, steps)


def test_offsets_survive_a_restart_and_belong_to_partitions_that_exist(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        answer = await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=7, missing=1))
        assert [each.error.name for each in answer.partitions] == ["", "UNKNOWN_TOPIC_OR_PARTITION"]
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_whole()
        [found] = (await ask(nodes, methods.GROUPS_OFFSET_FETCH, fetch())).partitions
        assert (found.topic, found.partition, found.offset, found.metadata) == ("orders", 0, 7, "m")
        listed = await nodes.call(0, methods.GROUPS_LIST_GROUPS, groups_pb2.ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == ["g"]
        assert [each.partition for each in listed.coordinators] == list(range(listed.partition_count))
        other = groups_pb2.DescribeGroupsRequest(group_ids=["other"])
        while (await ask(nodes, methods.GROUPS_DESCRIBE_GROUPS, other)).groups[0].error.name != "GROUP_ID_NOT_FOUND":
            pass  # its coordinator is loading
        request = groups_pb2.DeleteGroupsRequest(group_ids=["g", "other", ""])
        deleted = await nodes.call(0, methods.GROUPS_DELETE_GROUPS, request)
        assert [each.error.name for each in deleted.groups] == ["", "GROUP_ID_NOT_FOUND", "INVALID_GROUP_ID"]
        assert not (await ask(nodes, methods.GROUPS_OFFSET_FETCH, fetch())).partitions

    story(tmp_path, 1, steps)


def test_a_member_learns_of_its_new_assignment_at_once(tmp_path: Path) -> None:
    """The second member joins; the first one is told on its stream what to give up, then the second one what it has."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        first, answer = await joined(nodes, "g", "one", "orders")
        assert assigned(answer) == {0, 1, 2, 3}
        await first.send(beat(answer, "g"))
        assert not (await first.receive()).HasField("error")
        second, pending = await joined(nodes, "g", "two", "orders")
        told = await first.receive()
        assert len(assigned(told)) == 2
        await first.send(beat(told, "g"))
        while len(assigned(pending)) < 2:
            pending = await second.receive()
        assert assigned(pending) | assigned(told) == {0, 1, 2, 3}
        request = groups_pb2.DescribeGroupsRequest(group_ids=["g", "none"])
        described = await ask(nodes, methods.GROUPS_DESCRIBE_GROUPS, request)
        while described.groups[1].error.name == "COORDINATOR_LOAD_IN_PROGRESS":  # that of the other group
            described = await ask(nodes, methods.GROUPS_DESCRIBE_GROUPS, request)
        assert [member.client_host for member in described.groups[0].members] == ["127.0.0.1", "127.0.0.1"]
        assert described.groups[1].error.name == "GROUP_ID_NOT_FOUND"
        second.close()
        first.close()

    story(tmp_path, 1, steps)


def test_a_stream_serves_one_member(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        stream, _ = await joined(nodes, "g", "one", "orders")
        await stream.send(join("g", "two", "orders"))
        with pytest.raises(InvalidRequest, match="serves member 'one'"):
            await stream.receive()
        older, _ = await joined(nodes, "g", "one", "orders")
        newer, _ = await joined(nodes, "g", "one", "orders")
        with pytest.raises(InvalidRequest, match="another stream"):
            while True:
                await older.receive()
        newer.close()

    story(tmp_path, 1, steps)


def test_an_unknown_member_is_answered_on_its_stream(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        stream, _ = await joined(nodes, "g", "one", "orders")
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(group="h", orders=1), "h")
        other = await open_stream(nodes, "h")
        request = join("h", "ghost", "orders")
        request.member_epoch = 5
        await other.send(request)
        answer = await other.receive()
        assert answer.error.name in ("UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND")
        await other.send(join("h", "ghost", "orders"))
        assert not (await other.receive()).HasField("error"), "the stream is still open"
        other.close()
        stream.close()

    story(tmp_path, 1, steps)


def test_streams_end_with_the_coordinator_and_the_next_one_continues(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders", replicas=3)
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=7))
        stream, answer = await joined(nodes, "g", "one", "orders")
        before = await find(nodes, "g")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(nodes.stop(before))
            with pytest.raises(TidelogError):
                while True:
                    assert (await stream.receive()) is not None
        others = [number for number in range(3) if number != before]
        while True:
            try:
                now = await find(nodes, "g", ask=others[0])
                found = await nodes.call(now, methods.GROUPS_OFFSET_FETCH, fetch())
                break
            except (TidelogError, KeyError):
                await MachineClock().sleep_ms(20)
        assert found.partitions[0].offset == 7
        beating = await nodes.transport.open_stream(
            nodes.addresses[now], methods.GROUPS_CONSUMER_GROUP_HEARTBEAT_STREAM
        )
        await beating.send(beat(answer, "g"))
        again = await beating.receive()
        assert again is not None
        assert not again.HasField("error"), "the member is known, its epoch too"
        beating.close()
        elsewhere = next(number for number in others if number != now)
        with pytest.raises(NotCoordinator) as refused:
            await nodes.call(elsewhere, methods.GROUPS_OFFSET_FETCH, fetch())
        assert refused.value.leader is not None
        assert refused.value.leader.node_id == now

    story(tmp_path, 3, steps)


def test_offsets_of_a_transaction_appear_with_its_commit(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=1))

        def transaction(method: Any, request: Any) -> Awaitable[Any]:
            return ask(nodes, method, request, "t", TRANSACTION)

        begun = await transaction(
            methods.TRANSACTIONS_INIT_PRODUCER_ID,
            transactions_pb2.InitTransactionalProducerRequest(
                transactional_id="t",
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
                transaction_version=2,
            ),
        )
        request = groups_pb2.TxnOffsetCommitRequest(
            transactional_id="t",
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            transaction_version=2,
            group_id="g",
            member_epoch=-1,
            partitions=offsets(orders=9),
        )
        answer = await ask(nodes, methods.GROUPS_TXN_OFFSET_COMMIT, request)
        assert [each.HasField("error") for each in answer.partitions] == [False]
        [found] = (await ask(nodes, methods.GROUPS_OFFSET_FETCH, fetch())).partitions
        assert found.offset == 1, "the transaction is open"
        stable = groups_pb2.OffsetFetchRequest(group_id="g", member_epoch=-1, require_stable=True)
        [found] = (await ask(nodes, methods.GROUPS_OFFSET_FETCH, stable)).partitions
        assert found.error.name == "UNSTABLE_OFFSET_COMMIT"
        await transaction(
            methods.TRANSACTIONS_END_TXN,
            transactions_pb2.EndTxnRequest(
                transactional_id="t",
                producer_id=begun.producer_id,
                producer_epoch=begun.producer_epoch,
                committed=True,
                transaction_version=2,
            ),
        )
        while found.HasField("error"):
            [found] = (await ask(nodes, methods.GROUPS_OFFSET_FETCH, stable)).partitions
        assert found.offset == 9
        request.producer_epoch = begun.producer_epoch
        with pytest.raises(TidelogError):  # its transaction has ended: the epoch is stale
            await ask(nodes, methods.GROUPS_TXN_OFFSET_COMMIT, request)

    story(tmp_path, 1, steps)


def test_hostile_requests_get_typed_errors_and_harm_no_other_group(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=7))

        async def refused(method: Any, request: Any, error: type[TidelogError]) -> None:
            with pytest.raises(error):
                await nodes.call(0, method, request)

        beating = methods.GROUPS_CONSUMER_GROUP_HEARTBEAT
        long = "x" * 2_000
        await refused(methods.GROUPS_OFFSET_COMMIT, commit(group="", orders=1), InvalidGroupId)
        await refused(methods.GROUPS_OFFSET_COMMIT, commit(group=long, orders=1), InvalidGroupId)
        await refused(methods.GROUPS_OFFSET_FETCH, fetch(""), InvalidGroupId)
        await refused(beating, join("", "one", "orders"), InvalidGroupId)
        nameless = join("g", "", "orders")
        nameless.member_epoch = 3
        await refused(beating, nameless, InvalidRequest)
        await refused(beating, join("g", long, "orders"), InvalidRequest)
        await refused(beating, join("g", "one", "no/topic"), InvalidTopic)
        pattern = join("g", "one")
        pattern.subscribed_topic_regex = "(" * 5_000
        await refused(beating, pattern, InvalidRegularExpression)
        pattern.subscribed_topic_regex = "(unclosed"
        await refused(beating, pattern, InvalidRegularExpression)
        negative = join("g", "one", "orders")
        negative.topic_partitions.topics.add(topic_id=bytes(16), partitions=[-1])
        await refused(beating, negative, InvalidRequest)
        stale = join("g", "ghost", "orders")
        stale.member_epoch = 3
        await refused(beating, stale, UnknownMemberId)
        twice = commit(orders=1)
        twice.partitions.extend(offsets(orders=2))
        await refused(methods.GROUPS_OFFSET_COMMIT, twice, InvalidRequest)
        many = groups_pb2.OffsetDeleteRequest(
            group_id="g", partitions=[groups_pb2.NamedPartition(topic="t", partition=at) for at in range(10_001)]
        )
        await refused(methods.GROUPS_OFFSET_DELETE, many, InvalidRequest)
        answer = await nodes.call(0, methods.GROUPS_OFFSET_COMMIT, commit(orders=-5))
        assert answer.partitions[0].error.name == "INVALID_REQUEST"
        large = commit(orders=8)
        large.partitions[0].metadata = "m" * 5_000
        answer = await nodes.call(0, methods.GROUPS_OFFSET_COMMIT, large)
        assert answer.partitions[0].error.name == "OFFSET_METADATA_TOO_LARGE"
        [found] = (await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch())).partitions
        assert found.offset == 7

    story(tmp_path, 1, steps)


async def collected(nodes: RealNodes, groups: int, unknown: int) -> GroupsCollected:
    """The lag of so many groups, from the coordinator of "g". While the controller does not answer a node in time, the
    node leaves its groups out, and another one may become their coordinator."""
    while True:
        found = await nodes.nodes[await find(nodes, "g")].node.groups()
        if (len(found.groups), found.unknown) == (groups, unknown):
            return found
        await MachineClock().sleep_ms(20)


def test_the_lag_of_groups_is_collected_also_where_others_lead(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        topic_id = await create(nodes, "orders", partitions=3)
        for partition in range(3):
            await produced(nodes, topic_id, partition, b"a", b"b", b"c", b"d")
        committing = groups_pb2.OffsetCommitRequest(
            group_id="g",
            member_epoch=-1,
            partitions=[
                groups_pb2.OffsetToCommit(topic="orders", partition=at, offset=at, leader_epoch=-1) for at in range(3)
            ],
        )
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, committing)
        coordinator = nodes.nodes[await find(nodes, "g")].node
        assert coordinator.replicas is not None
        orders = [each for each in coordinator.replicas.partitions() if each.name.topic == "orders"]
        while any(each.log.high_watermark < 4 for each in orders):
            await MachineClock().sleep_ms(20)  # its followers learn the high watermark from their next fetch
        lag = await collected(nodes, 1, unknown=0)
        assert [(each.group.group_id, each.lag, len(each.offsets)) for each in lag.groups] == [("g", 9, 3)]
        assert (lag.groups[0].unknown, lag.groups[0].deleted) == (0, 0)
        assert lag.groups[0].lags == {("orders", 0): 4, ("orders", 1): 3, ("orders", 2): 2}

    story(tmp_path, 2, steps)


def test_what_was_deleted_and_what_is_not_known_is_not_lag(tmp_path: Path) -> None:
    """Of four records three are deleted before the group has read two of them. A member without a committed offset
    begins where its options say, so that no number is right; the same holds for an offset beyond the end."""

    async def steps(nodes: RealNodes) -> None:
        topic_id = await create(nodes, "orders", partitions=2)
        for partition in range(2):
            await produced(nodes, topic_id, partition, b"a", b"b", b"c", b"d")
        node = nodes.nodes[0].node
        assert node.replicas is not None
        replica = node.replicas.registry.by_key[PartitionKey(TopicId(UUID(bytes=topic_id)), PartitionIndex(0))]
        delete_records(replica.log, Offset(3))
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=1))
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit("beyond", orders=9), "beyond")
        stream, _ = await joined(nodes, "fresh", "m", "orders")
        lag = await collected(nodes, 3, unknown=3)
        found = {each.group.group_id: (each.lag, each.deleted, each.unknown) for each in lag.groups}
        assert found == {"g": (1, 2, 0), "fresh": (None, None, 2), "beyond": (None, None, 1)}
        assert {each.group.group_id: each.lags for each in lag.groups}["g"] == {("orders", 0): 1}, "as in the sum"
        stream.close()

    story(tmp_path, 1, steps)


def test_a_group_whose_coordinator_leaves_while_lag_is_collected_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its offsets it would be shown as a group that has committed nothing."""
    submit = CoordinatorRuntime.submit

    async def leaves(self: CoordinatorRuntime, partition: PartitionIndex, request: Any) -> Any:
        if isinstance(request, OffsetFetch):
            raise NotCoordinator("it has moved")
        return await submit(self, partition, request)

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(orders=1))
        monkeypatch.setattr(CoordinatorRuntime, "submit", leaves)
        assert (await nodes.nodes[0].node.groups()).groups == ()

    story(tmp_path, 1, steps)
