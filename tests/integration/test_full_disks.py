"""The disks of all nodes of a cluster fill up while a producer has many batches on their way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.integration.small_disk import SETTINGS, give_small_disk, make_room, needs_small_disks
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.errors import DeliveryTimedOut, DiskFull, OutOfOrderSequenceNumber, TidelogError

TOPIC, PARTITIONS = "orders", 300
RECORD_BYTES = 64_000
RECORDS = 1_500
"""96 MB for three disks of 20 MB."""
AGAIN = 24
"""2 MB for the room that is made then."""


@pytest.mark.integration
@pytest.mark.deep
@needs_small_disks
def test_what_full_disks_refuse_is_certainly_not_written(tmp_path: Path) -> None:
    """Some 10 s: three nodes on disks of their own, and a producer that gives up after `delivery_timeout_ms`.

    Batches of 300 partitions wait behind refused ones and are sent again until their time is over. Before, the last
    attempt of a few partitions had no time for its answer: what the disks had always refused ended as CommitUnknown.
    """
    cluster = LocalCluster(tmp_path, settings=SETTINGS)
    for node in cluster.nodes:
        give_small_disk(node)
    try:
        cluster.start()
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, PARTITIONS, replicas=1)
        asyncio.run(story(cluster))
    finally:
        cluster.kill_all()


async def story(cluster: LocalCluster) -> None:
    async with Producer(cluster.bootstrap, buffer_bytes=256 << 20, delivery_timeout_ms=5_000) as producer:
        outcomes = await send(producer, range(RECORDS))
        failures = [each for each in outcomes.values() if each is not None]
        assert len(failures) > RECORDS // 4, "the disks hold less"
        assert {each.written for each in failures} == {False}
        assert {type(each) for each in failures} == {DeliveryTimedOut}
        causes = {type(each.__cause__) for each in failures}
        assert DiskFull in causes
        assert causes <= {DiskFull, OutOfOrderSequenceNumber}, "what was sent behind a refused batch is out of order"
        assert await values(cluster) == {number for number, failure in outcomes.items() if failure is None}

        for node in cluster.nodes:
            make_room(node)
        again = await send(producer, range(RECORDS, RECORDS + AGAIN))
        assert set(again.values()) == {None}, "there is room for these"


async def send(producer: Producer, numbers: range) -> dict[int, TidelogError | None]:
    """All records at once, and what became of each."""
    padding = b"." * RECORD_BYTES
    deliveries = {
        number: await producer.enqueue(TOPIC, b"%d %b" % (number, padding), partition=number % PARTITIONS)
        for number in numbers
    }
    outcomes: dict[int, TidelogError | None] = {}
    for number, delivery in deliveries.items():
        try:
            await delivery
            outcomes[number] = None
        except TidelogError as failure:
            outcomes[number] = failure
    return outcomes


async def values(cluster: LocalCluster) -> set[int]:
    """The numbers of all committed records, each once."""
    found: list[int] = []
    async with Consumer(cluster.bootstrap) as consumer:
        partitions = [(TOPIC, index) for index in range(PARTITIONS)]
        consumer.assign(partitions)
        count = sum((await consumer.end_offsets(partitions)).values())
        async with asyncio.timeout(60):
            while len(found) < count:
                found += [int((record.value or b"").split()[0]) for record in await consumer.poll()]
    assert len(set(found)) == len(found)
    return set(found)
