"""Random faults on real processes under load: `make chaos MINUTES=10 NODES=5 SEED=7`.

Two topics, one with `durability=fsync` and one with `page-cache`, are written without a pause by idempotent producers
with acks=all. The rounds of one seed kill, pause, stop, empty and damage nodes. A round that takes data away begins
when every replica is in sync, and strikes one node alone: another replica has what that one loses. At the end every
acknowledged record must be read at the offset that its acknowledgement named, once and in order.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from node.process.local_cluster import LocalCluster
from tests.integration.load import Load

PARTITIONS = 6
HEALTHY_S = 90
"""A node whose directory was emptied copies everything again, on the cores that the load keeps busy."""

Fault = Callable[[LocalCluster, random.Random], str]


def kill_one(cluster: LocalCluster, rng: random.Random) -> str:
    node = rng.randrange(len(cluster.nodes))
    cluster.kill(node)
    time.sleep(rng.uniform(0, 4))
    cluster.start_node(node)
    return f"kill node {node}"


def kill_two(cluster: LocalCluster, rng: random.Random) -> str:
    nodes = rng.sample(range(len(cluster.nodes)), 2)
    for node in nodes:
        cluster.kill(node)
    time.sleep(rng.uniform(0, 4))
    for node in nodes:
        cluster.start_node(node)
    return f"kill nodes {nodes}"


def kill_all(cluster: LocalCluster, rng: random.Random) -> str:
    cluster.kill_all()
    cluster.start()
    return "kill all nodes at once"


def pause_one(cluster: LocalCluster, rng: random.Random) -> str:
    node, seconds = rng.randrange(len(cluster.nodes)), rng.uniform(0.3, 6)
    pid = cluster.nodes[node].pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    return f"pause node {node} for {seconds:.1f} s"


def restart_one(cluster: LocalCluster, rng: random.Random) -> str:
    node = rng.randrange(len(cluster.nodes))
    cluster.stop_node(node)
    cluster.start_node(node)
    return f"stop node {node} and start it again"


def empty_one(cluster: LocalCluster, rng: random.Random) -> str:
    cluster.wait_healthy(HEALTHY_S)
    node = rng.randrange(len(cluster.nodes))
    cluster.kill(node)
    shutil.rmtree(cluster.nodes[node].data)
    cluster.start_node(node)
    cluster.wait_healthy(HEALTHY_S)
    return f"kill node {node} and empty its directory"


def _file_of(cluster: LocalCluster, node: int, rng: random.Random, pattern: str) -> Path | None:
    files = [path for path in sorted(cluster.nodes[node].data.glob(f"{pattern}")) if path.stat().st_size > 200]
    return rng.choice(files) if files else None


def flip_a_bit(cluster: LocalCluster, rng: random.Random) -> str:
    cluster.wait_healthy(HEALTHY_S)
    node = rng.randrange(len(cluster.nodes))
    cluster.kill(node)
    path = _file_of(cluster, node, rng, "chaos-*/*.log")
    if path is not None:
        at = rng.randrange(path.stat().st_size)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ (1 << rng.randrange(8))]))
        where = f"{path.parent.name}/{path.name} at byte {at}"
    else:
        where = "nothing: no log is long enough"
    cluster.start_node(node)
    cluster.wait_healthy(HEALTHY_S)
    return f"kill node {node} and flip a bit of {where}"


def truncate_a_file(cluster: LocalCluster, rng: random.Random) -> str:
    cluster.wait_healthy(HEALTHY_S)
    node = rng.randrange(len(cluster.nodes))
    cluster.kill(node)
    pattern = rng.choice(("chaos-*/*.log", "chaos-*/*.index", "chaos-*/*.snapshot", "chaos-*/leader-epoch-checkpoint"))
    path = _file_of(cluster, node, rng, pattern)
    if path is not None:
        size = rng.randrange(path.stat().st_size)
        os.truncate(path, size)
        where = f"{path.parent.name}/{path.name} to {size} bytes"
    else:
        where = f"nothing: no {pattern} is long enough"
    cluster.start_node(node)
    cluster.wait_healthy(HEALTHY_S)
    return f"kill node {node} and cut {where}"


FAULTS: tuple[tuple[int, Fault], ...] = (
    (4, kill_one),
    (2, kill_two),
    (1, kill_all),
    (4, pause_one),
    (3, restart_one),
    (1, empty_one),
    (2, flip_a_bit),
    (2, truncate_a_file),
)


async def run(directory: Path, *, nodes: int, seconds: float, seed: int, say: Callable[[str], None]) -> Counter[str]:
    """Faults for so long, then the judgement. Returns how many records were acknowledged and read, and the rounds.

    Raises AssertionError where a record is missing, stored twice or out of order, ClusterFailed where the cluster does
    not recover, and the error of the first record that is not acknowledged within a minute.
    """
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    with LocalCluster(directory, nodes) as cluster:
        cluster.wait_healthy(HEALTHY_S)
        loads = [Load(cluster.bootstrap, f"chaos-{durability}", PARTITIONS) for durability in ("fsync", "page-cache")]
        for load in loads:
            durability = load.topic.removeprefix("chaos-")
            cluster.create_topic(load.topic, PARTITIONS, durability=durability, min_insync_replicas="2")
        end = time.monotonic() + seconds
        async with AsyncExitStack() as running:
            for load in loads:
                await running.enter_async_context(load.running())
            while time.monotonic() < end:
                (fault,) = rng.choices([fault for _, fault in FAULTS], [weight for weight, _ in FAULTS])
                what = await asyncio.to_thread(fault, cluster, rng)
                waited = [await load.wait_for_new_records() for load in loads]
                counts["rounds"] += 1
                say(f"{what}: every partition acknowledges again after {max(waited):.1f} s")
        await asyncio.to_thread(cluster.wait_healthy, HEALTHY_S)
        for load in loads:
            read = await load.check()
            counts["acknowledged"] += len(load.acknowledged)
            counts["read"] += read
            say(f"{load.topic}: {len(load.acknowledged)} records acknowledged, {read} read, none missing or twice")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    options = parser.parse_args()
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

    say(f"seed {options.seed}: the same faults again with SEED={options.seed}, their moments are the machine's")
    with tempfile.TemporaryDirectory(prefix="tidelog-chaos-") as directory:
        counts = asyncio.run(
            run(Path(directory), nodes=options.nodes, seconds=options.minutes * 60, seed=options.seed, say=say)
        )
    say(
        f"PASSED: {counts['rounds']} rounds, {counts['acknowledged']} records acknowledged, "
        f"{counts['read']} read, none lost"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
