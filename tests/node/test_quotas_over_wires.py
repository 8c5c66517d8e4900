"""Client quotas over real connections: who is delayed, who is not, and what ends a delay.

The quotas have a clock of their own here, which stands still unless a story moves it. The clock of the request meters
also moves by a millisecond with each look at it, so all requests take time.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from node.boundary.boundary import Boundary
from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas
from node.requests.gate import Gate
from testbed.message_bytes import bytes_of
from testbed.topic_requests import changed, creating
from tests.client.memory_cluster import start, until
from tests.node.boundary_world import Data, batch, create_topic, entry, fetch, listener, produce
from tests.node.coordinator_requests import ask, beat, commit, join
from tests.node.message_services import messages_of
from tests.node.nanoseconds import Nanoseconds
from tests.node.real_nodes import CALL_MS, START_S, RealNodes, real_nodes
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import ConnectionLost, NodeShuttingDown, NotLeaderOrFollower, ThrottlingQuotaExceeded
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.status import from_proto
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.types import PartitionIndex, PartitionKey, QuotaEntity, QuotaType, TopicId

PRODUCE, FETCH = QuotaType.PRODUCER_BYTE_RATE.value, QuotaType.CONSUMER_BYTE_RATE.value
REQUEST, MUTATION = QuotaType.REQUEST_PERCENTAGE.value, QuotaType.CONTROLLER_MUTATION_RATE.value
GREEDY = QuotaEntity(None, "greedy")
LARGE = b"x" * 200_000
"""Exceeds a window of 11 seconds of each limit of these stories."""


@dataclass
class Cluster:
    """Real nodes, a clock for their quotas, and transports of clients by their client id."""

    nodes: RealNodes
    transports: dict[str, GrpcTransport]
    now: int = 1_000_000

    def client(self, client_id: str) -> GrpcTransport:
        if client_id not in self.transports:
            self.transports[client_id] = GrpcTransport(client_id=client_id)
        return self.transports[client_id]

    def quotas(self, number: int = 0) -> Quotas:
        return self.nodes.nodes[number].boundary.quotas

    async def set(self, entity: QuotaEntity, **limits: float | None) -> None:
        """Change quotas; returns when all nodes apply them."""
        async with Admin(str(self.nodes.addresses[0]), client_id="operator") as admin:
            await admin.alter_client_quotas({entity: limits})
            wanted = await admin.describe_client_quotas()
        expected = {found: {QuotaType(key): value for key, value in each.items()} for found, each in wanted.items()}
        await self.nodes.wait_until(
            lambda: all(each.boundary.quotas.limits._limits == expected for each in self.nodes.nodes.values())
        )

    def pass_time(self, ms: int) -> None:
        """Move the clock of the quotas; every wait looks at it."""
        self.now += ms
        for each in self.nodes.nodes.values():
            each.boundary.quotas.wake()

    async def open(self, client_id: str, method: Any, number: int = 0) -> Any:
        return await self.client(client_id).open_stream(self.nodes.addresses[number], method)


@asynccontextmanager
async def cluster(home: Path, count: int = 1) -> AsyncIterator[Cluster]:
    nodes = RealNodes(home, count)
    made = Cluster(nodes, {})
    nodes.now_ms = lambda: made.now
    looks = itertools.count()
    nodes.now_ns = lambda: (made.now + next(looks)) * 1_000_000
    try:
        for number in range(count):
            await nodes.start(number)
        await nodes.wait_whole()
        yield made
    finally:
        for transport in made.transports.values():
            await transport.close()
        await nodes.kill_all()


async def test_nothing_is_read_of_a_producer_above_its_quota_while_others_are_answered(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.set(GREEDY, **{PRODUCE: 10_000})
        greedy = await made.open("greedy", methods.DATA_PRODUCE_STREAM)
        await greedy.send(produce(entry(topic_id, batch(LARGE))))
        answer = await greedy.receive()
        assert not answer.partitions[0].HasField("error"), "what was read is appended and answered at once"
        assert answer.throttle_time_ms == pytest.approx(9_000, abs=50), "200 kB less 11 s of 10 kB"

        read = made.nodes.nodes[0].meters.of("Data.ProduceStream")
        before = read.request_bytes
        await greedy.send(produce(entry(topic_id, batch(b"second"), batch_id=2)))
        await made.nodes.wait_until(lambda: made.quotas().waiting == 1)
        polite = await made.open("polite", methods.DATA_PRODUCE_STREAM)
        for number in range(3, 30):
            await polite.send(produce(entry(topic_id, batch(b"polite"), batch_id=number)))
            assert (await polite.receive()).throttle_time_ms == 0
        polite_bytes = 27 * len(bytes_of(produce(entry(topic_id, batch(b"polite"), batch_id=3))))
        assert read.request_bytes - before == polite_bytes
        assert [each.named for each in made.quotas().limits.throttled(9)] == [GREEDY]

        made.pass_time(answer.throttle_time_ms)
        assert (await greedy.receive()).partitions[0].batch_id == 2


async def test_nothing_more_is_sent_to_a_consumer_above_its_quota_until_the_quota_is_raised(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.nodes.call(0, methods.DATA_PRODUCE, produce(entry(topic_id, batch(LARGE))))
        await made.set(GREEDY, **{FETCH: 1_000})
        reader = await made.open("greedy", methods.DATA_FETCH_STREAM)
        await reader.send(fetch(topic_id, 0))
        first = await reader.receive()
        assert len(first.partitions[0].records) > len(LARGE)
        assert first.throttle_time_ms > 180_000

        await reader.send(fetch(topic_id, 0))
        await made.nodes.wait_until(lambda: made.quotas().waiting == 2)  # to read, and to send
        other = await made.open("polite", methods.DATA_FETCH_STREAM)
        await other.send(fetch(topic_id, 0))
        assert (await other.receive()).throttle_time_ms == 0

        await made.set(GREEDY, **{FETCH: None})
        assert len((await reader.receive()).partitions[0].records) > len(LARGE)
        assert made.quotas().limits.tracked == 0


async def test_replication_is_not_delayed_by_an_exhausted_quota_of_everyone(tmp_path: Path) -> None:
    """Followers fetch as the same user as clients without authentication, and also after a restart."""
    async with cluster(tmp_path, 3) as made:
        request = creating(name="orders", partitions=1, replication_factor=3, configs={"min.insync.replicas": "3"})
        topic_id = changed(await made.nodes.call(0, methods.ADMIN_CREATE_TOPICS, request)).topic_id
        await made.set(QuotaEntity("", None), **{FETCH: 1})

        def leader() -> int:
            image = made.nodes.nodes[0].node.image
            assert image is not None
            state = image.partition(PartitionKey(TopicId(UUID(bytes=topic_id)), PartitionIndex(0)))
            assert state is not None
            return int(state.leader) if len(state.isr) == 3 else -1

        async def produce_to_all() -> None:
            """The node that the image names may not have its log yet: as clients do, send again until it leads."""
            async with asyncio.timeout(START_S):
                while True:
                    await made.nodes.wait_until(lambda: leader() >= 0)
                    stream = await made.open("", methods.DATA_PRODUCE_STREAM, leader())
                    await stream.send(produce(entry(topic_id, batch(LARGE))))
                    (outcome,) = (await stream.receive()).partitions
                    stream.close()
                    if not outcome.HasField("error"):
                        return
                    assert isinstance(from_proto(outcome.error), NotLeaderOrFollower)

        await produce_to_all()
        reader = await made.open("", methods.DATA_FETCH_STREAM, leader())
        await reader.send(fetch(topic_id, 0))
        assert (await reader.receive()).throttle_time_ms > 0, "clients wait"
        follower = next(number for number in made.nodes.nodes if number not in (0, leader()))
        await made.nodes.stop(follower)
        await made.nodes.start(follower)
        await produce_to_all()


async def test_a_call_waits_for_its_turn_and_is_refused_if_its_caller_does_not_wait_that_long(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.set(GREEDY, **{PRODUCE: 10_000})
        address, greedy = made.nodes.addresses[0], made.client("greedy")
        large = produce(entry(topic_id, batch(LARGE)))
        answer = await greedy.call(address, methods.DATA_PRODUCE, large, timeout_ms=CALL_MS)
        assert answer.throttle_time_ms > 8_000
        with pytest.raises(ThrottlingQuotaExceeded, match=r"client id 'greedy' must wait .* waits for") as refused:
            await greedy.call(address, methods.DATA_PRODUCE, large, timeout_ms=5_000)
        assert refused.value.throttle_time_ms == answer.throttle_time_ms
        waiting = start(greedy.call(address, methods.DATA_PRODUCE, large, timeout_ms=CALL_MS))
        await made.nodes.wait_until(lambda: made.quotas().delayed_bytes > len(LARGE))
        made.pass_time(answer.throttle_time_ms - 1)
        await made.nodes.wait_until(lambda: made.quotas().waiting == 1)
        made.pass_time(1)
        assert (await waiting).throttle_time_ms == pytest.approx(20_000, abs=200)
        assert (made.quotas().delayed_bytes, made.quotas().waiting) == (0, 0)
        meter = made.nodes.nodes[0].meters.of("Data.Produce")
        assert meter.local_ns + meter.remote_ns < 1_000_000_000, "the wait is no time of the request"


async def test_each_call_that_waits_has_a_turn_of_its_own(tmp_path: Path) -> None:
    """Otherwise all would be let through at the end of the first one's wait."""
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.set(GREEDY, **{PRODUCE: 200_000})
        address, greedy = made.nodes.addresses[0], made.client("greedy")
        request = produce(entry(topic_id, batch(LARGE)))

        def call() -> asyncio.Task[data_pb2.ProduceResponse]:
            return start(greedy.call(address, methods.DATA_PRODUCE, request, timeout_ms=CALL_MS))

        for _ in range(11):
            await call()
        calls = []
        for number in range(1, 4):
            calls.append(call())
            await made.nodes.wait_until(lambda: made.quotas().waiting == number)  # noqa: B023
        for number, each in enumerate(calls, 1):
            made.pass_time(20 if number == 1 else 1_000)  # a request is a little larger than its record
            await each
            await made.nodes.wait_until(lambda: made.quotas().waiting == 3 - number)  # noqa: B023


