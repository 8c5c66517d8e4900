"""How often a healthy cluster takes a node for dead: a node that is paused for a moment, and a machine that is starved.

`python -m bench.false_alarms --load 4 --minutes 10` starves a cluster for ten minutes; `--pauses 20` pauses nodes;
`--session-ms` and `--heartbeat-ms` measure other settings than the defaults. The figures are counts of log lines, so
that they name the cause of each fencing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil
import uvloop

from node.process.local_cluster import LocalCluster
from tidelog import Producer
from tidelog.errors import TidelogError

TOPIC: Final = "alarms"
PARTITIONS: Final = 6
PER_SECOND: Final = 100
"""Records per second during the measurement: the nodes have work, and a fencing would be noticed by a client."""

SETTLE_S: Final = 1.5
"""Time after a pause: more than a session less the shortest pause, so that the fencing it causes is counted with it."""

Say = Callable[[str], None]


class Alarms(NamedTuple):
    """Events that no failure explains."""

    fencings: int
    elections: int

    def since(self, before: Alarms) -> Alarms:
        """The events after `before` was counted."""
        return Alarms(self.fencings - before.fencings, self.elections - before.elections)


class Longest(NamedTuple):
    """What a client noticed: the longest time from sending a record to its acknowledgement (seconds), and the records
    that were not acknowledged."""

    seconds: float
    failed: int


def count(cluster: LocalCluster) -> Alarms:
    """Fencings and elections of the metadata quorum so far, by the log lines of all nodes."""
    texts = [node.log.read_text(errors="replace") for node in cluster.nodes]
    return Alarms(
        sum(text.count(" is fenced: ") for text in texts),
        sum(text.count("this node leads the metadata quorum") for text in texts),
    )


@contextlib.contextmanager
def cluster_of_three(directory: Path, settings: dict[str, Any] | None = None) -> Iterator[LocalCluster]:
    """Three healthy nodes with a topic that has a leader on each."""
    with LocalCluster(directory, 3, settings=settings) as cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, PARTITIONS, 3, min_insync_replicas="2")
        yield cluster


def pauses(cluster: LocalCluster, seconds: float, rounds: int, *, controller: bool) -> Alarms:
    """Pause a node `rounds` times for `seconds`: the active controller, or another node."""
    before = count(cluster)
    for number in range(rounds):
        active = _controller(cluster)
        others = [node.node_id for node in cluster.nodes if node.node_id != active]
        pid = cluster.nodes[active if controller else others[number % len(others)]].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        time.sleep(SETTLE_S)
    return count(cluster).since(before)


def starved(cluster: LocalCluster, load: int, seconds: float) -> tuple[Alarms, Longest, float]:
    """Keep `load` more processes busy for `seconds` while a client writes. Returns the alarms, what the client noticed,
    and the load average of the machine at the end."""
    before = count(cluster)
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=_spin, daemon=True) for _ in range(load)]
    for process in busy:
        process.start()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            longest = runner.run(_write(cluster.bootstrap, seconds))
        average = psutil.getloadavg()[0]
    finally:
        for process in busy:
            process.kill()
            process.join()
    return count(cluster).since(before), longest, average


def _controller(cluster: LocalCluster) -> int:
    found: list[int] = []

    def is_known() -> bool:
        found[:] = [int(cluster.describe(0).controller_id)]
        return found[0] >= 0

    cluster.wait_until(is_known, within_s=20, what="a controller is known")
    return found[0]


def _spin() -> None:
    while True:
        pass


async def _write(bootstrap: str, seconds: float) -> Longest:
    longest, failed = 0.0, 0

    async def send(producer: Producer, partition: int) -> None:
        nonlocal longest, failed
        began = time.perf_counter()
        try:
            await producer.send(TOPIC, bytes(100), partition=partition)
        except TidelogError:
            failed += 1
        longest = max(longest, time.perf_counter() - began)

    async with Producer(bootstrap, linger_ms=0) as producer, asyncio.TaskGroup() as sending:
        deadline, number = time.perf_counter() + seconds, 0
        while time.perf_counter() < deadline:
            sending.create_task(send(producer, number % PARTITIONS))
            number += 1
            await asyncio.sleep(1 / PER_SECOND)
    return Longest(longest, failed)


def main(arguments: list[str] | None = None) -> int:
    """Print the counts of one measurement."""
    parser = argparse.ArgumentParser(prog="python -m bench.false_alarms", description="Count false alarms.")
    parser.add_argument("--pauses", type=int, default=0, metavar="N", help="pause nodes N times for each length")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="busy processes beside the cluster")
    parser.add_argument("--minutes", type=float, default=1, help="how long the machine is starved (1)")
    parser.add_argument("--session-ms", type=int, default=0, help="broker.session.timeout.ms (the default)")
    parser.add_argument("--heartbeat-ms", type=int, default=0, help="broker.heartbeat.interval.ms (the default)")
    options = parser.parse_args(arguments)
    chosen = {
        "broker.session.timeout.ms": options.session_ms,
        "broker.heartbeat.interval.ms": options.heartbeat_ms,
    }
    settings = {name: value for name, value in chosen.items() if value}
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-alarms-") as scratch,
        cluster_of_three(Path(scratch), settings) as cluster,
    ):
        for seconds in (0.2, 0.5, 1.0) if options.pauses else ():
            for controller in (False, True):
                found = pauses(cluster, seconds, options.pauses, controller=controller)
                who = "controller" if controller else "another node"
                print(f"{options.pauses} pauses of {seconds} s, {who}: {found}", flush=True)
        if options.load:
            alarms, longest, average = starved(cluster, options.load, options.minutes * 60)
            print(f"load {options.load}, {options.minutes:g} min: {alarms}, {longest}, load average {average:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
