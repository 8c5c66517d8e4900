"""Calls that wait for memory until they time out: either a record is queued and the call returns its delivery, or it is
never queued."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.client.memory_cluster import CLOCK, SILENCE, MemoryCluster, memory_cluster, start, until
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.errors import BufferExhausted

KEY = b"customer 7"


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop whose time can be advanced, as if the program had been busy."""

    jumped = 0.0

    def time(self) -> float:
        return super().time() + self.jumped


@pytest.fixture
def loop() -> Iterator[JumpingLoop]:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, JumpingLoop)
        yield loop


async def answer_again(cluster: MemoryCluster) -> None:
    """A silent node answers; batches that it did not answer are resent."""
    cluster.nodes[0].on_produce = lambda entry: None
    await cluster.nodes[0].stop()
    await cluster.nodes[0].start()


async def full(producer: Producer, cluster: MemoryCluster) -> list[asyncio.Task[Delivery]]:
    """One record is queued and leaves memory for a small one; a large one waits, and a small one after it."""
    await producer.partitions("orders")
    cluster.nodes[0].on_produce = lambda entry: SILENCE
    calls = [start(producer.enqueue("orders", b"first".ljust(600), KEY))]
    calls += [start(producer.enqueue("orders", b"large".ljust(1_000), KEY))]
    calls += [start(producer.enqueue("orders", b"small", KEY))]
    await until(calls[0].done)
    return calls


def written(cluster: MemoryCluster) -> list[bytes]:
    return [(value or b"").rstrip() for value in cluster.values("orders")]


async def test_a_record_queued_in_the_turn_of_its_timeout_is_delivered(loop: JumpingLoop) -> None:
    """The large record's caller stops waiting, so the small record is queued; the time of its call ends in the same
    turn."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        options = {"linger_ms": 0, "buffer_bytes": 1_500, "max_block_ms": 60_000}
        async with Producer(cluster.bootstrap, **options) as producer:  # type: ignore[arg-type]
            _, large, small = await full(producer, cluster)
            large.cancel()
            loop.jumped += 61
            await asyncio.wait([large, small])
            assert large.cancelled()
            delivery = await small
            await answer_again(cluster)
            assert (await delivery).offset == 1
        assert written(cluster) == [b"first", b"small"]


async def test_a_call_that_timed_out_queues_nothing(loop: JumpingLoop) -> None:
    """Both times end in the same turn: the memory that the large record leaves is not for the small one."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        options = {"linger_ms": 0, "buffer_bytes": 1_500, "max_block_ms": 60_000}
        async with Producer(cluster.bootstrap, **options) as producer:  # type: ignore[arg-type]
            _, large, small = await full(producer, cluster)
            loop.jumped += 61
            for call in (large, small):
                with pytest.raises(BufferExhausted, match="Nothing was queued"):
                    await call
            await answer_again(cluster)
        assert written(cluster) == [b"first"]


@pytest.mark.parametrize("first", ["large", "small"])
async def test_a_cancelled_call_queues_nothing_after_it_was_cancelled(loop: JumpingLoop, first: str) -> None:
    """A record that was queued before the cancellation stays, although its caller does not get the delivery."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=1_500) as producer:
            _, large, small = await full(producer, cluster)
            if first == "large":
                large.cancel()
                loop.call_soon(small.cancel)  # in the next turn, after the large record's call
            else:
                small.cancel()
                large.cancel()
            await asyncio.wait([large, small])
            assert large.cancelled()
            assert small.cancelled()
            await answer_again(cluster)
        assert written(cluster) == ([b"first", b"small"] if first == "large" else [b"first"])
        assert producer.buffered_bytes == 0


@pytest.mark.parametrize("seed", range(3))
async def test_calls_that_time_out_in_any_turn_report_correctly_whether_they_were_queued(
    loop: JumpingLoop, seed: int
) -> None:
    """Thousands of calls, several per turn, some cancelled or timed out by their callers, on a slow loop."""
    rng, count = random.Random(seed), 2_000
    called: list[bytes] = []
    queued: set[bytes] = set()
    exhausted: set[bytes] = set()
    cancelled_first: set[bytes] = set()
    async with memory_cluster() as cluster:
        cluster.create("orders")
        options = {"batch_bytes": 4_000, "buffer_bytes": 12_000, "max_block_ms": 2_000, "linger_ms": 1}
        async with Producer(cluster.bootstrap, **options) as producer:  # type: ignore[arg-type]
            await producer.partitions("orders")

            async def call(value: bytes, how: str) -> None:
                called.append(value)
                record = value.ljust(len(value) + rng.randrange(900))
                try:
                    await (producer.send if how == "send" else producer.enqueue)("orders", record, KEY)
                    queued.add(value)
                except BufferExhausted:
                    exhausted.add(value)

            async def bounded(value: bytes, how: str) -> None:
                try:
                    async with asyncio.timeout(rng.random() * 2):
                        await call(value, how)
                except TimeoutError:
                    pass

            tasks: list[asyncio.Task[None]] = []
            for number in range(count):
                value, how = b"%05d" % number, rng.choice(["send", "enqueue"])
                tasks.append(start((bounded if rng.random() < 0.2 else call)(value, how)))
                if rng.random() < 0.05:
                    loop.call_later(rng.random() * 2, tasks[-1].cancel)
                if rng.random() < 0.02:
                    tasks[-1].cancel()  # before it runs
                    cancelled_first.add(value)
                if rng.random() < 0.3:
                    loop.jumped += rng.random() * 2
                    await CLOCK.sleep_ms(rng.choice([0, 0, 0, 1]))
            await asyncio.wait(tasks)
        log = written(cluster)
        places = {value: place for place, value in enumerate(called)}
        assert len(log) == len(set(log))
        assert all(places[before] < places[after] for before, after in pairwise(log)), "in the order of the calls"
        assert exhausted, "some calls did not get memory in time"
        assert exhausted.isdisjoint(log)
        assert queued <= set(log)
        assert cancelled_first.isdisjoint(log)
        assert producer.buffered_bytes == 0
