"""Arguments are checked before they are used: an invalid argument is rejected with a message that names the value and
the valid values, and the client stays usable."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor  # noqa: TID251 - threads are what a story is about
from inspect import signature
from threading import Event
from typing import Any

import pytest

from tests.client.memory_cluster import memory_cluster, start
from tidelog import sync
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.delivery import SendResult
from tidelog.client.kafka_options import ELSEWHERE, RENAMED
from tidelog.client.machine import LoopThread
from tidelog.client.producer import Producer
from tidelog.errors import (
    InvalidConfig,
    InvalidRecord,
    InvalidRequest,
    InvalidTimestamp,
    InvalidTopic,
    UnknownTopicOrPartition,
)
from tidelog.records import RecordBatch, RecordBatchBuilder
from tidelog.types import INT32_MAX, INT64_MAX, Millis, PartitionIndex, TopicPartition


class Number:
    """An integer of another library."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


WRONG_RECORDS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"topic": None}, TypeError, "topic must be a str, the name of a topic, not NoneType: None"),
    ({"topic": b"orders"}, TypeError, "topic must be a str, the name of a topic, not bytes: b'orders'"),
    ({"topic": ["orders"]}, TypeError, "topic must be a str, the name of a topic, not list"),
    ({"topic": ""}, InvalidTopic, "the topic name '' is not allowed: use 1 to 249 of"),
    ({"topic": "or/ders"}, InvalidTopic, "'or/ders' is not allowed"),
    ({"topic": "\udc80"}, InvalidTopic, "is not allowed"),
    ({"value": "text"}, TypeError, "value must be bytes or None, not str: encode it first"),
    ({"key": 5}, TypeError, "key must be bytes or None, not int"),
    (
        {"headers": {"name": b""}},
        TypeError,
        "headers must be (name, value) pairs, for example a list of them, not dict",
    ),
    ({"headers": "name"}, TypeError, "headers must be (name, value) pairs, for example a list of them, not str"),
    ({"headers": None}, TypeError, "headers must be (name, value) pairs, for example a list of them, not NoneType"),
    ({"headers": 5}, TypeError, "headers must be (name, value) pairs, for example a list of them, not int"),
    ({"headers": ["name"]}, TypeError, "a record header must be a (name, value) pair, not str: 'name'"),
    ({"headers": [("name",)]}, TypeError, "a record header must be a (name, value) pair, not tuple: ('name',)"),
    ({"headers": [(b"name", b"")]}, TypeError, "the name of a record header must be a str, not bytes: b'name'"),
    ({"headers": [("name", "text")]}, TypeError, "the value of a record header must be bytes or None, not str"),
    ({"headers": [("\ud800", b"")]}, InvalidRecord, "cannot be encoded as UTF-8"),
    (
        {"timestamp": 1.7e12},
        TypeError,
        "timestamp must be a whole number of milliseconds since 1970 (int) or None for now",
    ),
    ({"timestamp": "now"}, TypeError, "not str: 'now'"),
    ({"timestamp": True}, TypeError, "not bool: True"),
    (
        {"timestamp": 1_764_374_400},
        InvalidTimestamp,
        "timestamp 1764374400 can only be seconds since 1970: use milliseconds, int(time.time() * 1000) for now",
    ),
    ({"timestamp": -5}, InvalidTimestamp, "timestamp -5: use milliseconds since 1970, None (now) or -1 (none)"),
    ({"timestamp": INT64_MAX + 1}, InvalidTimestamp, "use milliseconds since 1970"),
    ({"partition": "0"}, TypeError, "partition must be a whole number (int), not str: '0'"),
    ({"partition": 0.0}, TypeError, "partition must be a whole number (int), not float: 0.0"),
    ({"partition": False}, TypeError, "partition must be a whole number (int), not bool: False"),
    ({"partition": -1}, UnknownTopicOrPartition, "partition -1 does not exist: partition numbers are 0 to"),
    ({"partition": 1}, UnknownTopicOrPartition, "topic 'orders' has partitions 0 to 0; partition 1 does not exist"),
]