async def test_a_call_that_its_caller_abandons_is_charged(tmp_path: Path) -> None:
    """Otherwise a client that never waits for an answer had no limit of its request time."""
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.set(GREEDY, **{REQUEST: 0.001})
        asked = fetch(topic_id, 0, max_wait_ms=60_000)
        address, greedy = made.nodes.addresses[0], made.client("greedy")
        meter = made.nodes.nodes[0].meters.of("Data.Fetch")
        call = start(greedy.call(address, methods.DATA_FETCH, asked, timeout_ms=CALL_MS))
        await made.nodes.wait_until(lambda: meter.request_bytes > 0)
        call.cancel()
        await made.nodes.wait_until(lambda: bool(made.quotas().limits.throttled(1)))


async def test_calls_that_wait_occupy_a_bounded_amount_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node.quotas.throttle.DELAYED_BYTES_MAX", 600_000)
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.set(GREEDY, **{PRODUCE: 10_000})
        address, greedy = made.nodes.addresses[0], made.client("greedy")
        large = produce(entry(topic_id, batch(LARGE)))
        answer = await greedy.call(address, methods.DATA_PRODUCE, large, timeout_ms=CALL_MS)
        waiting = start(greedy.call(address, methods.DATA_PRODUCE, large, timeout_ms=CALL_MS))
        await made.nodes.wait_until(lambda: made.quotas().waiting == 1)
        with pytest.raises(ThrottlingQuotaExceeded, match=r"those of calls that wait already, \d{6}, are too many"):
            await greedy.call(address, methods.DATA_PRODUCE, large, timeout_ms=60_000)
        waiting.cancel()
        await made.nodes.wait_until(lambda: made.quotas().delayed_bytes == 0)
        (throttled,) = made.quotas().limits.throttled(9)
        assert throttled.wait_ms == answer.throttle_time_ms, "calls that were not handled are not charged"


