"""Idempotent producers, by Tidelog's client and by confluent-kafka, on the same topics: each value is sent once."""

from __future__ import annotations

import asyncio
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as KafkaProducer

from tests.chaos.history import Acked, Begun, Failed, Refused, now
from tests.chaos.workloads.work import (
    DELIVERY_MS,
    KEYS,
    LATEST,
    LEDGER,
    ORDERS,
    PARTITIONS,
    Work,
    pause,
    places_of,
)
from tidelog import Producer
from tidelog.errors import TidelogError

TOGETHER: Final = 3
"""Records of a task that are on their way at once."""
KAFKA_DELIVERY_MS: Final = 180_000
"""librdkafka begins another producer epoch when a record times out, and sends again, with new sequences, what is on its
way: duplicates that no node can notice (librdkafka issue 4953). Only a long timeout avoids them."""
PAUSE_S: Final = 0.15
"""Of each task: the nodes share the cores of the machine."""


async def produce(work: Work, name: str, *topics: str) -> None:
    """Many tasks of one producer, one for each partition of these topics, until producers stop."""
    work.history.note(Begun(now(), name, places_of(*topics)))
    async with (
        Producer(work.bootstrap, acks="all", linger_ms=2, delivery_timeout_ms=DELIVERY_MS) as producer,
        asyncio.TaskGroup() as tasks,
    ):
        for topic, partition in places_of(*topics):
            tasks.create_task(_produce_one(work, producer, name, topic, partition))


async def _produce_one(work: Work, producer: Producer, name: str, topic: str, partition: int) -> None:
    number = 0
    while not work.stopping_producers.is_set():
        sent = []
        for _ in range(TOGETHER):
            value = f"{name}/{topic}-{partition}/{number}"
            key = b"%d" % (number % KEYS) if topic == LATEST else None
            number += 1
            begun = now()
            try:
                sent.append((value, begun, await producer.enqueue(topic, value.encode(), key, partition=partition)))
            except TidelogError as failure:
                # Not enqueued, therefore certainly not sent.
                work.history.note(Refused(now(), name, topic, partition, value, type(failure).__name__, written=False))
        for value, begun, delivery in sent:
            try:
                receipt = await delivery
            except TidelogError as failure:
                error = f"{type(failure).__name__}: {failure}"
                work.history.note(Refused(now(), name, topic, partition, value, error, failure.written))
            else:
                ms = (now() - begun) * 1_000
                work.history.note(Acked(now(), name, topic, partition, int(receipt.offset), value, ms))
        await pause(work.stopping_producers, PAUSE_S)


def produce_by_kafka(work: Work, name: str) -> None:
    """The same by librdkafka, on a thread. After a fatal error, which ends an idempotent producer, another continues
    under another name: nothing orders its records behind those of the former."""
    work.history.note(Begun(now(), name, places_of(ORDERS, LEDGER)))
    life = 0
    while not work.stopping_producers.is_set():
        _produce_until_fatal(work, name, f"{name}.{life}")
        life += 1


def _produce_until_fatal(work: Work, worker: str, name: str) -> None:
    producer = KafkaProducer(
        {
            "bootstrap.servers": work.kafka_bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": KAFKA_DELIVERY_MS,
            "client.id": name,
        }
    )
    is_fatal = False

    def delivered(topic: str, partition: int, value: str, begun: float) -> object:
        def note(error: KafkaError | None, message: Message) -> None:
            nonlocal is_fatal
            if error is None:
                ms, offset = (now() - begun) * 1_000, message.offset()
                work.history.note(Acked(now(), worker, topic, partition, offset, value, ms))
            else:
                is_fatal = is_fatal or error.fatal()
                # The client does not say whether a failed record is written.
                work.history.note(Refused(now(), worker, topic, partition, value, error.name(), written=None))

        return note

    number = 0
    while not work.stopping_producers.is_set() and not is_fatal:
        for topic in (ORDERS, LEDGER):
            for partition in range(PARTITIONS[topic]):
                value = f"{name}/{topic}-{partition}/{number}"
                note = delivered(topic, partition, value, now())
                try:
                    producer.produce(topic, value.encode(), partition=partition, on_delivery=note)
                except BufferError:
                    work.history.note(Refused(now(), worker, topic, partition, value, "queue is full", written=False))
                except KafkaException as failure:
                    is_fatal = True
                    work.history.note(Failed(now(), worker, str(failure)))
                    break
        number += 1
        producer.poll(PAUSE_S)
    producer.flush(KAFKA_DELIVERY_MS / 1_000 + 10)