@pytest.mark.parametrize(("wrong", "error", "says"), WRONG_RECORDS, ids=lambda each: str(each)[:40])
@pytest.mark.usefixtures("no_lag")
async def test_an_invalid_record_is_rejected_and_affects_no_other(
    wrong: dict[str, Any], error: type[Exception], says: str
) -> None:
    """For each way of sending, with the topic known and unknown: a record that waits is still sent."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=60_000, max_block_ms=2_000) as producer:
            record = {"topic": "orders", "value": b"wrong"} | wrong
            with pytest.raises(error, match=re.escape(says)):
                await producer.enqueue(**record)
            queued = await producer.enqueue("orders", b"right")
            for ways in (producer.enqueue, producer.send):
                with pytest.raises(error, match=re.escape(says)):
                    await ways(**record)
            with pytest.raises(error, match=re.escape(says)):
                producer.send_nowait(**record)
            await producer.flush()
            assert (await queued).offset == 0
        assert cluster.values("orders") == [b"right"]


async def test_unusual_but_valid_arguments_are_accepted() -> None:
    class Name(str):
        __slots__ = ()

    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            number: Any = Number(0)
            for _ in range(2):  # the topic is not known yet, and known
                sent = await producer.send(
                    Name("orders"),
                    memoryview(b"value"),
                    bytearray(b"key"),
                    (pair for pair in [["\udcff", b"1"]]),  # type: ignore[misc]
                    number,
                    Number(77),  # type: ignore[arg-type]
                )
                assert (sent.partition, sent.timestamp) == (0, 77)
        for batch in cluster.topics["orders"].partitions[0].batches:
            record = next(RecordBatch(batch).records())
            assert (record.key, record.value, record.headers) == (b"key", b"value", (("\udcff", b"1"),))


async def test_headers_from_an_iterator_survive_waiting_for_memory() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=1_500) as producer:
            await producer.partitions("orders")
            await asyncio.gather(
                *(
                    start(producer.send("orders", b"." * 900, headers=(pair for pair in [("n", b"1")])))
                    for _ in range(5)
                )
            )
        for batch in cluster.topics["orders"].partitions[0].batches:
            assert [record.headers for record in RecordBatch(batch).records()] == [(("n", b"1"),)]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_an_error_while_a_batch_is_built_fails_the_record_that_caused_it(
    idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other record of this batch and of later ones is written once, in order, with the offset that its sender
    gets."""

    class Faulty(RecordBatchBuilder):
        def extend(self, records: Any) -> None:
            if any(value == b"poison" for _, value, _, _ in records):
                raise ZeroDivisionError("planted")
            super().extend(records)

    monkeypatch.setattr("tidelog.client.accumulator.RecordBatchBuilder", Faulty)
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(
            cluster.bootstrap, linger_ms=60_000, batch_bytes=300, enable_idempotence=idempotent
        ) as producer:
            values = [b"poison" if number in (3, 4, 22) else b"%d" % number for number in range(60)]
            for _ in range(2):  # the second time the leader knows the producer: several batches are in flight
                deliveries = [await producer.enqueue("orders", value) for value in values]
                await producer.flush()
                before = len(cluster.values("orders")) - 57
                reported = [each.exception() for each in deliveries]
                assert [number for number, error in enumerate(reported) if error is not None] == [3, 4, 22]
                assert all("ZeroDivisionError('planted')" in str(reported[number]) for number in (3, 4, 22))
                offsets = [each.result().offset for each, error in zip(deliveries, reported, strict=True) if not error]
                assert offsets == list(range(before, before + 57))
            alone = await producer.enqueue("orders", b"poison")
            await producer.flush()
            with pytest.raises(InvalidRecord, match="cannot be encoded"):
                alone.result()
            assert (await start_and_flush(producer, b"60")).offset == 114
        whole = [value for value in values if value != b"poison"]
        assert cluster.values("orders") == [*whole, *whole, b"60"]


