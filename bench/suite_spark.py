"""Spark beside prebuilt Arrow and beside Spark's Kafka connector: warm, `local[2]`, nodes on the same two cores.

Each system has three nodes and a Spark driver of its own; they take turns, query by query, and only one is busy at a
time. The rate is the median of the rounds; processor time is that of driver, JVM, Python workers and nodes together.
Rows have no keys and no headers; frames that are read go to Spark's `noop` sink. Topics that are read have one replica,
are filled by the system's own sink in batches of 256 KiB, and are in the page cache as far as memory allows.

Parts: batch (100 B and 1 KiB: all columns, value only, count), streaming (micro-batches of a million rows, relative to
a batch query of the same topic; the time of a small batch, and of a trigger that finds nothing), sink (100 B and 1 KiB,
acks=all on three replicas, exactly once and `exactlyOnce=false`), growth (1 to 8 partitions; 1 to 50 million rows).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from bench.clients import pool
from bench.cluster_contest import FULL, QUICK, Contest, Lane
from bench.figure import Better, Figure, Run
from bench.loads.job import Job
from bench.spark_parts import PARTS
from bench.spark_rounds import CONNECTORS, PREBUILT, Rounds, rates, rounds
from bench.systems.java_tools import find_java
from bench.systems.kafka_connector import KafkaWithConnector
from bench.systems.system import PeerMissing, System, SystemFailed
from bench.systems.tidelog_nodes import Tidelog

PARTITIONS: Final = 4
SIZES: Final = {"100 B": 100, "1 KiB": 1024}
READ_TARGETS: Final = {
    ("100 B", "all"): 2.0,
    ("100 B", "value"): 3.0,
    ("1 KiB", "all"): 3.0,
    ("1 KiB", "value"): 3.0,
}
"""Of the ratio to the Kafka connector."""
COLUMNS: Final = {"all": "all columns", "value": "value only", "count": "count"}
STREAM_SHARE: Final = 0.8
SMALL_MS: Final = 200.0
SMALL_ROWS: Final = 20
"""Of one small micro-batch."""
SINK_TARGET: Final = 2.0
FLAT: Final = 1.2
"""The cost of a row counts as flat up to this ratio."""
SINKS: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "Tidelog": {"exactly once": {}, "exactlyOnce=false": {"exactlyOnce": "false"}},
    "Kafka": {
        "Kafka's sink": {},
        "Kafka's sink, batches of 256 KiB": {"kafka.batch.size": "262144", "kafka.linger.ms": "5"},
    },
}
"""Options by system and name of the sink."""


class _Effort(NamedTuple):
    """read: rows by the size of a value. stream: rows of the topic and of a micro-batch. written: as read."""

    read: Mapping[str, int]
    stream: tuple[int, int]
    small_batches: int
    written: Mapping[str, int]
    partitions: tuple[int, ...]
    partitions_rows: int
    rows: tuple[int, ...]
    warm_up: int
    repeats: int


_FULL: Final = _Effort(
    read={"100 B": 4_000_000, "1 KiB": 1_000_000},
    stream=(5_000_000, 1_000_000),
    small_batches=40,
    written={"100 B": 2_000_000, "1 KiB": 500_000},
    partitions=(1, 2, 4, 8),
    partitions_rows=4_000_000,
    rows=(1_000_000, 10_000_000, 50_000_000),
    warm_up=2,
    repeats=5,
)
_QUICK: Final = _Effort(
    read={"100 B": 100_000, "1 KiB": 50_000},
    stream=(150_000, 50_000),
    small_batches=5,
    written={"100 B": 50_000, "1 KiB": 20_000},
    partitions=(1, 4),
    partitions_rows=100_000,
    rows=(100_000, 200_000),
    warm_up=1,
    repeats=1,
)
START_SECONDS: Final = 600.0
"""A JVM takes some seconds to start, on a machine without a free core some minutes."""
FILL_ROWS: Final = 10_000_000
"""Of one job that fills a topic: it has to be done within the time that a client has for an answer."""


def figures(run: Run) -> Iterator[Figure]:
    """All figures of the chosen parts; some 15 minutes without the peer, 30 with it. Raises SystemFailed at the end if
    Tidelog failed somewhere."""
    try:
        find_java()
    except PeerMissing as missing:
        run.say(f"the suite is left out: {missing}")
        return
    effort = _QUICK if run.quick else _FULL
    parts: dict[str, Callable[[Contest, _Effort], Iterator[Figure]]] = {
        "batch": _batch,
        "streaming": _streaming,
        "sink": _sink,
        "growth": _growth,
    }
    with ExitStack() as stack:
        contest = Contest(run, QUICK if run.quick else FULL, list(_lanes(run, stack)))
        yield from contest.measured({part: partial(parts[part], contest, effort) for part in PARTS})
    contest.ensure_complete()


def _lanes(run: Run, stack: ExitStack) -> Iterator[Lane]:
    """Tidelog, then Kafka if it is asked for and this machine has it."""
    yield _start(run, stack, stack.enter_context(Tidelog(run.scratch / "tidelog")))
    for name in run.peers:
        if name != "kafka":
            run.say(f"{name} is left out: Spark has no connector for it")
            continue
        try:
            yield _start(run, stack, stack.enter_context(KafkaWithConnector(run.scratch / name)))
        except (PeerMissing, SystemFailed) as error:
            run.say(f"{name} is left out: {' '.join(str(error).split())[:300]}")


def _start(run: Run, stack: ExitStack, system: System) -> Lane:
    lane = Lane(system, stack.enter_context(pool(system, run.others)))
    spark = lane.clients.do("spark", Job("start", system.bootstrap), START_SECONDS)["version"]
    run.versions[system.name] = f"{system.version}, Spark {spark}"
    return lane


@contextmanager
def _topics(contest: Contest, name: str, partitions: int, value_bytes: int, rows: int) -> Iterator[None]:
    """A topic of one replica in each system, filled, for the length of the block."""
    with ExitStack() as stack:

        def make(lane: Lane) -> None:
            stack.enter_context(lane.topic(name, partitions, contest.effort, replicas=1))
            _fill(lane, name, partitions, value_bytes, rows)

        contest.run.say(f"  {name}: {rows:,} rows")
        contest.each(partitions, make)
        yield


def _fill(lane: Lane, name: str, partitions: int, value_bytes: int, rows: int) -> None:
    job = _job(lane, "fill", name, partitions, value_bytes)
    for first in range(0, rows, FILL_ROWS):
        lane.clients.do("spark", job._replace(rows=min(FILL_ROWS, rows - first)))


def _job(lane: Lane, do: str, topic: str, partitions: int, value_bytes: int, **fields: Any) -> Job:
    job = lane.job(do, topic, partitions)._replace(value_bytes=value_bytes, connector=CONNECTORS[lane.system.name])
    return job._replace(**fields)


def _rounds(contest: Contest, effort: _Effort, jobs: Callable[[Lane], Mapping[str, Job]]) -> dict[str, Rounds]:
    return rounds(contest, jobs, PARTITIONS, warm_up=effort.warm_up, repeats=effort.repeats)


def _batch(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    for size, value_bytes in SIZES.items():
        topic, rows = f"batch-{value_bytes}", effort.read[size]
        with _topics(contest, topic, PARTITIONS, value_bytes, rows):
            for columns, what in COLUMNS.items():
                job = Job("read", "", topic, PARTITIONS, value_bytes=value_bytes, rows=rows, columns=columns)
                found = _rounds(contest, effort, partial(_reads, job))
                wanted = READ_TARGETS.get((size, columns))
                targets = {} if wanted is None else {"Kafka": wanted}
                yield from rates(f"read {size}, {what}", "Tidelog", found, targets)


def _reads(job: Job, lane: Lane) -> dict[str, Job]:
    """The query by the system, and over prebuilt Arrow in Tidelog's driver."""
    job = job._replace(bootstrap=lane.system.bootstrap, connector=CONNECTORS[lane.system.name])
    prebuilt = {PREBUILT: job._replace(connector="prebuilt")} if lane.system.name == "Tidelog" else {}
    return {lane.system.name: job, **prebuilt}


