"""Topics with a remote tier, against real processes and a folder as the store: leaders are killed while they copy."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from node.process.local_cluster import LocalCluster, LocalNode
from replication.coordination.remote_log_records import REMOTE_LOG_RECORDS
from tests.integration.tiered_cluster import START_S, create_tiered_topic, first_on_disk, tiering_settings
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.protocol.kafka.messages.remote_log_segment_key import RemoteLogSegmentKey
from tidelog.protocol.kafka.messages.remote_log_segment_value import RemoteLogSegmentValue
from tidelog.tiering.remote_segment import RemoteSegmentState
from tidelog.types import REMOTE_LOG_METADATA_TOPIC

pytestmark = pytest.mark.integration

TOPIC = "orders"
STARTED, FINISHED = RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.COPY_SEGMENT_FINISHED
DELETED = RemoteSegmentState.DELETE_SEGMENT_STARTED
SEGMENT_BYTES = 100_000
COPY_BYTES_S = 1 << 17
"""A node copies this much in a second, in two copies at once: one segment takes a second and a half."""
RECORD_BYTES = 2_000
STEP = 60
"""Records that are produced at a time: more than a segment."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes with one store, and a topic whose copied segments leave the nodes at once."""
    cluster = LocalCluster(
        tmp_path / "nodes",
        settings={
            **tiering_settings(f"file://{tmp_path}/store"),
            "remote.log.manager.copy.max.bytes.per.second": COPY_BYTES_S,
        },
    )
    with cluster:
        create_tiered_topic(cluster, TOPIC, segment_bytes=SEGMENT_BYTES)
        yield cluster


async def send(cluster: LocalCluster, first: int, end: int) -> None:
    async with Producer(cluster.bootstrap, acks="all", delivery_timeout_ms=120_000, linger_ms=0) as producer:
        for number in range(first, end):
            await producer.send(TOPIC, (b"%d." % number).ljust(RECORD_BYTES, b"x"), partition=0)


async def copies(cluster: LocalCluster) -> dict[UUID, list[RemoteSegmentState]]:
    """The states that each remote segment has had, from the first on."""
    found: dict[UUID, list[RemoteSegmentState]] = {}
    place = (REMOTE_LOG_METADATA_TOPIC, 0)
    async with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for record in await consumer.poll():
                decoded = REMOTE_LOG_RECORDS.decode(record.key, record.value)
                if isinstance(decoded.key, RemoteLogSegmentKey) and isinstance(decoded.value, RemoteLogSegmentValue):
                    states = found.setdefault(decoded.key.segment_id, [])
                    states.append(RemoteSegmentState(decoded.value.segment_state))
    return found


def is_copying(cluster: LocalCluster) -> bool:
    return any(states == [STARTED] for states in asyncio.run(copies(cluster)).values())


async def read(cluster: LocalCluster, count: int) -> list[int]:
    found: list[int] = []
    async with Consumer(cluster.bootstrap, isolation="read_committed") as consumer:
        consumer.assign([(TOPIC, 0)])
        while len(found) < count:
            found += [int((record.value or b"").partition(b".")[0]) for record in await consumer.poll()]
    return found


def leader(cluster: LocalCluster) -> LocalNode:
    running = next(node for node in cluster.nodes if node.running)
    (topic,) = cluster.metadata(running.node_id, TOPIC).topics
    return cluster.nodes[topic.partitions[0].leader]


def wait_left(cluster: LocalCluster, end: int) -> None:
    """Until every node that runs has at most two segments."""
    running = [node for node in cluster.nodes if node.running]
    cluster.wait_until(
        lambda: all(first_on_disk(node, TOPIC) >= end - 2 * STEP for node in running),
        within_s=START_S,
        what=lambda: f"copied segments leave the nodes: {[first_on_disk(node, TOPIC) for node in running]} of {end}",
    )


@pytest.mark.deep
def test_nothing_is_lost_or_read_twice_while_leaders_die_in_the_middle(cluster: LocalCluster) -> None:
    """Goal: every acknowledged record is read once, from the first on, whatever the leader was doing when it was
    killed. Method: the leader is killed with SIGKILL three times while an upload is under way, which takes seconds, and
    restarted; another one takes over; segments leave all nodes; a node loses its log, and fetches only what is local.
    Passed: after each step, readers of decided records get exactly what was produced; copies that were cut off are
    deleted, and the store has the objects of finished segments only."""
    end = 0
    for _ in range(3):
        asyncio.run(send(cluster, end, end + 2 * STEP))
        killed = leader(cluster).node_id
        cluster.wait_until(partial(is_copying, cluster), within_s=START_S, what="a segment is being copied")
        cluster.kill(killed)
        asyncio.run(send(cluster, end + 2 * STEP, end + 3 * STEP))
        end += 3 * STEP
        cluster.start_node(killed)
        cluster.wait_healthy(START_S)
    assert asyncio.run(read(cluster, end)) == list(range(end))
    wait_left(cluster, end)
    assert asyncio.run(read(cluster, end)) == list(range(end))
    histories = asyncio.run(copies(cluster)).values()
    cut_off = [states for states in histories if states[:2] == [STARTED, DELETED]]
    assert cut_off, "a busy machine may finish some uploads before their leader is killed"
    finished = [states for states in histories if states == [STARTED, FINISHED]]
    assert len(finished) + len(cut_off) == len(histories)
    assert len(finished) >= end * RECORD_BYTES // SEGMENT_BYTES - 2
    cluster.wait_until(
        lambda: len([*cluster.directory.parent.glob("store/**/*.segment")]) == len(finished),
        within_s=START_S,
        what="the store has the objects of finished segments only",
    )

    emptied = next(node for node in cluster.nodes if node.node_id not in (0, leader(cluster).node_id))
    cluster.stop_node(emptied.node_id)
    shutil.rmtree(emptied.data / f"{TOPIC}-0")
    cluster.start_node(emptied.node_id)
    cluster.wait_healthy(START_S)
    wait_left(cluster, end)
    assert asyncio.run(read(cluster, end)) == list(range(end))
