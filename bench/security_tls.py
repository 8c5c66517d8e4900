"""TLS against plain text: two clusters of three nodes, one with mutual TLS on all connections, take turns.

Clients and nodes share the machine's cores. Topics have three replicas, two in sync, acks=all, page cache. A figure is
the median of the rounds; its baseline is the cluster in plain text, in the same rounds.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import statistics
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import cluster_load
from bench.cluster_load import Throughput
from bench.figure import Better, Figure, Run
from node.process.local_cluster import LocalCluster
from tidelog import Tls
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import admin_pb2
from tidelog.security.certificates import KeyAndCertificate, create_authority, create_client, create_node

HOSTS: Final = ("localhost", "127.0.0.1")
PARTITIONS: Final = 6
VALUE_BYTES: Final = 1_000
SMALL_BYTES: Final = 100
ROUNDS: Final = 5
SECONDS: Final = 4.0
RECORDS: Final = 500
CONNECTIONS: Final = 50
CALL_MS: Final = 10_000


class Side(NamedTuple):
    """A cluster, and the files of its clients; None: plain text."""

    cluster: LocalCluster
    tls: Tls | None

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.cluster.nodes]


class Round(NamedTuple):
    """What one side did in one round. The last two: milliseconds of each."""

    produced: Throughput
    consumed: Throughput
    latencies: list[float]
    connections: list[float]


def figures(run: Run) -> Iterator[Figure]:
    """All figures; takes some two minutes."""
    with ExitStack() as stack:
        sides = [_side(run, stack, encrypted=False), _side(run, stack, encrypted=True)]
        found: list[list[Round]] = [[], []]
        for number in range(1 if run.quick else ROUNDS):
            run.say(f"TLS and plain text, round {number + 1}")
            order = (0, 1) if number % 2 == 0 else (1, 0)
            for side in order:
                found[side].append(asyncio.run(_round(sides[side], f"round-{number}", quick=run.quick)))
    run.others.extend(each.produced.cores_taken_by_others for rounds in found for each in rounds)

    def figure(name: str, unit: str, of: Callable[[Round], float], better: Better = Better.MORE) -> Figure:
        plain, encrypted = (statistics.median(of(each) for each in rounds) for rounds in found)
        return Figure(f"{name}, mutual TLS against plain text", encrypted, unit, plain, better=better)

    yield figure("produce 1 KB", "MB/s", lambda each: each.produced.megabytes_per_second)
    yield figure("produce 1 KB, processor", "ms/MB", lambda each: each.produced.cpu_ms_per_megabyte, Better.LESS)
    yield figure("consume 1 KB", "MB/s", lambda each: each.consumed.megabytes_per_second)
    yield figure("consume 1 KB, processor", "ms/MB", lambda each: each.consumed.cpu_ms_per_megabyte, Better.LESS)
    yield figure("one record, median", "ms", lambda each: statistics.median(each.latencies), Better.LESS)
    yield figure("one record, p99", "ms", lambda each: _p99(each.latencies), Better.LESS)
    yield figure(
        "connect and first answer, median", "ms", lambda each: statistics.median(each.connections), Better.LESS
    )


def _side(run: Run, stack: ExitStack, *, encrypted: bool) -> Side:
    if not encrypted:
        cluster = LocalCluster(run.scratch / "plain")
        tls = None
    else:
        tls, settings = _certificates(run.scratch / "certificates")
        cluster = LocalCluster(run.scratch / "tls", settings=settings, tls=tls)
    stack.enter_context(cluster)
    cluster.wait_healthy(60)
    return Side(cluster, tls)


def _certificates(directory: Path) -> tuple[Tls, dict[str, Any]]:
    """The files of clients, and the settings of nodes."""
    now = dt.datetime.now(dt.UTC)
    authority = create_authority("bench", now=now, days=1)
    made = {
        "ca": authority,
        "node": create_node(authority, "node", HOSTS, now=now, days=1),
        "client": create_client(authority, "client", now=now, days=1),
    }
    directory.mkdir()
    files = {name: _written(directory / name, each) for name, each in made.items()}
    settings = {
        "listener.security.protocol.map": ["GRPC:GRPC_SSL"],
        "ssl.certificate.file": files["node"][0],
        "ssl.key.file": files["node"][1],
        "ssl.ca.file": files["ca"][0],
        "ssl.client.auth": "required",
        "authorizer.class.name": "none",  # ACLs have figures of their own
    }
    return Tls(files["ca"][0], *files["client"]), settings


def _written(path: Path, made: KeyAndCertificate) -> tuple[str, str]:
    certificate, key = path.with_suffix(".pem"), path.with_suffix(".key")
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.key)
    return str(certificate), str(key)


async def _round(side: Side, name: str, *, quick: bool) -> Round:
    cluster, tls = side
    await asyncio.to_thread(_create_topic, cluster, name)
    seconds = 0.5 if quick else SECONDS
    produced = await cluster_load.produce(cluster.bootstrap, name, VALUE_BYTES, seconds, side.pids, tls)
    consumed = await cluster_load.consume(cluster.bootstrap, name, seconds, side.pids, tls)
    one_by_one = await cluster_load.latencies(cluster.bootstrap, name, SMALL_BYTES, 50 if quick else RECORDS, tls)
    connections = [await _timed(_connect(side)) for _ in range(5 if quick else CONNECTIONS)]
    return Round(produced, consumed, one_by_one, connections)


def _create_topic(cluster: LocalCluster, name: str) -> None:
    cluster.create_topic(name, PARTITIONS, durability="page-cache", min_insync_replicas="2")


async def _connect(side: Side) -> None:
    """A new connection, with its handshake, and one small question."""
    transport = GrpcTransport(tls=side.tls)
    try:
        at = side.cluster.nodes[0].address
        await transport.call(at, methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=CALL_MS)
    finally:
        await transport.close()


async def _timed(work: Coroutine[Any, Any, None]) -> float:
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


def _p99(found: list[float]) -> float:
    return sorted(found)[int(len(found) * 0.99)]
