"""Kafka's clients delete records of real nodes, and read on behind them: librdkafka and aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from confluent_kafka.admin import AdminClient

import tidelog
from node.process.local_cluster import LocalCluster
from tests.kafka_nodes import kafka_cluster

pytestmark = pytest.mark.integration

WAIT_S = 20.0
RECORDS = 10


cluster = kafka_cluster()


async def filled(cluster: LocalCluster, topic: str, **configs: str) -> str:
    """A topic of three replicas with ten records in partition 0 and one in partition 1."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with tidelog.Admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partitions=2, replication_factor=3, configs=settings)
    async with tidelog.Producer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, key=b"k", partition=0)
        await producer.send(topic, b"alone", key=b"k", partition=1)
    return topic


def deleted(
    cluster: LocalCluster, *partitions: confluent_kafka.TopicPartition
) -> list[int | confluent_kafka.KafkaError]:
    """The low watermarks that librdkafka's admin client reports, or the errors."""
    admin = AdminClient({"bootstrap.servers": cluster.kafka_bootstrap, "log_level": 0})
    found: list[Any] = []
    for future in admin.delete_records(list(partitions), request_timeout=WAIT_S).values():
        try:
            found.append(future.result(WAIT_S).low_watermark)
        except confluent_kafka.KafkaException as error:
            found.append(error.args[0].code())
    return found


def place(topic: str, partition: int, offset: int) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(topic, partition, offset)


async def test_librdkafka_deletes_records(cluster: LocalCluster) -> None:
    topic = await filled(cluster, "by-librdkafka")
    both = place(topic, 0, 4), place(topic, 1, confluent_kafka.OFFSET_END)
    assert await asyncio.to_thread(deleted, cluster, *both) == [4, 1]
    async with tidelog.Admin(cluster.bootstrap) as admin:
        starts = await admin.list_offsets([(topic, 0), (topic, 1)], "earliest")
        assert sorted(starts.values()) == [1, 4]
    assert await asyncio.to_thread(deleted, cluster, place(topic, 0, 11)) == [
        confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE
    ]
    assert await asyncio.to_thread(deleted, cluster, place(topic, 0, 2)) == [4], "nothing comes back"


async def test_what_may_not_be_deleted_is_refused_as_by_kafka(cluster: LocalCluster) -> None:
    topic = await filled(cluster, "compacted", cleanup_policy="compact")
    assert await asyncio.to_thread(deleted, cluster, place(topic, 0, 1)) == [
        confluent_kafka.KafkaError.POLICY_VIOLATION
    ]


def first_read(cluster: LocalCluster, topic: str, offset: int, reset: str) -> int:
    """The offset of the first record that a consumer gets which was at this offset, or the code of its error."""
    settings = {"group.id": "unused", "auto.offset.reset": reset, "enable.auto.commit": False, "log_level": 0}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.kafka_bootstrap, **settings})
    consumer.assign([place(topic, 0, offset)])
    message = consumer.poll(WAIT_S)
    consumer.close()
    assert message is not None
    error = message.error()
    return int(message.offset() if error is None else error.code())


@pytest.mark.parametrize(
    ("reset", "found"), [("earliest", 4), ("error", confluent_kafka.KafkaError._AUTO_OFFSET_RESET)]
)
async def test_a_consumer_at_a_deleted_offset_goes_where_its_reset_says(
    cluster: LocalCluster, reset: str, found: int
) -> None:
    topic = await filled(cluster, f"read-{reset}")
    assert await asyncio.to_thread(deleted, cluster, place(topic, 0, 4)) == [4]
    assert await asyncio.to_thread(first_read, cluster, topic, 2, reset) == found
    assert await asyncio.to_thread(first_read, cluster, topic, 4, reset) == 4


async def test_aiokafka_deletes_records(cluster: LocalCluster) -> None:
    topic = await filled(cluster, "by-aiokafka")
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.kafka_bootstrap)
    await admin.start()
    try:
        lows = await admin.delete_records({aiokafka.TopicPartition(topic, 0): RecordsToDelete(before_offset=7)})
    finally:
        await admin.close()
    assert list(lows.values()) == [7]
    async with aiokafka.AIOKafkaConsumer(
        bootstrap_servers=cluster.kafka_bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert (await asyncio.wait_for(consumer.getone(), WAIT_S)).offset == 7


async def test_our_consumer_goes_on_behind_what_a_kafka_client_deleted(cluster: LocalCluster) -> None:
    topic = await filled(cluster, "read-by-ours")
    await asyncio.to_thread(deleted, cluster, place(topic, 0, 4))
    async with tidelog.Consumer(cluster.bootstrap) as consumer:
        consumer.assign([(topic, 0)])
        records = await consumer.poll(timeout=WAIT_S)
        assert [int(each.offset) for each in records][:2] == [4, 5]
