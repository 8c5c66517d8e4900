"""Records with schemas: the serializers of Confluent's schema registry are those of our clients too, as they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AsyncAvroSerializer, AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.client.memory_cluster import cluster_in_a_thread, memory_cluster
from tests.client.numbered_records import P0, fill
from tests.client.schema_registry import SchemaRegistry, schema_registry
from tidelog import sync
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.client.serialization import DeserializationFailed, SerializationFailed
from tidelog.protocol.v1.common_pb2 import EpochEnd


def avro(name: str, /, **fields: str) -> str:
    return json.dumps(
        {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields.items()]}
    )


ORDER = avro("Order", number="long", city="string")
CUSTOMER = avro("Customer", name="string")
JSON_SCHEMA = json.dumps(
    {"title": "Order", "type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
)
VALUE = {"number": 7, "city": "Köln"}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as running:
        yield running


@pytest.fixture
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


async def test_avro_with_a_key_and_a_value_of_a_schema_each(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(
            cluster.bootstrap,
            key_serializer=AvroSerializer(client, CUSTOMER),
            value_serializer=AvroSerializer(client, ORDER),
        ) as producer:
            await producer.send("orders", VALUE, key={"name": "Ada"})
            await (await producer.enqueue_many("orders", [VALUE, None], keys=[{"name": "Grace"}, {"name": "Ada"}]))
        assert [each["subject"] for each in registry.schemas] == ["orders-key", "orders-value"]
        stored, _, deleted = cluster.values("orders")
        assert stored is not None
        assert stored[:5] == b"\0\0\0\0\x02", "Confluent's wire format: a zero and the id"
        assert deleted is None
        theirs = AvroDeserializer(client)(stored, SerializationContext("orders", MessageField.VALUE))
        assert theirs == VALUE
        asked = len(registry.requests)
        async with Consumer(
            cluster.bootstrap, key_deserializer=AvroDeserializer(client), value_deserializer=AvroDeserializer(client)
        ) as consumer:
            consumer.assign([P0])
            found = await read(consumer, 3)
        assert [(each.key["name"], each.value) for each in found] == [("Ada", VALUE), ("Grace", VALUE), ("Ada", None)]
        assert len(registry.requests) <= asked + 2, "once for a schema, not for each record"


async def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await consumer.poll(timeout=10)
    return found


async def test_a_reader_has_a_schema_of_its_own(client: SchemaRegistryClient) -> None:
    """Avro's schema evolution: a field is gone, and a new one has its default."""
    newer = json.loads(avro("Order", city="string"))
    newer["fields"].append({"name": "paid", "type": "boolean", "default": False})
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, value_serializer=AvroSerializer(client, ORDER)) as producer:
            await producer.send("orders", VALUE)
        async with Consumer(
            cluster.bootstrap, value_deserializer=AvroDeserializer(client, json.dumps(newer))
        ) as consumer:
            consumer.assign([P0])
            (record,) = await read(consumer, 1)
            assert record.value == {"city": "Köln", "paid": False}


async def test_json_schema_and_protobuf(client: SchemaRegistryClient) -> None:
    ways: list[tuple[Any, Any, Any]] = [
        (JSONSerializer(JSON_SCHEMA, client), JSONDeserializer(JSON_SCHEMA), {"number": 7}),
        (
            ProtobufSerializer(EpochEnd, client, {"use.deprecated.format": False}),
            ProtobufDeserializer(EpochEnd, {"use.deprecated.format": False}),
            EpochEnd(epoch=3, end_offset=20),
        ),
    ]
    for serializer, deserializer, value in ways:
        async with memory_cluster() as cluster:
            cluster.create("orders")
            async with Producer(cluster.bootstrap, value_serializer=serializer) as producer:
                await producer.send("orders", value)
            async with Consumer(cluster.bootstrap, value_deserializer=deserializer) as consumer:
                consumer.assign([P0])
                (record,) = await read(consumer, 1)
                assert record.value == value


def test_synchronous_clients_with_the_id_in_a_header(client: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(client, ORDER, conf={"schema.id.serializer": header_schema_id_serializer})
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        with sync.Producer(cluster.bootstrap, value_serializer=serializer) as producer:
            producer.send("orders", VALUE, headers=[("trace", b"1")])
        with sync.Consumer(cluster.bootstrap, value_deserializer=AvroDeserializer(client)) as consumer:
            consumer.assign([P0])
            record = next(iter(consumer))
            assert [name for name, _ in record.headers] == ["trace", "__value_schema_id"]
            assert record.value == VALUE


async def test_what_does_not_fit_the_schema_is_not_sent(client: SchemaRegistryClient) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        fill(cluster, [b"no schema"])
        async with Producer(cluster.bootstrap, value_serializer=AvroSerializer(client, ORDER)) as producer:
            with pytest.raises(SerializationFailed, match="the value of a record for topic 'orders' cannot be"):
                await producer.send("orders", {"number": "seven"})
        async with Consumer(cluster.bootstrap, value_deserializer=AvroDeserializer(client)) as consumer:
            consumer.assign([P0])
            with pytest.raises(DeserializationFailed, match="seek to offset 1 to skip the record"):
                await consumer.poll(timeout=10)


async def test_a_registry_that_is_gone_fails_the_call_and_not_the_producer() -> None:
    with (
        schema_registry() as registry,
        SchemaRegistryClient({"url": registry.url, "max.retries": 0, "timeout": 1}) as client,
    ):
        serializer = AvroSerializer(client, ORDER)
        registered = AvroSerializer(client, CUSTOMER)
        async with memory_cluster() as cluster:
            cluster.create("orders")
            async with Producer(cluster.bootstrap, key_serializer=registered, value_serializer=serializer) as producer:
                await producer.send("orders", None, key={"name": "Ada"})
                registry.close()
                with pytest.raises(SerializationFailed, match="Connect"):
                    await producer.send("orders", VALUE)
                await producer.send("orders", None, key={"name": "Ada"})
        assert len(cluster.values("orders")) == 2


async def test_its_asynchronous_serializers_are_refused() -> None:
    with schema_registry() as registry:
        async with AsyncSchemaRegistryClient({"url": registry.url}) as client, memory_cluster() as cluster:
            cluster.create("orders")
            serializer = await AsyncAvroSerializer(client, ORDER)
            async with Producer(cluster.bootstrap, value_serializer=serializer) as producer:
                with pytest.raises(SerializationFailed, match="AvroSerializer in place of AsyncAvroSerializer"):
                    await producer.send("orders", VALUE)
