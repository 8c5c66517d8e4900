"""Many replicas that move while a producer writes: `tidelog node drain`, then `cluster rebalance`, then a drain in
which the controller, a source and a target are killed.

Four nodes, 1,000 partitions of three replicas, two in sync, in the page cache; their logs are 10 GB together. A
producer writes 300 records of 1 KiB a second, each acknowledged by all in-sync replicas; the times of acknowledgement
during a move stand beside those without one. At the end the logs have as many records as were acknowledged, and at most
those whose outcome the producer does not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any, Final, NamedTuple, Self, TypeVar

import uvloop

from bench.figure import Better, Figure, Run
from bench.systems.system import SystemFailed
from node.process.local_cluster import LocalCluster
from tidelog import Admin, Producer
from tidelog.errors import TidelogError

Outcome = TypeVar("Outcome")

NODES: Final = 4
REPLICAS: Final = 3
TOPIC: Final = "moves"
DRAINED: Final = 3
PER_SECOND: Final = 300
VALUE: Final = bytes(1_024)
FILL_VALUE: Final = random.Random(1).randbytes(16 << 10)
KILLS_AT: Final = (0.2, 0.45, 0.7)
"""Shares of the replicas to move that have moved at each kill."""
DOWN_S: Final = 5.0
MOVES_S_MAX: Final = 1_200.0
_COMMAND: Final = ("-c", "from tidelog.cli import main; raise SystemExit(main())")


class _Size(NamedTuple):
    partitions: int
    bytes_of_logs: int
    seconds_without: float


_FULL: Final = _Size(1_000, 10_000_000_000, 45.0)
_QUICK: Final = _Size(20, 20_000_000, 3.0)


def figures(run: Run) -> Iterator[Figure]:
    """All figures; some twelve minutes. Raises SystemFailed if a record is lost, or a move does not end."""
    size = _QUICK if run.quick else _FULL
    with LocalCluster(run.scratch / "cluster", NODES) as cluster:
        cluster.wait_healthy(60)
        configs = {"min.insync.replicas": "2", "durability": "page-cache"}
        cluster.create_topic(TOPIC, size.partitions, REPLICAS, **configs)
        cluster.wait_healthy(120)
        run.say(f"writes {size.bytes_of_logs / 1e9:.1f} GB of logs")
        filled = _run(_fill(cluster.bootstrap, size))
        with _Load(cluster.bootstrap, size.partitions) as load:
            time.sleep(size.seconds_without / 10)  # its connections are made
            load.take()
            time.sleep(size.seconds_without)
            without = load.take()
            yield from _latencies("without a move", without, None)
            moves: dict[str, Callable[[], None]] = {
                "drain": lambda: _command(cluster, "node", "drain", str(DRAINED)),
                "rebalance": lambda: _uncordoned_and_rebalanced(cluster),
                "drain with kills": lambda: _drain_with_kills(cluster, run),
            }
            for what, move in moves.items():
                before = _replicas_on(cluster, DRAINED)
                began = time.perf_counter()
                move()
                seconds = time.perf_counter() - began
                moved = abs(_replicas_on(cluster, DRAINED) - before)
                yield Figure(f"{what}, {moved} replicas", seconds, "s", better=Better.LESS)
                rate = moved * size.bytes_of_logs / (size.partitions * REPLICAS) / seconds / 1e6
                yield Figure(f"{what}, bytes", rate, "MB/s")
                yield from _latencies(what, load.take(), without)
        _ensure_complete(cluster, filled, load, size.partitions)


def _latencies(what: str, found: Sequence[float], without: Sequence[float] | None) -> Iterator[Figure]:
    """The 50th and the 99th percentile of a phase (ms)."""
    for name, at in (("p50", 49), ("p99", 98)):
        value = quantiles(found, n=100)[at] * 1_000
        baseline = None if without is None else quantiles(without, n=100)[at] * 1_000
        yield Figure(f"acknowledgement, {what}, {name}", value, "ms", baseline, better=Better.LESS)


def _run(work: Coroutine[Any, Any, Outcome]) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


# --- load ---


async def _fill(bootstrap: str, size: _Size) -> int:
    """Write the logs. Returns the number of records."""
    count = size.bytes_of_logs // REPLICAS // len(FILL_VALUE)
    async with Producer(bootstrap, acks="all", linger_ms=20) as producer:
        for number in range(count):
            await producer.enqueue(TOPIC, FILL_VALUE, partition=number % size.partitions)
        await producer.flush()
    return count


@dataclass
class _Load:
    """A producer on a thread of its own, until the end of the context."""

    bootstrap: str
    partitions: int
    acknowledged: int = 0
    unknown: int = 0
    refused: int = 0
    _taken: list[float] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: _run(self._write()), name="load")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join()

    def take(self) -> list[float]:
        """The seconds from a record to its acknowledgement, of the records acknowledged since the last call."""
        taken, self._taken = self._taken, []
        return taken

    async def _write(self) -> None:
        chosen = random.Random(2)
        begun = time.perf_counter()
        async with Producer(self.bootstrap, acks="all", linger_ms=0) as producer, asyncio.TaskGroup() as sending:
            number = 0
            while not self._ended.is_set():
                number += 1
                sending.create_task(self._send(producer, chosen.randrange(self.partitions)))
                await asyncio.sleep(max(0.0, begun + number / PER_SECOND - time.perf_counter()))

    async def _send(self, producer: Producer, partition: int) -> None:
        began = time.perf_counter()
        try:
            await producer.send(TOPIC, VALUE, partition=partition)
        except TidelogError as error:
            if error.written is False:
                self.refused += 1
            else:
                self.unknown += 1
        else:
            self.acknowledged += 1
            self._taken.append(time.perf_counter() - began)


# --- moves ---


def _command(cluster: LocalCluster, *arguments: str) -> None:
    """Run a `tidelog` command, again while it ends with another code than 0: what a person would do."""
    deadline = time.perf_counter() + MOVES_S_MAX
    while True:
        done = subprocess.run(
            [sys.executable, *_COMMAND, *arguments, "--bootstrap", cluster.bootstrap],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return
        if time.perf_counter() > deadline:
            raise SystemFailed(f"tidelog {' '.join(arguments)} does not succeed: {done.stderr[-500:]}")
        time.sleep(1)


def _uncordoned_and_rebalanced(cluster: LocalCluster) -> None:
    _command(cluster, "node", "uncordon", str(DRAINED))
    _command(cluster, "cluster", "rebalance")


def _drain_with_kills(cluster: LocalCluster, run: Run) -> None:
    """The active controller, the node that is emptied, and a node that gets its replicas, one after the other."""
    all_of_it = _replicas_on(cluster, DRAINED)
    ended = threading.Event()

    def drain() -> None:
        _command(cluster, "node", "drain", str(DRAINED))
        ended.set()

    thread = threading.Thread(target=drain, name="drain")
    thread.start()
    for share, victim in zip(KILLS_AT, ("controller", "source", "target"), strict=True):
        while not ended.is_set() and _replicas_on(cluster, DRAINED) > all_of_it * (1 - share):
            time.sleep(0.2)
        if ended.is_set():
            run.say(f"the drain ended before the {victim} was killed")
            break
        controller = _controller(cluster)
        number = {"controller": controller, "source": DRAINED, "target": (controller + 1) % DRAINED}[victim]
        run.say(f"kill -9 of the {victim}, node {number}")
        cluster.kill(number)
        time.sleep(DOWN_S)
        cluster.start_node(number)
        cluster.wait_healthy(120, in_sync=False)
    thread.join()


def _controller(cluster: LocalCluster) -> int:
    return _asked(cluster, lambda node: int(cluster.describe(node).controller_id))


def _replicas_on(cluster: LocalCluster, number: int) -> int:
    """The partitions of the topic that have a replica on this node."""

    def counted(node: int) -> int:
        (topic,) = cluster.metadata(node, TOPIC).topics
        return sum(number in partition.replicas for partition in topic.partitions)

    return _asked(cluster, counted)


def _asked(cluster: LocalCluster, question: Callable[[int], int]) -> int:
    """The answer of the first node that gives one."""
    for _ in range(60):
        for node in cluster.nodes:
            with contextlib.suppress(Exception):
                if node.running:
                    return question(node.node_id)
        time.sleep(0.5)
    raise SystemFailed("no node answers within 30 s")


def _ensure_complete(cluster: LocalCluster, filled: int, load: _Load, partitions: int) -> None:
    """Raises SystemFailed if the logs have fewer records than were acknowledged, or more than were sent."""

    async def stored() -> int:
        async with Admin(cluster.bootstrap) as admin:
            ends = await admin.list_offsets([(TOPIC, number) for number in range(partitions)])
            return sum(ends.values())

    count = _run(stored())
    least = filled + load.acknowledged
    if not least <= count <= least + load.unknown:
        raise SystemFailed(f"{least} records were acknowledged and {load.unknown} may be written; stored: {count}")
