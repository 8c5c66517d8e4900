"""What goes wrong in a random world: a list of faults with their times, made from the seed before the world begins.

A plan is a value: it can be printed, replayed, and replayed without some of its faults. Every fault is undone after a
while, and all of them when the plan ends. Left to others: doing it (world.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Kind(Enum):
    KILL = "kill the process"
    POWER_OFF = "cut the power"
    KILL_ALL = "kill every process"
    POWER_OFF_ALL = "cut the power of all machines"
    PAUSE = "stop the process for a while"
    ISOLATE = "cut it off from all others"
    CUT = "cut one direction of one link"
    CLOG = "let nothing through for a while, then all at once"
    SLOW_DISK = "make the disk slow"
    STALL_DISK = "let the disk hang"
    CLOCK_JUMP = "move the wall clock"
    DISK_ERROR = "fail one sync or write of the disk; the node is started again afterwards"
    DISK_FULL = "leave almost no room on the disk"
    STOP = "stop the process gracefully, then start it again"
    EMPTY = "kill the process and replace its volume by an empty one, if the others can do without it"
    LOSS = "lose messages everywhere"
    LATE = "deliver requests late and twice"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong, from `at` for `lasts` seconds. node, other: which ones, by number."""

    at: float
    kind: Kind
    node: int
    other: int
    lasts: float
    amount: float

    def __str__(self) -> str:
        link = f"{self.node}->{self.other}" if self.kind in LINK_FAULTS else f"node {self.node}"
        return f"{self.at:7.3f} s  {self.kind.name:<13} {link:<8} for {self.lasts:.3f} s ({self.amount:.2f})"


LINK_FAULTS: Final = {Kind.CUT, Kind.CLOG}

WEIGHTS: Final = {
    Kind.KILL: 5,
    Kind.POWER_OFF: 5,
    Kind.KILL_ALL: 1,
    Kind.POWER_OFF_ALL: 2,
    Kind.PAUSE: 4,
    Kind.ISOLATE: 3,
    Kind.CUT: 4,
    Kind.CLOG: 3,
    Kind.SLOW_DISK: 3,
    Kind.STALL_DISK: 2,
    Kind.DISK_ERROR: 2,
    Kind.DISK_FULL: 2,
    Kind.STOP: 2,
    Kind.EMPTY: 2,
    Kind.CLOCK_JUMP: 2,
    Kind.LOSS: 2,
    Kind.LATE: 3,
}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic of a random world."""

    name: str
    partitions: int
    replicas: int
    min_insync: int
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A random world: its size, its topics, its clients and what goes wrong."""

    seed: int
    nodes: int
    seconds: float
    topics: tuple[TopicPlan, ...]
    producers: int
    idempotent: int  # producers that are
    readers: int
    pace: float  # a producer pauses up to so many seconds between two records
    folders: int  # data folders of each node
    voters: int  # of the metadata quorum
    snapshot_bytes: int  # of its log, from one snapshot to the next
    churn: bool  # one more topic is made and deleted again and again
    faults: tuple[Fault, ...]

    def without(self, dropped: frozenset[int]) -> Plan:
        """The same world less some of its faults, by their index."""
        kept = tuple(fault for index, fault in enumerate(self.faults) if index not in dropped)
        return replace(self, faults=kept)


def make_plan(seed: int, nodes: int | None = None, seconds: float = 20.0) -> Plan:
    """The world of a seed."""
    rng = random.Random(f"plan {seed}")
    size = nodes or rng.choice((3, 3, 3, 4, 5))
    topics = tuple(
        TopicPlan(
            name,
            partitions=rng.randint(1, 3),
            replicas=min(size, 3),
            min_insync=rng.choice((1, 2, 2, 2)),
            segment_bytes=rng.choice((1024, 4096, 1 << 20)),
        )
        for name in ("orders", "events")[: rng.randint(1, 2)]
    )
    return Plan(
        seed,
        size,
        seconds,
        topics,
        producers=rng.randint(1, 3),
        idempotent=rng.randint(1, 2),
        readers=rng.randint(1, 2),
        pace=rng.choice((0.05, 0.2, 0.5)),
        folders=rng.choice((1, 1, 2)),
        voters=rng.choice((3, 3, 3, 1)),
        snapshot_bytes=rng.choice((2_000, 10_000, 20 << 20)),
        churn=rng.random() < 0.3,
        faults=_faults(rng, size, seconds),
    )


def _length(kind: Kind, lengths: Callable[[], float]) -> float:
    """A node must be fenced before its volume may go: that takes a session."""
    return min(lengths(), 12.0) + (3.0 if kind is Kind.EMPTY else 0.0)


def _faults(rng: random.Random, nodes: int, seconds: float) -> tuple[Fault, ...]:
    """Some worlds see a little of everything, some see a lot of little: the kinds and the pace are drawn first."""
    kinds = [kind for kind in Kind if rng.random() < 0.6] or list(Kind)
    pace = rng.choice((0.3, 0.8, 2.0))
    lengths: Callable[[], float] = rng.choice(
        (lambda: rng.uniform(0.05, 1.0), lambda: rng.uniform(0.5, 8.0), lambda: rng.expovariate(0.7))
    )
    faults, at = [], rng.expovariate(1 / pace)
    while at < seconds:
        kind = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
        node = rng.randrange(nodes)
        other = (node + rng.randrange(1, nodes)) % nodes
        faults.append(Fault(round(at, 3), kind, node, other, round(_length(kind, lengths), 3), round(rng.random(), 2)))
        at += rng.expovariate(1 / pace)
    return tuple(faults)
