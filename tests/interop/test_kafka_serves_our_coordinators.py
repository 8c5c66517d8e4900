"""A Kafka broker on directories that a node of ours has left: its coordinators load our groups and transactions, its
tools say of them what our own requests said, and its consumers see the transactions that were committed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from node.api.table import (
    GROUPS_CONSUMER_GROUP_HEARTBEAT,
    GROUPS_JOIN_GROUP,
    GROUPS_OFFSET_COMMIT,
    GROUPS_SYNC_GROUP,
)
from node.coordinator_settings import CoordinatorSettings, GroupSettings, TransactionSettings
from node.requests.context import RequestContext
from replication.controller import topics as controller_topics
from replication.controller.events import CreateTopic
from replication.controller.image import ClusterImage
from replication.controller.partition_limits import PartitionLimits
from replication.coordination import classic_requests as classic
from replication.coordination.coordinator_machine import Instant
from replication.coordination.group_records import GROUP_RECORDS, ClassicProtocol
from replication.coordination.group_requests import ConsumerGroupHeartbeat, OffsetCommit, OffsetToCommit
from replication.coordination.transaction_records import TRANSACTION_RECORDS
from replication.coordination.transaction_requests import ListTransactions, ListTransactionsAnswer
from replication.coordination.transactions.transaction_config import TransactionConfig
from replication.coordination.transactions.transaction_machine import TransactionMachine
from testbed.consumer_bytes import assigned, places_in, subscription
from tests.interop.coordinator_records import Printed, as_kafka_prints
from tests.interop.kafka_broker import Broker
from tests.interop.kafka_coordination import (
    console_output,
    described_transaction,
    end_transaction,
    group_members,
    group_offsets,
    group_states,
    internal_records,
    listed_transactions,
)
from tests.interop.kafka_dump import DECODERS, kafka_dump
from tests.interop.kafka_tools import dump_log_segments
from tests.node.real_coordinators import until_done
from tests.node.real_nodes import RealNodes, real_nodes
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.group_admin import GroupDescription, MemberDescription
from tidelog.client.producer import Producer
from tidelog.client.read_committed import IsolationName
from tidelog.client.transaction_admin import TransactionDescription
from tidelog.clock import MachineClock
from tidelog.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, RebalanceInProgress
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2, transactions_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import Record, build_batch, iter_batches
from tidelog.types import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    LeaderEpoch,
    Millis,
    Offset,
    PartitionIndex,
    TopicPartition,
)

pytestmark = pytest.mark.interop

TOPICS = ("orders", "copies")
COMPACTED = {"cleanup.policy": "compact"}
ONE_PARTITION = CoordinatorSettings(GroupSettings(partitions=1), TransactionSettings(partitions=1))
PLACES = {(topic, 0) for topic in TOPICS}
CALLER = RequestContext("client", "ipv4:127.0.0.1:5000", host="127.0.0.1", client_id="app")
LONG_MS = 1_800_000
"""The session of a classic member, whose client is this test."""
TIMEOUT_MS = 900_000
"""Of transactions: longer than the test."""

NOTHING_EXPIRES = {
    "group.consumer.session.timeout.ms": 60_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 600_000,
}
READERS, COPIERS = "readers", "copiers"
MOVING, RETURNED = "moving", "returned"
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
MEMBER = "member-1"


@dataclass
class Ours:
    """What our node said before it stopped."""

    groups: dict[str, GroupDescription]
    offsets: dict[str, dict[TopicPartition, int]]
    transactions: dict[str, TransactionDescription]
    read_committed: list[bytes]
    read_uncommitted: list[bytes]


# --- what our node writes -----------------------------------------------------------------------------------------


async def write(nodes: RealNodes) -> Ours:
    """Groups with and without members, and transactions that were committed, aborted, and left open."""
    at = str(nodes.addresses[0])
    async with Admin(at) as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, partitions=1, replication_factor=1)
        async with Producer(at) as plain:
            await plain.send("orders", b"before")
            await transact(at)
            await leave_open(nodes, (await admin.describe_topic("orders")).topic_id.bytes)
            await plain.send("orders", b"after")
        await join(nodes)
        await migrate(nodes)
        await admin.alter_group_offsets("simple", {("orders", 0): 1})
        listed = await admin.list_transactions()
        described = await admin.describe_transactions([each.transactional_id for each in listed])
        groups = await admin.describe_groups([each.group_id for each in await admin.list_groups()])
        offsets = {
            group: {key: int(found.offset) for key, found in (await admin.list_group_offsets(group)).items() if found}
            for group in groups
        }
    values = [await read(at, "read_committed"), await read(at, "read_uncommitted")]
    return Ours(_without_errors(groups), offsets, _without_errors(described), *values)


def _without_errors(found: dict[str, Any]) -> dict[str, Any]:
    assert not [each for each in found.values() if isinstance(each, Exception)], found
    return found


async def transact(at: str) -> None:
    """Two transactions of one producer, whose offsets are those of a group, and an aborted one of another."""
    async with Producer(at, transactional_id=COMMITTED, transaction_timeout_ms=TIMEOUT_MS) as producer:
        for number in range(2):
            async with producer.transaction() as transaction:
                await transaction.send("orders", b"committed %d" % number)
                await transaction.send("copies", b"copy %d" % number)
                await transaction.send_offsets({("orders", 0): number + 1}, COPIERS)
    async with Producer(at, transactional_id=ABORTED, transaction_timeout_ms=TIMEOUT_MS) as producer:
        transaction = producer.transaction()
        async with transaction:
            await transaction.send("orders", b"aborted")
            await transaction.send_offsets({("orders", 0): 77}, COPIERS)
            await transaction.abort()


async def leave_open(nodes: RealNodes, topic_id: bytes) -> None:
    """A transaction with a record that the producer never ends."""
    init = transactions_pb2.InitTransactionalProducerRequest(
        transactional_id=OPEN,
        transaction_timeout_ms=TIMEOUT_MS,
        producer_id=-1,
        producer_epoch=-1,
        transaction_version=2,
    )
    made = await until_done(nodes, nodes.addresses[0], methods.TRANSACTIONS_INIT_PRODUCER_ID, init)
    records = build_batch(
        [Record(Offset(0), Millis(1_700_000_000_000), None, b"open")],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    entry = ProduceBatch(correlation_id=1, topic_id=topic_id, partition=0, records=records)
    produce = ProduceRequest(
        acks=-1, timeout_ms=20_000, partitions=[entry], transactional_id=OPEN, transaction_version=2
    )
    await until_done(nodes, nodes.addresses[0], methods.DATA_PRODUCE, produce)


async def join(nodes: RealNodes) -> None:
    """A member of a group, with all partitions, that has committed an offset."""
    at = nodes.addresses[0]
    heartbeat = groups_pb2.ConsumerGroupHeartbeatRequest(
        group_id=READERS,
        member_id=MEMBER,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=groups_pb2.TopicNames(names=TOPICS),
        topic_partitions=groups_pb2.AssignedPartitions(),
        server_assignor="range",
    )
    owned = groups_pb2.AssignedPartitions()
    while len(owned.topics) < len(TOPICS):
        answer = await until_done(nodes, at, methods.GROUPS_CONSUMER_GROUP_HEARTBEAT, heartbeat)
        owned = answer.assignment if answer.HasField("assignment") else owned
        heartbeat = groups_pb2.ConsumerGroupHeartbeatRequest(
            group_id=READERS,
            member_id=MEMBER,
            member_epoch=answer.member_epoch,
            rebalance_timeout_ms=-1,
            topic_partitions=owned,
        )
    commit = groups_pb2.OffsetCommitRequest(
        group_id=READERS,
        member_id=MEMBER,
        member_epoch=answer.member_epoch,
        partitions=[groups_pb2.OffsetToCommit(topic="orders", partition=0, offset=2, leader_epoch=0, metadata="half")],
    )
    await until_done(nodes, at, methods.GROUPS_OFFSET_COMMIT, commit)


async def ask(nodes: RealNodes, api: Any, request: Any) -> Any:
    """What the coordinator answers a client of Kafka, once it coordinates."""
    while True:
        try:
            return await nodes.nodes[0].node.services[api.service].handler(api)(request, CALLER)
        except (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator, RebalanceInProgress):
            await MachineClock().sleep_ms(20)


async def migrate(nodes: RealNodes) -> None:
    """Two groups of the classic protocol that a member of KIP-848 has joined; the one of them it has left again."""
    for group in (MOVING, RETURNED):
        member_id = (await classic_join(nodes, group, "")).member_id
        joined = await classic_join(nodes, group, member_id)
        await classic_sync(nodes, group, joined, PLACES)
        new = ConsumerGroupHeartbeat(group, "new", 0, None, None, 60_000, TOPICS, topic_partitions=())
        answer = await ask(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, new)
        joined = await classic_join(nodes, group, member_id)
        has = await classic_sync(nodes, group, joined, set())
        assert len(has) == 1, "the other one is for the new member"
        while not answer.assignment:
            again = ConsumerGroupHeartbeat(group, "new", answer.member_epoch)
            answer = await ask(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, again)
        owned = ConsumerGroupHeartbeat(group, "new", answer.member_epoch, topic_partitions=answer.assignment)
        await ask(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, owned)
        if group == RETURNED:
            await ask(nodes, GROUPS_CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeat(group, "new", -1))
            while joined.leader != member_id:
                joined = await classic_join(nodes, group, member_id)
            assert await classic_sync(nodes, group, joined, PLACES) == PLACES
        commit = OffsetToCommit("orders", PartitionIndex(0), Offset(3), LeaderEpoch(0))
        request = OffsetCommit(group, member_id, joined.generation, None, (commit,))
        await ask(nodes, GROUPS_OFFSET_COMMIT, request)


async def classic_join(nodes: RealNodes, group: str, member_id: str) -> classic.JoinGroupAnswer:
    """Join with nothing, as an eager member."""
    protocols = (ClassicProtocol("range", subscription(TOPICS)),)
    request = classic.JoinGroup(group, member_id, None, "consumer", protocols, LONG_MS, LONG_MS)
    answer: classic.JoinGroupAnswer = await ask(nodes, GROUPS_JOIN_GROUP, request)
    return answer


async def classic_sync(
    nodes: RealNodes, group: str, joined: classic.JoinGroupAnswer, places: set[tuple[str, int]]
) -> set[tuple[str, int]]:
    """Ask for the assignment; as the leader, bring it."""
    assignments = (classic.MemberAssignment(joined.member_id, assigned(places)),) if places else ()
    request = classic.SyncGroup(
        group, joined.member_id, joined.generation, None, "consumer", joined.protocol, assignments
    )
    return places_in((await ask(nodes, GROUPS_SYNC_GROUP, request)).assignment)


async def read(at: str, isolation: IsolationName) -> list[bytes]:
    """The values of a topic that a consumer of ours sees."""
    async with Consumer(at, isolation=isolation) as consumer:
        consumer.assign([("orders", 0)])
        return [record.value or b"" for record in await consumer.poll(timeout=2.0)]


# --- the broker that takes over -----------------------------------------------------------------------------------


@dataclass
class Theatre:
    """A stopped broker with our partition directories, and what our node said of them."""

    broker: Broker
    ours: Ours
    directory: Path


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    home = tmp_path_factory.mktemp("coordinators")
    (home / "broker").mkdir()
    broker = Broker(home / "broker", NOTHING_EXPIRES)
    broker.start()
    ids = broker.create_topics({topic: {} for topic in TOPICS})
    ids |= broker.create_topics(dict.fromkeys((OFFSETS_TOPIC, TRANSACTIONS_TOPIC), COMPACTED))
    broker.stop()

    async def story() -> Ours:
        async with real_nodes(home, coordinators=ONE_PARTITION) as nodes:
            ours = await write(nodes)
            await nodes.stop(0)
            return ours

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(controller_topics, "records_of", chosen_ids(ids))
        ours = asyncio.run(story())
    directory = home / "node-0"
    broker.mount(directory, [f"{topic}-0" for topic in ids])
    broker.start()
    yield Theatre(broker, ours, directory)
    broker.kill()


def chosen_ids(ids: dict[str, UUID]) -> Any:
    """`records_of` with the topic ids that the broker has assigned: assignments name topics by id."""
    records_of = controller_topics.records_of

    def with_these(image: ClusterImage, request: CreateTopic, rng: Random, limits: PartitionLimits) -> Any:
        class First(Random):
            def getrandbits(self, bits: int, /) -> int:
                return ids[request.name].int if bits == 128 else rng.getrandbits(bits)

        return records_of(image, request, First(), limits)

    return with_these


def our_records(directory: Path, topic: str) -> list[Printed]:
    """The records of an internal topic, as Kafka's tool would print them."""
    decode: Any = GROUP_RECORDS.decode if topic == OFFSETS_TOPIC else TRANSACTION_RECORDS.decode
    return [
        as_kafka_prints(decode(record.key, record.value), record.key, record.value)
        for batch in iter_batches((directory / f"{topic}-0/00000000000000000000.log").read_bytes())
        if not batch.is_control
        for record in batch.records()
        if record.key is not None
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("topic", DECODERS)
def test_kafkas_dump_tool_reads_the_internal_topics(theatre: Theatre, topic: str) -> None:
    expected = our_records(theatre.directory, topic)
    assert len(expected) > 6
    assert kafka_dump(theatre.directory, topic) == expected


@pytest.mark.timeout(600)
@pytest.mark.parametrize("suffix", [".log", ".snapshot"])
def test_kafkas_dump_tool_complains_of_nothing(theatre: Theatre, suffix: str) -> None:
    """Of the topics of clients and coordinators; the metadata log has records of our own."""
    topics = (*TOPICS, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
    files = [
        path.relative_to(theatre.directory)
        for topic in topics
        for path in theatre.directory.glob(f"{topic}-0/*{suffix}")
    ]
    assert len(files) >= len(topics)
    assert dump_log_segments(theatre.directory, map(str, files), "--deep-iteration").complaints == []


@pytest.mark.timeout(600)
def test_kafkas_group_tool_says_what_we_said(theatre: Theatre) -> None:
    address, ours = theatre.broker.address, theatre.ours
    states = {group: (each.state, len(each.members)) for group, each in ours.groups.items()}
    assert states == {
        READERS: ("Stable", 1),
        COPIERS: ("Empty", 0),
        "simple": ("Empty", 0),
        MOVING: ("Stable", 2),
        RETURNED: ("Stable", 1),
    }
    assert group_states(address) == states
    assert group_offsets(address) == ours.offsets
    [member] = ours.groups[READERS].members
    assert assignment_of(member) == "copies:0;orders:0"
    for group in (READERS, MOVING):
        members = {each.member_id: each for each in ours.groups[group].members}
        rows = {row["CONSUMER-ID"]: row for row in group_members(address, group)}
        assert rows.keys() == members.keys()
        for member_id, each in members.items():
            said = {
                "HOST": each.client_host,
                "CLIENT-ID": each.client_id,
                "#PARTITIONS": str(len(each.assignment)),
                "CURRENT-EPOCH": str(each.member_epoch),
                "CURRENT-ASSIGNMENT": assignment_of(each),
                "TARGET-EPOCH": str(ours.groups[group].assignment_epoch),
                "TARGET-ASSIGNMENT": assignment_of(each),
            }
            assert said.items() <= rows[member_id].items()
    [returned], [row] = ours.groups[RETURNED].members, group_members(address, RETURNED)
    assert (row["CONSUMER-ID"], row["#PARTITIONS"]) == (returned.member_id, "2"), "as a classic group"


def assignment_of(member: MemberDescription) -> str:
    """As Kafka's tool writes it."""
    return ";".join(f"{at.topic}:{at.partition}" for at in member.assignment)


@pytest.mark.timeout(600)
def test_kafkas_formatters_print_the_internal_topics(theatre: Theatre) -> None:
    """The formatters of the console consumer. Offsets of transactions are among them only once they are committed."""
    address = theatre.broker.address
    decoded = our_records(theatre.directory, TRANSACTIONS_TOPIC)
    assert internal_records(address, TRANSACTIONS_TOPIC, "TransactionLogMessageFormatter") == [
        printed for printed in decoded if printed.value is not None
    ]
    offsets = [
        printed
        for printed in our_records(theatre.directory, OFFSETS_TOPIC)
        if printed.key["type"] == "1" and printed.value is not None
    ]
    assert internal_records(address, OFFSETS_TOPIC, "OffsetsMessageFormatter") == offsets


@pytest.mark.timeout(600)
def test_kafkas_transaction_tool_says_what_we_said(theatre: Theatre) -> None:
    address, ours = theatre.broker.address, theatre.ours.transactions
    assert {name: each.state for name, each in ours.items()} == {
        COMMITTED: "CompleteCommit",
        ABORTED: "CompleteAbort",
        OPEN: "Ongoing",
    }
    assert listed_transactions(address) == {name: (each.producer_id, each.state) for name, each in ours.items()}
    for name, each in ours.items():
        started = {"CurrentTransactionStartTimeMs": str(each.start_ms)} if each.state == "Ongoing" else {}
        said = {
            "ProducerId": str(each.producer_id),
            "ProducerEpoch": str(each.producer_epoch),
            "TransactionState": each.state,
            "TransactionTimeoutMs": str(each.transaction_timeout_ms),
            "TopicPartitions": ",".join(f"{at.topic}-{at.partition}" for at in each.partitions),
            **started,
        }
        assert said.items() <= described_transaction(address, name).items()


@pytest.mark.timeout(600)
def test_a_java_consumer_sees_what_was_committed_and_kafka_ends_what_we_left_open(theatre: Theatre) -> None:
    """Last: it changes the transactions."""
    address, ours = theatre.broker.address, theatre.ours
    assert ours.read_committed == [b"before", b"committed 0", b"committed 1"]
    assert ours.read_uncommitted == [*ours.read_committed, b"aborted", b"open", b"after"]
    assert values(address, "read_committed") == ours.read_committed
    assert values(address, "read_uncommitted") == ours.read_uncommitted
    end_transaction(address, OPEN)
    assert values(address, "read_committed") == [*ours.read_committed, b"after"]
    said = listed_transactions(address)
    theatre.broker.stop()
    assert said[OPEN][1] == "Empty"
    assert transactions_in(theatre.broker.directory) == said, "what Kafka has added loads here again"


def transactions_in(directory: Path) -> dict[str, tuple[int, str]]:
    """Producer id and state of each transactional id, as our coordinator has them that has loaded this directory."""
    machine = TransactionMachine(TransactionConfig())
    for batch in iter_batches((directory / f"{TRANSACTIONS_TOPIC}-0/00000000000000000000.log").read_bytes()):
        for record in batch.records():
            machine.apply(TRANSACTION_RECORDS.decode(record.key, record.value), record.offset, None)
    listed = machine.handle(ListTransactions(), Instant(Millis(0), Millis(0))).answer
    assert isinstance(listed, ListTransactionsAnswer)
    return {each.transactional_id: (each.producer_id, each.state) for each in listed.transactions}


def values(address: str, isolation: str) -> list[bytes]:
    """What Kafka's console consumer prints."""
    return console_output(address, "orders", isolation).encode().splitlines()
