"""The load through librdkafka (confluent-kafka). The client's defaults, but acks=all, a linger of 5 ms and idempotence.

Tidelog's producer is idempotent too, and librdkafka is faster so: it then has at most five requests of a node under
way. Without that bound it sends tiny batches to many partitions (keyed, 300 of them: 900 records/s instead of 14,000).
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from itertools import cycle
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.loads.job import DRAIN_SECONDS, STRIDE, TICK_SECONDS, Count, Gate, Job, Pace, keys

_BURST: Final = 200


def create_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    """Create a topic; answers once each partition has a leader and all replicas are in sync."""
    config = {"min.insync.replicas": str(min(2, job.replicas)), "file.delete.delay.ms": "0"}
    if job.fsync:
        config["flush.messages"] = "1"
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    for done in admin.create_topics([NewTopic(job.topic, job.partitions, job.replicas, config=config)]).values():
        done.result(60)
    deadline = time.perf_counter() + 120
    while True:
        topic = admin.list_topics(job.topic, timeout=10).topics[job.topic]
        led = [each for each in topic.partitions.values() if each.leader >= 0 and len(each.isrs) == job.replicas]
        if len(led) == job.partitions:
            return {}
        if time.perf_counter() > deadline:
            raise TimeoutError(f"{job.topic}: {len(led)} of {job.partitions} partitions are in sync after 120 s")
        time.sleep(0.1)


def delete_topic(job: Job, _gate: Gate) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": job.bootstrap})  # its requests end with it
    for done in admin.delete_topics([job.topic]).values():
        done.result(60)
    return {}


def _producer(job: Job, **settings: Any) -> Producer:
    defaults = {"bootstrap.servers": job.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5}
    producer = Producer({**defaults, **settings})
    producer.list_topics(job.topic, timeout=10)
    return producer


def produce(job: Job, gate: Gate) -> dict[str, Any]:
    """Records at full speed, at a pace, or in bursts, which the linger keeps apart."""
    producer = _producer(job)
    count = Count()
    if job.warm_up_seconds:
        _send(producer, job._replace(seconds=job.warm_up_seconds), count)
    gate.wait()
    count.begin()
    _send(producer, job, count)
    producer.flush(DRAIN_SECONDS)
    count.end()
    producer.purge()
    producer.flush(10)
    return count.result(job.value_bytes, job.batch_records or STRIDE)


def _send(producer: Producer, job: Job, count: Count) -> None:
    value = os.urandom(job.value_bytes)
    chosen = cycle(keys() if job.keyed else [None])
    targets = cycle(range(job.partitions))
    pace = Pace(job.rate, job.seconds, job.batch_records or (1 if job.rate else _BURST))
    number = 0
    while (due := pace.due()) >= 0:
        producer.poll(0 if due else TICK_SECONDS)
        if job.batch_records:
            for _ in range(due // job.batch_records):
                partition = next(targets)
                note = partial(_note, count, time.perf_counter())
                for _ in range(job.batch_records - 1):
                    _put(producer, job.topic, value, partition=partition)
                _put(producer, job.topic, value, partition=partition, on_delivery=note)
            continue
        for _ in range(due):
            number += 1
            if number % STRIDE:
                _put(producer, job.topic, value, key=next(chosen))
            else:
                note = partial(_note, count, time.perf_counter())
                _put(producer, job.topic, value, key=next(chosen), on_delivery=note)


def _put(producer: Producer, topic: str, value: bytes, **more: Any) -> None:
    while True:
        try:
            producer.produce(topic, value, **more)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def _note(count: Count, sent_at: float, error: KafkaError | None, _message: Message) -> None:
    if error is None:
        count.acknowledged(sent_at)
    else:
        count.failure(error)


def latencies(job: Job, gate: Gate) -> dict[str, Any]:
    """One record at a time to partition 0, linger 0."""
    producer = _producer(job, **{"linger.ms": 0})
    value = os.urandom(job.value_bytes)
    for _ in range(50):
        _round_trip(producer, job.topic, value)
    gate.wait()
    return {"latencies_ms": [_round_trip(producer, job.topic, value) for _ in range(job.repeats)]}


def _round_trip(producer: Producer, topic: str, value: bytes) -> float:
    outcome: list[KafkaError | None] = []
    began = time.perf_counter()
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: outcome.append(error))
    while not outcome:
        producer.poll(1)
    if outcome[0] is not None:
        raise RuntimeError(str(outcome[0]))
    return (time.perf_counter() - began) * 1000


def _consumer(job: Job, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": job.bootstrap, "group.id": "bench", "enable.auto.commit": False, **settings})


def _end(consumer: Consumer, partition: TopicPartition) -> int:
    """The end offset. The broker that is asked may learn of a new topic a moment after the others."""
    deadline = time.perf_counter() + 10
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=10)[1])
        except KafkaException:
            if time.perf_counter() > deadline:
                raise
            time.sleep(0.1)


def consume(job: Job, gate: Gate) -> dict[str, Any]:
    """Record objects of all partitions from the start, until the end of the log or of the time."""
    # With 100,000 records or 64 MiB in its queue, librdkafka does not fetch for a second. A server that fills the queue
    # quickly would be measured by that pause, and a slow one would not.
    consumer = _consumer(job, **{"fetch.queue.backoff.ms": 1})
    partitions = [TopicPartition(job.topic, number, 0) for number in range(job.partitions)]
    left = sum(_end(consumer, partition) for partition in partitions)
    consumer.assign(partitions)
    left -= len(consumer.consume(1_000, timeout=10))
    gate.wait()
    began, records, size = time.perf_counter(), 0, 0
    while records < left and time.perf_counter() < began + job.seconds:
        found = consumer.consume(min(10_000, left - records), timeout=0.5)  # it waits for as many as it is asked for
        records += len(found)
        size += sum(len(message.value() or b"") for message in found)
    ended = time.perf_counter()
    consumer.close()
    return {"records": records, "bytes": size, "began": began, "ended": ended}


def tail(job: Job, gate: Gate) -> dict[str, Any]:
    """Many consumers of partition 0 at its end: records of each, and the age of every record when it is polled."""
    ages: list[float] = []
    counts = [0] * job.consumers
    began = threading.Event()
    consumers = [_consumer(job) for _ in range(job.consumers)]

    def one(number: int) -> None:
        began.wait()
        deadline = time.perf_counter() + job.seconds
        while (left := deadline - time.perf_counter()) > 0:
            for message in consumers[number].consume(1_000, timeout=min(left, 0.002)):
                ages.append(time.perf_counter() - float((message.value() or b"0")[:20]))
                counts[number] += 1

    for consumer in consumers:
        consumer.assign([TopicPartition(job.topic, 0, _end(consumer, TopicPartition(job.topic, 0)))])
        consumer.consume(1, timeout=0.1)
    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(job.consumers)]
    for thread in threads:
        thread.start()
    gate.wait()
    began.set()
    for thread in threads:
        thread.join()
    for consumer in consumers:
        consumer.close()
    return {"counts": counts, "ages_ms": [age * 1000 for age in ages]}


def feed(job: Job, gate: Gate) -> dict[str, Any]:
    """Records to partition 0 that carry the time at which they were sent, for `tail`."""
    producer = _producer(job, **{"linger.ms": 0})
    gate.wait()
    pace = Pace(job.rate, job.seconds, 1)
    sent = 0
    while (due := pace.due()) >= 0:
        for _ in range(due):
            _put(producer, job.topic, b"%020.9f" % time.perf_counter() + bytes(80), partition=0)
        sent += due
        producer.poll(TICK_SECONDS)
    producer.flush(10)
    return {"records": sent}


def failover(job: Job, gate: Gate) -> dict[str, Any]:
    """Seconds from kill -9 of the process `pid` until each partition has acknowledged a record sent after it."""
    first: dict[int, float] = {}
    killed_at = float("inf")

    def note(partition: int, sent_at: float, error: KafkaError | None, _message: Message) -> None:
        if sent_at > killed_at and error is None:
            first.setdefault(partition, time.perf_counter())

    producer = _producer(job, **{"linger.ms": 0})
    gate.wait()
    began = time.perf_counter()
    while len(first) < job.partitions:
        now = time.perf_counter()
        if killed_at == float("inf") and now > began + 1:
            os.kill(job.pid, 9)
            killed_at = now
        if now > began + job.seconds:
            raise TimeoutError(f"{job.partitions - len(first)} partitions accepted nothing in {job.seconds:g} s")
        for partition in range(job.partitions):
            told = partial(note, partition, time.perf_counter())
            _put(producer, job.topic, bytes(100), partition=partition, on_delivery=told)
        producer.poll(0.025)
        while time.perf_counter() < now + 0.025:
            producer.poll(0.005)
    producer.purge()
    producer.flush(5)
    return {"seconds": max(first.values()) - killed_at}
