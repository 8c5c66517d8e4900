"""confluent-kafka: librdkafka from Python, from its oldest wheel for this Python to the newest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.kafka_clients.reporting import CODECS, WAIT_S, Unsupported, eventually, run, settings

HERE = settings()
PLAIN = {"bootstrap.servers": HERE.bootstrap, "log_level": 0}


def write(topic: str, values: list[str], config: dict[str, Any] | None = None, **more: Any) -> None:
    errors: list[object] = []
    producer = Producer({**PLAIN, **(config or {})})
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: errors.append(error), **more)
    assert producer.flush(WAIT_S) == 0, "records were not delivered"
    assert errors == [None] * len(values), errors


def received(consumer: Consumer, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(messages)} records of {count}"
        assert message.error() is None, message.error()
        messages.append(message)
    return messages


def read(topic: str, count: int, **config: Any) -> list[Any]:
    """The first records of a topic, of its partition 0."""
    consumer = Consumer({**PLAIN, "group.id": HERE.prefix, "enable.auto.commit": False, **config})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return received(consumer, count)
    finally:
        consumer.close()


def values_of(messages: list[Any]) -> list[str]:
    return [message.value().decode() for message in messages]


def codecs() -> None:
    topic = HERE.topic("codecs")
    for codec in CODECS:
        write(topic, [codec * 100] * 10, {"compression.type": codec})
    assert values_of(read(topic, 50)) == [codec * 100 for codec in CODECS for _ in range(10)]


def acks() -> None:
    for each in ("0", "1", "all"):
        write(HERE.topic("acks"), [each], {"acks": each})
    assert sorted(values_of(read(HERE.topic("acks"), 3))) == ["0", "1", "all"]


def idempotence() -> None:
    wanted = [str(number) for number in range(100)]
    write(HERE.topic("idempotence"), wanted, {"enable.idempotence": True, "linger.ms": 0})
    assert values_of(read(HERE.topic("idempotence"), 100)) == wanted


def transactions() -> None:
    """One aborts, one commits."""
    topic = HERE.topic("transactions")
    producer = Producer({**PLAIN, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    for value in ("aborted", "committed"):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(WAIT_S)
        producer.abort_transaction(WAIT_S) if value == "aborted" else producer.commit_transaction(WAIT_S)
    assert values_of(read(topic, 1, **{"isolation.level": "read_committed"})) == ["committed"]


def offsets() -> None:
    """The offsets of a group are committed with the records."""
    topic, group = HERE.topic("offsets"), HERE.topic("offsets")
    write(topic, ["in"])
    consumer = Consumer({**PLAIN, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    received(consumer, 1)
    producer = Producer({**PLAIN, "transactional.id": group})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "out")
    position = [TopicPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    assert [each.offset for each in consumer.committed(position, WAIT_S)] == [1]
    consumer.close()


def group_of(protocol: str) -> Callable[[], None]:
    def story() -> None:
        """A second member goes on where the first one has committed."""
        topic = HERE.topic(protocol)
        config = {**PLAIN, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        if protocol == "consumer":
            config["group.protocol"] = protocol
        write(topic, ["a", "b"])
        for value in ("a", "b"):
            try:
                consumer = Consumer(config)
            except KafkaException as error:
                raise Unsupported(f"no group.protocol in librdkafka {confluent_kafka.libversion()[0]}") from error
            consumer.subscribe([topic])
            (message,) = received(consumer, 1)
            consumer.commit(message, asynchronous=False)
            consumer.close()
            assert values_of([message]) == [value]

    return story


def headers() -> None:
    write(HERE.topic("headers"), ["v"], headers=[("a", b"1"), ("a", b""), ("b", None)])
    (message,) = read(HERE.topic("headers"), 1)
    assert message.headers() == [("a", b"1"), ("a", b""), ("b", None)], message.headers()


def timestamps() -> None:
    """They are those of the producer, and offsets are found by them."""
    topic = HERE.topic("timestamps")
    for stamp in (1_700_000_000_000, 1_700_000_005_000):
        write(topic, [str(stamp)], timestamp=stamp)
    assert [each.timestamp()[1] for each in read(topic, 2)] == [1_700_000_000_000, 1_700_000_005_000]
    consumer = Consumer({**PLAIN, "group.id": topic})
    found = consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_000_001)], timeout=WAIT_S)
    consumer.close()
    assert [each.offset for each in found] == [1]


def admin() -> None:
    """A topic is created, described and deleted."""
    topic, client = HERE.topic("made"), AdminClient(PLAIN)
    client.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "60000"})])[topic].result(WAIT_S)
    eventually(lambda: len(client.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 2)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    assert client.describe_configs([resource])[resource].result(WAIT_S)["retention.ms"].value == "60000"
    client.delete_topics([topic])[topic].result(WAIT_S)


def secured(feature: str, config: dict[str, Any]) -> Callable[[], None]:
    def story() -> None:
        topic, given = HERE.topic(feature), {"ssl.ca.location": HERE.ca, **config}
        write(topic, ["secret"], given)
        assert values_of(read(topic, 1, **given)) == ["secret"]

    return story


def login_by(mechanism: str, **more: Any) -> dict[str, Any]:
    node = {"bootstrap.servers": HERE.secure_bootstrap, "security.protocol": "SASL_SSL"}
    return {**node, "sasl.mechanism": mechanism, **more}


PASSWORD = {"sasl.username": HERE.username, "sasl.password": HERE.password}
CERTIFICATE = {
    "bootstrap.servers": HERE.mutual_bootstrap,
    "security.protocol": "SSL",
    "ssl.certificate.location": HERE.certificate,
    "ssl.key.location": HERE.key,
}
TOKEN_EXPIRES_S = 2**31


run(
    {
        "codecs": codecs,
        "acks": acks,
        "idempotence": idempotence,
        "transactions": transactions,
        "offsets": offsets,
        "classic": group_of("classic"),
        "consumer": group_of("consumer"),
        "headers": headers,
        "timestamps": timestamps,
        "admin": admin,
        "scram": secured("scram", login_by("SCRAM-SHA-512", **PASSWORD)),
        "plain": secured("plain", login_by("PLAIN", **PASSWORD)),
        "oauthbearer": secured(
            "oauthbearer", login_by("OAUTHBEARER", oauth_cb=lambda _: (HERE.token, TOKEN_EXPIRES_S))
        ),
        "certificate": secured("certificate", CERTIFICATE),
    }
)
