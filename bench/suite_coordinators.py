"""Groups and transactions on three nodes, beside peers in the same run: three replicas, two in sync.

Internal topics have their defaults: Tidelog's are synced (durability fsync), Kafka's are in the page cache. Data topics
are in the page cache on both. Systems take turns within each figure (bench/cluster_contest.py).
Commits and transactions of Kafka are those of the faster one of librdkafka and aiokafka, all else librdkafka's.

Parts: commits (16 groups that commit one offset after the other, from one client process), rebalance (members that join
at once, and the partitions of one that leaves), large-group (the same with 1,000 members in several client processes,
on Tidelog alone), transactions (one at a time, of one record and of 100), throughput (transactions of 100 ms relative
to none), coordinator-failover (kill -9 of each node while groups and transactional ids commit), memory (for each group
and transactional id; of a JVM the heap after a garbage collection, of Tidelog the resident memory).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, Final, NamedTuple

from bench import large_group
from bench.clients import Work, pool
from bench.cluster_contest import FULL, QUICK, Contest, Lane, compare
from bench.coordinator_parts import PARTS
from bench.figure import Better, Figure, Run
from bench.systems import PEERS
from bench.systems.system import PeerMissing, System, SystemFailed
from bench.systems.tidelog_nodes import Tidelog

COMMITTERS: Final = 16
PARTITIONS: Final = 6
TRANSACTION_MS: Final = 100
FAILOVER_CLIENTS: Final = 6
SECONDS_MAX: Final = 120.0
THROUGHPUT_SHARE: Final = 0.8
FAILOVER_SECONDS: Final = 3.0


class _Effort(NamedTuple):
    """members: group sizes that all systems are compared at, in one client process. alone: the size for Tidelog alone,
    and the client processes that share it."""

    members: tuple[int, ...]
    alone: tuple[int, int]
    groups: int
    transactional_ids: int
    victims: tuple[int, ...]


_FULL: Final = _Effort((10, 100), (1_000, 8), 5_000, 300, (0, 1, 2))
_QUICK: Final = _Effort((3,), (10, 2), 50, 5, (1,))


def figures(run: Run) -> Iterator[Figure]:
    """All figures of the chosen parts. Raises SystemFailed at the end if Tidelog failed somewhere."""
    effort = _QUICK if run.quick else _FULL
    parts: dict[str, Callable[[Contest, _Effort], Iterator[Figure]]] = {
        "commits": _commits,
        "rebalance": _rebalance,
        "large-group": _large_group,
        "transactions": _transactions,
        "throughput": _throughput,
        "coordinator-failover": _failover,
        "memory": _memory,
    }
    with ExitStack() as stack:
        contest = Contest(run, QUICK if run.quick else FULL, list(_lanes(run, stack)))
        yield from contest.measured({part: partial(parts[part], contest, effort) for part in PARTS})
    contest.ensure_complete()


def _lanes(run: Run, stack: ExitStack) -> Iterator[Lane]:
    yield _start(run, stack, stack.enter_context(Tidelog(run.scratch / "tidelog")))
    for name in run.peers:
        try:
            yield _start(run, stack, stack.enter_context(PEERS[name](run.scratch / name)))
        except (PeerMissing, SystemFailed) as error:
            run.say(f"{name} is left out: {' '.join(str(error).split())[:300]}")


def _start(run: Run, stack: ExitStack, system: System) -> Lane:
    run.versions[system.name] = system.version
    return Lane(system, stack.enter_context(pool(system, run.others)))


def _work(lane: Lane, contest: Contest, do: str, **fields: Any) -> Work:
    """A job on a topic of its own. Raises SystemFailed."""
    with lane.topic(do.replace("_", "-"), PARTITIONS, contest.effort) as topic:
        job = topic._replace(do=do, seconds=contest.effort.seconds, **fields)
        return lane.work(job, kind=_kind(lane))


def _best(lane: Lane, contest: Contest, do: str, **fields: Any) -> Work:
    """As `_work`, by each of the clients of the system; the one with the highest rate."""
    with lane.topic(do.replace("_", "-"), PARTITIONS, contest.effort) as topic:
        job = topic._replace(do=do, seconds=contest.effort.seconds, **fields)
        kinds = [f"{kind}-coordination" for kind in lane.system.clients]
        return max((lane.work(job, kind=kind) for kind in kinds), key=lambda work: work.rate)


def _kind(lane: Lane) -> str:
    return f"{lane.kind}-coordination"


def _compared(contest: Contest, name: str, unit: str, found: dict[str, float], **options: Any) -> Iterator[Figure]:
    mine = found[contest.tidelog.system.name]
    yield from compare(name, mine, unit, contest.labelled(found), **options)


def _commits(contest: Contest, _effort: _Effort) -> Iterator[Figure]:
    found = contest.each(PARTITIONS, lambda lane: _best(lane, contest, "commits", consumers=COMMITTERS))
    rates = {name: work.rate for name, work in found.items()}
    waits = {name: work.p99_ms for name, work in found.items()}
    what = f"offset commits, {COMMITTERS} groups"
    yield from _compared(contest, what, "commits/s", rates, target=1.0)
    yield from _compared(contest, f"{what}, p99", "ms", waits, better=Better.LESS, target=1.0)


def _rebalance(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    for members in effort.members:
        measure = partial(_rebalanced, contest=contest, members=members)
        found = contest.each(members, measure)
        joined = {name: float(answer["seconds"]) for name, answer in found.items()}
        left = {name: float(answer["left_seconds"]) for name, answer in found.items()}
        options: dict[str, Any] = {"better": Better.LESS, "target": 1.0}
        yield from _compared(contest, f"{members} members join at once", "s", joined, **options)
        yield from _compared(contest, f"one of {members} members leaves", "s", left, **options)


def _rebalanced(lane: Lane, contest: Contest, members: int) -> dict[str, float]:
    with lane.topic(f"rebalance-{members}", members, contest.effort) as topic:
        job = topic._replace(do="rebalance", consumers=members, seconds=SECONDS_MAX)
        (answer,) = lane.work(job, kind=_kind(lane)).answers
        return answer


def _large_group(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    lane, (members, processes) = contest.tidelog, effort.alone
    with lane.topic(f"large-group-{members}", members, contest.effort) as topic:
        job = topic._replace(consumers=members, seconds=SECONDS_MAX)
        found = large_group.rebalance(lane.clients, _kind(lane), job, processes)
    lane.clients.end()  # they have given up their claim to the processor
    contest.run.say(f"  {found.describe()}")
    what = f"{members:,} members in {processes} processes"
    yield Figure(f"{what} join at once", found.joined, "s", better=Better.LESS)
    yield Figure(f"{what}: the group is stable", found.stable, "s", better=Better.LESS)
    yield Figure(f"{what}: one leaves", found.left, "s", better=Better.LESS)


def _transactions(contest: Contest, _effort: _Effort) -> Iterator[Figure]:
    for records in (1, 100):
        measure = partial(_best, contest=contest, do="transactions", batch_records=records)
        found = contest.each(PARTITIONS, measure)
        rates = {name: work.rate for name, work in found.items()}
        what = f"transactions of {records} records, one at a time"
        yield from _compared(contest, what, "transactions/s", rates, target=1.0)


def _throughput(contest: Contest, _effort: _Effort) -> Iterator[Figure]:
    def measure(lane: Lane) -> tuple[float, float]:
        transactional = _work(lane, contest, "throughput", rate=TRANSACTION_MS)
        with lane.topic("plain", PARTITIONS, contest.effort) as topic:
            plain = lane.work(topic._replace(do="produce", seconds=contest.effort.seconds, warm_up_seconds=0.5))
        return transactional.rate, plain.rate

    found = contest.each(PARTITIONS, measure)
    rates = {name: rate for name, (rate, _) in found.items()}
    what = f"records in transactions of {TRANSACTION_MS} ms, 100 B"
    yield from _compared(contest, what, "records/s", rates, target=1.0)
    for name, (rate, plain) in found.items():
        own = THROUGHPUT_SHARE if name == contest.tidelog.system.name else None
        yield Figure(f"{what}, relative to none / {name}", rate, "records/s", baseline=plain, target=own)


def _failover(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    worst: dict[str, float] = {}
    for victim in effort.victims:
        for name, seconds in contest.each(PARTITIONS, partial(_killed, contest, victim)).items():
            worst[name] = max(worst.get(name, 0.0), seconds)
    name = f"coordinators serve again after kill -9, worst of {len(effort.victims)}"
    yield from _compared(contest, name, "s", worst, better=Better.LESS)
    mine = worst[contest.tidelog.system.name]
    yield Figure(f"{name}: its limit", mine, "s", target=FAILOVER_SECONDS, better=Better.LESS)


def _killed(contest: Contest, victim: int, lane: Lane) -> float:
    with lane.topic(f"coordinator-failover-{victim}", PARTITIONS, contest.effort) as topic:
        pid = lane.system.pids[victim]
        job = topic._replace(do="coordinator_failover", consumers=FAILOVER_CLIENTS, seconds=SECONDS_MAX, pid=pid)
        (answer,) = lane.work(job, kind=_kind(lane)).answers
        lane.system.restart(pid)
        return float(answer["seconds"])


def _memory(contest: Contest, effort: _Effort) -> Iterator[Figure]:
    for do, count, what in (
        ("many_groups", effort.groups, "a group with one offset"),
        ("many_transactional_ids", effort.transactional_ids, "a transactional id"),
    ):
        found = contest.each(PARTITIONS, partial(_grown, contest, do, count))
        kib = {name: grown / count / 1024 for name, grown in found.items()}
        yield from _compared(contest, f"memory of all nodes for {what}", "KiB", kib, better=Better.LESS, target=1.0)


def _grown(contest: Contest, do: str, count: int, lane: Lane) -> float:
    """Bytes by which the memory of the nodes grows; at least 1."""
    with lane.topic(do.replace("_", "-"), 1, contest.effort) as topic:
        lane.clients.do(_kind(lane), topic._replace(do=do, repeats=1))  # the internal topic exists from here on
        before = lane.system.memory_used()
        lane.clients.do(_kind(lane), topic._replace(do=do, repeats=count))
        return max(1.0, float(lane.system.memory_used() - before))
