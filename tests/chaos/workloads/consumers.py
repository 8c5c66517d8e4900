"""Members of consumer groups that commit after each poll: by Tidelog's client, and by confluent-kafka with the classic
protocol and with that of KIP-848."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPlace

from tests.chaos.history import Assigned, Begun, Committed, Committing, Failed, Polled, now
from tests.chaos.workloads.work import Work
from tidelog import Consumer, TopicPartition
from tidelog.errors import CommitFailed, TidelogError


async def consume(work: Work, name: str, group: str, topic: str, *, life_s: float = 0) -> None:
    """Until readers stop. life_s: so long after its begin the member leaves, and another one joins; 0: it stays."""
    work.history.note(Begun(now(), name, []))
    while not work.stopping_readers.is_set():
        try:
            await _consume(work, name, group, topic, now() + life_s if life_s else float("inf"))
        except TidelogError as failure:
            work.history.note(Failed(now(), name, f"{type(failure).__name__}: {failure}"))


async def _consume(work: Work, name: str, group: str, topic: str, until: float) -> None:
    def assigned(partitions: list[TopicPartition]) -> None:
        work.history.note(Assigned(now(), name, group, [(each.topic, int(each.partition)) for each in partitions]))

    async with Consumer(
        work.bootstrap,
        group=group,
        topics=[topic],
        auto_commit=False,
        auto_offset_reset="earliest",
        isolation="read_committed",
        on_assigned=assigned,
    ) as consumer:
        while not work.stopping_readers.is_set() and now() < until:
            records = await consumer.poll(max_records=500, timeout=0.5)
            at = now()
            offsets: list[tuple[str, int, int]] = []
            by_partition = defaultdict(list)
            for record in records:
                by_partition[int(record.partition)].append((int(record.offset), (record.value or b"").decode()))
            for partition, found in by_partition.items():
                work.history.note(Polled(at, name, group, topic, partition, found))
                work.note_reached(group, topic, partition, found[-1][0])
                offsets.append((topic, partition, found[-1][0] + 1))
            if not offsets:
                continue
            work.history.note(Committing(now(), name, group, offsets))
            try:
                await consumer.commit({TopicPartition(place, index): at for place, index, at in offsets})
            except CommitFailed as failure:
                work.history.note(Failed(now(), name, f"CommitFailed: {failure}"))
                # It returns again what it has returned since it joined: that is a new begin.
                assigned(consumer.assignment)
            except TidelogError as failure:
                work.history.note(Failed(now(), name, f"{type(failure).__name__}: {failure}"))
            else:
                work.history.note(Committed(now(), name, group, offsets))


def consume_by_kafka(work: Work, name: str, group: str, topic: str, protocol: str) -> None:
    """The same by librdkafka, on a thread. protocol: classic or consumer. After an error from which the client does not
    recover, another member takes its place."""
    work.history.note(Begun(now(), name, []))
    while not work.stopping_readers.is_set():
        _consume_until_stuck(work, name, group, topic, protocol)


def _consume_until_stuck(work: Work, name: str, group: str, topic: str, protocol: str) -> None:
    def assigned(_: KafkaConsumer, partitions: list[KafkaPlace]) -> None:
        work.history.note(Assigned(now(), name, group, [(each.topic, each.partition) for each in partitions]))

    settings: dict[str, object] = {
        "bootstrap.servers": work.kafka_bootstrap,
        "group.id": group,
        "client.id": name,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "group.protocol": protocol,
    }
    if protocol == "classic":
        settings |= {"partition.assignment.strategy": "cooperative-sticky", "session.timeout.ms": 6_000}
    consumer = KafkaConsumer(settings)
    consumer.subscribe([topic], on_assign=assigned)
    try:
        while not work.stopping_readers.is_set():
            messages = consumer.consume(500, 0.3)
            if any(_is_stuck(message) for message in messages):
                _noted(work, name, group, messages)
                break
            offsets = _noted(work, name, group, messages)
            if not offsets:
                continue
            work.history.note(Committing(now(), name, group, offsets))
            try:
                places = consumer.commit(offsets=[KafkaPlace(*each) for each in offsets], asynchronous=False)
            except KafkaException as failure:
                work.history.note(Failed(now(), name, str(failure)))
            else:
                stored = [(each.topic, each.partition, each.offset) for each in places if each.error is None]
                work.history.note(Committed(now(), name, group, stored))
    finally:
        consumer.close()


def _is_stuck(message: Message) -> bool:
    """Whether the coordinator moved while the client asked it for committed offsets: librdkafka looks the coordinator
    up, but does not ask it, and its partitions wait for ever (librdkafka issue 5586)."""
    error = message.error()
    return error is not None and error.code() == KafkaError.NOT_COORDINATOR


def _noted(work: Work, name: str, group: str, messages: list[Message]) -> list[tuple[str, int, int]]:
    """Note what a poll returned. Returns the offsets to commit."""
    at = now()
    records = []
    for message in messages:
        if (error := message.error()) is not None:
            work.history.note(Failed(at, name, error.str()))
        else:
            records.append(message)
    offsets = []
    records.sort(key=_place)  # stable: the order within a partition stays
    for (topic, partition), found in groupby(records, key=_place):
        polled = [(message.offset(), (message.value() or b"").decode()) for message in found]
        work.history.note(Polled(at, name, group, topic, partition, polled))
        work.note_reached(group, topic, partition, polled[-1][0])
        offsets.append((topic, partition, polled[-1][0] + 1))
    return offsets


def _place(message: Message) -> tuple[str, int]:
    return message.topic(), message.partition()
