"""`tidelog bench produce|consume|latency`: measures a cluster from where the command runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import click

from tidelog.cli.cluster_command import CommandCall, cluster_command, reach
from tidelog.cli.declared import Argument, CommandGroup, Option
from tidelog.cli.interrupts import run_until_signal
from tidelog.cli.output import printed_warnings
from tidelog.client.consumer import Consumer
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.clock import MachineClock
from tidelog.standard_streams import say
from tidelog.types import TopicPartition

app = CommandGroup()

Topic = Annotated[str, Argument(help="Name of the topic. `bench produce` and `bench latency` write records into it.")]
Size = Annotated[int, Option("--size", "-s", min=1, help="Bytes of each value.")]
Compression = Annotated[str, Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")]
Acks = Annotated[str, Option(help="all, 1 or 0.")]
VALUES: Final = 64
"""Different values that are sent in turn: random bytes, of which a codec makes no less."""
WARM_UP: Final = 10
"""Round trips before those that are measured: they open connections."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What passed in some time."""

    records: int
    bytes: int
    """Of values."""
    seconds: float

    @property
    def document(self) -> dict[str, object]:
        """For scripts."""
        seconds = max(self.seconds, 0.001)
        return {
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "records_per_second": round(self.records / seconds, 1),
            "megabytes_per_second": round(self.bytes / seconds / 1e6, 3),
        }

    def __str__(self) -> str:
        shown = self.document
        return (
            f"{self.records} records, {self.bytes} bytes in {self.seconds:.2f} s: {shown['records_per_second']:,} "
            f"records/s, {shown['megabytes_per_second']:,} MB/s"
        )


@dataclass(frozen=True, slots=True)
class Latencies:
    """Sorted durations (ms)."""

    sorted_ms: tuple[float, ...]

    def at(self, percent: float) -> float:
        """The duration that this percentage does not exceed."""
        index = min(len(self.sorted_ms) - 1, int(len(self.sorted_ms) * percent / 100))
        return round(self.sorted_ms[index], 3)

    @property
    def document(self) -> dict[str, float]:
        """For scripts."""
        return {
            "p50_ms": self.at(50),
            "p95_ms": self.at(95),
            "p99_ms": self.at(99),
            "p999_ms": self.at(99.9),
            "max_ms": round(self.sorted_ms[-1], 3),
        }

    def __str__(self) -> str:
        return ", ".join(f"{name.removesuffix('_ms')} {value:.2f} ms" for name, value in self.document.items())


