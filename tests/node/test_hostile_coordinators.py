"""Bad input to coordinators on real nodes: each is answered by a typed error that names the thing, the cause and the
next step; the coordinator continues, and other groups and transactional ids are not affected.

See also test_group_coordinators.py (fields that no client sends), tests/fuzz (every field at its extremes)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.coordinators.coordinator_state import CoordinatorState
from node.coordinators.partition_coordinator import PartitionCoordinator
from replication.coordination.partitioning import partition_of
from storage.append_info import Origin
from testbed.topic_requests import changed, deleting
from tests.node.coordinator_requests import (
    GROUP,
    TRANSACTION,
    ask,
    beat,
    commit,
    create,
    fetch,
    find,
    init,
    join,
    offsets,
    runtime_of,
    story,
)
from tests.node.real_nodes import RealNodes
from tidelog.clock import MachineClock
from tidelog.errors import (
    ConcurrentTransactions,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidGroupId,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
    StaleMemberEpoch,
    TidelogError,
    UnknownMemberId,
    UnreadableCoordinatorRecord,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.records import RecordBatchBuilder
from tidelog.types import Acks, Millis, PartitionIndex

PARTITIONS = 4
SETTINGS = CoordinatorSettings(
    GroupSettings(partitions=PARTITIONS, replication_factor=1, consumer_max_size=20),
    TransactionSettings(partitions=PARTITIONS, replication_factor=1, min_isr=1),
)
BEAT = methods.GROUPS_CONSUMER_GROUP_HEARTBEAT
INIT, END = methods.TRANSACTIONS_INIT_PRODUCER_ID, methods.TRANSACTIONS_END_TXN
INT32_MAX = (1 << 31) - 1
CONTROL = "a\x00\x1b[2J\n\r\x7f\u2028z"
"""An id of control characters: a NUL, an escape sequence, ends of lines."""


async def attempt(nodes: RealNodes, method: Any, request: Any) -> TidelogError | None:
    """The error of a request; None if it has none."""
    try:
        await nodes.call(0, method, request)
    except TidelogError as error:
        return error
    return None


async def refused(nodes: RealNodes, method: Any, request: Any, error: type[TidelogError], *says: str) -> None:
    """The request is refused, in these words: the thing, the cause, the next step."""
    with pytest.raises(error) as found:
        await nodes.call(0, method, request)
    assert found.value.message.isprintable()
    for each in says:
        assert each in found.value.message


async def outcomes(nodes: RealNodes, method: Any, request: Any) -> list[tuple[str, str]]:
    """Name and message of the error of each partition."""
    answer = await nodes.call(0, method, request)
    assert all(each.error.message.isprintable() for each in answer.partitions)
    return [(each.error.name, each.error.message) for each in answer.partitions]


async def witness(nodes: RealNodes) -> Callable[[], Any]:
    """A group with a member and an offset, and a transactional id. Returns what shows that they are unharmed."""
    await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit("other", orders=7), "other")
    member = await ask(nodes, BEAT, join("live", "one", "orders"), "live")
    producer = await ask(nodes, INIT, init("other"), "other", TRANSACTION)

    async def unharmed() -> None:
        [found] = (await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch("other"))).partitions
        assert found.offset == 7
        answer = await nodes.call(0, BEAT, beat(member, "live"))
        assert (answer.member_epoch, answer.HasField("error")) == (member.member_epoch, False)
        await nodes.call(0, END, end("other", producer, committed=False))
        again = await ask(nodes, INIT, init("other"), "other", TRANSACTION)
        producer.producer_id, producer.producer_epoch = again.producer_id, again.producer_epoch

    return unharmed


def end(transactional_id: str, producer: Any, *, committed: bool = True) -> transactions_pb2.EndTxnRequest:
    return transactions_pb2.EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
        transaction_version=2,
    )


def coordinator_of(nodes: RealNodes, key: str, kind: Any) -> PartitionCoordinator:
    return runtime_of(nodes, kind).coordinator(PartitionIndex(partition_of(key, PARTITIONS)))


def test_members_that_are_unknown_stale_or_in_the_place_of_another(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        unharmed = await witness(nodes)
        one = await ask(nodes, BEAT, join("g", "one", "orders"))
        two = await ask(nodes, BEAT, join("g", "two", "orders"))
        assert (one.member_epoch, two.member_epoch) == (1, 2)

        stale = beat(one, "g")
        stale.member_epoch = 7
        await refused(nodes, BEAT, stale, FencedMemberEpoch, "'one'", "'g'", "epoch 1, not 7", "join again")
        stranger = beat(one, "g")
        stranger.member_id = "ghost"
        await refused(nodes, BEAT, stranger, UnknownMemberId, "'ghost'", "'g'", "join again")
        assignor = join("g", "three", "orders")
        assignor.server_assignor = "astrology"
        await refused(nodes, BEAT, assignor, UnsupportedAssignor, "'astrology'", "uniform, range")

        late = commit("g", orders=3)
        late.member_id, late.member_epoch = "one", 0
        await refused(nodes, methods.GROUPS_OFFSET_COMMIT, late, StaleMemberEpoch, "'one'", "1, not 0", "heartbeat")
        late.member_id = "ghost"
        await refused(nodes, methods.GROUPS_OFFSET_COMMIT, late, UnknownMemberId, "'ghost'", "'g'", "join")
        outsider = commit("g", orders=3)
        await refused(nodes, methods.GROUPS_OFFSET_COMMIT, outsider, UnknownMemberId, "'g' has members", "stop")

        static = join("s", "first", "orders")
        static.instance_id = "worker"
        await ask(nodes, BEAT, static, "s")
        static.member_id = "second"
        await refused(nodes, BEAT, static, UnreleasedInstanceId, "'worker'", "'first'", "stop it")

        endless = join("e", "one", "orders")
        endless.rebalance_timeout_ms = INT32_MAX
        answer = await nodes.call(0, BEAT, endless)
        assert not answer.HasField("error")
        endless.rebalance_timeout_ms = -2
        await refused(nodes, BEAT, endless, InvalidRequest, "-2 ms", "0 or more")
        await unharmed()

    story(tmp_path, 1, steps, SETTINGS)


def test_offsets_of_deleted_topics_and_impossible_ones(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await create(nodes, "gone")
        unharmed = await witness(nodes)
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit("g", gone=4, orders=1))
        changed(await nodes.call(0, methods.ADMIN_DELETE_TOPICS, deleting(name="gone")))
        bad = commit("g", gone=5)
        bad.partitions.extend(offsets(orders=2))
        bad.partitions.extend(
            [
                groups_pb2.OffsetToCommit(topic="orders", partition=99, offset=1, leader_epoch=-1),
                groups_pb2.OffsetToCommit(topic="orders", partition=-1, offset=1, leader_epoch=-1),
                groups_pb2.OffsetToCommit(topic="orders", partition=1, offset=-3, leader_epoch=-1),
                groups_pb2.OffsetToCommit(topic="orders", partition=2, offset=1, leader_epoch=-1, metadata="é" * 4_096),
                groups_pb2.OffsetToCommit(topic="no/topic\n", partition=0, offset=1, leader_epoch=-1),
            ]
        )
        found = await outcomes(nodes, methods.GROUPS_OFFSET_COMMIT, bad)
        assert [name for name, _ in found] == [
            "UNKNOWN_TOPIC_OR_PARTITION",
            "",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "UNKNOWN_TOPIC_OR_PARTITION",
            "INVALID_REQUEST",
            "OFFSET_METADATA_TOO_LARGE",
            "UNKNOWN_TOPIC_OR_PARTITION",
        ]
        assert "8192 bytes" in found[5][1]
        assert "shorten it" in found[5][1]
        twice = commit("g", orders=8)
        twice.partitions.extend(offsets(orders=9))
        await refused(nodes, methods.GROUPS_OFFSET_COMMIT, twice, InvalidRequest, "orders-0", "named twice")
        while len((await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch("g"))).partitions) > 1:
            await MachineClock().sleep_ms(10)  # the offset of the deleted topic is deleted with the next image
        [left] = (await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch("g"))).partitions
        assert (left.topic, left.offset) == ("orders", 2)
        await unharmed()

    story(tmp_path, 1, steps, SETTINGS)


def test_ids_that_are_empty_long_or_of_control_characters(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        unharmed = await witness(nodes)
        await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(CONTROL, orders=5), CONTROL)
        member = await ask(nodes, BEAT, join(CONTROL + "m", CONTROL, "orders"), CONTROL + "m")
        stale = beat(member, CONTROL + "m")
        stale.member_epoch = 9
        await refused(nodes, BEAT, stale, FencedMemberEpoch, repr(CONTROL))
        listed = await nodes.call(0, methods.GROUPS_LIST_GROUPS, groups_pb2.ListGroupsRequest())
        assert {CONTROL, CONTROL + "m"} <= {group.group_id for group in listed.groups}
        ids = ["", "x" * 1_025, CONTROL + "none"]
        for answer in (
            await nodes.call(0, methods.GROUPS_DESCRIBE_GROUPS, groups_pb2.DescribeGroupsRequest(group_ids=ids)),
            await nodes.call(0, methods.GROUPS_DELETE_GROUPS, groups_pb2.DeleteGroupsRequest(group_ids=ids)),
        ):
            assert [group.error.name for group in answer.groups] == ["INVALID_GROUP_ID"] * 2 + ["GROUP_ID_NOT_FOUND"]
            assert "tidelog group list" in answer.groups[2].error.message
        await refused(
            nodes, methods.GROUPS_OFFSET_COMMIT, commit("x" * 1_025, orders=1), InvalidGroupId, "1025", "1024"
        )
        longest = "\x01" * 1_024
        await ask(nodes, BEAT, join(longest, "\x02" * 255, "orders"), longest)
        stale = beat(member, longest)
        stale.member_id, stale.member_epoch = "\x02" * 255, 9
        with pytest.raises(FencedMemberEpoch):  # and not an error of the transport: the message is cut
            await nodes.call(0, BEAT, stale)

        await refused(nodes, INIT, init(""), InvalidRequest, "transactional id is empty")
        await refused(nodes, INIT, init("x" * 10_000), InvalidRequest, "10000 bytes", "at most 1024")
        made = await ask(nodes, INIT, init(CONTROL), CONTROL, TRANSACTION)
        made.producer_epoch += 1
        await refused(nodes, END, end(CONTROL, made), ProducerFenced, repr(CONTROL))
        await unharmed()

    story(tmp_path, 1, steps, SETTINGS)
    assert all(line.replace("\n", "").isprintable() for line in caplog.messages)


def test_patterns_that_are_malformed_or_catastrophic(tmp_path: Path) -> None:
    """RE2 has no pattern that takes exponential time; what needs too much memory is refused."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        await create(nodes, "a" * 200)
        unharmed = await witness(nodes)

        def with_pattern(pattern: str) -> Any:
            request = join("p", "one")
            request.subscribed_topic_regex = pattern
            return request

        for pattern in ("(a*)*b", "(a|aa)+$", "(.*.*.*.*.*.*)*=", "(x+x+)+y"):
            answer = await ask(nodes, BEAT, with_pattern(pattern), "p")
            assert not answer.HasField("error")
        for pattern in ("(unclosed", "(a)\\1", "(?=a)", "[b-a]", "a{1001}", "((a{100}){100}){100}", "\\pN{" * 1_000):
            await refused(nodes, BEAT, with_pattern(pattern), InvalidRegularExpression)
        await refused(nodes, BEAT, with_pattern("x" * 4_097), InvalidRegularExpression, "4096 bytes", "shorten")
        await unharmed()

    story(tmp_path, 1, steps, SETTINGS)


