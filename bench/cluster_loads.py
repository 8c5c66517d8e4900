"""Idle cost, one record at a time, full speed, processor per batch, fsync, consuming: parts of the suite `cluster`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, NamedTuple

import psutil

from bench.cluster_contest import Contest, Lane, compare
from bench.figure import Better, Figure
from bench.loads.job import Job
from bench.raw_limits import cpu_seconds
from bench.systems.kafka import Kafka
from bench.systems.system import HOME, dies_with_us

SIZES: Final = {"100 B": 100, "1 KiB": 1024}
BACKGROUND: Final = 0.2
"""Share of each core that other work takes."""
BATCH_RECORDS: Final = 50
BATCHES_PER_SECOND: Final = 600


# --- idle -----------------------------------------------------------------------------------------------------------


class Idle(NamedTuple):
    """processor: % of a core, on average over the nodes. memory: MiB of the largest node. 0: not measured."""

    processor: float
    memory: float


def idle(contest: Contest) -> Iterator[Figure]:
    """Processor and memory of a node without partitions and with the largest number."""
    partitions = contest.largest
    contest.run.say(f"idle, without partitions and with {partitions:,}")
    found = contest.each(1, partial(_idle, contest))
    for index, state in enumerate(("no partitions", f"{partitions:,} partitions")):
        values = {name: pair[index] for name, pair in found.items()}
        mine = values[contest.tidelog.system.name]
        memory = contest.labelled({name: value.memory for name, value in values.items()})
        processor = contest.labelled({name: value.processor for name, value in values.items()})
        yield from compare(f"memory of an idle node, {state}", mine.memory, "MiB", memory, better=Better.LESS)
        name = f"processor of an idle node, {state}"
        yield from compare(name, mine.processor, "% of a core", processor, better=Better.LESS)
    without, crowded = found[contest.tidelog.system.name]
    limit = f"memory of an idle node, {partitions:,} partitions: its limit"
    yield Figure(limit, crowded.memory, "MiB", target=120, better=Better.LESS)
    name = f"processor of an idle node, {partitions:,} partitions: growth / no partitions"
    base = max(without.processor, 0.01)
    yield Figure(name, crowded.processor, "% of a core", baseline=base, target=2, better=Better.LESS)


def _idle(contest: Contest, lane: Lane) -> tuple[Idle, Idle]:
    without = cost(lane, contest.effort.idle_seconds)
    if contest.largest > lane.system.partitions_max:
        return without, Idle(0.0, 0.0)
    with lane.topic("idle", contest.largest, contest.effort):
        time.sleep(contest.effort.idle_seconds)  # what follows the creation of the partitions ends
        return without, cost(lane, contest.effort.idle_seconds)


def cost(lane: Lane, seconds: float) -> Idle:
    """What a node costs while nothing is asked of it."""
    nodes = [psutil.Process(pid) for pid in lane.system.pids]
    before = [cpu_seconds(node) for node in nodes]
    time.sleep(seconds)
    used = statistics.mean(cpu_seconds(node) - was for node, was in zip(nodes, before, strict=True))
    return Idle(used / seconds * 100, max(node.memory_info().rss for node in nodes) / 2**20)


# --- one record at a time -------------------------------------------------------------------------------------------


def latency(contest: Contest) -> Iterator[Figure]:
    """One record at a time, alone and while other work takes a fifth of each core; systems alternate several times."""
    yield from _latency(contest, "alone")
    with _background(BACKGROUND):
        yield from _latency(contest, f"{BACKGROUND:.0%} background load")


def _latency(contest: Contest, beside: str) -> Iterator[Figure]:
    effort = contest.effort
    contest.run.say(f"one record at a time, {beside}")
    times: dict[str, list[float]] = {}
    for number in range(effort.latency_rounds):
        found = contest.each(1, partial(latencies, contest, f"one-{number}"))
        for name, values in found.items():
            times.setdefault(name, []).extend(values)
    for percent, limit in ((50, 1.0), (99, 3.0)):
        shares = {name: percentile(values, percent) for name, values in times.items()}
        mine = shares[contest.tidelog.system.name]
        name = f"one record at a time, page cache, p{percent}, {beside}"
        target = 1.0 if percent == 50 else None
        peers = contest.labelled(shares)
        if peers:
            yield from compare(name, mine, "ms", peers, target=target, better=Better.LESS)
        yield Figure(f"{name}: its limit", mine, "ms", target=limit, better=Better.LESS)


def latencies(contest: Contest, topic: str, lane: Lane) -> list[float]:
    """Milliseconds of each record, one at a time, to a new topic of one partition."""
    with lane.topic(topic, 1, contest.effort) as job:
        (answer,) = lane.work(job._replace(do="latencies", repeats=contest.effort.latencies)).answers
    return [float(each) for each in answer["latencies_ms"]]


def percentile(values: list[float], percent: int) -> float:
    """The value that so many percent are not above."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@contextmanager
