"""The demo's variant with a remote tier: closed segments are copied to a folder and leave the nodes, and most records
are read from there.

Kept true: the records are read only once no node has a copied segment any more. A run in which nothing left the nodes,
or nothing came back from the store, fails: it would show nothing.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from examples.demo.progress import Progress
from examples.demo.story import CONFIGS, PARTITIONS, REPLICAS, TOPIC, DemoFailed
from node.process.local_cluster import LocalCluster
from tidelog import Admin

SETTINGS: Final[Mapping[str, Any]] = {"log.retention.check.interval.ms": 1_000}
"""Of the nodes: copied segments leave soon."""
SEGMENT_BYTES: Final = 128 << 10
SEGMENT_BYTES_QUICK: Final = 16 << 10

SETTLE_SECONDS_MAX: Final = 90.0
ASK_SECONDS: Final = 0.2
METRICS_SECONDS_MAX: Final = 10

_READ: Final = re.compile(r"^tidelog_remote_read_bytes_total (\S+)$", re.MULTILINE)


def configs(*, quick: bool) -> Mapping[str, str]:
    """The settings of the topic: small segments, of which none stays on a node once it is copied."""
    size = SEGMENT_BYTES_QUICK if quick else SEGMENT_BYTES
    return {
        **CONFIGS,
        "remote.storage.enable": "true",
        "segment.bytes": str(size),
        "local.retention.bytes": "0",
        "file.delete.delay.ms": "0",
    }


@dataclass(frozen=True, slots=True)
class Tier:
    """What is where before the records are read, and what was read from the store."""

    segments: int
    """Objects in the store, one for each copied segment."""
    object_bytes: int
    remote_records: int
    """Records that are in the store only."""
    local_records: int
    local_bytes: int
    """Of all replicas on all nodes."""
    read_bytes: int = 0
    """What the nodes have read from the store for Spark."""

    @property
    def faults(self) -> list[str]:
        """Why the run shows no remote tier."""
        wrong = {
            "no record left the nodes for the object store": self.remote_records == 0,
            "nothing was read from the object store": self.read_bytes == 0,
        }
        return [what for what, is_so in wrong.items() if is_so]

    def rows(self) -> Iterator[tuple[str, str]]:
        """For a table."""
        yield "copied to the object store", f"{self.segments:,} segments, {_megabytes(self.object_bytes)}"
        yield "records in the object store only", f"{self.remote_records:,}"
        yield "records on the nodes", f"{self.local_records:,}"
        yield f"left on the disks of the nodes, {REPLICAS} replicas", _megabytes(self.local_bytes)
        yield "read from the object store", _megabytes(self.read_bytes)


async def settle(cluster: LocalCluster, progress: Progress) -> Tier:
    """Wait until copied segments have left all nodes. Raises DemoFailed, and what the client raises."""
    deadline = progress.seconds + SETTLE_SECONDS_MAX
    async with Admin(cluster.bootstrap) as admin:
        while (left := await _left(cluster, admin)) > 0:
            progress.live(f"copied segments leave the nodes: {left} to go")
            if progress.seconds > deadline:
                raise DemoFailed(
                    f"{left} closed segments are still on the nodes after {SETTLE_SECONDS_MAX:.0f} s: the nodes' logs "
                    "say why"
                )
            await asyncio.sleep(ASK_SECONDS)
        found = await _measured(cluster, admin)
    progress.step(
        f"{found.segments:,} segments are in the object store, and have left the nodes: {found.remote_records:,} "
        f"records are there only, {found.local_records:,} on the nodes"
    )
    return found


async def _left(cluster: LocalCluster, admin: Admin) -> int:
    """Segments that are to leave the nodes: all but the active one of a leader; of a follower all but two, since it
    begins its segments at other offsets, and the last closed one may not be copied to its end."""
    partitions = [(TOPIC, number) for number in range(PARTITIONS)]
    local = await admin.list_offsets(partitions, "earliest-local")
    copied = await admin.list_offsets(partitions, "latest-tiered")
    of_leaders = sum(local[each] < copied[each] + 1 for each in partitions)
    return max(of_leaders, len(_local_files(cluster)) - PARTITIONS * (2 * REPLICAS - 1))


async def _measured(cluster: LocalCluster, admin: Admin) -> Tier:
    assert cluster.store is not None, "the cluster has a remote tier"
    partitions = [(TOPIC, number) for number in range(PARTITIONS)]
    begin = await admin.list_offsets(partitions, "earliest")
    local = await admin.list_offsets(partitions, "earliest-local")
    end = await admin.list_offsets(partitions, "latest")
    objects = [path.stat().st_size for path in cluster.store.glob("**/*.segment")]
    return Tier(
        segments=len(objects),
        object_bytes=sum(objects),
        remote_records=sum(local.values()) - sum(begin.values()),
        local_records=sum(end.values()) - sum(local.values()),
        local_bytes=sum(_local_files(cluster)),
    )


def _local_files(cluster: LocalCluster) -> list[int]:
    """The sizes of all segments on the nodes."""
    return [path.stat().st_size for node in cluster.nodes for path in node.data.glob(f"{TOPIC}-[0-9]*/*.log")]


def read_bytes(cluster: LocalCluster) -> int:
    """What the nodes have read from the store since they were started."""
    total = 0
    for node in cluster.nodes:
        with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=METRICS_SECONDS_MAX) as answer:
            found = _READ.search(answer.read().decode())
        total += 0 if found is None else int(float(found[1]))
    return total


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
