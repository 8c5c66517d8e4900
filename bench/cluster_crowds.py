"""Many clients at once, and a node that is killed under load: parts of the suite `cluster`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from bench.clients import fairness
from bench.cluster_contest import Contest, Lane, compare
from bench.figure import Better, Figure

PACED_RECORDS_PER_SECOND: Final = 10_000
FEED_RECORDS_PER_SECOND: Final = 50
CONSUMER_PROCESSES: Final = 4
FAILOVER_SECONDS_MAX: Final = 60.0


class _Crowd(NamedTuple):
    """Many producing processes: total rate and fairness at full speed, and p99 at a pace."""

    rate: float
    fairness: float
    p99_ms: float


def clients(contest: Contest) -> Iterator[Figure]:
    """Producing processes at full speed and at a pace, then consumers of one partition."""
    for processes in contest.effort.crowds:
        contest.run.say(f"{processes} producing processes")
        found = contest.each(contest.smallest, partial(_crowd, contest, processes))
        yield from _crowd_figures(contest, processes, found)
        for lane in contest.lanes:
            lane.clients.shrink(max(contest.effort.processes))
    count = contest.effort.consumers
    contest.run.say(f"{count} consumers of one partition")
    tails = contest.each(1, partial(_tail, contest))
    mine_p99, mine_fairness = tails[contest.tidelog.system.name]
    name = f"{count} consumers of one partition, p99 from send to poll"
    p99 = {name: found[0] for name, found in tails.items()}
    yield from compare(name, mine_p99, "ms", contest.labelled(p99), better=Better.LESS)
    equal = contest.labelled({name: found[1] for name, found in tails.items()})
    yield from compare(f"{count} consumers of one partition, fairness", mine_fairness, "Jain's index", equal)


def _crowd_figures(contest: Contest, processes: int, found: dict[str, _Crowd]) -> Iterator[Figure]:
    mine = found[contest.tidelog.system.name]
    rates = contest.labelled({name: each.rate for name, each in found.items()})
    equal = contest.labelled({name: each.fairness for name, each in found.items()})
    waits = contest.labelled({name: each.p99_ms for name, each in found.items()})
    what = f"{processes} clients, 100 B, page cache"
    yield from compare(f"{what}, full speed", mine.rate, "records/s", rates)
    yield from compare(f"{what}, full speed, fairness", mine.fairness, "Jain's index", equal)
    name = f"{what}, {PACED_RECORDS_PER_SECOND:,} records/s together, p99"
    yield from compare(name, mine.p99_ms, "ms", waits, better=Better.LESS)


def _crowd(contest: Contest, processes: int, lane: Lane) -> _Crowd:
    with lane.topic(f"crowd-{processes}", contest.smallest, contest.effort) as topic:
        effort = contest.effort
        job = topic._replace(do="produce", seconds=effort.seconds, warm_up_seconds=effort.warm_up_seconds)
        fast = lane.work(job, processes)
        calm = lane.work(job._replace(rate=PACED_RECORDS_PER_SECOND / processes), processes)
        return _Crowd(fast.rate, fairness([float(answer["records"]) for answer in fast.answers]), calm.p99_ms)


def _tail(contest: Contest, lane: Lane) -> tuple[float, float]:
    """p99 in ms of the age of a record when it is polled, and the fairness of what each consumer got."""
    if not lane.system.can_tail:
        return 0.0, 0.0
    effort = contest.effort
    with lane.topic("tail", 1, effort) as topic:
        job = topic._replace(do="tail", seconds=effort.seconds, consumers=effort.consumers // CONSUMER_PROCESSES)
        feed = topic._replace(do="feed", seconds=effort.seconds * 0.8, rate=FEED_RECORDS_PER_SECOND)
        work = lane.clients.work([*[(lane.kind, job)] * CONSUMER_PROCESSES, (lane.kind, feed)])
    tails = [answer for answer in work.answers if "counts" in answer]
    ages = sorted(age for answer in tails for age in answer["ages_ms"])
    counts = [float(count) for answer in tails for count in answer["counts"]]
    return (ages[int(len(ages) * 0.99)] if ages else 0.0), fairness(counts)


def failover(contest: Contest) -> Iterator[Figure]:
    """Seconds until each partition acknowledges again after the kill -9 of a node that leads, at worst.

    A peer, whose failover may take many seconds, has one kill.
    """
    worst: dict[str, float] = {}
    for victim in contest.effort.kills:
        contest.run.say(f"kill -9 of node {victim}, which leads, under load")
        for name, seconds in contest.each(contest.smallest, partial(_failover, contest, victim)).items():
            worst[name] = max(worst.get(name, 0.0), seconds)
    mine = worst[contest.tidelog.system.name]
    name = f"failover after kill -9, worst of {len(contest.effort.kills)}"
    peers = contest.labelled(worst)
    if any(peers.values()):
        yield from compare(name, mine, "s", peers, better=Better.LESS)
    yield Figure(f"{name}: its limit", mine, "s", target=1.2, better=Better.LESS)


def _failover(contest: Contest, victim: int, lane: Lane) -> float:
    if not lane.system.can_tail or (lane is not contest.tidelog and victim != contest.effort.kills[0]):
        return 0.0
    with lane.topic(f"failover-{victim}", contest.smallest, contest.effort) as topic:
        pid = lane.system.pids[victim]
        job = topic._replace(do="failover", seconds=FAILOVER_SECONDS_MAX, pid=pid)
        (answer,) = lane.clients.work([(lane.kind, job)]).answers
        lane.system.restart(pid)
        return float(answer["seconds"])
