"""What a user waits for, and what an idle node occupies: imports, commands, three nodes to their first write, memory.

Each command runs in a process of its own, a few times; the least counts, so that what else the machine does is left
out. Beside it stands a Python that does nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import psutil

from bench.figure import Better, Figure, Run
from node.process.local_cluster import LocalCluster
from tidelog import Admin, NewTopic, Producer

ROUNDS: Final = 9
IDLE_S: Final = 5.0
"""After the first write: what the start has left to do ends."""

NOTHING: Final = ("-c", "pass")
PRODUCER: Final = ("-c", "import tidelog; tidelog.Producer")
COMMAND: Final = ("-c", "from tidelog.cli import main; raise SystemExit(main())")


def figures(run: Run) -> Iterator[Figure]:
    """All figures; half a minute."""
    rounds = 1 if run.quick else ROUNDS
    yield _least("python -c pass", NOTHING, rounds, wall=True)
    yield _least("import tidelog; tidelog.Producer", PRODUCER, rounds, wall=True, target=0.2)
    yield _least("processor of tidelog --help", (*COMMAND, "--help"), rounds, target=0.25)
    starts = [_first_write(run.scratch / f"cluster-{number}", number == rounds - 1) for number in range(rounds)]
    name = "three nodes to their first write"
    yield Figure(name, min(seconds for seconds, _, _ in starts), "s", target=1.5, better=Better.LESS)
    _, listing, memory = starts[-1]
    yield Figure("processor of tidelog topic list", listing, "s", target=0.35, better=Better.LESS)
    yield Figure("memory of an idle node", memory, "MiB", target=60, better=Better.LESS)


def _least(
    name: str, arguments: Sequence[str], rounds: int, *, wall: bool = False, target: float | None = None
) -> Figure:
    used = min(_run(arguments)[0 if wall else 1] for _ in range(rounds + 1))  # the first one fills the page cache
    return Figure(name, used, "s", target=target, better=Better.LESS)


def _run(arguments: Sequence[str]) -> tuple[float, float]:
    """The clock and processor seconds of a Python process."""
    began = time.perf_counter()
    process = psutil.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    before = psutil.Process().cpu_times()
    assert process.wait() == 0, f"{arguments} failed"
    after = psutil.Process().cpu_times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, used


def _first_write(directory: Path, is_last: bool) -> tuple[float, float, float]:
    """Seconds from the start of three processes to the first record that all replicas have. Of the last cluster also
    the processor seconds of a list of its topics, and the MiB of its largest node when it is idle."""
    cluster = LocalCluster(directory, 3)
    began = time.perf_counter()
    cluster.start()
    try:
        cluster.wait_healthy()
        asyncio.run(_write(cluster.bootstrap))
        seconds = time.perf_counter() - began
        if not is_last:
            return seconds, 0.0, 0.0
        listing = min(_run((*COMMAND, "--bootstrap", cluster.bootstrap, "topic", "list"))[1] for _ in range(ROUNDS))
        time.sleep(IDLE_S)
        memory = max(psutil.Process(node.pid).memory_info().rss for node in cluster.nodes)
        return seconds, listing, memory / 2**20
    finally:
        cluster.kill_all()


async def _write(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topics([NewTopic("first", partitions=1, replication_factor=3)])
    async with Producer(bootstrap) as producer:
        await producer.send("first", b"first")