async def test_a_node_that_stops_refuses_the_calls_that_wait_and_ends_the_streams(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.set(GREEDY, **{PRODUCE: 100})
        address, greedy = made.nodes.addresses[0], made.client("greedy")
        stream = await made.open("greedy", methods.DATA_PRODUCE_STREAM)
        await stream.send(produce(entry(topic_id, batch(LARGE))))
        assert (await stream.receive()).throttle_time_ms > 0
        metadata = data_pb2.ListOffsetsRequest()
        await greedy.call(address, methods.DATA_LIST_OFFSETS, metadata, timeout_ms=CALL_MS)
        small = produce(entry(topic_id, batch(b"x")))
        waiting = start(greedy.call(address, methods.DATA_PRODUCE, small, timeout_ms=3_600_000))
        await made.nodes.wait_until(lambda: made.quotas().waiting == 2)
        await made.nodes.stop(0)
        with pytest.raises(NodeShuttingDown):
            await waiting
        with pytest.raises((NodeShuttingDown, ConnectionLost)):
            await stream.receive()


async def test_request_time_of_a_client_is_limited_and_its_wait_is_one_window_at_most(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.set(GREEDY, **{REQUEST: 0.001})
        address, greedy = made.nodes.addresses[0], made.client("greedy")
        request = admin_pb2.GetMetadataRequest(all_topics=True)
        while not made.quotas().limits.throttled(1):
            await greedy.call(address, methods.ADMIN_GET_METADATA, request, timeout_ms=CALL_MS)
        (throttled,) = made.quotas().limits.throttled(1)
        assert (throttled.quota, throttled.named) == (QuotaType.REQUEST_PERCENTAGE, GREEDY)
        assert throttled.wait_ms <= 11_000
        waiting = start(greedy.call(address, methods.ADMIN_GET_METADATA, request, timeout_ms=CALL_MS))
        await made.nodes.wait_until(lambda: made.quotas().waiting == 1)
        made.pass_time(11_000)
        await waiting


async def test_members_are_not_delayed_by_a_quota_of_their_fetches_and_learn_of_their_own(tmp_path: Path) -> None:
    """Trap 13: a quota delays the requests that it counts, and no answer. A member that reads too much keeps its
    membership, and commits; one with too many requests is answered at once, and the answer says how long to wait."""
    async with cluster(tmp_path) as made:
        topic_id = await create_topic(made.nodes)
        await made.nodes.call(0, methods.DATA_PRODUCE, produce(entry(topic_id, batch(LARGE))))
        at, greedy = made.nodes.addresses[0], made.client("greedy")
        await ask(made.nodes, methods.GROUPS_OFFSET_COMMIT, commit("g", orders=0))
        await made.set(GREEDY, **{FETCH: 1_000})
        reader = await made.open("greedy", methods.DATA_FETCH_STREAM)
        await reader.send(fetch(topic_id, 0))
        assert (await reader.receive()).throttle_time_ms > 180_000

        beating = methods.GROUPS_CONSUMER_GROUP_HEARTBEAT
        member = await greedy.call(at, beating, join("g", "one", "orders"), timeout_ms=CALL_MS)
        committing = commit("g", orders=1)
        committing.member_id, committing.member_epoch = "one", member.member_epoch
        committed = await greedy.call(at, methods.GROUPS_OFFSET_COMMIT, committing, timeout_ms=CALL_MS)
        assert (member.throttle_time_ms, committed.throttle_time_ms) == (0, 0)
        assert not committed.partitions[0].HasField("error")

        await made.set(GREEDY, **{FETCH: None, REQUEST: 0.001})
        throttled = 0
        while not throttled:
            answer = await greedy.call(at, beating, beat(member, "g"), timeout_ms=CALL_MS)
            assert answer.member_epoch == member.member_epoch
            throttled = answer.throttle_time_ms
        waiting = start(greedy.call(at, beating, beat(member, "g"), timeout_ms=CALL_MS))
        await made.nodes.wait_until(lambda: made.quotas().waiting == 1)
        made.pass_time(throttled)
        assert (await waiting).member_epoch == member.member_epoch


async def test_an_administrator_above_its_mutation_quota_is_told_when_to_try_again_and_does(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as made:
        await made.set(GREEDY, **{MUTATION: 1})
        bootstrap = str(made.nodes.addresses[0])
        async with Admin(bootstrap, client_id="greedy", request_timeout_ms=1_000) as impatient:
            await impatient.create_topic("first", partitions=15, replication_factor=1)
            with pytest.raises(ThrottlingQuotaExceeded, match="controller_mutation_rate=1 is exceeded") as refused:
                await impatient.create_topic("second", partitions=1, replication_factor=1)
            assert refused.value.throttle_time_ms == 4_000
            await impatient.create_topic("third", partitions=1, replication_factor=1, validate_only=True)
            assert [topic.name for topic in await impatient.list_topics()] == ["first"]
        async with Admin(bootstrap, client_id="greedy") as patient:
            made.now += 3_900
            second = start(patient.create_topic("second", partitions=1, replication_factor=1))
            refusals = made.quotas().limits.totals[QuotaType.CONTROLLER_MUTATION_RATE]
            await made.nodes.wait_until(lambda: refusals.exceeded == 3)
            made.now += 100
            await second


async def test_quotas_survive_a_restart_of_all_nodes(tmp_path: Path) -> None:
    async with cluster(tmp_path, 3) as made:
        await made.set(QuotaEntity("alice", ""), **{PRODUCE: 1_048_576, REQUEST: 12.5})
        await made.set(GREEDY, **{FETCH: 1_000})
        await made.set(QuotaEntity("", None), **{MUTATION: 5})
        await made.set(GREEDY, **{FETCH: None})
        await made.nodes.kill_all()
        for number in range(3):
            await made.nodes.start(number)
        await made.nodes.wait_whole()
        async with Admin(str(made.nodes.addresses[2])) as admin:
            found = await admin.describe_client_quotas()
            assert found == {
                QuotaEntity("", None): {MUTATION: 5},
                QuotaEntity("alice", ""): {PRODUCE: 1_048_576, REQUEST: 12.5},
            }
            assert list(await admin.describe_client_quotas(user="alice")) == [QuotaEntity("alice", "")]
            assert await admin.describe_client_quotas(client_id="greedy") == {}
        assert all(made.quotas(number).enabled for number in range(3))


async def test_open_calls_of_an_address_are_limited_and_counted_until_they_end() -> None:
    boundary = Boundary(calls=OpenCalls(per_ip=2))
    async with listener(Gate("Data", Data(Nanoseconds())), boundary, messages_of) as (transport, address):
        streams: list[Any] = []
        for _ in range(2):
            streams.append(await transport.open_stream(address, methods.DATA_PRODUCE_STREAM))
            await streams[-1].send(produce())
            await streams[-1].receive()
        with pytest.raises(ThrottlingQuotaExceeded, match=r"max\.open\.calls\.per\.ip is 2"):
            await transport.call(address, methods.DATA_PRODUCE, produce(), timeout_ms=CALL_MS)
        with pytest.raises(ThrottlingQuotaExceeded):
            await (await transport.open_stream(address, methods.DATA_PRODUCE_STREAM)).receive()
        streams.pop().close()
        async with asyncio.timeout(CALL_MS / 1_000):
            await until(lambda: boundary.calls._by_ip == {"127.0.0.1": 1})
        await transport.call(address, methods.DATA_PRODUCE, produce(), timeout_ms=CALL_MS)
        assert boundary.calls.refused == 2


async def test_without_quotas_nothing_is_tracked(tmp_path: Path) -> None:
    async with real_nodes(tmp_path) as nodes:
        topic_id = await create_topic(nodes)
        await nodes.call(0, methods.DATA_PRODUCE, produce(entry(topic_id, batch(LARGE))))
        quotas = nodes.nodes[0].boundary.quotas
        assert (quotas.enabled, quotas.limits.tracked) == (False, 0)


async def test_clients_wait_for_their_quota_without_a_timeout_and_get_everything_once(tmp_path: Path) -> None:
    """The timeouts of requests are shorter than the waits of a second. The quotas have the machine's clock here."""
    async with real_nodes(tmp_path) as nodes:
        await create_topic(nodes)
        bootstrap, quotas = str(nodes.addresses[0]), nodes.nodes[0].boundary.quotas
        async with Admin(bootstrap) as admin:
            await admin.alter_client_quotas({GREEDY: {PRODUCE: 100_000, FETCH: 100_000}})
        values = [bytes([number]) * 100_000 for number in range(13)]
        async with Producer(bootstrap, client_id="greedy", request_timeout_ms=700, linger_ms=0) as producer:
            await producer.partitions("orders")
            deliveries = [producer.send_nowait("orders", value) for value in values]
            for delivery in deliveries:
                await delivery
        sent = nodes.nodes[0].meters.of("Data.ProduceStream").request_bytes
        assert sent < 14 * 100_000, "nothing was sent again"
        async with Consumer(
            bootstrap, client_id="greedy", request_timeout_ms=700, max_wait_ms=50, fetch_bytes=100_000
        ) as consumer:
            consumer.assign([("orders", 0)])
            read: list[bytes | None] = []
            while len(read) < len(values):
                read += [record.value for record in await consumer.poll()]
        assert read == values
        answered = nodes.nodes[0].meters.of("Data.FetchStream").response_bytes
        assert answered < 15 * 100_000, "nothing was fetched in vain"
        for quota in (QuotaType.PRODUCER_BYTE_RATE, QuotaType.CONSUMER_BYTE_RATE):
            assert quotas.limits.totals[quota].exceeded > 0
