"""A client belongs to the event loop in which it was started: calls from elsewhere raise at once, and harm nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.client.group_story import fill
from tests.client.memory_cluster import memory_cluster
from tidelog.client.admin import Admin
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import InvalidRequest


async def first_of(consumer: Consumer) -> object:
    return await anext(aiter(consumer))


WORK: dict[str, Callable[[Producer, Consumer, Admin], Coroutine[Any, Any, object]]] = {
    "send": lambda producer, _, __: producer.send("orders", b"elsewhere"),
    "send to a new topic": lambda producer, _, __: producer.send("payments", b"elsewhere"),
    "enqueue": lambda producer, _, __: producer.enqueue("orders", b"elsewhere"),
    "enqueue_many": lambda producer, _, __: producer.enqueue_many("orders", [b"elsewhere"] * 9),
    "flush": lambda producer, _, __: producer.flush(),
    "close of the producer": lambda producer, _, __: producer.close(),
    "poll": lambda _, consumer, __: consumer.poll(),
    "iteration": lambda _, consumer, __: first_of(consumer),
    "commit": lambda _, consumer, __: consumer.commit(),
    "close of the consumer": lambda _, consumer, __: consumer.close(),
    "list_topics": lambda _, __, admin: admin.list_topics(),
    "close of the admin": lambda _, __, admin: admin.close(),
}


def in_a_loop_of_its_own(work: Callable[[], Coroutine[Any, Any, object]]) -> object:
    async def limited() -> object:
        async with asyncio.timeout(10):
            return await work()

    return asyncio.run(limited())


async def on_a_thread(work: Callable[[], object]) -> object:
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def test_a_call_in_another_loop_is_refused_at_once() -> None:
    """Such calls waited for ever, or put two records at the same place: futures of another loop do not wake it."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        cluster.create("payments")
        fill(cluster, "orders", 0, 1)
        async with (
            Producer(cluster.bootstrap) as producer,
            Consumer(cluster.bootstrap, group="g", topics=["orders"], max_wait_ms=100) as consumer,
            Admin(cluster.bootstrap) as admin,
        ):
            await producer.send("orders", b"here")
            read = 0
            while read < 2:  # the second one may come with another answer
                read += len(await consumer.poll(timeout=10))
            for name, work in WORK.items():
                with pytest.raises(
                    InvalidRequest, match="belongs to the event loop in which it was started"
                ) as refused:
                    await on_a_thread(partial(in_a_loop_of_its_own, partial(work, producer, consumer, admin)))
                assert "tidelog.sync." in refused.value.message, name
            with pytest.raises(InvalidRequest, match="any thread may call"):
                await on_a_thread(partial(producer.send_nowait, "orders", b"of a thread without a loop"))
            assert (await producer.send("orders", b"here again")).offset == 2, "nothing came in between"
            assert [record.value for record in await consumer.poll(timeout=10)] == [b"here again"]


async def test_a_transaction_in_another_loop_is_refused_and_the_producer_remains_usable() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, transactional_id="t") as producer:

            async def elsewhere() -> None:
                async with producer.transaction():
                    pass

            with pytest.raises(InvalidRequest, match="belongs to the event loop"):
                await on_a_thread(partial(in_a_loop_of_its_own, elsewhere))
            async with producer.transaction() as txn:
                await txn.send("orders", b"here")


def test_a_client_whose_loop_has_ended_is_closed_without_an_error() -> None:
    """`asyncio.run` for each step of a program: the client ends with the first one."""
    kept: list[Producer | Consumer | Admin] = []

    async def open_them() -> None:
        for kind in (Producer, Consumer, Admin):
            client = kind("127.0.0.1:1")
            await client.start()
            kept.append(client)

    async def use(client: Producer | Consumer | Admin) -> None:
        if isinstance(client, Producer):
            await client.send("orders", b"1")
        elif isinstance(client, Consumer):
            await client.partitions("orders")
        else:
            await client.list_topics()

    asyncio.run(open_them())
    for client in kept:
        with pytest.raises(InvalidRequest, match=r"is closed|belongs to the event loop"):
            asyncio.run(use(client))
        asyncio.run(client.close())
