"""The audit against three real nodes: it says that equal replicas are equal, and names what was altered on a disk."""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.process.local_cluster import LocalCluster
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.client.receipt import Receipt
from tidelog.jobs import audit
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, walk_headers

pytestmark = pytest.mark.integration

BATCHES = 12
PER_BATCH = 5


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"log.retention.check.interval.ms": 300, "log.cleaner.backoff.ms": 300}
    with LocalCluster(tmp_path_factory.mktemp("audit"), settings=settings) as cluster:
        cluster.wait_healthy()
        yield cluster


def create(cluster: LocalCluster, topic: str, **configs: str) -> None:
    cluster.create_topic(topic, 1, 3, **{"min_insync_replicas": "2", **configs})
    cluster.wait_healthy()


def send(cluster: LocalCluster, topic: str, *, batches: int = BATCHES, key: str = "") -> list[Receipt]:
    """Batches of `PER_BATCH` records, with a receipt of each record."""

    async def story() -> list[Receipt]:
        receipts = []
        async with Producer(cluster.bootstrap, receipts=True, linger_ms=0, delivery_timeout_ms=60_000) as producer:
            for number in range(batches):
                keys = [(key or f"k{number}-{record}").encode() for record in range(PER_BATCH)]
                values = [b"%d-%d" % (number, record) + bytes(100) for record in range(PER_BATCH)]
                delivery = await producer.enqueue_many(topic, values, keys=keys)
                await delivery
                receipts += [result.receipt for result in delivery.results()]
        assert all(receipts)
        return receipts  # type: ignore[return-value]

    return asyncio.run(story())