def test_a_flood_of_member_ids_fills_its_group_only(tmp_path: Path) -> None:
    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        unharmed = await witness(nodes)
        await ask(nodes, BEAT, join("g", "m0", "orders"))

        joins = (join("g", f"m{number}", "orders") for number in range(1, 400))
        found = await asyncio.gather(*(attempt(nodes, BEAT, each) for each in joins))
        errors = [error for error in found if error is not None]
        assert {type(error) for error in errors} == {GroupMaxSizeReached}
        assert len(errors) == 380
        assert all("'g' has 20 members" in each.message and "consumer.max.size" in each.message for each in errors)
        described = await nodes.call(
            0, methods.GROUPS_DESCRIBE_GROUPS, groups_pb2.DescribeGroupsRequest(group_ids=["g"])
        )
        assert len(described.groups[0].members) == 20
        await unharmed()

    story(tmp_path, 1, steps, SETTINGS)


def test_a_storm_of_ends_of_transactions(tmp_path: Path) -> None:
    """Ends of nothing, of strangers and of former epochs, many at once. Repeated commits get one answer."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        unharmed = await witness(nodes)
        made = await ask(nodes, INIT, init("t"), "t", TRANSACTION)
        stranger = transactions_pb2.InitTransactionalProducerResponse(producer_id=made.producer_id + 77)

        async def ends(requests: list[Any]) -> list[type[TidelogError] | None]:
            found = await asyncio.gather(*(attempt(nodes, END, request) for request in requests))
            assert all("'t'" in each.message or "'nobody'" in each.message for each in found if each is not None)
            return [None if each is None else type(each) for each in found]

        storm = await ends([end("t", made), end("t", stranger), end("nobody", stranger)] * 100)
        assert set(storm[::3]) == {InvalidTxnState}
        assert set(storm[1::3]) == set(storm[2::3]) == {InvalidProducerIdMapping}

        commits = groups_pb2.TxnOffsetCommitRequest(
            transactional_id="t",
            producer_id=made.producer_id,
            producer_epoch=made.producer_epoch,
            transaction_version=2,
            group_id="g",
            member_epoch=-1,
            partitions=offsets(orders=9),
        )
        answer = await ask(nodes, methods.GROUPS_TXN_OFFSET_COMMIT, commits)
        assert not answer.partitions[0].HasField("error")
        storm = await ends([end("t", made, committed=number % 2 == 0) for number in range(100)])
        assert set(storm[::2]) <= {None, ConcurrentTransactions}
        assert set(storm[1::2]) == {InvalidTxnState}, "what was committed is never aborted"
        while await ends([end("t", made)]) != [None]:
            await MachineClock().sleep_ms(10)
        assert (await nodes.call(0, methods.GROUPS_OFFSET_FETCH, fetch())).partitions[0].offset == 9
        await unharmed()

    story(tmp_path, 1, steps, SETTINGS)


@pytest.mark.parametrize("kind", [GROUP, TRANSACTION], ids=["__consumer_offsets", "__transaction_state"])
def test_a_malformed_record_stops_its_partition_alone(
    tmp_path: Path, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes that are no record of a known type, appended through the storage layer. The log line names the partition,
    the offset and what to do; requests to the partition are refused with the same text."""

    async def steps(nodes: RealNodes) -> None:
        await create(nodes, "orders")
        keys = [next(key for key in map(str, range(99)) if partition_of(key, PARTITIONS) == at) for at in range(2)]
        for key in keys:
            await ask(nodes, methods.GROUPS_OFFSET_COMMIT, commit(key, orders=7), key)
            await ask(nodes, INIT, init(key), key, TRANSACTION)
        builder = RecordBatchBuilder()
        builder.append(key=b"\x00\x63what is this", value=b"\xff" * 20, timestamp=1_700_000_000_000)
        coordinator = coordinator_of(nodes, keys[0], kind)
        broken = coordinator.log.log_end_offset
        coordinator._leader.produce(
            builder.build(),
            origin=Origin.COORDINATOR,
            acks=Acks.ALL,
            deadline=Millis(1 << 60),
            done=lambda _info, _error: None,
        )
        await nodes.wait_until(lambda: coordinator.log.high_watermark > broken)
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_whole()
        await find(nodes, keys[0], kind)
        name = str(coordinator.name)

        def states() -> list[CoordinatorState]:
            runtime = runtime_of(nodes, kind)
            return [runtime.coordinator(each).state for each in runtime.partitions]

        await nodes.wait_until(lambda: len(found := states()) == PARTITIONS and CoordinatorState.LOADING not in found)
        assert sorted(state.value for state in states()) == ["active"] * (PARTITIONS - 1) + ["unreadable"]
        request: Any
        method: Any
        if kind == GROUP:
            request, method = fetch(keys[0]), methods.GROUPS_OFFSET_FETCH
            [found] = (await ask(nodes, methods.GROUPS_OFFSET_FETCH, fetch(keys[1]), keys[1])).partitions
            assert found.offset == 7
        else:
            request, method = init(keys[0]), INIT
            assert (await ask(nodes, INIT, init(keys[1]), keys[1], TRANSACTION)).producer_epoch == 1
        says = (f"{name}, batch at offset {broken}", "the others are not affected", "tidelog log dump")
        await refused(nodes, method, request, UnreadableCoordinatorRecord, *says)
        [line] = [line for line in caplog.messages if "serves nothing" in line]
        assert name in line
        assert "tidelog log dump" in line

    story(tmp_path, 1, steps, SETTINGS)
