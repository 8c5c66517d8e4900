"""Kafka's clients at three nodes of Tidelog and at three Kafka brokers: what a program gains that changes its address.

The same client, with the same settings, loads both in turns, on the same cores: librdkafka, aiokafka and the tools of
Kafka's Java client. Three replicas, two in sync, acks=all, from the page cache unless a figure says fsync. The last
part compares librdkafka through the listener with our own client by gRPC, on the same nodes.

Parts: latency (one record at a time), produce (100 B and 1 KiB, keyed and not, partitions, client processes), batches
(processor of the nodes for each batch of 50 records), fsync, consume (100 B and 1 KiB), idle (memory), own
(our client).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Final, NamedTuple

from bench.clients import Work, pool
from bench.cluster_contest import FULL, QUICK, Contest, Lane, compare
from bench.cluster_loads import SIZES, batches, cost, latencies, percentile, synced
from bench.figure import Better, Figure, Run
from bench.kafka_parts import PARTS
from bench.systems.java_tools import JavaTools
from bench.systems.kafka import Kafka
from bench.systems.system import PeerMissing, System
from bench.systems.tidelog_by_kafka import OWN, TidelogByKafka

PARTITIONS_MAX: Final = 300
"""More are a matter of the suite `cluster`."""
JAVA: Final = "Java"
_READERS: Final = ("librdkafka", "aiokafka")
KEYED_TARGET: Final = 1.5
"""Of the ratio to Kafka for keyed records of many partitions, where each batch is small."""
MEMORY_TARGET: Final = 0.25
_OWN_LABEL: Final = "Tidelog's client by gRPC"


def figures(run: Run) -> Iterator[Figure]:
    """All figures of the chosen parts, some 20 minutes; none without Kafka, as there is nothing to compare with then.
    Raises SystemFailed at the end if Tidelog failed somewhere."""
    run = replace(run, partitions=tuple(each for each in run.partitions if each <= PARTITIONS_MAX))
    with ExitStack() as stack:
        try:
            systems = (TidelogByKafka(run.scratch / "tidelog"), Kafka(run.scratch / "kafka"))
        except PeerMissing as error:
            run.say(f"the suite kafka is left out: {' '.join(str(error).split())}")
            return
        contest = Contest(run, QUICK if run.quick else FULL, [_start(run, stack, system) for system in systems])
        contest.warm_up()
        parts: Mapping[str, Callable[[Contest], Iterator[Figure]]] = {
            "idle": _idle,
            "latency": _latency,
            "produce": _produce,
            "batches": partial(batches, target=1.0),
            "fsync": _fsync,
            "consume": _consume,
            "own": _own,
        }
        yield from contest.measured({part: partial(parts[part], contest) for part in PARTS})
    contest.ensure_complete()


def _start(run: Run, stack: ExitStack, system: System) -> Lane:
    run.versions[system.name] = system.version
    return Lane(stack.enter_context(system), stack.enter_context(pool(system, run.others)))


def _beside(
    name: str, unit: str, found: Mapping[str, float], target: float | None, better: Better = Better.MORE
) -> Iterator[Figure]:
    """One figure with the value of Kafka as its baseline. found: by system."""
    peers = {label: value for label, value in found.items() if label != TidelogByKafka.name}
    yield from compare(name, found[TidelogByKafka.name], unit, peers, target=target, only=Kafka.name, better=better)


# --- idle and latency -------------------------------------------------------------------------------------------------


def _idle(contest: Contest) -> Iterator[Figure]:
    def memory(lane: Lane) -> float:
        with lane.topic("idle", contest.largest, contest.effort):
            return cost(lane, contest.effort.idle_seconds).memory

    name = f"memory of an idle node, {contest.largest:,} partitions"
    yield from _beside(name, "MiB", contest.each(1, memory), MEMORY_TARGET, Better.LESS)


def _latency(contest: Contest) -> Iterator[Figure]:
    times: dict[str, list[float]] = {}
    for number in range(contest.effort.latency_rounds):
        for name, values in contest.each(1, partial(latencies, contest, f"one-{number}")).items():
            times.setdefault(name, []).extend(values)
    for percent in (50, 99):
        shares = {name: percentile(values, percent) for name, values in times.items()}
        yield from _beside(f"one record at a time, librdkafka, p{percent}", "ms", shares, 1.0, Better.LESS)


# --- full speed -------------------------------------------------------------------------------------------------------


class _Cell(NamedTuple):
    """What is written: the size of values, their keys, the partitions, and who writes."""

    size: str
    keyed: bool
    partitions: int
    processes: int

    @property
    def clients(self) -> tuple[str, ...]:
        """Those that are measured; the tool of Java writes without keys, and is compared with one process."""
        if self.processes > 1:
            return ("librdkafka",)
        return ("librdkafka", "aiokafka") if self.keyed else ("librdkafka", "aiokafka", JAVA)

    def __str__(self) -> str:
        who = "1 client" if self.processes == 1 else f"{self.processes} clients"
        return f"{self.size}, {'keyed' if self.keyed else 'no keys'}, {self.partitions:,} partitions, {who}"


def _produce(contest: Contest) -> Iterator[Figure]:
    for partitions in contest.run.partitions:
        for size in SIZES:
            for keyed in (True, False):
                for processes in contest.effort.processes:
                    cell = _Cell(size, keyed, partitions, processes)
                    contest.run.say(f"produce {cell}")
                    yield from contest.unless_failed(_produced(contest, cell))


def _produced(contest: Contest, cell: _Cell) -> Iterator[Figure]:
    found = contest.each(cell.partitions, partial(_rates, contest, cell))
    target = KEYED_TARGET if cell.keyed and cell.partitions > contest.smallest else 1.0
    for client in cell.clients:
        rates = {name: rates[client] for name, rates in found.items()}
        yield from _beside(f"produce {cell}, {client}", "records/s", rates, target)


def _rates(contest: Contest, cell: _Cell, lane: Lane) -> dict[str, float]:
    """Records per second by client, each to the topic that those before have written."""
    effort = contest.effort
    with lane.topic("produce", cell.partitions, effort) as topic:
        job = topic._replace(
            do="produce",
            keyed=cell.keyed,
            value_bytes=SIZES[cell.size],
            seconds=effort.seconds,
            warm_up_seconds=effort.warm_up_seconds,
        )
        rates: dict[str, float] = {}
        for client in cell.clients:
            if client == JAVA:
                records = max(1_000, int(rates["librdkafka"] * effort.seconds))
                rates[client] = _java(lane).produce(lane.system.bootstrap, topic.topic, job.value_bytes, records)
            else:
                rates[client] = lane.work(job, cell.processes, client).rate
        return rates


def _java(lane: Lane) -> JavaTools:
    assert isinstance(lane.system, Kafka | TidelogByKafka)
    return lane.system.java


def _fsync(contest: Contest) -> Iterator[Figure]:
    for size, value_bytes in SIZES.items():
        found = contest.each(contest.smallest, partial(synced, contest, value_bytes))
        rates = {name: rates[0] for name, rates in found.items()}
        yield from _beside(f"produce {size}, no keys, fsync, librdkafka", "records/s", rates, 1.0)


# --- consume ----------------------------------------------------------------------------------------------------------


class _Read(NamedTuple):
    """By client: records per second, and processor of the nodes in us per record (not known of the tool of Java)."""

    rates: dict[str, float]
    costs: dict[str, float]


def _consume(contest: Contest) -> Iterator[Figure]:
    for size, value_bytes in SIZES.items():
        contest.run.say(f"consume {size}")
        found = contest.each(contest.smallest, partial(_consumed, contest, value_bytes))
        for client in (*_READERS, JAVA):
            rates = {name: read.rates[client] for name, read in found.items()}
            yield from _beside(f"consume {size}, {client}", "records/s", rates, 1.0)
        for client in _READERS:
            costs = {name: read.costs[client] for name, read in found.items()}
            name = f"consume {size}, {client}: processor of the nodes"
            yield from _beside(name, "us/record", costs, None, Better.LESS)


def _consumed(contest: Contest, value_bytes: int, lane: Lane) -> _Read:
    """Medians of several rounds, in which the clients take turns: what a client fetches ahead, and when it pauses
    because its queue is full, is chance, and aiokafka sometimes waits for its own timer before each fetch."""
    effort = contest.effort
    rates: dict[str, list[float]] = {}
    costs: dict[str, list[float]] = {}
    with lane.topic("consume", contest.smallest, effort) as topic:
        written = lane.work(topic._replace(do="produce", seconds=effort.seconds, value_bytes=value_bytes))
        job = topic._replace(do="consume", seconds=effort.seconds)
        for _ in range(effort.read_rounds):
            for client in _READERS:
                read = lane.work(job, kind=client)
                rates.setdefault(client, []).append(read.rate)
                costs.setdefault(client, []).append(_cost(read))
            read_by_java = _java(lane).consume(lane.system.bootstrap, topic.topic, written.records)
            rates.setdefault(JAVA, []).append(read_by_java)
    return _Read(*({client: median(values) for client, values in each.items()} for each in (rates, costs)))


def _cost(work: Work) -> float:
    """Processor of the nodes, in us per record."""
    return work.cpu_nodes * 1e6 / max(1, work.records)


# --- our own client ---------------------------------------------------------------------------------------------------


def _own(contest: Contest) -> Iterator[Figure]:
    """librdkafka through the listener beside our client by gRPC."""
    lane, effort = contest.tidelog, contest.effort
    for size, value_bytes in SIZES.items():
        contest.run.say(f"librdkafka and our client, {size}")
        with lane.topic("own", contest.smallest, effort) as topic:
            job = topic._replace(value_bytes=value_bytes, seconds=effort.seconds)
            for do, keyed in (("produce", False), ("produce", True), ("consume", False)):
                done = {kind: lane.work(job._replace(do=do, keyed=keyed), kind=kind) for kind in ("librdkafka", OWN)}
                what = f"{do} {size}{', keyed' if keyed else ''}, librdkafka through the listener"
                rates = {_OWN_LABEL: done[OWN].rate}
                yield from compare(what, done["librdkafka"].rate, "records/s", rates)
                costs = {kind: _cost(work) for kind, work in done.items()}
                name = f"{what}: processor of the nodes"
                yield from compare(name, costs["librdkafka"], "us/record", {_OWN_LABEL: costs[OWN]}, better=Better.LESS)