async def start_and_flush(producer: Producer, value: bytes) -> SendResult:
    delivery = await producer.enqueue("orders", value)
    await producer.flush()
    return delivery.result()


Use = Callable[[Any], Awaitable[object]]


async def _assign(consumer: Any, *arguments: Any, **options: Any) -> None:
    consumer.assign(*arguments, **options)


async def _pause(consumer: Any, partitions: Any) -> None:
    consumer.pause(partitions)


WRONG_READS: list[tuple[str, Use, type[Exception], str]] = [
    ("partitions of None", lambda it: it.partitions(None), TypeError, "topic must be a str, the name of a topic"),
    ("partitions of a bad name", lambda it: it.partitions("a b"), InvalidTopic, "'a b' is not allowed"),
    ("a name alone", lambda it: _assign(it, "orders"), TypeError, "partitions must be a list"),
    (
        "one partition",
        lambda it: _assign(it, ("orders", 0)),
        TypeError,
        "partitions must be a list, and this is one partition: write [('orders', 0)]",
    ),
    (
        "one partition to pause",
        lambda it: _pause(it, TopicPartition("orders", PartitionIndex(0))),
        TypeError,
        "partitions must be a list, and this is one partition: write [TopicPartition(topic='orders', partition=0)]",
    ),
    ("a topic to pause", lambda it: _pause(it, "orders"), TypeError, "partitions must be a list of TopicPartition"),
    ("names alone", lambda it: _assign(it, ["orders"]), TypeError, "a partition must be a TopicPartition or a"),
    ("no name", lambda it: _assign(it, [(None, 0)]), TypeError, "topic must be a str"),
    (
        "no index",
        lambda it: _assign(it, [("orders", "0")]),
        TypeError,
        "partition must be a whole number (int), not str",
    ),
    ("an index too large", lambda it: _assign(it, [("orders", 1 << 40)]), UnknownTopicOrPartition, "does not exist"),
    (
        "no place",
        lambda it: _assign(it, [("orders", 0)], start="middle"),
        InvalidRequest,
        "invalid place in a log: 'middle'",
    ),
    ("a float", lambda it: it.seek(("orders", 0), 1.0), InvalidRequest, "invalid place in a log: 1.0"),
    ("a bool", lambda it: it.seek(("orders", 0), bool(1)), InvalidRequest, "invalid place in a log: True"),
    ("below 0", lambda it: it.seek(("orders", 0), -1), InvalidRequest, "invalid offset -1"),
    ("too far", lambda it: it.seek(("orders", 0), 1 << 63), InvalidRequest, "invalid offset 9223372036854775808"),
    (
        "no epoch",
        lambda it: it.seek(("orders", 0), 0, leader_epoch="2"),
        TypeError,
        "leader_epoch must be a whole number",
    ),
    ("an epoch too large", lambda it: it.seek(("orders", 0), 0, leader_epoch=1 << 31), InvalidRequest, "leader_epoch="),
    ("no count", lambda it: it.poll(max_records=1.5), TypeError, "max_records must be a whole number (int), not float"),
    ("a count of 0", lambda it: it.poll(max_records=0), InvalidRequest, "max_records=0"),
    ("no time", lambda it: it.poll(timeout="1"), TypeError, "timeout must be a number of seconds, not str: '1'"),
    (
        "a time that is no number",
        lambda it: it.poll(timeout=math.nan),
        InvalidRequest,
        "timeout=nan: use a number of seconds",
    ),
    ("a time as bool", lambda it: it.poll(timeout=bool(1)), TypeError, "timeout must be a number of seconds, not bool"),
    ("no partition", lambda it: it.end_offsets([5]), TypeError, "a partition must be a TopicPartition or a"),
    ("a partition of None", lambda it: it.position((None, 0)), TypeError, "topic must be a str"),
]


