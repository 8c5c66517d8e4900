"""aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from tests.kafka_clients.reporting import CODECS, WAIT_S, Unsupported, run, settings

HERE = settings()


async def write(topic: str, values: list[str], *, sent: dict[str, Any] | None = None, **config: Any) -> None:
    async with AIOKafkaProducer(**{"bootstrap_servers": HERE.bootstrap, **config}) as producer:
        for value in values:
            await producer.send_and_wait(topic, value.encode(), **(sent or {}))


async def received(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), WAIT_S) for _ in range(count)]


async def read(topic: str, count: int, **config: Any) -> list[Any]:
    async with AIOKafkaConsumer(**{"bootstrap_servers": HERE.bootstrap, **config}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return await received(consumer, count)


def values_of(messages: list[Any]) -> list[str]:
    return [message.value.decode() for message in messages]


async def codecs() -> None:
    topic = HERE.topic("codecs")
    for codec in CODECS:
        await write(topic, [codec * 100], compression_type=None if codec == "none" else codec)
    assert values_of(await read(topic, 5)) == [codec * 100 for codec in CODECS]


async def acks() -> None:
    for each in (0, 1, "all"):
        await write(HERE.topic("acks"), [str(each)], acks=each)
    assert sorted(values_of(await read(HERE.topic("acks"), 3))) == ["0", "1", "all"]


async def idempotence() -> None:
    wanted = [str(number) for number in range(100)]
    await write(HERE.topic("idempotence"), wanted, enable_idempotence=True)
    assert values_of(await read(HERE.topic("idempotence"), 100)) == wanted


async def transactions() -> None:
    """One aborts, one commits."""
    topic = HERE.topic("transactions")
    async with AIOKafkaProducer(bootstrap_servers=HERE.bootstrap, transactional_id=topic) as producer:
        for value in ("aborted", "committed"):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value.encode())
            await (producer.abort_transaction() if value == "aborted" else producer.commit_transaction())
    assert values_of(await read(topic, 1, isolation_level="read_committed")) == ["committed"]


def member(group: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic,
        bootstrap_servers=HERE.bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


async def offsets() -> None:
    """The offsets of a group are committed with the records."""
    topic = HERE.topic("offsets")
    await write(topic, ["in"])
    async with (
        member(topic, topic) as consumer,
        AIOKafkaProducer(bootstrap_servers=HERE.bootstrap, transactional_id=topic) as producer,
    ):
        await received(consumer, 1)
        async with producer.transaction():
            await producer.send(topic, b"out")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, topic)
        while await consumer.committed(TopicPartition(topic, 0)) != 1:  # it does not ask for stable offsets
            pass


async def classic() -> None:
    """A second member goes on where the first one has committed."""
    topic = HERE.topic("classic")
    await write(topic, ["a", "b"])
    for value in ("a", "b"):
        async with member(topic, topic) as consumer:
            assert values_of(await received(consumer, 1)) == [value]
            await consumer.commit()


async def consumer_group() -> None:
    raise Unsupported("aiokafka does not have KIP-848")


async def headers() -> None:
    sent = [("a", b"1"), ("a", b""), ("b", None)]
    await write(HERE.topic("headers"), ["v"], sent={"headers": sent})
    (message,) = await read(HERE.topic("headers"), 1)
    assert list(message.headers) == sent, message.headers


async def timestamps() -> None:
    """They are those of the producer, and offsets are found by them."""
    topic = HERE.topic("timestamps")
    for stamp in (1_700_000_000_000, 1_700_000_005_000):
        await write(topic, ["v"], sent={"timestamp_ms": stamp})
    assert [each.timestamp for each in await read(topic, 2)] == [1_700_000_000_000, 1_700_000_005_000]
    async with AIOKafkaConsumer(topic, bootstrap_servers=HERE.bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        assert (await consumer.offsets_for_times({partition: 1_700_000_000_001}))[partition].offset == 1


async def admin() -> None:
    """A topic is created, described and deleted."""
    topic, client = HERE.topic("made"), AIOKafkaAdminClient(bootstrap_servers=HERE.bootstrap)
    await client.start()
    try:
        made = await client.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})])
        assert made.topic_errors[0][1] == 0, made
        values: dict[str, str] = {}
        while not values:  # a node learns of the topic a moment later
            (answer,) = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert values["retention.ms"] == "60000"
        while len((await client.describe_topics([topic]))[0]["partitions"]) != 2:
            pass
        deleted = await client.delete_topics([topic])
        assert deleted.topic_error_codes[0][1] == 0, deleted
    finally:
        await client.close()


def secured(feature: str, **config: Any) -> Callable[[], Coroutine[Any, Any, None]]:
    async def story() -> None:
        topic, context = HERE.topic(feature), ssl.create_default_context(cafile=HERE.ca)
        if config["security_protocol"] == "SSL":
            context.load_cert_chain(HERE.certificate, HERE.key)
        await write(topic, ["secret"], ssl_context=context, **config)
        assert values_of(await read(topic, 1, ssl_context=context, **config)) == ["secret"]

    return story


def login_by(mechanism: str, feature: str, **more: Any) -> Callable[[], Coroutine[Any, Any, None]]:
    node = {"bootstrap_servers": HERE.secure_bootstrap, "security_protocol": "SASL_SSL"}
    return secured(feature, **node, sasl_mechanism=mechanism, **more)


class Token(AbstractTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return HERE.token


PASSWORD = {"sasl_plain_username": HERE.username, "sasl_plain_password": HERE.password}


def blocking(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(asyncio.wait_for(story(), WAIT_S))


STORIES = {
    "codecs": codecs,
    "acks": acks,
    "idempotence": idempotence,
    "transactions": transactions,
    "offsets": offsets,
    "classic": classic,
    "consumer": consumer_group,
    "headers": headers,
    "timestamps": timestamps,
    "admin": admin,
    "scram": login_by("SCRAM-SHA-512", "scram", **PASSWORD),
    "plain": login_by("PLAIN", "plain", **PASSWORD),
    "oauthbearer": login_by("OAUTHBEARER", "oauthbearer", sasl_oauth_token_provider=Token()),
    "certificate": secured("certificate", bootstrap_servers=HERE.mutual_bootstrap, security_protocol="SSL"),
}
run({name: blocking(story) for name, story in STORIES.items()})
