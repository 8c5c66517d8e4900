"""A partition gets its records in the order of the calls, with any number of tasks and any waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor  # noqa: TID251 - one test needs threads
from itertools import pairwise

import pytest

from tests.client.memory_cluster import CLOCK, SILENCE, MemoryCluster, memory_cluster, start
from tidelog import sync
from tidelog.client.delivery import Delivery
from tidelog.client.producer import Producer
from tidelog.errors import BufferExhausted, RecordTooLarge

KEY = b"customer 7"


def swapped(cluster: MemoryCluster, topic: str = "orders") -> int:
    """Return how many pairs of neighbouring records in the log were sent in the opposite order."""
    numbers = [int(value or b"") for value in cluster.values(topic)]
    return sum(after < before for before, after in pairwise(numbers))


def numbered(number: int, size: int = 0) -> bytes:
    return str(number).encode().rjust(size, b"0")


async def three_calls_per_turn(call: Callable[[int], Awaitable[object]], count: int) -> list[asyncio.Task[object]]:
    """Create three tasks in each turn of the event loop. Each task calls `call` as soon as it runs."""

    async def one(number: int) -> object:
        return await call(number)

    tasks: list[asyncio.Task[object]] = []
    for first in range(0, count, 3):
        tasks += [start(one(number)) for number in range(first, min(first + 3, count))]
        await CLOCK.sleep_ms(0)
    return tasks


@pytest.mark.parametrize("how", ["enqueue", "send"])
@pytest.mark.parametrize("known", [True, False], ids=["known topic", "unknown topic"])
@pytest.mark.parametrize("buffer_bytes", [1 << 26, 50_000], ids=["roomy", "full"])
async def test_calls_of_several_tasks_in_one_turn_are_written_in_their_order(
    how: str, known: bool, buffer_bytes: int
) -> None:
    count = 3_000
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        async with Producer(cluster.bootstrap, batch_bytes=2_000, buffer_bytes=buffer_bytes) as producer:
            if known:
                await producer.partitions("orders")
            write = producer.enqueue if how == "enqueue" else producer.send
            called = await three_calls_per_turn(lambda number: write("orders", numbered(number), KEY), count)
            results = await asyncio.gather(*called)
            await asyncio.gather(*(each for each in results if isinstance(each, Delivery)))
        assert len(cluster.values("orders")) == count
        assert swapped(cluster) == 0


async def test_a_call_does_not_overtake_calls_that_wait_for_metadata() -> None:
    """The metadata arrive while several calls wait for them; a call at that moment needs no metadata."""
    async with memory_cluster() as cluster:
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            early = [start(producer.enqueue("orders", numbered(number))) for number in range(3)]
            await CLOCK.sleep_ms(150)
            cluster.create("orders", 1)
            late: list[asyncio.Task[Delivery]] = []
            while not early[0].done():
                late.append(start(producer.enqueue("orders", numbered(3 + len(late)))))
                await CLOCK.sleep_ms(0)
            await asyncio.gather(*early, *late)
        assert swapped(cluster) == 0


async def test_calls_for_one_topic_do_not_wait_for_the_metadata_of_another() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            unknown = start(producer.send("there-is-none", b"1"))
            await CLOCK.sleep_ms(0)
            assert (await producer.send("orders", b"2")).offset == 0
            assert not unknown.done()
            unknown.cancel()


async def test_cancelled_callers_do_not_change_the_order_of_the_others() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)
        async with Producer(cluster.bootstrap, linger_ms=0, buffer_bytes=5_000) as producer:
            await producer.partitions("orders")
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            calls = [start(producer.enqueue("orders", numbered(number, 900))) for number in range(40)]
            await CLOCK.sleep_ms(20)
            waiting = [number for number, call in enumerate(calls) if not call.done()]
            gone = {waiting[0], waiting[1], waiting[4], waiting[-1]}
            for number in gone:
                calls[number].cancel()
            cluster.nodes[0].on_produce = lambda entry: None
            await cluster.nodes[0].stop()  # unanswered batches are resent
            await cluster.nodes[0].start()
            await asyncio.wait(calls)
        assert [int(value or b"") for value in cluster.values("orders")] == [
            number for number in range(40) if number not in gone
        ]


async def test_a_caller_that_fails_or_times_out_does_not_block_the_next_one() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 1, {"max.message.bytes": "2000"})
        options = {"linger_ms": 0, "buffer_bytes": 5_000, "max_block_ms": 300}
        async with Producer(cluster.bootstrap, **options) as producer:  # type: ignore[arg-type]
            sizes = [5_000 if number == 1 else 900 for number in range(12)]
            cluster.nodes[0].on_produce = lambda entry: SILENCE
            calls = [start(producer.enqueue("orders", numbered(n, size))) for n, size in enumerate(sizes)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(results[1], RecordTooLarge)
            assert [type(each) for each in results[5:]] == [BufferExhausted] * 7
            cluster.nodes[0].on_produce = lambda entry: None
            await cluster.nodes[0].stop()
            await cluster.nodes[0].start()
            await producer.send("orders", numbered(12))
        assert [int(value or b"") for value in cluster.values("orders")] == [0, 2, 3, 4, 12]


async def test_threads_that_use_one_synchronous_producer_keep_their_order() -> None:
    """Several threads with a key each: the records of a thread are in the log in the order in which it sent them."""
    threads, each = 4, 150
    async with memory_cluster() as cluster:
        cluster.create("orders", 1)

        def write(producer: sync.Producer, thread: int) -> None:
            for first in range(0, each, 30):
                values = [(KEY, f"{thread} {number}".encode()) for number in range(first, first + 30)]
                producer.send_all("orders", values)

        def all_threads() -> None:
            with (
                sync.Producer(cluster.bootstrap, batch_bytes=500, buffer_bytes=10_000) as producer,
                ThreadPoolExecutor(threads) as pool,
            ):
                for done in [pool.submit(write, producer, thread) for thread in range(threads)]:
                    done.result()

        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, all_threads)
        seen = [(value or b"").split() for value in cluster.values("orders")]
        for thread in range(threads):
            own = [int(number) for name, number in seen if int(name) == thread]
            assert own == list(range(each))
