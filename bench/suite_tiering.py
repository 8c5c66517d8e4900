"""The remote tier on three nodes, with a folder as the object store: what copying costs producers, how fast records are
consumed that are in the store only, and a partition with 100,000 remote segments.

Parts: produce (one producer at full speed, acks=all, to a topic that is copied meanwhile and to one that is not, in
turns, each first in every other round, so that a machine that slows down counts for both; before each turn all is
copied; with what is copied meanwhile, and how late the event loops are), consume (one consumer from the first record
on, of a topic whose segments have left the nodes and of one whose segments are in the page cache, in turns: what
produce has written, more than the caches of the nodes), manifests (tiering_manifests.py), replacement
(tiering_replacement.py), spark (tiering_spark.py).
"""

from __future__ import annotations

import asyncio
import re
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import uvloop

from bench import cluster_load, tiering_manifests, tiering_replacement, tiering_spark
from bench.cluster_load import Throughput
from bench.figure import Better, Figure, Run
from bench.systems.system import SystemFailed
from bench.tiering_metrics import COPIED_S_MAX, copied_bytes, samples, wait_copied
from bench.tiering_parts import PARTS
from node.process.local_cluster import LocalCluster, LocalNode
from tidelog import Admin

T = TypeVar("T")
NODES: Final = 3
PARTITIONS: Final = 6
VALUE_BYTES: Final = 1_000
PLAIN: Final = "plain"
TIERED: Final = "tiered"
POLL_S: Final = 0.5
PRODUCE_SHARE: Final = 0.95
_SETTINGS: Final = {"log.retention.check.interval.ms": 1_000, "remote.log.cache.max.bytes": 32 << 20}
_LAG: Final = "tidelog_event_loop_lag_seconds_bucket"


class _Effort(NamedTuple):
    rounds: int
    seconds: float
    segment_bytes: int


_FULL: Final = _Effort(5, 8.0, 16 << 20)
_QUICK: Final = _Effort(1, 1.0, 1 << 20)


def figures(run: Run) -> Iterator[Figure]:
    """All figures of the chosen parts. Raises ClusterFailed and SystemFailed if segments are not copied, or stay."""
    parts = run.only or PARTS
    effort = _QUICK if run.quick else _FULL
    if "produce" in parts or "consume" in parts:
        with LocalCluster(run.scratch / "cluster", NODES, settings=_SETTINGS, tiered=True) as cluster:
            cluster.wait_healthy(60)
            common = {"segment_bytes": str(effort.segment_bytes), "file_delete_delay_ms": "0"}
            cluster.create_topic(PLAIN, PARTITIONS, NODES, **common)
            cluster.create_topic(TIERED, PARTITIONS, NODES, remote_storage_enable="true", **common)
            cluster.wait_healthy(60)
            yield from _produce(run, cluster, effort)
            if "consume" in parts:
                yield from _consume(run, cluster, effort)
    if "manifests" in parts:
        yield from tiering_manifests.figures(run)
    if "replacement" in parts:
        yield from tiering_replacement.figures(run)
    if "spark" in parts:
        yield from tiering_spark.figures(run)


# --- produce ---


def _produce(run: Run, cluster: LocalCluster, effort: _Effort) -> Iterator[Figure]:
    rates: dict[str, list[Throughput]] = {PLAIN: [], TIERED: []}
    copied_per_second: list[float] = []
    lags: dict[str, list[float]] = {PLAIN: [], TIERED: []}
    for number in range(effort.rounds):
        for topic in (PLAIN, TIERED) if number % 2 == 0 else (TIERED, PLAIN):
            wait_copied(cluster)
            copied, late = copied_bytes(cluster), [_lateness(node) for node in cluster.nodes]
            began = time.perf_counter()
            found = _turn(run, cluster, cluster_load.produce, topic, VALUE_BYTES, effort.seconds)
            rates[topic].append(found)
            lags[topic].append(
                max(_p99(_lateness(node), *before) for node, *before in zip(cluster.nodes, late, strict=True))
            )
            copied = (copied_bytes(cluster) - copied) / 1e6 / (time.perf_counter() - began)
            run.say(f"round {number}: {topic} {found.megabytes_per_second:.1f} MB/s, copies {copied:.1f} MB/s")
            if topic == TIERED:
                copied_per_second.append(copied)
    mine, plain = _median_round(rates, lambda found: found.megabytes_per_second)
    yield Figure("produce while tiering, against without", mine, "MB/s", plain, target=PRODUCE_SHARE)
    yield Figure("copied to the object store meanwhile", statistics.median(copied_per_second), "MB/s")
    cpu, plain_cpu = _median_round(rates, lambda found: found.cpu_ms_per_megabyte)
    yield Figure("processor time while tiering, against without", cpu, "ms/MB", plain_cpu, better=Better.LESS)
    late_by, plain_by = (max(statistics.median(lags[topic]), 1e-3) * 1_000 for topic in (TIERED, PLAIN))
    yield Figure("event loop of the latest node, p99 at most", late_by, "ms", plain_by, better=Better.LESS)


