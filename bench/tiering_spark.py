"""Spark over history in the object store, beside the same rows from the nodes and from Parquet that Spark has written,
and beside prebuilt Arrow: what Spark takes of any Python source, with nothing read and nothing decoded.

Three nodes with a folder as the store, one driver with `local[2]`, all on the same cores; the four take turns, query
by query. The topic has one replica, and its closed segments are both on the nodes and in the store: with
`remoteStorage` on, Spark reads these from the store and only the newest records from the nodes. All is in the page
cache as far as memory allows. Rows go to Spark's `noop` sink. Parquet is compressed as by Spark's default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Final, NamedTuple

from bench.clients import pool
from bench.cluster_contest import FULL, QUICK, Contest, Lane
from bench.figure import Figure, Run
from bench.loads.job import Job
from bench.spark_rounds import PREBUILT, rates, rounds
from bench.systems.java_tools import find_java
from bench.systems.system import PeerMissing, SystemFailed
from bench.systems.tidelog_nodes import Tidelog
from bench.tiering_metrics import copied_bytes, wait_copied

PARTITIONS: Final = 4
STORE: Final = "the store"
NODES: Final = "the nodes"
PARQUET: Final = "Parquet"
STORE_SHARE: Final = 2.0
"""Wanted of the ratio to the nodes."""
COPIED_SHARE: Final = 0.8
"""At least so much of the values must be in the store: otherwise it is not what is measured."""
SIZES: Final[Mapping[str, int]] = {"100 B": 100, "1 KiB": 1024}
COLUMNS: Final[Mapping[str, str]] = {"all": "all columns", "value": "value only"}
START_SECONDS: Final = 600.0


class _Effort(NamedTuple):
    rows: Mapping[str, int]
    segment_bytes: int
    warm_up: int
    repeats: int


_FULL: Final = _Effort({"100 B": 4_000_000, "1 KiB": 1_000_000}, 8 << 20, 1, 3)
_QUICK: Final = _Effort({"100 B": 200_000, "1 KiB": 50_000}, 1 << 19, 0, 1)


def figures(run: Run) -> Iterator[Figure]:
    """Raises ClusterFailed if segments are not copied, SystemFailed if Spark fails."""
    try:
        find_java()
    except PeerMissing as missing:
        run.say(f"the part spark is left out: {missing}")
        return
    effort = _QUICK if run.quick else _FULL
    with ExitStack() as stack:
        system = stack.enter_context(Tidelog(run.scratch / "spark", tiered=True))
        lane = Lane(system, stack.enter_context(pool(system, run.others)))
        lane.clients.do("spark", Job("start", system.bootstrap), START_SECONDS)
        contest = Contest(run, QUICK if run.quick else FULL, [lane])
        for size in SIZES:
            job = _history(run, system, lane, effort, size)
            for columns, what in COLUMNS.items():
                jobs = partial(_reads, job._replace(columns=columns))
                found = rounds(contest, jobs, PARTITIONS, warm_up=effort.warm_up, repeats=effort.repeats)
                yield from rates(f"Spark reads {size} from the store, {what}", STORE, found, {NODES: STORE_SHARE})


def _history(run: Run, system: Tidelog, lane: Lane, effort: _Effort, size: str) -> Job:
    """A topic of which nearly all is in the store, and the same rows as Parquet. Returns the query over the topic."""
    value_bytes, rows = SIZES[size], effort.rows[size]
    topic = f"history-{value_bytes}"
    job = Job("read", system.bootstrap, topic, PARTITIONS, value_bytes=value_bytes, rows=rows, connector="tidelog")
    before = copied_bytes(system.cluster)
    system.cluster.create_topic(
        topic, PARTITIONS, 1, segment_bytes=str(effort.segment_bytes), remote_storage_enable="true"
    )
    lane.clients.do("spark", job._replace(do="fill"))
    wait_copied(system.cluster)
    copied = copied_bytes(system.cluster) - before
    run.say(f"  {topic}: {rows:,} rows, {copied / 1e6:.0f} MB in the store")
    if copied < COPIED_SHARE * rows * value_bytes:
        raise SystemFailed(f"{topic}: only {copied / 1e6:.0f} MB of {rows * value_bytes / 1e6:.0f} MB are in the store")
    saved = {"path": str(run.scratch / f"{topic}.parquet")}
    lane.clients.do("spark", job._replace(do="save_parquet", columns="all", options=saved))
    return job._replace(options=saved)


def _reads(job: Job, _lane: Lane) -> dict[str, Job]:
    nodes = job._replace(options={})
    return {
        STORE: nodes._replace(options={"remoteStorage": "on"}),
        NODES: nodes,
        PARQUET: job._replace(connector="parquet"),
        PREBUILT: nodes._replace(connector="prebuilt"),
    }