def run(cluster: LocalCluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    """Exit code and report of the job."""
    code = audit.main(["-b", cluster.bootstrap, "--json", "--quiet", "--patience-ms", "3000", *arguments])
    out, errors = capsys.readouterr()
    assert out, errors
    return code, json.loads(out)


def written(path: Path, receipts: list[Receipt]) -> str:
    file = path / "receipts.jsonl"
    file.write_text("".join(f"{receipt.to_json()}\n" for receipt in receipts))
    return str(file)


def segment(cluster: LocalCluster, node: int, topic: str) -> Path:
    [found] = sorted(cluster.nodes[node].data.glob(f"**/{topic}-0/*.log"))
    return found


def leader_of(cluster: LocalCluster, topic: str) -> int:
    [known] = cluster.metadata(0, topic).topics
    return int(known.partitions[0].leader)


def altered(cluster: LocalCluster, node: int, topic: str, change: Callable[[bytearray], None]) -> None:
    """Stop the node, change the bytes of its segment, start it again."""
    path = segment(cluster, node, topic)
    cluster.stop_node(node)
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    cluster.start_node(node)
    cluster.wait_healthy()


def flip_byte_of_batch(data: bytearray, number: int, *, fix_checksum: bool) -> None:
    header = list(walk_headers(data))[number]
    data[header.position + HEADER_BYTES + 40] ^= 1
    if fix_checksum:
        body = bytes(data[header.position + ATTRIBUTES_AT : header.end])
        struct.pack_into(">I", data, header.position + CRC_AT, crc32c(body))


def test_equal_replicas_and_receipts_are_well(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "equal")
    receipts = send(cluster, "equal")
    assert {tuple(receipt.durable_replicas) for receipt in receipts} <= {(0, 1, 2), (0, 1), (0, 2), (1, 2)}
    code, report = run(cluster, capsys, "--topic", "equal", "--receipts", written(tmp_path, receipts))
    assert (code, report["is_well"], report["verdicts"]) == (0, True, {"present": BATCHES * PER_BATCH})
    [partition] = report["partitions"]
    assert (partition["start"], partition["end"], partition["difference"]) == (0, BATCHES * PER_BATCH, None)
    assert partition["compared"] == BATCHES
    assert [replica["state"] for replica in partition["replicas"]] == ["read"] * 3
    assert all(verdict["nodes"] == [0, 1, 2] for verdict in report["receipts"])


def test_each_partition_has_one_line(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output and standard error together, as a terminal shows them."""
    cluster.create_topic("lines", 4, 1)
    cluster.wait_healthy()
    assert audit.main(["-b", cluster.bootstrap, "lines"]) == 0
    out, errors = capsys.readouterr()
    assert [(out + errors).count(f"lines-{index}: ") for index in range(4)] == [1] * 4, out + errors


@pytest.mark.parametrize("fix_checksum", [True, False])
@pytest.mark.parametrize("of_leader", [True, False])
def test_an_altered_byte_is_named(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], fix_checksum: bool, of_leader: bool
) -> None:
    topic = f"altered-{int(fix_checksum)}{int(of_leader)}"
    create(cluster, topic)
    receipts = send(cluster, topic)
    leader = leader_of(cluster, topic)
    node = leader if of_leader else (leader + 1) % 3
    altered(cluster, node, topic, lambda data: flip_byte_of_batch(data, 7, fix_checksum=fix_checksum))
    code, report = run(cluster, capsys, "--topic", topic, "--receipts", written(tmp_path, receipts))
    assert code == 1
    [partition] = report["partitions"]
    difference = partition["difference"]
    assert (difference["offset"], difference["kind"]) == (35, "checksum" if fix_checksum else "bytes")
    others = {what for other, what in difference["found"].items() if other != str(node)}
    assert len(others) == 1
    problems = {replica["node"]: [each["kind"] for each in replica["problems"]] for replica in partition["replicas"]}
    assert problems == {each: ["checksum"] if each == node and not fix_checksum else [] for each in range(3)}
    leads = leader_of(cluster, topic) == node
    assert report["verdicts"] == ({"present": 55, "altered": 5} if leads else {"present": 60})


def test_a_replica_that_was_cut_off_is_filled_again(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node finds by itself that durable records are missing: it sets the log aside and fetches it again."""
    topic = "truncated"
    create(cluster, topic)
    receipts = send(cluster, topic)
    node = (leader_of(cluster, topic) + 1) % 3
    path = segment(cluster, node, topic)
    cluster.stop_node(node)
    data = path.read_bytes()
    path.write_bytes(data[: [header.position for header in walk_headers(data)][8] + 30])
    cluster.start_node(node)
    cluster.wait_healthy(in_sync=False)
    code, report = run(cluster, capsys, "--topic", topic, "--receipts", written(tmp_path, receipts))
    [partition] = report["partitions"]
    assert (code, report["verdicts"], partition["difference"]) == (0, {"present": 60}, None)
    assert {replica["state"] for replica in partition["replicas"]} <= {"read", "lagging"}
    assert "damaged: offsets 40..59" in cluster.nodes[node].log.read_text()


def test_a_node_that_is_down_is_offline_and_not_different(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "two-of-three")
    receipts = send(cluster, "two-of-three")
    node = (leader_of(cluster, "two-of-three") + 1) % 3
    cluster.stop_node(node)
    code, report = run(cluster, capsys, "--receipts", written(tmp_path, receipts))
    cluster.start_node(node)
    cluster.wait_healthy()
    [partition] = report["partitions"]
    assert (code, partition["difference"]) == (0, None)
    assert {each["node"]: each["state"] for each in partition["replicas"] if each["state"] != "read"} == {
        node: "offline"
    }


def test_receipts_tell_retention_and_recreation_from_loss(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "kept", segment_bytes="1400", retention_bytes="4000")
    receipts = send(cluster, "kept", batches=20)

    async def log_start() -> int:
        async with Admin(cluster.bootstrap) as admin:
            [first] = (await admin.list_offsets([("kept", 0)], "earliest")).values()
            return int(first)

    cluster.wait_until(lambda: asyncio.run(log_start()) > 0, within_s=30, what="retention")
    code, report = run(cluster, capsys, "--receipts", written(tmp_path, receipts))
    assert code == 0
    assert set(report["verdicts"]) == {"expired", "present"}

    async def recreate() -> None:
        async with Admin(cluster.bootstrap) as admin:
            await admin.delete_topic("kept")

    asyncio.run(recreate())
    code, report = run(cluster, capsys, "--receipts", written(tmp_path, receipts))
    assert (code, report["verdicts"]) == (0, {"topic-deleted": 100})
    cluster.wait_until(lambda: not list(cluster.nodes[0].data.glob("**/kept-0")), within_s=30, what="deletion")
    create(cluster, "kept")
    send(cluster, "kept")
    code, report = run(cluster, capsys, "--receipts", written(tmp_path, receipts))
    assert (code, report["verdicts"]) == (0, {"topic-deleted": 100})
    assert "created again" in report["receipts"][0]["detail"]


def test_what_compaction_removed_is_no_loss(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "latest", cleanup_policy="compact", segment_bytes="1400", min_cleanable_dirty_ratio="0.01")
    receipts = send(cluster, "latest", batches=10, key="same") + send(cluster, "latest", batches=3)

    def compacted() -> bool:
        verdicts: dict[str, int] = run(cluster, capsys, "--receipts", written(tmp_path, receipts))[1]["verdicts"]
        return verdicts.get("compacted", 0) > 20

    cluster.wait_until(compacted, within_s=40, what="compaction")
    code, report = run(cluster, capsys, "--topic", "latest", "--receipts", written(tmp_path, receipts))
    assert (code, report["is_well"]) == (0, True), report
    assert set(report["verdicts"]) <= {"compacted", "present", "rewritten"}


@pytest.mark.deep
def test_a_loss_on_all_replicas_is_found(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All nodes stop, lose the same records, and start again."""
    create(cluster, "lost")
    receipts = send(cluster, "lost")
    cluster.stop()
    for node in cluster.nodes:
        for folder in node.data.glob("**/lost-0"):
            shutil.rmtree(folder)
    cluster.start()

    async def accept_loss() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            [result] = await admin.elect_leaders([("lost", 0)], unclean=True)
            accepted: bool = result.error is None
            return accepted

    cluster.wait_until(lambda: cluster.metadata(0, "lost").topics, within_s=30, what="metadata")
    arguments = ["--receipts", written(tmp_path, receipts)]
    code, report = run(cluster, capsys, *arguments)
    assert (code, report["verdicts"]) == (1, {"unknown": 60}), "no replica serves the partition"
    cluster.wait_until(lambda: asyncio.run(accept_loss()), within_s=30, what="election")
    cluster.wait_healthy()
    code, report = run(cluster, capsys, *arguments)
    assert (code, report["verdicts"]) == (1, {"lost": 60})
    assert report["receipts"][0]["detail"] == "the committed log ends at offset 0"
