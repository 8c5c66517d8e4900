"""A cluster of three nodes beside the raw limits of this machine: a bare gRPC stream and a bare disk.

Nodes, client and the bare gRPC peer are separate processes and share the machine's cores. The name of each figure
contains its baseline. Rates count only values. Processor time is that of client and nodes together: on a shared machine
it varies less than the rates, and shows what an idle machine could carry.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import uvloop

from bench import client_many, cluster_load, raw_limits
from bench.cluster_load import Throughput
from bench.figure import Better, Figure, Run
from bench.raw_limits import Peer
from node.process.local_cluster import LocalCluster
from tidelog.records import Record, build_batch
from tidelog.types import Millis, Offset

PARTITIONS: Final = 6
REPLICAS: Final = 3
DURABILITIES: Final = ("page-cache", "fsync")
SIZES: Final = {"100 B": 100, "1 KiB": 1024}
BATCH_BYTES: Final = 256 * 1024


class Read(NamedTuple):
    """A way to consume. load: takes bootstrap, topic, seconds and the nodes' process ids. targets: of the ratio to a
    bare gRPC stream, by value size."""

    name: str
    load: Callable[[str, str, float, list[int]], Coroutine[Any, Any, Throughput]]
    targets: Mapping[str, float] = MappingProxyType({})


READS: Final = (
    Read("consume", cluster_load.consume),
    Read("poll_arrow", client_many.poll_arrow, MappingProxyType({"1 KiB": 0.9})),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """Durations and repetitions of the measurements."""

    seconds: float
    latencies: int
    bare_batches: int


FULL: Final = Effort(seconds=5, latencies=300, bare_batches=300)
QUICK: Final = Effort(seconds=0.5, latencies=20, bare_batches=20)


def figures(run: Run) -> Iterator[Figure]:
    """All figures; takes some 70 s."""
    # One event loop for everything: gRPC's client side stays bound to its first loop.
    with (
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        LocalCluster(run.scratch / "cluster", REPLICAS) as cluster,
    ):
        cluster.wait_healthy()
        yield from _Cluster(run, cluster, QUICK if run.quick else FULL, runner).figures()


def _topic(durability: str, size: str) -> str:
    return f"{durability}-{SIZES[size]}"


class _Cluster:
    """A running cluster and its measurements."""

    def __init__(self, run: Run, cluster: LocalCluster, effort: Effort, runner: asyncio.Runner) -> None:
        self._say, self._scratch = run.say, run.scratch
        self._cluster, self._effort, self._wait = cluster, effort, runner.run

    def figures(self) -> Iterator[Figure]:
        for durability in DURABILITIES:
            for size in SIZES:
                self._cluster.create_topic(
                    _topic(durability, size), PARTITIONS, REPLICAS, durability=durability, min_insync_replicas="2"
                )
        with raw_limits.peer() as peer:
            yield from self._latencies(peer)
            yield from self._rates(peer)

    @property
    def _pids(self) -> list[int]:
        return [node.pid for node in self._cluster.nodes]

    # --- one record at a time ---------------------------------------------------------------------------------------

    def _latencies(self, peer: Peer) -> Iterator[Figure]:
        self._say("one record at a time")
        count = self._effort.latencies
        trips = [2 * trip for trip in self._wait(peer.round_trips(bytes(200), count))]
        syncs = raw_limits.sync_times(self._scratch, bytes(200), count)
        baselines = {"page-cache": ("two bare gRPC round trips", trips), "fsync": ("a bare fdatasync", syncs)}
        for durability, (name, bare) in baselines.items():
            topic = _topic(durability, "100 B")
            found = self._wait(cluster_load.latencies(self._cluster.bootstrap, topic, SIZES["100 B"], count))
            for percent in (50, 99):
                yield Figure(
                    f"latency p{percent}, {durability} / {name}",
                    _percentile(found, percent),
                    "ms",
                    baseline=_percentile(bare, percent),
                    better=Better.LESS,
                )

    # --- full speed ---------------------------------------------------------------------------------------------------

    def _rates(self, peer: Peer) -> Iterator[Figure]:
        bootstrap, effort = self._cluster.bootstrap, self._effort
        for size, value_bytes in SIZES.items():
            batch, share = _batch(value_bytes)
            limits = _Limits(share, self._wait(peer.send(batch, effort.bare_batches)), self._scratch, batch)
            for durability in DURABILITIES:
                self._say(f"produce {size}, {durability}")
                topic = _topic(durability, size)
                found = self._wait(cluster_load.produce(bootstrap, topic, value_bytes, effort.seconds, self._pids))
                self._say(f"  other programs took {found.cores_taken_by_others:.1f} cores meanwhile")
                yield from _produced(size, durability, found, limits, effort)
            for read in READS:
                self._say(f"{read.name} {size}")
                bare = self._wait(peer.fetch(len(batch), effort.bare_batches))
                found = self._wait(read.load(bootstrap, _topic("page-cache", size), effort.seconds, self._pids))
                self._say(f"  other programs took {found.cores_taken_by_others:.1f} cores meanwhile")
                name = f"{read.name} {size} / bare gRPC stream"
                yield _rate(name, size, found, bare.megabytes_per_second * share, read.targets.get(size))


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The machine's limits for batches of one value size. share: the part of a batch's bytes that are values."""

    share: float
    network: raw_limits.Rate
    scratch: Path
    batch: bytes

    def disk(self, seconds: float) -> float:
        return raw_limits.write_and_sync(self.scratch, self.batch, seconds) * self.share


def _produced(size: str, durability: str, found: Throughput, limits: _Limits, effort: Effort) -> Iterator[Figure]:
    what = f"produce {size}, {durability}"
    if durability == "fsync":
        yield _rate(f"{what} / bare write+fdatasync ×{REPLICAS}", size, found, limits.disk(effort.seconds / 2))
        return
    network = limits.network
    yield _rate(f"{what} / bare gRPC stream ×{REPLICAS}", size, found, network.megabytes_per_second * limits.share)
    cost = found.cpu_ms_per_megabyte
    bare = network.cpu_ms_per_megabyte / limits.share
    yield Figure(f"{what}, processor / bare gRPC stream ×{REPLICAS}", cost, "ms/MB", baseline=bare, better=Better.LESS)


def _rate(name: str, size: str, found: Throughput, baseline_megabytes: float, target: float | None = None) -> Figure:
    """Large records in bytes, small ones in number."""
    if SIZES[size] >= 1024:
        return Figure(name, found.megabytes_per_second, "MB/s", baseline_megabytes, target)
    return Figure(name, found.records_per_second, "records/s", baseline_megabytes * 1e6 / SIZES[size], target)


def _batch(value_bytes: int) -> tuple[bytes, float]:
    """A batch as the producer builds it, and the part of its bytes that are values."""
    count = BATCH_BYTES // (value_bytes + 12)
    record = Record(Offset(0), Millis(1_700_000_000_000), None, bytes(value_bytes))
    batch = build_batch([record._replace(offset=Offset(number)) for number in range(count)])
    return batch, count * value_bytes / len(batch)
