"""`tidelog.testing.containers`: the image of a node for testcontainers, used from outside."""

from __future__ import annotations

import os

import pytest

os.environ["TESTCONTAINERS_RYUK_DISABLED"] = "true"  # its image cannot be pulled everywhere; the test removes its own

from confluent_kafka import Producer

import tidelog
from tidelog.testing.containers import TidelogContainer

pytestmark = [pytest.mark.containers, pytest.mark.integration, pytest.mark.deep]


async def test_clients_of_tidelog_and_of_kafka_use_a_container_from_outside() -> None:
    """It waits for a Docker engine."""
    with TidelogContainer(settings={"num.partitions": 1}) as container:
        async with tidelog.Admin(container.bootstrap) as admin:
            await admin.create_topic("orders", partitions=1, replication_factor=1)
        kafka = Producer({"bootstrap.servers": container.kafka_bootstrap})
        kafka.produce("orders", b"by Kafka's client")
        assert kafka.flush(30) == 0
        async with tidelog.Consumer(container.bootstrap) as consumer:
            consumer.assign([("orders", 0)])
            await consumer.seek(("orders", 0), "earliest")
            while not (records := await consumer.poll()):
                pass
    assert [record.value for record in records] == [b"by Kafka's client"]