@cluster_command(app)
def produce(
    call: CommandCall,
    topic: Topic,
    records: Annotated[int, Option("--records", "-n", min=1, help="Records to write.")] = 100_000,
    size: Size = 100,
    rate: Annotated[float | None, Option(min=1, help="Records a second at most; default: as fast as it goes.")] = None,
    acks: Acks = "all",
    compression: Compression = "none",
    linger_ms: Annotated[int, Option("--linger-ms", min=0, help="How long a batch waits for more records.")] = 5,
) -> None:
    """Write records of random bytes, and show throughput and the time from each one's call to its acknowledgement."""
    clock, latencies = MachineClock(), list[float]()

    async def work() -> Throughput:
        await reach(call.connection, topic)
        async with Producer(
            call.connection.bootstrap,
            acks=acks,
            compression=compression,
            linger_ms=linger_ms,
            **call.connection.of_client,
        ) as producer:
            await producer.partitions(topic)
            values = _values(size)
            began_ms = clock.monotonic_ms()
            for number in range(records):
                if rate is not None and number % max(1, int(rate) // 100) == 0:
                    ahead_ms = int(number * 1_000 / rate) - (clock.monotonic_ms() - began_ms)
                    if ahead_ms > 0:
                        await clock.sleep_ms(ahead_ms)
                delivery = await producer.enqueue(topic, values[number % VALUES])
                delivery.add_done_callback(_timed(_now_ms(), latencies))
            await producer.flush()
            return Throughput(len(latencies), len(latencies) * size, (clock.monotonic_ms() - began_ms) / 1_000)

    with printed_warnings():
        found = run_until_signal(work())
    _report(call, topic, found, latencies, failed=records - found.records)


@cluster_command(app)
def consume(
    call: CommandCall,
    topic: Annotated[str, Argument(help="Name of the topic.")],
    records: Annotated[int | None, Option("--records", "-n", min=1, help="Stop after this number of records.")] = None,
) -> None:
    """Read the records that a topic has now, and show the throughput."""
    clock = MachineClock()

    async def work() -> Throughput:
        await reach(call.connection, topic)
        async with Consumer(call.connection.bootstrap, **call.connection.of_client) as consumer:
            keys = await consumer.partitions(topic)
            ends = await consumer.end_offsets(keys)
            consumer.assign(keys)
            left = {key for key in keys if await consumer.position(key) < ends[key]}
            began_ms = clock.monotonic_ms()
            count = size = 0
            while left and (records is None or count < records):
                polled = await consumer.poll(10_000 if records is None else min(10_000, records - count))
                count, size = count + len(polled), size + sum(len(record.value or b"") for record in polled)
                left = {key for key in left if await consumer.position(key) < ends[key]}
            return Throughput(count, size, (clock.monotonic_ms() - began_ms) / 1_000)

    with printed_warnings():
        found = run_until_signal(work())
    call.report({"topic": topic, **found.document}, str(found))


@cluster_command(app)
def latency(
    call: CommandCall,
    topic: Topic,
    records: Annotated[int, Option("--records", "-n", min=1, help="Records to measure, one after the other.")] = 1_000,
    size: Size = 100,
    acks: Annotated[Literal["all", "1"], Option(help="Who must have a record before it is acknowledged.")] = "all",
) -> None:
    """Write one record after the other and read each one back: shows the time to its acknowledgement, and from its call
    to the consumer."""
    acknowledged, received = list[float](), list[float]()

    async def work() -> None:
        await reach(call.connection, topic)
        async with (
            Producer(call.connection.bootstrap, acks=acks, linger_ms=0, **call.connection.of_client) as producer,
            Consumer(call.connection.bootstrap, max_wait_ms=5_000, **call.connection.of_client) as consumer,
        ):
            partition = (await consumer.partitions(topic))[0]
            consumer.assign([partition], start="latest")
            await consumer.position(partition)
            value = _values(size)[0]
            for number in range(records + WARM_UP):
                began = _now_ms()
                sent = await producer.send(topic, value, partition=partition.partition)
                at = _now_ms()
                await _read_up_to(consumer, partition, sent.offset)
                if number >= WARM_UP:
                    acknowledged.append(at - began)
                    received.append(_now_ms() - began)

    with printed_warnings():
        run_until_signal(work())
    written, read = Latencies(tuple(sorted(acknowledged))), Latencies(tuple(sorted(received)))
    document = {"topic": topic, "records": records, "acknowledged": written.document, "received": read.document}
    call.report(document, f"acknowledged: {written}", f"received:     {read}")


def _values(size: int) -> list[bytes]:
    generator = random.Random(size)  # noqa: S311 - contents of no meaning
    return [generator.randbytes(size) for _ in range(VALUES)]


def _now_ms() -> float:
    return time.perf_counter() * 1_000


def _timed(began_ms: float, latencies: list[float]) -> Callable[[Delivery], None]:
    """A callback that notes the time to an acknowledgement."""

    def note(delivery: Delivery) -> None:
        if delivery.exception() is None:
            latencies.append(_now_ms() - began_ms)

    return note


async def _read_up_to(consumer: Consumer, partition: TopicPartition, offset: int) -> None:
    """Return once the record at an offset was read."""
    while await consumer.position(partition) <= offset:
        await consumer.poll(timeout=1.0)


def _report(call: CommandCall, topic: str, found: Throughput, latencies: list[float], *, failed: int) -> None:
    """Print the result of `bench produce`; exit code 1 if records were not acknowledged."""
    timed = Latencies(tuple(sorted(latencies))) if latencies else None
    document = {
        "topic": topic,
        **found.document,
        "failed": failed,
        "latency": None if timed is None else timed.document,
    }
    call.report(document, str(found), *([] if timed is None else [f"acknowledged after: {timed}"]))
    if failed:
        say(f"tidelog: {failed} records were not acknowledged")
        raise click.exceptions.Exit(1)
