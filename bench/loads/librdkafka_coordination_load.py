"""Groups and transactions through librdkafka (confluent-kafka): groups of KIP-848, the client's defaults otherwise."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.loads import librdkafka_load
from bench.loads.coordination import Shares, Tally, Watch, ids
from bench.loads.job import Gate, Job

create_topic = librdkafka_load.create_topic
delete_topic = librdkafka_load.delete_topic

_POLL_SECONDS: Final = 0.05


def _member(job: Job, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def _producer(job: Job, transactional_id: str) -> Producer:
    return Producer({"bootstrap.servers": job.bootstrap, "linger.ms": 5, "transactional.id": transactional_id})


def commits(job: Job, gate: Gate) -> dict[str, Any]:
    """Each of `consumers` simple consumers commits one offset after the other."""
    tally = Tally()

    def one(group: str, ready: threading.Barrier) -> None:
        consumer = _member(job, group, **{"group.protocol": "classic"})
        _retried(lambda: consumer.commit(offsets=[TopicPartition(job.topic, 0, 0)], asynchronous=False))
        ready.wait()
        ready.wait()
        number = 0
        while time.perf_counter() < tally.deadline:
            number += 1
            began = time.perf_counter()
            consumer.commit(offsets=[TopicPartition(job.topic, 0, number)], asynchronous=False)
            tally.done(began)
        consumer.close()

    _in_threads(job, gate, tally, one, job.consumers)
    return tally.result()


def _in_threads(job: Job, gate: Gate, tally: Tally, one: Any, count: int) -> None:
    ready = threading.Barrier(count + 1)
    threads = [threading.Thread(target=one, args=(name, ready)) for name in ids("bench", count)]
    for thread in threads:
        thread.start()
    ready.wait()
    gate.wait()
    tally.begin(job.seconds)
    ready.wait()
    for thread in threads:
        thread.join()
    tally.end()


def _retried(call: Any) -> Any:
    """The first calls find no coordinator yet, and a killed one for a while."""
    deadline = time.perf_counter() + 60
    while True:
        try:
            return call()
        except KafkaException as error:
            if time.perf_counter() > deadline or error.args[0].txn_requires_abort():
                raise
            time.sleep(0.1)


def rebalance(job: Job, gate: Gate) -> dict[str, Any]:
    """Seconds until `consumers` members that join at once share all partitions, and until the others have those of one
    that left."""
    group = ids("rebalance", 1)[0]
    shares = Shares(job.partitions)
    stop = [threading.Event() for _ in range(job.consumers)]
    consumers = [_member(job, group) for _ in range(job.consumers)]

    def one(number: int) -> None:
        consumer = consumers[number]
        consumer.subscribe([job.topic])
        while not stop[number].is_set():
            consumer.poll(_POLL_SECONDS)
            shares.has(number, frozenset(each.partition for each in consumer.assignment()))
        consumer.close()
        shares.has(number, frozenset())

    threads = [threading.Thread(target=one, args=(number,)) for number in range(job.consumers)]
    gate.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    joined = shares.wait_shared(job.consumers, job.seconds) - began
    left_at = time.perf_counter()
    stop[0].set()
    left = shares.wait_shared(job.consumers - 1, job.seconds) - left_at
    for each in stop:
        each.set()
    for thread in threads:
        thread.join()
    return {"seconds": joined, "left_seconds": left}


def transactions(job: Job, gate: Gate) -> dict[str, Any]:
    """One transaction after the other, each of `batch_records` records."""
    producer = _producer(job, ids("transactions", 1)[0])
    producer.init_transactions(60)
    value = os.urandom(job.value_bytes)

    def once() -> None:
        producer.begin_transaction()
        for number in range(job.batch_records):
            producer.produce(job.topic, value, partition=number % job.partitions)
        producer.commit_transaction(60)

    tally = Tally()
    once()
    gate.wait()
    tally.begin(job.seconds)
    while time.perf_counter() < tally.deadline:
        began = time.perf_counter()
        once()
        tally.done(began)
    tally.end()
    return tally.result()


def throughput(job: Job, gate: Gate) -> dict[str, Any]:
    """Records at full speed in transactions of `rate` milliseconds."""
    producer = _producer(job, ids("throughput", 1)[0])
    producer.init_transactions(60)
    value = os.urandom(job.value_bytes)
    records = 0

    def once(seconds: float) -> int:
        producer.begin_transaction()
        sent, ends = 0, time.perf_counter() + seconds
        while time.perf_counter() < ends:
            for _ in range(200):
                _put(producer, job.topic, value)
            sent += 200
            producer.poll(0)
        producer.commit_transaction(60)
        return sent

    once(0.2)
    gate.wait()
    began = time.perf_counter()
    while time.perf_counter() < began + job.seconds:
        records += once(job.rate / 1000)
    ended = time.perf_counter()
    return {"records": records, "bytes": records * job.value_bytes, "began": began, "ended": ended, "p99_ms": 0.0}


def _put(producer: Producer, topic: str, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def coordinator_failover(job: Job, gate: Gate) -> dict[str, Any]:
    """Seconds from kill -9 of the process `pid` until each of `consumers` groups and transactional ids, spread over the
    coordinators, has committed again."""
    watch = Watch(job.consumers * 2)

    def group(number: int, name: str) -> None:
        consumer = _member(job, name, **{"group.protocol": "classic"})
        while not watch.complete:
            began = time.perf_counter()
            try:
                consumer.commit(offsets=[TopicPartition(job.topic, 0, 1)], asynchronous=False)
            except KafkaException:
                time.sleep(0.02)
                continue
            watch.committed(number, began)
            time.sleep(0.02)
        consumer.close()

    def transactional(number: int, name: str) -> None:
        producer = _producer(job, name)
        _retried(lambda: producer.init_transactions(60))
        while not watch.complete:
            began = time.perf_counter()
            producer.begin_transaction()
            producer.produce(job.topic, b"x", partition=number % job.partitions)
            try:
                _retried(lambda: producer.commit_transaction(60))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                _retried(lambda: producer.abort_transaction(60))
                continue
            watch.committed(number, began)
            time.sleep(0.02)

    threads = [
        threading.Thread(target=work, args=(offset + number, name), daemon=True)
        for offset, work, kind in ((0, group, "failover-g"), (job.consumers, transactional, "failover-t"))
        for number, name in enumerate(ids(kind, job.consumers))
    ]
    for thread in threads:
        thread.start()
    watch.wait_all_committed(60)
    gate.wait()
    return {"seconds": watch.kill(job.pid, job.seconds)}


def many_groups(job: Job, _gate: Gate) -> dict[str, Any]:
    """`repeats` groups, each with one committed offset."""
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    names = ids("memory", job.repeats)
    for start in range(0, len(names), 100):
        futures = [
            admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(name, [TopicPartition(job.topic, 0, 1)])])[
                name
            ]
            for name in names[start : start + 100]
        ]
        for future in futures:
            future.result(60)
    return {}


def many_transactional_ids(job: Job, _gate: Gate) -> dict[str, Any]:
    """`repeats` transactional ids with a producer id each."""
    for name in ids("memory", job.repeats):
        producer = _producer(job, name)
        _retried(lambda producer=producer: producer.init_transactions(60))
        del producer
    return {}