@pytest.mark.parametrize(
    ("use", "error", "says"), [each[1:] for each in WRONG_READS], ids=[each[0] for each in WRONG_READS]
)
async def test_a_consumer_rejects_invalid_arguments_and_keeps_reading(
    use: Use, error: type[Exception], says: str
) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.topics["orders"].partitions[0].append(record_batch())
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders", 0)])
            with pytest.raises(error, match=re.escape(says)):
                await use(consumer)
            assert [record.value for record in await consumer.poll(timeout=10)] == [b"1"]


def record_batch() -> bytes:
    builder = RecordBatchBuilder()
    builder.extend([(b"k", b"1", Millis(5), ())])
    return bytes(builder.build())


WRONG_CHANGES: list[tuple[str, Use, type[Exception], str]] = [
    ("a name of None", lambda it: it.create_topic(None), TypeError, "topic must be a str, the name of a topic"),
    (
        "a count as text",
        lambda it: it.create_topic("a", partitions="3"),
        TypeError,
        "partitions must be a whole number",
    ),
    (
        "a factor as float",
        lambda it: it.create_topic("a", replication_factor=3.0),
        TypeError,
        "replication_factor must be",
    ),
    ("a setting as number", lambda it: it.create_topic("a", configs={"k": 1}), TypeError, "the value of setting 'k'"),
    ("settings as a list", lambda it: it.create_topic("a", configs=["k"]), TypeError, "configs must be a mapping"),
    (
        "an id as text",
        lambda it: it.delete_topic("orders", topic_id="x"),
        TypeError,
        "topic_id must be a UUID, not str",
    ),
    ("partitions of None", lambda it: it.create_partitions("orders", None), TypeError, "count must be a whole number"),
    ("too many", lambda it: it.create_partitions("orders", 1 << 40), InvalidRequest, "count=1099511627776"),
    ("a change to a number", lambda it: it.alter_topic("orders", {"k": 5}), TypeError, "the value of setting 'k'"),
    ("a name alone", lambda it: it.elect_leaders(["orders"]), TypeError, "a partition must be a TopicPartition or a"),
    (
        "assigned as text",
        lambda it: it.create_partitions("orders", 2, assignments=["12"]),
        TypeError,
        "the replicas of a partition must be a list",
    ),
    ("nodes as text", lambda it: it.reassign({("orders", 0): ["1"]}), TypeError, "a replica must be a whole number"),
    (
        "a list of partitions",
        lambda it: it.reassign([("orders", 0)]),
        TypeError,
        "replicas must be a mapping of partitions",
    ),
    (
        "one node",
        lambda it: it.reassign({("orders", 0): 1}),
        TypeError,
        "the replicas of a partition must be a list of",
    ),
    (
        "nodes as bytes",
        lambda it: it.reassign({("orders", 0): b"12"}),
        TypeError,
        "must be a list of node ids or None, not",
    ),
    (
        "a partition alone",
        lambda it: it.explain_partitions(["orders"]),
        TypeError,
        "a partition must be a TopicPartition",
    ),
    ("a node as text", lambda it: it.explain_restart("1"), TypeError, "node_id must be a whole number"),
    ("a voter as text", lambda it: it.remove_voter("1"), TypeError, "node_id must be a whole number"),
    ("a node as text", lambda it: it.unregister_node("1"), TypeError, "node_id must be a whole number"),
    ("a node as text", lambda it: it.cordon_node("1"), TypeError, "node_id must be a whole number"),
    ("a node as text", lambda it: it.uncordon_node(1.0), TypeError, "node_id must be a whole number"),
    ("a path", lambda it: it.cordon_node(1, log_dirs="/a"), TypeError, "log_dirs must be a list of paths, not str"),
    ("a number", lambda it: it.cordon_node(1, log_dirs=[1]), TypeError, "a path must be"),
    ("a level as text", lambda it: it.update_features("1"), TypeError, "level must be a whole number"),
    ("a topic of None", lambda it: it.describe_topic(None), TypeError, "topic must be a str"),
    ("an offset of None", lambda it: it.list_offsets([(None, 0)]), TypeError, "topic must be a str"),
    ("a name for partitions", lambda it: it.list_offsets("orders"), TypeError, "partitions must be a list"),
    ("offsets as a list", lambda it: it.delete_records([("orders", 0)]), TypeError, "before must be a mapping"),
    (
        "an offset as text",
        lambda it: it.delete_records({("orders", 0): "5"}),
        TypeError,
        "the offset for orders-0 must",
    ),
]


