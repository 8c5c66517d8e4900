"""kafka-python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import OffsetAndMetadata

from tests.kafka_clients.reporting import CODECS, WAIT_S, Unsupported, eventually, run, settings

HERE = settings()
MEMBER = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": 1}


def write(topic: str, values: list[str], *, sent: dict[str, Any] | None = None, **config: Any) -> None:
    producer = KafkaProducer(**{"bootstrap_servers": HERE.bootstrap, **config})
    try:
        for future in [producer.send(topic, value.encode(), **(sent or {})) for value in values]:
            future.get(WAIT_S)
    finally:
        producer.close()


def received(consumer: KafkaConsumer, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        found = consumer.poll(timeout_ms=WAIT_S * 1_000)
        assert found, f"{len(messages)} records of {count}"
        messages += [message for each in found.values() for message in each]
    return messages


def read(topic: str, count: int, **config: Any) -> list[Any]:
    consumer = KafkaConsumer(**{"bootstrap_servers": HERE.bootstrap, **config})
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_beginning()
    try:
        return received(consumer, count)
    finally:
        consumer.close()


def values_of(messages: list[Any]) -> list[str]:
    return [message.value.decode() for message in messages]


def codecs() -> None:
    topic = HERE.topic("codecs")
    for codec in CODECS:
        write(topic, [codec * 100], compression_type=None if codec == "none" else codec)
    assert values_of(read(topic, 5)) == [codec * 100 for codec in CODECS]


def acks() -> None:
    for each in (0, 1, "all"):
        write(HERE.topic("acks"), [str(each)], acks=each, enable_idempotence=False)
    assert sorted(values_of(read(HERE.topic("acks"), 3))) == ["0", "1", "all"]


def idempotence() -> None:
    wanted = [str(number) for number in range(100)]
    write(HERE.topic("idempotence"), wanted, enable_idempotence=True)
    assert values_of(read(HERE.topic("idempotence"), 100)) == wanted


def transactions() -> None:
    """One aborts, one commits."""
    topic = HERE.topic("transactions")
    producer = KafkaProducer(bootstrap_servers=HERE.bootstrap, transactional_id=topic)
    producer.init_transactions()
    for value in ("aborted", "committed"):
        producer.begin_transaction()
        producer.send(topic, value.encode()).get(WAIT_S)
        producer.abort_transaction() if value == "aborted" else producer.commit_transaction()
    producer.close()
    assert values_of(read(topic, 1, isolation_level="read_committed")) == ["committed"]


def offsets() -> None:
    """The offsets of a group are committed with the records."""
    topic = HERE.topic("offsets")
    write(topic, ["in"])
    consumer = KafkaConsumer(topic, bootstrap_servers=HERE.bootstrap, group_id=topic, **MEMBER)
    received(consumer, 1)
    producer = KafkaProducer(bootstrap_servers=HERE.bootstrap, transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"out")
    partition = TopicPartition(topic, 0)
    producer.send_offsets_to_transaction({partition: OffsetAndMetadata(1, "", -1)}, consumer.group_metadata())
    producer.commit_transaction()
    producer.close()
    eventually(lambda: consumer.committed(partition) == 1)  # it does not ask for stable offsets
    consumer.close()


def classic() -> None:
    """A second member goes on where the first one has committed."""
    topic = HERE.topic("classic")
    write(topic, ["a", "b"])
    for value in ("a", "b"):
        consumer = KafkaConsumer(topic, bootstrap_servers=HERE.bootstrap, group_id=topic, **MEMBER)
        assert values_of(received(consumer, 1)) == [value]
        consumer.commit()
        consumer.close()


def consumer_group() -> None:
    raise Unsupported("kafka-python does not have KIP-848")


def headers() -> None:
    sent = [("a", b"1"), ("a", b""), ("b", b"2")]  # it has no null values
    write(HERE.topic("headers"), ["v"], sent={"headers": sent})
    (message,) = read(HERE.topic("headers"), 1)
    assert list(message.headers) == sent, message.headers


def timestamps() -> None:
    """They are those of the producer, and offsets are found by them."""
    topic = HERE.topic("timestamps")
    for stamp in (1_700_000_000_000, 1_700_000_005_000):
        write(topic, ["v"], sent={"timestamp_ms": stamp})
    assert [each.timestamp for each in read(topic, 2)] == [1_700_000_000_000, 1_700_000_005_000]
    consumer = KafkaConsumer(bootstrap_servers=HERE.bootstrap)
    partition = TopicPartition(topic, 0)
    assert consumer.offsets_for_times({partition: 1_700_000_000_001})[partition].offset == 1
    consumer.close()


def admin() -> None:
    """A topic is created, described and deleted."""
    topic, client = HERE.topic("made"), KafkaAdminClient(bootstrap_servers=HERE.bootstrap)
    try:
        client.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})])
        eventually(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 2)
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        eventually(lambda: "60000" in str(client.describe_configs([resource])))
        client.delete_topics([topic])
    finally:
        client.close()


def secured(feature: str, **config: Any) -> Callable[[], None]:
    def story() -> None:
        topic = HERE.topic(feature)
        write(topic, ["secret"], ssl_cafile=HERE.ca, **config)
        assert values_of(read(topic, 1, ssl_cafile=HERE.ca, **config)) == ["secret"]

    return story


def login_by(mechanism: str, feature: str, **more: Any) -> Callable[[], None]:
    node = {"bootstrap_servers": HERE.secure_bootstrap, "security_protocol": "SASL_SSL"}
    return secured(feature, **node, sasl_mechanism=mechanism, **more)


class Token(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return HERE.token


PASSWORD = {"sasl_plain_username": HERE.username, "sasl_plain_password": HERE.password}


run(
    {
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
        "certificate": secured(
            "certificate",
            bootstrap_servers=HERE.mutual_bootstrap,
            security_protocol="SSL",
            ssl_certfile=HERE.certificate,
            ssl_keyfile=HERE.key,
        ),
    }
)
