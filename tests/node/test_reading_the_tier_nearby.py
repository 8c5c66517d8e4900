"""Consumers that are sent to a follower in their rack (KIP-392) read what is in the store only through that follower.
Kafka's OffloadAndConsumeFromFollowerTest, and a follower that ends or begins empty."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.fake_object_store import FakeObjectStore
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.tiered_nodes import (
    COORDINATORS,
    RECORDS,
    TIERED,
    TOPIC,
    all_left,
    bootstrap,
    consume_more,
    follower_number,
    in_sync,
    leader,
    of_store,
    produce,
    replicas,
)
from tidelog import Consumer, Producer
from tidelog.client.admin import Admin

pytestmark = pytest.mark.usefixtures("quick_tier")

NODES = 3
ABORTED = 9
"""Records of the transaction that is aborted, in the middle."""
PLACE = (TOPIC, 0)


@asynccontextmanager
async def history_in_racks(home: Path) -> AsyncIterator[RealNodes]:
    """Three nodes, each in a rack of its own. The records of the topic are in the store only, but for the last ones: of
    an aborted transaction too, which spans segments."""
    store = FakeObjectStore()

    def prepare(nodes: RealNodes) -> None:
        of_store(store)(nodes)
        nodes.racks = {number: rack_of(number) for number in range(NODES)}

    async with real_nodes(home, NODES, coordinators=COORDINATORS, prepare=prepare) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=NODES, configs=TIERED)
        await nodes.wait_until(lambda: len(replicas(nodes)) == NODES and len(in_sync(nodes)) == NODES)
        await produce(nodes, 0, RECORDS // 2)
        async with Producer(bootstrap(nodes), transactional_id="t", linger_ms=0) as producer:
            with pytest.raises(KeyError):
                async with producer.transaction():
                    for _ in range(ABORTED):
                        await producer.send(TOPIC, b"-1." + b"." * 900, partition=0)
                    raise KeyError
        await produce(nodes, RECORDS // 2, RECORDS // 2)
        await nodes.wait_until(all_left(nodes, RECORDS + ABORTED + 1))
        yield nodes


def rack_of(number: int) -> str:
    return f"rack-{number}"


def bytes_from_store(nodes: RealNodes) -> dict[int, int]:
    """What consumers have made each node read from the store."""
    figures = {number: each.node.metric_sources().tier for number, each in nodes.nodes.items()}
    return {number: each.read_bytes for number, each in figures.items() if each is not None}


@asynccontextmanager
async def reader_near(nodes: RealNodes, number: int, **options: Any) -> AsyncIterator[Consumer]:
    """At the first record, with buffers so small that it fetches all the time."""
    async with Consumer(
        bootstrap(nodes), rack=rack_of(number), fetch_bytes=2_000, buffer_bytes=4_000, **options
    ) as consumer:
        consumer.assign([PLACE])
        await consumer.seek_to_beginning()
        yield consumer


ALL = [*range(RECORDS // 2), *[-1] * ABORTED, *range(RECORDS // 2, RECORDS)]


@pytest.mark.deep
async def test_history_is_read_through_the_follower_that_is_near(tmp_path: Path) -> None:
    """Goal: a reader in the rack of a follower gets the history from there. Method: two readers, of which one reads
    decided records only, begin at the first record, and go on with what is produced meanwhile. Passed: each record
    comes once and in order, without those of the aborted transaction if the reader says so, and only the follower has
    read from the store. Takes longer than 10 s: followers ask every 10 s what was copied."""
    async with history_in_racks(tmp_path) as nodes:
        near = follower_number(nodes)
        before = bytes_from_store(nodes)
        async with (
            reader_near(nodes, near) as of_all,
            reader_near(nodes, near, isolation="read_committed") as of_decided,
        ):
            found: list[int] = []
            decided: list[int] = []
            await consume_more(of_all, found, len(ALL))
            await consume_more(of_decided, decided, RECORDS)
            assert found == ALL
            assert decided == [*range(RECORDS)]
            after = bytes_from_store(nodes)
            assert after[near] > before[near]
            assert {**after, near: 0} == {**before, near: 0}, "the other nodes were not asked"

            await produce(nodes, RECORDS, 4)
            await consume_more(of_all, found, len(ALL) + 4)
            await consume_more(of_decided, decided, RECORDS + 4)
            assert found == [*ALL, *range(RECORDS, RECORDS + 4)]
            assert decided == [*range(RECORDS + 4)]


@pytest.mark.deep
async def test_a_follower_that_ends_in_the_middle_of_history_or_begins_empty_loses_no_reader(tmp_path: Path) -> None:
    """Goal: a reader of history does not depend on its follower. Method: the follower is stopped while a reader is in
    the part that is in the store only, and comes back without its log, which does not know the remote segments at
    first; others begin at that moment. Passed: each record comes to each reader once and in order. Takes longer than
    10 s: as above."""
    async with history_in_racks(tmp_path) as nodes:
        near = follower_number(nodes)
        before = bytes_from_store(nodes)
        async with reader_near(nodes, near, isolation="read_committed") as consumer:
            found: list[int] = []
            while len(found) < RECORDS // 3:
                found += [
                    int((record.value or b"").partition(b".")[0]) for record in await consumer.poll(max_records=5)
                ]
            assert bytes_from_store(nodes)[near] > before[near]
            await nodes.stop(near)
            await consume_more(consumer, found, RECORDS)
            assert found == [*range(RECORDS)]
        other = next(number for number in range(NODES) if number != near and number != leader(nodes).leader_node)
        assert bytes_from_store(nodes)[other] == before[other], "the leader has taken over"

        shutil.rmtree(Path(nodes.log_directories(near)[0]) / f"{TOPIC}-0")
        await nodes.start(near)
        async with (
            reader_near(nodes, near) as of_all,
            reader_near(nodes, near, isolation="read_committed") as of_decided,
        ):
            found = []
            decided: list[int] = []
            await consume_more(of_all, found, len(ALL))
            await consume_more(of_decided, decided, RECORDS)
            assert found == ALL
            assert decided == [*range(RECORDS)]