def _streaming(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    rows, batch_rows = effort.stream
    yield from _stream_rates(contest, effort, rows, batch_rows)
    rows = SMALL_ROWS * effort.small_batches
    with _topics(contest, "small", PARTITIONS, SIZES["100 B"], rows):

        def small(lane: Lane) -> dict[str, Any]:
            job = _job(lane, "small_batches", "small", PARTITIONS, SIZES["100 B"], rows=rows)
            return lane.clients.do("spark", job._replace(options=_trigger(contest, lane, SMALL_ROWS, "small")))

        found = contest.each(PARTITIONS, small)
    for name, answer in found.items():
        contest.run.say(f"  {name}, median ms of a micro-batch: {answer['steps_ms']}")
    for key, what in (("small_ms", f"micro-batch of {SMALL_ROWS} rows"), ("empty_ms", "trigger that finds nothing")):
        medians = {name: statistics.median(each[key]) for name, each in found.items()}
        mine = medians["Tidelog"]
        yield Figure(f"{what}, median", mine, "ms", target=SMALL_MS, better=Better.LESS)
        yield Figure(f"{what}, longest", max(found["Tidelog"][key]), "ms", better=Better.LESS)
        if "Kafka" in medians:
            baseline = max(medians["Kafka"], 1.0)
            yield Figure(f"{what}, median / Kafka", mine, "ms", baseline=baseline, better=Better.LESS)


def _stream_rates(contest: Contest, effort: _Effort, rows: int, batch_rows: int) -> Iterator[Figure]:
    count = iter(range(1_000))

    def jobs(lane: Lane) -> dict[str, Job]:
        name = lane.system.name
        read = _job(lane, "read", "stream", PARTITIONS, SIZES["100 B"], rows=rows, columns="all")
        trigger = _trigger(contest, lane, batch_rows, f"stream-{next(count)}")
        return {name: read._replace(do="stream", options=trigger), f"{name}, batch": read}

    with _topics(contest, "stream", PARTITIONS, SIZES["100 B"], rows):
        found = _rounds(contest, effort, jobs)
    what = f"stream 100 B in micro-batches of {batch_rows:,} rows"
    targets = {"Tidelog, batch": STREAM_SHARE}
    yield from rates(what, "Tidelog", found, targets, baselines=("Tidelog, batch", "Kafka"))
    if "Kafka" in found:
        yield from rates(f"{what}, Kafka", "Kafka", found, {}, baselines=("Kafka, batch",))


def _trigger(contest: Contest, lane: Lane, rows: int, name: str) -> dict[str, str]:
    checkpoint = contest.run.scratch / "checkpoints" / f"{CONNECTORS[lane.system.name]}-{name}"
    return {"maxOffsetsPerTrigger": str(rows), "checkpointLocation": str(checkpoint)}


def _sink(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    for size, value_bytes in SIZES.items():
        topic, rows = f"sink-{value_bytes}", effort.written[size]

        def jobs(lane: Lane, topic: str = topic, value_bytes: int = value_bytes, rows: int = rows) -> dict[str, Job]:
            job = _job(lane, "write", topic, PARTITIONS, value_bytes, rows=rows)
            return {name: job._replace(options=options) for name, options in SINKS[lane.system.name].items()}

        with ExitStack() as stack:
            contest.each(
                PARTITIONS,
                lambda lane: stack.enter_context(lane.topic(topic, PARTITIONS, contest.effort)),  # noqa: B023
            )
            found = _rounds(contest, effort, jobs)
        for name in SINKS["Tidelog"]:
            targets = {"Kafka's sink": SINK_TARGET}
            yield from rates(f"write {size}, {name}", name, found, targets, baselines=tuple(SINKS["Kafka"]))


def _growth(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    """Tidelog alone, all columns of 100 B: by partitions, then by rows."""
    alone = Contest(contest.run, contest.effort, [contest.tidelog])
    yield from _by_partitions(alone, effort)
    yield from _by_rows(alone, effort)


def _by_partitions(alone: Contest, effort: _Effort) -> Iterator[Figure]:
    first, rows = 0.0, effort.partitions_rows
    for partitions in effort.partitions:
        topic = f"partitions-{partitions}"
        with _topics(alone, topic, partitions, SIZES["100 B"], rows):
            found = _rounds(alone, effort, partial(_whole, topic, partitions, rows))["Tidelog"]
        first = first or found.rate
        what = f"read 100 B, {partitions} partitions / {effort.partitions[0]}"
        yield Figure(what, found.rate, "rows/s", baseline=first)


def _by_rows(alone: Contest, effort: _Effort) -> Iterator[Figure]:
    """One topic that grows. What a row costs, by the clock and in processor time, relative to the smallest topic."""
    first: Rounds | None = None
    filled, warm_up, repeats = effort.rows[0], effort.warm_up, effort.repeats
    with _topics(alone, "rows", PARTITIONS, SIZES["100 B"], filled):
        for rows in effort.rows:
            _fill(alone.tidelog, "rows", PARTITIONS, SIZES["100 B"], rows - filled)
            filled = rows
            jobs = partial(_whole, "rows", PARTITIONS, rows)
            found = rounds(alone, jobs, PARTITIONS, warm_up=warm_up, repeats=repeats)["Tidelog"]
            first, warm_up, repeats = first or found, 0, max(1, effort.repeats // 2)
            what = f"read 100 B, {rows:,} rows / {effort.rows[0]:,}"
            options: dict[str, Any] = {"unit": "us/row", "better": Better.LESS, "target": FLAT}
            yield Figure(what, 1e6 / found.rate, baseline=1e6 / first.rate, **options)
            yield Figure(f"{what}, processor", found.cpu_us, baseline=first.cpu_us, **options)


def _whole(topic: str, partitions: int, rows: int, lane: Lane) -> dict[str, Job]:
    return {"Tidelog": _job(lane, "read", topic, partitions, SIZES["100 B"], rows=rows, columns="all")}