def _lateness(node: LocalNode) -> dict[float, float]:
    """Measurements of the lag of the event loop, by the upper end of their bucket."""
    found = {}
    for name, value in samples(node).items():
        if name.startswith(_LAG):
            edge = re.search(r'le="([^"]+)"', name)
            assert edge is not None, "a histogram has buckets"
            found[float(edge[1])] = value
    return found


def _p99(now: dict[float, float], before: dict[float, float]) -> float:
    """The upper end of the bucket with the 99th percentile (s); of the last bucket its lower end."""
    counts = {edge: now[edge] - before.get(edge, 0.0) for edge in sorted(now)}
    reached = next(edge for edge, count in counts.items() if count >= 0.99 * max(counts.values()))
    return reached if reached != float("inf") else sorted(counts)[-2]


# --- consume ---


def _consume(run: Run, cluster: LocalCluster, effort: _Effort) -> Iterator[Figure]:
    wait_copied(cluster)
    if not _run(_have_left(cluster.bootstrap)):
        raise SystemFailed(f"copied segments are still on their leaders after {COPIED_S_MAX:g} s")
    rates: dict[str, list[Throughput]] = {PLAIN: [], TIERED: []}
    read = 0.0
    for number in range(effort.rounds):
        for topic in (PLAIN, TIERED):
            before = _read(cluster)
            found = _turn(run, cluster, cluster_load.consume, topic, effort.seconds)
            rates[topic].append(found)
            if topic == TIERED:
                read += _read(cluster) - before
            run.say(f"round {number}: {topic} {found.megabytes_per_second:.1f} MB/s")
    mine, plain = _median_round(rates, lambda found: found.megabytes_per_second)
    yield Figure("consume from the object store, against local segments", mine, "MB/s", plain)
    cpu, plain_cpu = _median_round(rates, lambda found: found.cpu_ms_per_megabyte)
    yield Figure("processor time from the object store, against local", cpu, "ms/MB", plain_cpu, better=Better.LESS)
    yield Figure("read from the object store", read / 1e6, "MB")


async def _have_left(bootstrap: str) -> bool:
    """Let copied segments leave the nodes. Returns False if they are still on their leaders in the end."""
    partitions = [(TIERED, number) for number in range(PARTITIONS)]
    deadline = time.perf_counter() + COPIED_S_MAX
    async with Admin(bootstrap) as admin:
        await admin.alter_topic(TIERED, {"local.retention.bytes": "0"})
        while time.perf_counter() < deadline:
            local = await admin.list_offsets(partitions, "earliest-local")
            copied = await admin.list_offsets(partitions, "latest-tiered")
            if all(local[each] == copied[each] + 1 for each in partitions):
                return True
            await asyncio.sleep(POLL_S)
    return False


def _read(cluster: LocalCluster) -> float:
    """Bytes that all nodes have read from the object store."""
    return sum(samples(node).get("tidelog_remote_read_bytes_total", 0.0) for node in cluster.nodes)


# --- both ---


def _median_round(
    rates: Mapping[str, Sequence[Throughput]], value: Callable[[Throughput], float]
) -> tuple[float, float]:
    """With the tier and without, of the round whose ratio is the median: what other programs take differs more between
    rounds than within one."""
    pairs = [(value(mine), value(plain)) for mine, plain in zip(rates[TIERED], rates[PLAIN], strict=True)]
    return sorted(pairs, key=lambda pair: pair[0] / pair[1])[len(pairs) // 2]


def _turn(
    run: Run, cluster: LocalCluster, load: Callable[..., Coroutine[Any, Any, Throughput]], *options: Any
) -> Throughput:
    found = _run(load(cluster.bootstrap, *options, [node.pid for node in cluster.nodes]))
    run.others.append(found.cores_taken_by_others)
    return found


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)