@pytest.mark.parametrize(
    ("use", "error", "says"), [each[1:] for each in WRONG_CHANGES], ids=[each[0] for each in WRONG_CHANGES]
)
async def test_an_admin_rejects_arguments_that_no_message_can_carry(
    use: Use, error: type[Exception], says: str
) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Admin(cluster.bootstrap) as admin:
            with pytest.raises(error, match=re.escape(says)):
                await use(admin)
            assert [topic.name for topic in [await admin.describe_topic("orders")]] == ["orders"]


@pytest.mark.parametrize(
    ("client", "options", "says"),
    [
        (
            Producer,
            {"request_timeout_ms": INT32_MAX + 1},
            "request_timeout_ms=2147483648: use a whole number from 1 to",
        ),
        (Producer, {"linger_ms": True}, "linger_ms=True: use a whole number"),
        (Producer, {"linger_ms": 0.5}, "linger_ms=0.5: use a whole number"),
        (Consumer, {"max_wait_ms": INT32_MAX + 1}, "max_wait_ms=2147483648: use a whole number from 0 to"),
        (Consumer, {"fetch_bytes": INT32_MAX + 1}, "fetch_bytes=2147483648: use a whole number from 1 to"),
        (Admin, {"patience_ms": None}, "patience_ms=None: use a whole number"),
        (
            Producer,
            {"partitioner": "random"},
            "partitioner='random': use \"murmur2\", as Kafka's Java client, \"crc3",
        ),
        (Producer, {"enable_idempotence": "false"}, "enable_idempotence='false': use True or False"),
        (Consumer, {"check_crcs": "no"}, "check_crcs='no': use True or False"),
    ],
)
async def test_options_that_no_message_can_carry_are_rejected(client: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(says)):
        client("127.0.0.1:1", **options)


