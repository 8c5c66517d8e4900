"""What a Kafka broker answers to an independent client, and what our own Log says to the same questions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient, OffsetSpec

from storage.isolation import FetchIsolation
from storage.log.log import Log
from tests.interop.kafka_tools import run
from tidelog.errors import UnsupportedForMessageFormat
from tidelog.records import RecordBatch, iter_batches
from tidelog.types import Isolation, Offset, ProducerId

_READ_BYTES = 5_000
_NULL = "<null>"
_SILENCE = 10
"""Polls of half a second without a record, after which there are none."""
_ISOLATION = {
    Isolation.READ_UNCOMMITTED: FetchIsolation.HIGH_WATERMARK,
    Isolation.READ_COMMITTED: FetchIsolation.LAST_STABLE_OFFSET,
}


class Seen(NamedTuple):
    """A record as a reader gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


# --- a broker -------------------------------------------------------------------------------------------------------


def kafka_records(address: str, topics: Iterable[str], isolation: Isolation) -> dict[str, list[Seen]]:
    """All records of these topics' first partitions, read by aiokafka, which knows all codecs, but no lz4 in
    format v0 and no log of several formats, from the earliest to the end that the broker names for this isolation
    level."""
    committed = isolation is Isolation.READ_COMMITTED
    ends = {
        topic: reported.stable if committed else reported.end for topic, reported in kafka_ends(address, topics).items()
    }
    return asyncio.run(_kafka_records(address, ends, isolation))


def console_records(address: str, topic: str, count: int) -> list[Seen]:
    """So many records of a topic without headers, read by Kafka's own console consumer."""
    options = {"print.offset": "true", "print.timestamp": "true", "print.key": "true", "null.literal": _NULL}
    properties = [text for name, value in options.items() for text in ("--property", f"{name}={value}")]
    output, _ = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", address, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(count), "--timeout-ms", "30000", *properties),
    )
    found = []
    for line in output.splitlines():
        kind, offset, key, value = line.split("\t")
        timestamp = -1 if kind == "NO_TIMESTAMP" else int(kind.rpartition(":")[2])
        found.append(Seen(int(offset.removeprefix("Offset:")), timestamp, _bytes(key), _bytes(value), ()))
    return found


def _bytes(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


async def _kafka_records(address: str, ends: dict[str, int], isolation: Isolation) -> dict[str, list[Seen]]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, isolation_level=isolation.name.lower(), check_crcs=True, enable_auto_commit=False
    )
    await consumer.start()
    try:
        partitions = [AioPartition(topic, 0) for topic in ends]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        found: dict[str, list[Seen]] = {topic: [] for topic in ends}
        silent = 0
        while silent < _SILENCE:
            polled = await consumer.getmany(timeout_ms=500)
            silent = 0 if polled else silent + 1
            for partition, records in polled.items():
                found[partition.topic] += [_seen(record) for record in records]
            if all([await consumer.position(partition) >= ends[partition.topic] for partition in partitions]):
                break
    finally:
        await consumer.stop()
    return found


def _seen(record: Any) -> Seen:
    timestamp = -1 if record.timestamp is None else record.timestamp
    return Seen(record.offset, timestamp, record.key, record.value, tuple(map(tuple, record.headers or ())))


class Ends(NamedTuple):
    """Log start, end for each isolation level, and the record with the largest timestamp (offset, timestamp)."""

    start: int
    end: int
    stable: int
    largest: tuple[int, int]


def kafka_ends(address: str, topics: Iterable[str]) -> dict[str, Ends]:
    """ListOffsets of these topics' first partitions."""
    admin = KafkaAdminClient(bootstrap_servers=address)
    try:
        partitions = [KafkaPartition(topic, 0) for topic in topics]

        def ask(spec: OffsetSpec, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> dict[Any, Any]:
            asked = dict.fromkeys(partitions, spec)
            found: dict[Any, Any] = admin.list_partition_offsets(asked, isolation_level=isolation.name.lower())
            return found

        earliest, latest = ask(OffsetSpec.EARLIEST), ask(OffsetSpec.LATEST)
        stable, largest = ask(OffsetSpec.LATEST, Isolation.READ_COMMITTED), ask(OffsetSpec.MAX_TIMESTAMP)
        return {
            at.topic: Ends(
                earliest[at].offset, latest[at].offset, stable[at].offset, (largest[at].offset, largest[at].timestamp)
            )
            for at in partitions
        }
    finally:
        admin.close()


def kafka_times(address: str, asked: dict[str, list[int]]) -> dict[str, list[tuple[int, int] | None]]:
    """offsetsForTimes: (offset, timestamp) of the first record at or after each of these times, None for none."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id=None)
    found: dict[str, list[tuple[int, int] | None]] = {topic: [] for topic in asked}
    try:
        for turn in range(max(map(len, asked.values()))):
            now = {KafkaPartition(topic, 0): times[turn] for topic, times in asked.items() if turn < len(times)}
            for partition, answer in consumer.offsets_for_times(now).items():
                found[partition.topic].append(None if answer is None else (answer.offset, answer.timestamp))
    finally:
        consumer.close()
    return found


# --- a log of ours --------------------------------------------------------------------------------------------------


def our_records(log: Log, isolation: Isolation) -> list[Seen]:
    """All records that a consumer of this isolation level gets from our log: transactions that were aborted are left
    out by the list that the log gives with each read, as consumers do."""
    found = []
    for batch, aborted in _batches(log, _ISOLATION[isolation]):
        if batch.is_control or batch.producer_id in aborted:
            continue
        found += [
            Seen(record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in batch.records()
            if record.offset >= log.log_start_offset
        ]
    return found


def _batches(log: Log, isolation: FetchIsolation) -> Iterator[tuple[RecordBatch, set[ProducerId]]]:
    """Each batch, with the producers whose transaction it belongs to was aborted."""
    offset = log.log_start_offset
    while offset < log.end_for(isolation):
        read = log.fetch(offset, _READ_BYTES, isolation)
        for batch in iter_batches(read.records):
            batch.ensure_valid()
            doomed = {
                entry.producer_id
                for entry in read.aborted
                if batch.is_transactional and entry.first_offset <= batch.base_offset <= entry.last_offset
            }
            yield batch, doomed
        if not len(read.records):
            break
        offset = read.next_offset


def our_ends(log: Log) -> Ends:
    """What our log answers to ListOffsets."""
    largest = log.largest_timestamp(up_to=log.high_watermark)
    return Ends(
        log.log_start_offset,
        log.high_watermark,
        log.last_stable_offset,
        (-1, -1) if largest is None else (largest.offset, largest.timestamp),
    )


def our_times(log: Log, asked: Iterable[int]) -> list[tuple[int, int] | None]:
    """The same as `kafka_times`."""
    found = []
    for timestamp in asked:
        try:
            answer = log.fetch_offset_by_timestamp(timestamp, up_to=Offset(log.high_watermark))
        except UnsupportedForMessageFormat:
            answer = None
        found.append(None if answer is None else (int(answer.offset), int(answer.timestamp)))
    return found