def _background(share: float) -> Iterator[None]:
    """Other work on each core for the length of the block; see bench/background_load.py."""
    command = dies_with_us([sys.executable, "-m", "bench.background_load", str(share)])
    with subprocess.Popen(command, cwd=HOME, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()  # all its processes wait for the end of this pipe
            process.wait(10)


# --- full speed -----------------------------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """Records per second to a new topic, and to the same topic once it was written; the latter by client."""

    new: float
    warm: float
    by_client: dict[str, float]


def produce(contest: Contest) -> Iterator[Figure]:
    """100 B at full speed: each number of partitions, keyed and not, new and written before, 1 and more processes."""
    for partitions in contest.run.partitions:
        for keyed in (True, False):
            for processes in contest.effort.processes:
                yield from contest.unless_failed(_cell(contest, partitions, keyed, processes))


def _cell(contest: Contest, partitions: int, keyed: bool, processes: int) -> Iterator[Figure]:
    which = f"{'keyed' if keyed else 'no keys'}, {partitions:,} partitions"
    who = "1 client" if processes == 1 else f"{processes} clients"
    contest.run.say(f"produce 100 B, {which}, {who}")
    job = Job("produce", "", keyed=keyed, seconds=contest.effort.seconds)
    found = contest.each(partitions, partial(_produced, contest, job, partitions, processes))
    mine = found[contest.tidelog.system.name]
    target = 1.5 if partitions > 6 else 1.0
    for state in ("new", "warm"):
        peers = contest.labelled({name: getattr(cell, state) for name, cell in found.items()})
        if state == "warm":
            for name, cell in found.items():
                lane = next(lane for lane in contest.lanes if lane.system.name == name)
                peers |= {lane.system.label(client): rate for client, rate in cell.by_client.items()}
        name = f"produce 100 B, page cache, {which}, {state}, {who}"
        yield from compare(name, getattr(mine, state), "records/s", peers, target=target)


def _produced(contest: Contest, load: Job, partitions: int, processes: int, lane: Lane) -> _Cell:
    effort = contest.effort
    name = f"produce-{partitions}-{'keyed' if load.keyed else 'plain'}-{processes}"
    with lane.topic(name, partitions, effort) as topic:
        job = load._replace(bootstrap=topic.bootstrap, topic=topic.topic, partitions=partitions)
        new = lane.work(job, processes)
        warm_job = job._replace(warm_up_seconds=effort.warm_up_seconds)
        warm = lane.work(warm_job, processes)
        contest.run.say(f"  {lane.system.name}: others took {max(new.others, warm.others):.1f} cores meanwhile")
        others = {}
        if processes == 1 and load.keyed:
            others = {kind: lane.work(warm_job, 1, kind).rate for kind in lane.system.clients[1:]}
        if processes == 1 and not load.keyed and partitions == contest.smallest and isinstance(lane.system, Kafka):
            records = max(1_000, int(warm.rate * effort.seconds))
            others["Java perf tool"] = lane.system.java.produce(
                lane.system.bootstrap, topic.topic, job.value_bytes, records
            )
        return _Cell(new.rate, warm.rate, others)


# --- processor per batch ---------------------------------------------------------------------------------------------


def batches(contest: Contest, target: float | None = None) -> Iterator[Figure]:
    """Processor time of all nodes per batch of 50 records of 100 B, 600 batches/s to one partition after another.
    target: of the ratio to a peer."""
    first: dict[str, float] = {}
    for partitions in contest.run.partitions:
        contest.run.say(f"processor per batch, {partitions:,} partitions")
        found = contest.each(partitions, partial(_per_batch, contest, partitions))
        for index, state in enumerate(("new", "warm")):
            name = f"processor of the nodes per batch, page cache, {partitions:,} partitions, {state}"
            costs = {system: pair[index] for system, pair in found.items()}
            mine = costs[contest.tidelog.system.name]
            yield from compare(name, mine, "us", contest.labelled(costs), target=target, better=Better.LESS)
            if state in first:
                base = f"{name}: growth / {contest.smallest:,} partitions, warm"
                yield Figure(base, mine, "us", baseline=first["warm"], target=1.2, better=Better.LESS)
        first = first or {"new": found["Tidelog"][0], "warm": found["Tidelog"][1]}


def _per_batch(contest: Contest, partitions: int, lane: Lane) -> tuple[float, float]:
    if not lane.system.can_tail:  # its client has no bursts
        return 0.0, 0.0
    seconds = max(contest.effort.seconds, partitions / BATCHES_PER_SECOND if contest.effort.seconds > 1 else 0)
    with lane.topic(f"batches-{partitions}", partitions, contest.effort) as topic:
        job = topic._replace(do="produce", seconds=seconds, batch_records=BATCH_RECORDS)
        job = job._replace(rate=BATCHES_PER_SECOND * BATCH_RECORDS)
        costs = []
        for _ in range(2):
            work = lane.work(job)
            costs.append(work.cpu_nodes * 1e6 / max(1, work.records / BATCH_RECORDS))
        return costs[0], costs[1]


# --- fsync ----------------------------------------------------------------------------------------------------------


def fsync(contest: Contest) -> Iterator[Figure]:
    """Full speed to a topic that syncs before it acknowledges, against one that does not."""
    for size, value_bytes in SIZES.items():
        contest.run.say(f"fsync against page cache, {size}")
        able = [lane.system.name for lane in contest.lanes if lane.system.can_fsync]
        found = contest.each(contest.smallest, partial(synced, contest, value_bytes))
        for name in able:
            if name in found:
                durable, cached = found[name]
                mine = name == contest.tidelog.system.name
                which = f"produce {size}, no keys, fsync / page cache" + ("" if mine else f", {name}")
                yield Figure(which, durable, "records/s", baseline=cached, target=0.8 if mine else None)


def synced(contest: Contest, value_bytes: int, lane: Lane) -> tuple[float, float]:
    """Records per second to a topic that syncs before it acknowledges, and to one that does not."""
    if not lane.system.can_fsync:
        return 0.0, 0.0
    effort = contest.effort
    rates: list[float] = []
    for durable in (True, False):
        with lane.topic(f"sync-{value_bytes}-{durable}", contest.smallest, effort, fsync=durable) as topic:
            job = topic._replace(do="produce", seconds=effort.seconds, value_bytes=value_bytes)
            rates.append(lane.work(job._replace(warm_up_seconds=effort.warm_up_seconds)).rate)
    return rates[0], rates[1]


# --- consume --------------------------------------------------------------------------------------------------------


def consume(contest: Contest) -> Iterator[Figure]:
    """Record objects of 100 B and 1 KiB, one consumer of all partitions."""
    for size, value_bytes in SIZES.items():
        contest.run.say(f"consume {size}")
        found = contest.each(contest.smallest, partial(_consumed, contest, value_bytes))
        mine = found[contest.tidelog.system.name][contest.tidelog.kind]
        peers = {}
        for lane in contest.lanes[1:]:
            for client, rate in found.get(lane.system.name, {}).items():
                peers[lane.system.label(client)] = rate
        name = f"consume {size}, record objects"
        target = 1.0 if value_bytes == SIZES["100 B"] else None
        yield from compare(name, mine, "records/s", peers, target=target, only="Kafka, Java")


def _consumed(contest: Contest, value_bytes: int, lane: Lane) -> dict[str, float]:
    if not lane.system.can_tail:  # its client does not consume
        return {}
    effort = contest.effort
    with lane.topic(f"consume-{value_bytes}", contest.smallest, effort) as topic:
        written = lane.work(topic._replace(do="produce", seconds=effort.seconds, value_bytes=value_bytes))
        rates = {lane.kind: lane.work(topic._replace(do="consume", seconds=effort.seconds)).rate}
        if isinstance(lane.system, Kafka):
            rates["Java perf tool"] = lane.system.java.consume(lane.system.bootstrap, topic.topic, written.records)
        return rates