@pytest.mark.parametrize(
    ("client", "options", "says"),
    [
        (Consumer, {"rack": None}, "rack must be a str, not NoneType"),
        (Producer, {"compression_level": "9"}, "compression_level must be a whole number"),
    ],
)
async def test_options_of_a_wrong_type_are_rejected(client: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        client("127.0.0.1:1", **options)


@pytest.mark.parametrize("servers", [None, 9192, [9192], b"host:9192"])
def test_addresses_of_a_wrong_type_are_rejected(servers: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap must be a str"):
        Producer(servers)


@pytest.mark.parametrize("servers", [[], (), "", "host", "http://host:9192", "host:9192,", "ho st:9192", "host:0"])
def test_invalid_addresses_are_rejected(servers: Any) -> None:
    with pytest.raises(InvalidConfig, match="host:port"):
        Producer(servers)


async def test_integers_of_other_libraries_are_accepted_as_offsets_and_times() -> None:
    """As in numpy and pandas: an integer type that is not int."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        for _ in range(3):
            cluster.topics["orders"].partitions[0].append(record_batch())
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([("orders", 0)])
            place: Any = Number(2)
            assert await consumer.seek(("orders", 0), place) == 2
            assert [record.offset for record in await consumer.poll(Number(9), timeout=10)] == [2]  # type: ignore[arg-type]


def test_a_closed_synchronous_client_reports_that_it_is_closed() -> None:
    """A rejected call leaves no coroutine that was never awaited."""
    with sync.Producer("127.0.0.1:1") as producer, sync.Consumer("127.0.0.1:1") as consumer:
        pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidRequest, match="the producer is closed"):
            producer.send("orders", b"1")
        with pytest.raises(InvalidRequest, match="the consumer is closed"):
            consumer.poll()
        with pytest.raises(InvalidRequest, match="the producer is closed"):
            producer.flush()
        producer.close()
        gc.collect()


def test_calls_of_other_threads_end_when_a_synchronous_client_is_closed() -> None:
    """At any time of the call: a call that arrived while the loop ended was never answered."""

    def call_until_closed(consumer: sync.Consumer) -> None:
        with pytest.raises(InvalidRequest, match="the consumer is closed"):
            while True:
                consumer.end_offsets([])

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            with sync.Consumer("127.0.0.1:1") as consumer:
                calls = [pool.submit(call_until_closed, consumer) for _ in range(3)]
                closing = pool.submit(consumer.close)
            for call in (*calls, closing):
                call.result(timeout=10)


def test_a_call_that_the_client_does_not_end_is_cancelled_with_its_loop() -> None:
    thread = LoopThread("tidelog consumer")
    with ThreadPoolExecutor(1) as pool:
        begun = Event()

        async def forever() -> None:
            begun.set()
            await asyncio.get_running_loop().create_future()

        call = pool.submit(thread.run, forever())
        begun.wait()
        thread.stop()
        with pytest.raises(InvalidRequest, match="the consumer is closed"):
            call.result(timeout=10)


def test_the_synchronous_clients_reject_the_same_arguments() -> None:
    with sync.Producer("127.0.0.1:1") as producer:
        with pytest.raises(TypeError, match="timestamp must be a whole number"):
            producer.send("orders", b"1", timestamp=1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="a record is a"):
            producer.send_all("orders", [b"12"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="value must be bytes or None, not int"):
            producer.send_all("orders", [(None, 5)])  # type: ignore[list-item]


@pytest.mark.parametrize("client", [Producer, Consumer, Admin, sync.Producer, sync.Consumer, sync.Admin])
def test_a_client_id_fits_into_a_header(client: Any) -> None:
    for wrong in ("ä", "a\nb", " a", "a" * 256):
        with pytest.raises(InvalidConfig, match="use at most 255 printable ASCII characters"):
            client("localhost:1", client_id=wrong)
    with pytest.raises(TypeError, match="client_id must be a str, not int: 7"):
        client("localhost:1", client_id=7)
    made = client("localhost:1", client_id="loader of team-7")
    if isinstance(made, sync.Producer | sync.Consumer | sync.Admin):
        made.close()


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        (Producer, "compression_type", "Producer has no option compression_type=: use compression="),
        (Producer, "linger.ms", "Producer has no option linger.ms=: write linger_ms="),
        (Producer, "group_id", "Producer has no option group_id=: it has bootstrap, acks, "),
        (Consumer, "group_id", "Consumer has no option group_id=: use group="),
        (Consumer, "isolatoin", "Consumer has no option isolatoin=: do you mean isolation=?"),
        (Consumer, "max_poll_records", "Consumer has no option max_poll_records=: pass max_records= to poll()"),
        (Admin, "clientid", "Admin has no option clientid=: do you mean client_id=?"),
        (sync.Consumer, "enable_auto_commit", "Consumer has no option enable_auto_commit=: use auto_commit="),
        (sync.Admin, "security_protocol", "Admin has no option security_protocol=: pass tls=tidelog.Tls(...)"),
    ],
)
def test_an_option_by_its_name_in_kafkas_clients_is_refused_with_the_name_here(kind: Any, name: str, says: str) -> None:
    with pytest.raises(TypeError, match=f"^{re.escape(says)}"):
        kind("127.0.0.1:1", **{name: "1"})


def test_each_name_that_such_an_error_recommends_is_an_option() -> None:
    options = {*signature(Producer).parameters, *signature(Consumer).parameters}
    assert set(RENAMED.values()) <= options
    assert not options & {*RENAMED, *ELSEWHERE}
