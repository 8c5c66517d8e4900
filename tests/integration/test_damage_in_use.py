"""Real nodes with bytes of their logs changed by hand: a consumer gets everything from a sound replica; and the last
replica, elected by the command of an operator, keeps all that can be read and a copy of what it was."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelog
from node.process.local_cluster import LocalCluster, LocalNode
from storage.dump.dump_events import BatchFound
from storage.dump.walk import dump
from storage.files.os_files import OsFiles
from tidelog.cli import main
from tidelog.types import PartitionIndex, TopicPartition

pytestmark = pytest.mark.integration

TOPIC, COUNT = "orders", 60


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    # A start reads logs from their recovery points: these stay at 0, however long a story takes before its damage.
    with LocalCluster(tmp_path, settings={"log.flush.offset.checkpoint.interval.ms": 3_600_000}) as cluster:
        cluster.wait_healthy()
        yield cluster


def fill(cluster: LocalCluster) -> None:
    """So many records, each in a batch of its own."""

    async def produce() -> None:
        async with tidelog.Producer(cluster.bootstrap) as producer:
            for number in range(COUNT):
                await producer.send(TOPIC, b"value %d" % number, partition=0)

    asyncio.run(produce())


def read(cluster: LocalCluster, wanted: int, *, within_s: float = 30) -> list[int]:
    """The offsets of so many records, from the beginning."""

    async def consume() -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(within_s), tidelog.Consumer(cluster.bootstrap) as consumer:
            consumer.assign([TopicPartition(TOPIC, PartitionIndex(0))], start="earliest")
            while len(found) < wanted:
                found += [record.offset for record in await consumer.poll()]
        return found

    return asyncio.run(consume())


def leader_of(cluster: LocalCluster, *, but: int | None = None) -> int:
    """Who leads, as a node says that runs."""
    asked = next(node.node_id for node in cluster.nodes if node.running and node.node_id != but)
    (topic,) = cluster.metadata(asked, TOPIC).topics
    return int(topic.partitions[0].leader)


def damage(node: LocalNode, offset: int) -> None:
    """A byte of the last value of the batch there is another one."""
    directory = node.data / f"{TOPIC}-0"
    found = [each for each in dump(OsFiles(), str(directory), records=False) if isinstance(each, BatchFound)]
    batch = next(each for each in found if each.base_offset == offset)
    path = Path(batch.path)
    data = bytearray(path.read_bytes())
    data[batch.position + batch.size - 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any, str]:
    """What a command says: its exit code, its JSON, and its words."""
    capsys.readouterr()
    code = main([*arguments, "--json"])
    said = capsys.readouterr()
    return code, json.loads(said.out), said.err


def test_a_consumer_gets_all_from_a_sound_replica(cluster: LocalCluster) -> None:
    cluster.create_topic(TOPIC, 1, min_insync_replicas="2")
    cluster.wait_healthy()
    fill(cluster)
    rotten = leader_of(cluster)
    cluster.wait_until(
        lambda: all(
            b"value 59" in b"".join(f.read_bytes() for f in (n.data / f"{TOPIC}-0").glob("*.log"))
            for n in cluster.nodes
        ),
        within_s=10,
        what="all have everything",
    )
    damage(cluster.nodes[rotten], 30)
    assert read(cluster, COUNT) == list(range(COUNT))
    assert leader_of(cluster) != rotten
    assert "lost offsets 30..30" in cluster.nodes[rotten].log.read_text()
    cluster.wait_healthy()
    assert read(cluster, COUNT) == list(range(COUNT))


def test_an_unclean_election_reports_the_lost_offsets_and_keeps_the_rest(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three nodes that are stopped and started until the right one leads."""
    cluster.create_topic(TOPIC, 1, replicas=1)
    cluster.wait_healthy()
    fill(cluster)
    only = leader_of(cluster)
    where = ("--bootstrap", cluster.bootstrap)
    cluster.kill(only)
    damage(cluster.nodes[only], 30)
    cluster.start_node(only)

    def seen() -> tuple[int, bool, int, int]:
        code, status, _ = run_cli(capsys, "cluster", "status", *where)
        return code, status["healthy"], status["leaderless_partitions"], status["damaged_partitions"]

    def would_be_lost() -> str:
        code, (asked,), _ = run_cli(capsys, "partition", "elect", "--unclean", f"{TOPIC}-0", *where)
        assert (code, asked["elected"]) == (1, False)
        return str(asked["loss"]) if asked["leader"] == only else ""

    cluster.wait_until(lambda: seen() == (1, False, 1, 1), within_s=30, what="the damage is reported")
    cluster.wait_until(lambda: "30..30 cannot be read" in would_be_lost(), within_s=10, what="the node is asked")
    assert leader_of(cluster) == -1
    code, (done,), _ = run_cli(capsys, "partition", "elect", "--unclean", "--yes", f"{TOPIC}-0", *where)
    assert (code, done["leader"]) == (0, only)
    assert read(cluster, COUNT - 1) == [offset for offset in range(COUNT) if offset != 30]
    (copy,) = cluster.nodes[only].data.glob(f"{TOPIC}-0.*-stray")
    assert str(copy) in cluster.nodes[only].log.read_text()
    found = [each for each in dump(OsFiles(), str(copy), records=False) if isinstance(each, BatchFound)]
    assert [each.base_offset for each in found] == list(range(COUNT))
    cluster.wait_until(lambda: run_cli(capsys, "cluster", "status", *where)[0] == 0, within_s=30, what="all is well")
