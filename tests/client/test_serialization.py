"""Objects of programs become bytes when they are sent, and objects when they are read; interceptors see both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client.memory_cluster import cluster_in_a_thread, memory_cluster
from tests.client.numbered_records import P0, fill
from tidelog import sync
from tidelog.client.consumer import Consumer, ConsumerRecord
from tidelog.client.delivery import Delivery
from tidelog.client.outgoing_record import OutgoingRecord
from tidelog.client.producer import Producer
from tidelog.client.read_hooks import ConsumerInterceptor
from tidelog.client.record_hooks import ProducerInterceptor
from tidelog.client.serialization import DeserializationFailed, SerializationContext, SerializationFailed
from tidelog.errors import InvalidConfig, InvalidRequest


async def test_json_and_strings_survive_each_way_to_send() -> None:
    values = [{"a": [1, "ä", None]}, [], 0, None]
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, value_serializer="json", key_serializer="string") as producer:
            await producer.send("orders", values[0], key="ä")
            await producer.send_nowait("orders", values[1], key=None)
            await (await producer.enqueue_many("orders", values[2:], keys=["", "b"]))
        assert cluster.values("orders") == ['{"a":[1,"ä",null]}'.encode(), b"[]", b"0", None]
        async with Consumer(cluster.bootstrap, value_deserializer="json", key_deserializer="string") as consumer:
            consumer.assign([P0])
            found = [record async for record in first(consumer, 4)]
            assert [record.value for record in found] == values
            assert [record.key for record in found] == ["ä", None, "", "b"]
            await consumer.seek(P0, 0)
            assert await consumer.poll(4, timeout=10) == found


async def first(consumer: Consumer, count: int) -> Any:
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return


async def test_functions_get_the_context_or_the_object_alone() -> None:
    seen: list[SerializationContext] = []

    def with_context(value: str, ctx: SerializationContext) -> bytes:
        seen.append(ctx)
        return value.encode()

    class Confluents:
        """As the serializers of its schema registry: an optional context."""

        def __call__(self, value: str, ctx: SerializationContext | None = None) -> bytes:
            assert ctx is not None
            return with_context(value, ctx)

    async with memory_cluster() as cluster:
        cluster.create("orders")
        for function in (with_context, Confluents(), str.encode, lambda value: value.encode()):
            async with Producer(cluster.bootstrap, value_serializer=function) as producer:
                await producer.send("orders", "v", headers=[("h", b"1")])
        assert cluster.values("orders") == [b"v"] * 4
        assert seen == [SerializationContext("orders", "value", [("h", b"1")])] * 2
        assert (seen[0].topic, seen[0].field) == ("orders", "value")


async def test_a_serializer_adds_headers_and_the_key_is_the_first() -> None:
    seen: list[str] = []

    def numbered(value: bytes, ctx: SerializationContext) -> bytes:
        seen.append(ctx.field)
        ctx.headers.append((ctx.field, b"%d" % len(ctx.headers)))
        return value

    def headers_of(_: bytes, ctx: SerializationContext) -> list[str]:
        return [name for name, _ in ctx.headers]

    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, key_serializer=numbered, value_serializer=numbered) as producer:
            await producer.send("orders", b"0", key=b"k", headers=[("h", b"")])
            await (await producer.enqueue_many("orders", [b"1"], keys=[b"k"]))
        assert seen == ["key", "value"] * 2
        async with Consumer(cluster.bootstrap, value_deserializer=headers_of) as consumer:
            consumer.assign([P0])
            found = [record async for record in first(consumer, 2)]
            assert found[0].headers == (("h", b""), ("key", b"1"), ("value", b"2"))
            assert [record.value for record in found] == [["h", "key", "value"], ["key", "value"]]


async def test_an_asynchronous_function_is_refused() -> None:
    async def slow(data: bytes) -> bytes:
        return data

    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, [b"0"])
        async with Producer(cluster.bootstrap, value_serializer=slow) as producer:
            with pytest.raises(SerializationFailed, match="the function is asynchronous"):
                await producer.send("orders", b"v")
        async with Consumer(cluster.bootstrap, key_deserializer=slow) as consumer:
            consumer.assign([P0])
            with pytest.raises(DeserializationFailed, match="the function is asynchronous"):
                await consumer.poll(timeout=10)


async def test_a_record_that_cannot_be_serialized_is_not_queued() -> None:
    def no_bytes(_: object) -> str:
        return "text"

    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, value_serializer="json") as producer:
            with pytest.raises(SerializationFailed, match="the value of a record for topic 'orders' cannot"):
                await producer.send("orders", {1, 2})
            with pytest.raises(SerializationFailed, match="TypeError"):
                await producer.enqueue_many("orders", [1, {1, 2}])
            with pytest.raises(InvalidRequest, match="1 keys for 2 values"):
                await producer.enqueue_many("orders", [1, 2], keys=[b"a"])
        async with Producer(cluster.bootstrap, key_serializer=no_bytes) as producer:
            with pytest.raises(SerializationFailed, match="the key_serializer returned str"):
                await producer.send("orders", b"v", key=1)
        assert cluster.values("orders") == []


async def test_a_record_that_cannot_be_deserialized_stops_its_partition_behind_those_before_it() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, [b"0", b"1", b"{", b"3"])
        async with Consumer(cluster.bootstrap, value_deserializer=json.loads) as consumer:
            consumer.assign([P0])
            assert [record.value for record in await consumer.poll(timeout=10)] == [0, 1]
            for _ in range(2):
                with pytest.raises(DeserializationFailed, match=r"orders-0 at offset 2 cannot .* seek to offset 3"):
                    await consumer.poll(timeout=10)
            assert await consumer.position(P0) == 2
            with pytest.raises(DeserializationFailed):
                await anext(aiter(consumer))
            await consumer.seek(P0, 3)
            assert [record.value for record in await consumer.poll(timeout=10)] == [3]


async def test_a_registry_that_is_down_for_a_while_costs_no_record() -> None:
    answers = iter([ConnectionError("no route to the registry"), None, None])

    def through_the_registry(data: bytes) -> bytes:
        if (error := next(answers)) is not None:
            raise error
        return data

    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, [b"0", b"1"])
        async with Consumer(cluster.bootstrap, value_deserializer=through_the_registry) as consumer:
            consumer.assign([P0])
            with pytest.raises(DeserializationFailed, match=r"no route to the registry\. Poll again if the"):
                await consumer.poll(timeout=10)
            assert [record.value for record in await consumer.poll(timeout=10)] == [b"0", b"1"]


class Counting(ProducerInterceptor):
    """Adds a header, and notes the outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[object, int]] = []

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        if record.value == 13:
            raise ValueError("an unlucky number")
        return record._replace(headers=(*record.headers, ("traced", b"yes")))

    def on_acknowledgement(self, record: OutgoingRecord, delivery: Delivery) -> None:
        self.outcomes.append((record.value, delivery.result().offset))


