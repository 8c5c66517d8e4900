"""A node with little memory for records: answers shrink, clients that do not read keep little, followers and reading
clients make progress, and all memory is returned in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from node.listeners.grpc.server import ANSWER_COPIES
from node.replicas.replica_config import ReplicaConfig
from node.runtime.memory_budget import Kind
from tests.node.wires import CALLER, Cluster, batch, fetch_request
from tidelog.protocol.v1 import data_pb2

BATCH = batch(b"x" * 10_000)
MESSAGE_MAX = 20_000
"""The topic's `max.message.bytes`: what one batch may need."""
LIMIT = 8 * 2 * ANSWER_COPIES * MESSAGE_MAX


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster(2, config=ReplicaConfig(memory_bytes=LIMIT), max_message_bytes=str(MESSAGE_MAX))
    cluster.set(leader=1)
    for _ in range(20):
        cluster.produce(1, BATCH)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


class UnreadStream:
    """A consumer's stream that sends one fetch, and reads answers only when the test lets it."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.taken = 0
        self.is_closed = False
        self._asked = False

    async def receive(self) -> data_pb2.FetchRequest | None:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return fetch_request(0, max_bytes=1 << 24)

    async def send(self, message: object, /) -> None:
        del message  # as the listener does: the frame of a cancelled sender may be kept
        await self.reads.wait()
        self.taken += 1

    def close(self) -> None:
        self.is_closed = True
        self.reads.set()


def used(cluster: Cluster) -> int:
    return sum(cluster.manager(1).memory.figures.used.values())


def open_streams(cluster: Cluster, count: int) -> tuple[list[UnreadStream], list[asyncio.Task[None]]]:
    streams = [UnreadStream() for _ in range(count)]
    tasks = [cluster.loop.create_task(cluster.service(1).fetch_stream(stream, CALLER)) for stream in streams]
    return streams, tasks


def test_readers_that_do_not_read_wait_for_each_other_and_followers_do_not_wait(cluster: Cluster) -> None:
    _, tasks = open_streams(cluster, 30)
    cluster.run(0.1)
    figures = cluster.manager(1).memory.figures
    assert figures.waiting[Kind.CONSUMER_FETCH] > 0
    assert sum(figures.used.values()) <= LIMIT * 6 // 8
    end = cluster.log(1).log_end_offset
    cluster.produce(1, BATCH)
    cluster.until(lambda: cluster.log(2).log_end_offset == end + 1, within=2)
    for task in tasks:
        task.cancel()
    cluster.run(0.1)
    assert used(cluster) == 0, "a closed connection returns its memory, including later grants"
    assert not cluster.manager(1).memory.is_short


def test_a_client_that_does_not_read_while_others_wait_is_disconnected(cluster: Cluster) -> None:
    streams, tasks = open_streams(cluster, 30)
    cluster.run(0.1)
    cluster.run(9.0)
    assert not any(stream.is_closed for stream in streams)
    cluster.run(30.0)
    closed = [stream for stream in streams if stream.is_closed]
    assert closed
    assert not cluster.manager(1).memory.is_short, "the others have what they asked for"
    assert len(closed) < len(streams), "a connection is closed only while a request waits for memory"
    for task in tasks:
        task.cancel()
    cluster.run(0.1)
    assert used(cluster) == 0


def test_an_answer_that_is_still_being_written_occupies_memory_after_its_stream_has_ended(cluster: Cluster) -> None:
    """gRPC cannot cancel a write. A client could have any number of answers written and fail the streams."""

    class Writing(UnreadStream):
        message: object = None

        async def send(self, message: object, /) -> None:
            self.message = message
            del message
            await self.reads.wait()

    stream = Writing()
    serving = cluster.loop.create_task(cluster.service(1).fetch_stream(stream, CALLER))
    cluster.run(0.1)
    occupied = used(cluster)
    assert occupied > 0
    serving.cancel()
    cluster.run(0.1)
    assert used(cluster) == occupied
    stream.message = None
    assert used(cluster) == 0


def test_an_answer_takes_no_more_than_the_node_can_give(cluster: Cluster) -> None:
    [answer] = cluster.wait(cluster.service(1).fetch(fetch_request(0, max_bytes=1 << 24), CALLER)).partitions
    assert len(BATCH) <= len(answer.records) <= LIMIT * 6 // 8 // 8 // ANSWER_COPIES + MESSAGE_MAX
    assert used(cluster) == 0