class Even(ConsumerInterceptor):
    """Leaves out the odd ones."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if not record.value % 2]


async def test_interceptors_see_what_is_sent_and_read(caplog: pytest.LogCaptureFixture) -> None:
    counting = Counting()
    called: list[int] = []
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, value_serializer="json", interceptors=[counting]) as producer:
            await producer.send("orders", 0, on_delivery=lambda delivery: called.append(delivery.result().offset))
            await (await producer.enqueue_many("orders", [13, 2]))
        assert counting.outcomes == [(0, 0), (13, 1), (2, 2)]
        assert called == [0]
        assert "the record is sent as it was" in caplog.text
        async with Consumer(cluster.bootstrap, value_deserializer="json", interceptors=[Even()]) as consumer:
            consumer.assign([P0])
            found = [record async for record in first(consumer, 2)]
            assert [record.value for record in found] == [0, 2]
            assert found[0].headers == (("traced", b"yes"),)
            assert await consumer.position(P0) == 3


async def test_an_interceptor_that_moves_a_record_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Moving(ProducerInterceptor):
        def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
            return record._replace(topic="elsewhere")

    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, interceptors=[Moving()]) as producer:
            assert (await producer.send("orders", b"v")).topic == "orders"
    assert "cannot change the topic" in caplog.text


def test_synchronous_clients_and_transactions_convert_too() -> None:
    counting = Counting()
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        with (
            sync.Producer(
                cluster.bootstrap, transactional_id="t", value_serializer="json", interceptors=[counting]
            ) as producer,
            producer.transaction() as txn,
        ):
            txn.enqueue("orders", 0)
            txn.enqueue_many("orders", [1, 2])
            producer.send_many("orders", [3])
        with sync.Consumer(cluster.bootstrap, value_deserializer="json") as consumer:
            consumer.assign([("orders", 0)])
            records = iter(consumer)
            assert [next(records).value for _ in range(4)] == [0, 1, 2, 3]
    assert [value for value, _ in counting.outcomes] == [0, 1, 2, 3]


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (Producer, {"value_serializer": "avro"}, 'value_serializer=\'avro\': use "json", "string", or a function'),
    (Consumer, {"key_deserializer": 5}, "key_deserializer=5: use"),
    (Producer, {"interceptors": Counting()}, "use a list of objects of classes of ProducerInterceptor"),
    (Producer, {"interceptors": [Even()]}, "is no ProducerInterceptor: derive its class"),
    (Consumer, {"interceptors": [Counting()]}, "is no ConsumerInterceptor: derive its class"),
]


@pytest.mark.parametrize(("client", "options", "says"), WRONG)
def test_what_converts_nothing_is_refused(client: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        client("127.0.0.1:1", **options)
