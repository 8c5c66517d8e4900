"""The plan of a random world: a list of faults and operators' actions with their times, drawn from the seed before the
world begins.

A plan is a value: it can be printed, replayed, and replayed without some of its faults. Every fault ends after a while,
and all of them at the end of the plan. Not here: execution (world.py).
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
    PAUSE = "pause the process (SIGSTOP)"
    SLOW = "make the process slow: each callback takes time"
    ISOLATE = "cut the node off from all others, alone or with another node"
    CUT = "cut one link, in one direction or in both"
    CLOG = "delay all messages on one link, then deliver them at once"
    SLOW_DISK = "make the disk slow"
    STALL_DISK = "make the disk hang"
    HANG = "make syncs, reads or writes in one log directory hang"
    CLOCK_JUMP = "move the wall clock"
    DISK_ERROR = "fail one sync or write of the disk; afterwards restart the node"
    DISK_FULL = "leave almost no free space on the disk"
    STOP = "stop the process gracefully, then start it again"
    ROT = "flip a bit in a log of the one node with bit flips; sometimes run the scrub afterwards"
    ROT_BESIDE = "flip a bit in another file of the same node: an index, a snapshot, a checkpoint"
    EMPTY = "kill the process and replace its volume by an empty one, if the cluster survives that"
    LOSS = "lose messages everywhere"
    LATE = "deliver requests late and twice"
    REASSIGN = "move a partition to other nodes, and sometimes cancel that"
    ALTER = "change a setting of a topic"
    GROW = "add a partition to a topic"
    PREFER = "elect the preferred leaders"
    DELETE = "delete the oldest records of a partition, if the topic has retention"
    UNCLEAN = "elect the longest log where no replica may lead, if the topic allows that"
    REMOVE_VOTER = "kill the process, and remove its node from the voters while it is down"
    CLIENT_KILL = "kill a client of a coordinator; later another one takes its place"
    CLIENT_PAUSE = "pause a client of a coordinator; sometimes another one takes its place meanwhile"
    CLIENT_STOP = "close a client of a coordinator; later another one takes its place"
    RESET_OFFSETS = "close all members of a group and set its offsets back; later start them again"
    MOVE_COORDINATOR = "move a partition of an internal topic to other nodes"
    CORDON = "cordon a node, and end that later: it gets no new replicas meanwhile"
    QUEUE_MOVES = "queue the moves that empty a node, or others, and sometimes cancel all moves"
    CUT_BYTES = "cut connections of clients of Kafka's protocol; each end learns of it by itself"
    STORE_AWAY = "the object store does not answer"
    STORE_FAILS = "calls of the object store fail before or after they took effect, or take effect late"
    STORE_SLOW = "the object store is slow, or full"


OPERATORS: Final = (
    Kind.REASSIGN,
    Kind.ALTER,
    Kind.GROW,
    Kind.PREFER,
    Kind.DELETE,
    Kind.UNCLEAN,
    Kind.REMOVE_VOTER,
)
"""Actions of operators that run beside the faults."""
CLIENTS: Final = (Kind.CLIENT_KILL, Kind.CLIENT_PAUSE, Kind.CLIENT_STOP, Kind.RESET_OFFSETS)
"""Faults of clients of coordinators."""
COORDINATED: Final = (*CLIENTS, Kind.MOVE_COORDINATOR)
"""Kinds of worlds that have coordinators."""
STORE_FAULTS: Final = (Kind.STORE_AWAY, Kind.STORE_FAILS, Kind.STORE_SLOW)
"""Kinds of worlds with a remote tier."""
ADDED: Final = (*COORDINATED, Kind.CUT_BYTES, Kind.CORDON, Kind.QUEUE_MOVES, *STORE_FAULTS)
"""Kinds of worlds with clients of a kind, cordons, queued moves and a remote tier; they are drawn by themselves."""
KAFKA_SHARE: Final = 0.3
"""The share of worlds with clients of Kafka's protocol, among those whose topics have the current format."""
COORDINATED_SHARE: Final = 0.35
"""The share of worlds with coordinators."""
CORDONS_SHARE: Final = 0.3
"""The share of worlds in which nodes are cordoned."""
QUEUES_SHARE: Final = 0.3
"""The share of worlds in which moves are queued."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault or an operator's action, from `at` for `lasts` seconds. node, other: the numbers of the nodes
    concerned."""

    at: float
    kind: Kind
    node: int
    other: int
    lasts: float
    amount: float

    def __str__(self) -> str:
        link = f"{self.node}->{self.other}" if self.kind in LINK_FAULTS else f"node {self.node}"
        link = "operator" if self.kind in OPERATORS and self.kind is not Kind.REMOVE_VOTER else link
        link = "client" if self.kind in CLIENTS else link
        return f"{self.at:7.3f} s  {self.kind.name:<13} {link:<8} for {self.lasts:.3f} s ({self.amount:.2f})"


LINK_FAULTS: Final = {Kind.CUT, Kind.CLOG}
POWER_FAULTS: Final = {Kind.POWER_OFF, Kind.POWER_OFF_ALL}

WEIGHTS: Final = {
    Kind.KILL: 5,
    Kind.POWER_OFF: 5,
    Kind.KILL_ALL: 1,
    Kind.POWER_OFF_ALL: 2,
    Kind.PAUSE: 4,
    Kind.SLOW: 3,
    Kind.ISOLATE: 3,
    Kind.CUT: 4,
    Kind.CLOG: 3,
    Kind.SLOW_DISK: 3,
    Kind.STALL_DISK: 2,
    Kind.HANG: 3,
    Kind.DISK_ERROR: 2,
    Kind.DISK_FULL: 2,
    Kind.STOP: 2,
    Kind.ROT: 3,
    Kind.ROT_BESIDE: 3,
    Kind.EMPTY: 2,
    Kind.CLOCK_JUMP: 2,
    Kind.LOSS: 2,
    Kind.LATE: 3,
    Kind.REASSIGN: 4,
    Kind.ALTER: 3,
    Kind.GROW: 1,
    Kind.PREFER: 2,
    Kind.DELETE: 3,
    Kind.UNCLEAN: 3,
    Kind.REMOVE_VOTER: 2,
}


class Cleaning(Enum):
    """What a topic may lose, and why."""

    NOTHING = "nothing is ever deleted"
    COMPACTED = "compaction: the last record of each key stays"
    EXPIRING = "retention by age or size, and deletions by operators"
    UNCLEAN = "unclean elections are allowed"


DECIDABLE: Final = (Cleaning.NOTHING, Cleaning.COMPACTED)
"""Topics that may have transactions. A log that loses its start forgets which producers were fenced there; only a
coordinator that verifies each transaction knows them (KIP-890)."""

NEEDS: Final = {Kind.DELETE: Cleaning.EXPIRING, Kind.UNCLEAN: Cleaning.UNCLEAN}
"""Actions that need a topic of that kind."""

CLEANINGS: Final[dict[Cleaning, tuple[dict[str, str], ...]]] = {
    Cleaning.NOTHING: ({},),
    Cleaning.COMPACTED: (
        {"delete.retention.ms": "86400000"},
        {"delete.retention.ms": "500"},
        {"delete.retention.ms": "500", "max.compaction.lag.ms": "2000"},
    ),
    Cleaning.EXPIRING: ({"retention.ms": "3000"}, {"retention.bytes": "3000"}, {}),
    Cleaning.UNCLEAN: ({"unclean.leader.election.enable": "true"},),
}
"""By kind, settings to choose from."""


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic of a random world."""

    name: str
    partitions: int
    replicas: int
    min_insync: int
    cleaning: Cleaning
    configs: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        settings = " ".join(f"{key}={value}" for key, value in self.configs)
        return f"{self.name} ({self.partitions} x {self.replicas}, min {self.min_insync}, {settings})"


@dataclass(frozen=True, slots=True)
class CoordinatorPlan:
    """The coordinators of a world and their clients."""

    partitions: int  # of each internal topic
    segment_bytes: int  # of internal topics
    members: int  # of a group that reads all topics
    static: int  # how many of them have an instance id
    workers: int  # of a pipeline between two topics
    transactors: int  # number of transactional ids
    classic: int = 0  # members of a classic group
    classic_static: int = 0  # how many of them have an instance id
    movers: int = 0  # members of a group that change their protocol
    cooperative: bool = False  # whether they read on while they join again by the classic protocol
    kafka_transactors: float = 0  # the share of producers with transactional ids that speak Kafka's protocol
    kafka: float = 0.0  # how often members and workers speak Kafka's protocol

    def __str__(self) -> str:
        return (
            f"coordinators ({self.partitions} partitions, {self.members} members, {self.static} of them static, "
            f"{self.workers} workers, {self.transactors} transactional ids, {self.classic} members of a classic group, "
            f"{self.classic_static} of them static, {self.movers} members that change their protocol"
            f"{', cooperative' if self.cooperative else ''}, {self.kafka:.0%} by Kafka's protocol"
            f"{', transactions by both protocols' if self.kafka_transactors else ''})"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A random world: its size, its topics, its clients and its faults."""

    seed: int
    nodes: int
    seconds: float
    topics: tuple[TopicPlan, ...]
    producers: int
    idempotent: int  # number of idempotent producers
    transactional: int  # number of transactional producers
    readers: int  # of committed records, by single fetches
    consumers: int  # real ones; every second one reads with read_committed
    racks: int  # of nodes and consumers; 0: none, and all reads are from leaders
    pace: float  # a producer pauses up to that many seconds between two records
    directories: int  # of each node
    voters: int  # of the metadata quorum
    snapshot_bytes: int  # bytes of the metadata log between two snapshots
    churn: bool  # one more topic is created and deleted repeatedly
    faults: tuple[Fault, ...]
    coordinators: CoordinatorPlan | None = None  # None: no client uses them
    kafka_producers: int = 0  # idempotent ones that speak Kafka's protocol and share connections
    kafka_readers: int = 0  # of all topics; every second one reads with read_committed
    rebalances: bool = False  # whether the controller evens out the replicas by itself
    tiered: bool = False  # whether the first topic has a remote tier

    @property
    def has_kafka(self) -> bool:
        """Whether any client speaks Kafka's protocol."""
        return self.kafka_producers > 0 or (self.coordinators is not None and self.coordinators.kafka > 0)

    def without(self, dropped: frozenset[int]) -> Plan:
        """The same world without some of its faults, given by index."""
        kept = tuple(fault for index, fault in enumerate(self.faults) if index not in dropped)
        return replace(self, faults=kept)


def make_plan(
    seed: int,
    nodes: int | None = None,
    seconds: float = 20.0,
    *,
    coordinated: bool | None = None,
    tiered: bool = False,
) -> Plan:
    """The plan of a seed. coordinated: whether it has coordinators; None: as the seed has it. tiered: with a remote
    tier, if its first topic may have one."""
    plan = _of_another_kind(_plan(seed, nodes, seconds), random.Random(f"kinds {seed}"))
    plan = _with_kafka(plan, random.Random(f"kafka {seed}"))
    plan = _with_cordons(plan, random.Random(f"cordons {seed}"))
    plan = _with_queues(plan, random.Random(f"queues {seed}"))
    plan = _with_tier(plan, random.Random(f"tier {seed}")) if tiered else plan
    rng = random.Random(f"coordinators {seed}")
    share = rng.random() < COORDINATED_SHARE
    return _with_coordinators(plan, rng) if (share if coordinated is None else coordinated) else plan


def _with_kafka(plan: Plan, rng: random.Random) -> Plan:
    """The world, sometimes with clients of Kafka's protocol and faults of their connections; the rest of it is as it
    was before there were any."""
    if rng.random() >= KAFKA_SHARE or not plan.idempotent:
        return plan
    faults = [*plan.faults, *_cut_connections(plan.seconds, rng)]
    return replace(
        plan,
        kafka_producers=2,
        kafka_readers=1 if plan.consumers else 0,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _with_cordons(plan: Plan, rng: random.Random) -> Plan:
    """The world, sometimes with cordons one after the other, beside the actions that place replicas; the rest of it is
    as it was before there were any."""
    if rng.random() >= CORDONS_SHARE:
        return plan
    faults, at = list(plan.faults), rng.uniform(0, 3)
    while at < plan.seconds:
        node, lasts = rng.randrange(plan.nodes), rng.uniform(1, 6)
        kind = rng.choice((Kind.REASSIGN, Kind.GROW))
        faults.append(Fault(round(at, 3), Kind.CORDON, node, 0, round(lasts, 3), 0.0))
        # Neither the time nor the node of the cordon: else a move to a cordoned node would be rare.
        faults.append(Fault(round(at + lasts / 2, 3), kind, node, 0, 0.5, round(rng.random(), 2)))
        at += lasts + rng.uniform(1, 3)
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at)))


def _with_queues(plan: Plan, rng: random.Random) -> Plan:
    """The world, sometimes with moves of all partitions that are queued, and cancelled now and then; the rest of it is
    as it was before there were any."""
    if rng.random() >= QUEUES_SHARE:
        return plan
    faults, at = list(plan.faults), rng.uniform(0, 3)
    while at < plan.seconds:
        lasts = rng.uniform(1, 6)
        node = rng.randrange(plan.nodes)
        faults.append(Fault(round(at, 3), Kind.QUEUE_MOVES, node, 0, round(lasts, 3), round(rng.random(), 2)))
        at += lasts + rng.uniform(0, 3)
    faults.sort(key=lambda fault: fault.at)
    return replace(plan, faults=tuple(faults), rebalances=rng.random() < 0.5)


def _with_tier(plan: Plan, rng: random.Random) -> Plan:
    """The world with a remote tier of its first topic and faults of the store, and otherwise as without."""
    first, *others = plan.topics
    configs = dict(first.configs)
    special = {"message.format", "durability", "retention.bytes"}
    if first.cleaning is Cleaning.COMPACTED or special & {*configs}:
        return plan
    configs |= {
        "remote.storage.enable": "true",
        "local.retention.bytes": rng.choice(("0", "0", "2000")),
        "segment.bytes": "1024",
        "file.delete.delay.ms": rng.choice(("0", "1000")),
    }
    faults, at = list(plan.faults), rng.uniform(0, 3)
    while at < plan.seconds:
        kind, lasts = rng.choice(STORE_FAULTS), rng.uniform(0.5, 4)
        faults.append(Fault(round(at, 3), kind, 0, 0, round(lasts, 3), round(rng.random(), 2)))
        at += lasts + rng.uniform(0, 3)
    return replace(
        plan,
        topics=(replace(first, configs=tuple(configs.items())), *others),
        tiered=True,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _cut_connections(seconds: float, rng: random.Random) -> list[Fault]:
    """Faults of the connections of clients of Kafka's protocol."""
    faults, at = [], rng.expovariate(0.3)
    while at < seconds:
        faults.append(Fault(round(at, 3), Kind.CUT_BYTES, 0, 0, round(rng.uniform(0, 2), 3), round(rng.random(), 2)))
        at += rng.expovariate(0.3)
    return faults


def _with_coordinators(plan: Plan, rng: random.Random) -> Plan:
    """The world with coordinators, their clients and the faults of those; it has fewer other clients. Worlds of older
    formats, and those that may lose what was acknowledged, have none."""
    special = {"message.format", "durability"}
    if any(key in special for topic in plan.topics for key, _ in topic.configs):
        return plan
    coordinators = CoordinatorPlan(
        partitions=rng.randint(1, 3),
        segment_bytes=rng.choice((4_096, 16_384, 1 << 20)),
        members=rng.randint(1, 3),
        static=rng.choice((0, 0, 1, 2)),
        workers=rng.choice((0, 1, 2)),
        transactors=rng.choice((0, 1, 1, 2)),
    )
    lengths: Callable[[], float] = rng.choice((lambda: rng.uniform(0.2, 2.0), lambda: rng.uniform(1.0, 6.0)))
    faults, at, pace = list(plan.faults), rng.expovariate(0.5), rng.choice((1.0, 3.0))
    while at < plan.seconds:
        kind = rng.choices(COORDINATED, (4, 4, 3, 1, 2))[0]
        node = rng.randrange(plan.nodes)
        other = (node + rng.randrange(1, plan.nodes)) % plan.nodes
        faults.append(Fault(round(at, 3), kind, node, other, round(lengths(), 3), round(rng.random(), 2)))
        at += rng.expovariate(1 / pace)
    classic = random.Random(f"classic {plan.seed}")  # its own: the rest of the plan is as before there were any
    coordinators = replace(coordinators, classic=classic.randint(0, 3), classic_static=classic.choice((0, 0, 1, 2)))
    moving = random.Random(f"moving {plan.seed}")  # as above
    coordinators = replace(coordinators, movers=moving.choice((0, 2, 3)), cooperative=moving.random() < 0.5)
    if plan.kafka_producers:
        coordinators = replace(coordinators, kafka_transactors=0.5)
    by_kafka = random.Random(f"kafka groups {plan.seed}")  # as above
    coordinators = replace(coordinators, kafka=by_kafka.choice((0.0, 0.5, 0.9)))
    if coordinators.kafka:
        faults += _cut_connections(plan.seconds, by_kafka)
    return replace(
        plan,
        coordinators=coordinators,
        producers=1,
        idempotent=1,
        transactional=0,
        readers=0,
        consumers=1,
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )


def _plan(seed: int, nodes: int | None, seconds: float) -> Plan:
    """The plan with topics of the current format and fsync durability."""
    rng = random.Random(f"plan {seed}")
    size = nodes or rng.choice((3, 3, 3, 4, 5))
    names = ("orders", "events")[: rng.randint(1, 2)]
    topics = tuple(_topic(rng, name, size, only=number == 0) for number, name in enumerate(names))
    return Plan(
        seed,
        size,
        seconds,
        topics,
        producers=rng.randint(1, 2),
        idempotent=rng.randint(1, 2),
        transactional=rng.choice((0, 1, 1, 2)) if any(topic.cleaning in DECIDABLE for topic in topics) else 0,
        readers=rng.randint(0, 1),
        consumers=rng.randint(1, 2),
        racks=rng.choice((0, 0, 2)),
        pace=rng.choice((0.08, 0.2, 0.2, 0.5)),
        directories=rng.choice((1, 1, 2)),
        voters=rng.choice((3, 3, 3, 1)),
        snapshot_bytes=rng.choice((2_000, 10_000, 20 << 20)),
        churn=rng.random() < 0.3,
        faults=_faults(rng, size, seconds, {topic.cleaning for topic in topics}),
    )


def _of_another_kind(plan: Plan, rng: random.Random) -> Plan:
    """Give some worlds topics of an older format, which has no idempotence and no headers to identify tombstones,
    and some worlds topics with `durability=page-cache`. Half of the latter lose no power, because what all machines
    lose with it was never guaranteed; the other half have readers that tolerate losses, and every replica may lead
    what is left."""
    kind = rng.choice((None, None, None, None, None, None, "v0", "v1", "v1", "page-cache"))
    if kind == "page-cache":
        reboots = rng.random() < 0.5
        unwanted = {Kind.EMPTY, Kind.POWER_OFF_ALL} if reboots else POWER_FAULTS
        faults = tuple(fault for fault in plan.faults if fault.kind not in unwanted)
        plan = replace(plan, faults=faults, topics=tuple(_with(topic, durability=kind) for topic in plan.topics))
        return replace(plan, consumers=0, readers=1, transactional=0) if reboots else plan
    if kind is None or any(topic.cleaning is Cleaning.COMPACTED for topic in plan.topics):
        return plan
    topics = tuple(_with(topic, message_format=kind) for topic in plan.topics)
    return replace(plan, topics=topics, producers=plan.producers + 1, idempotent=0, transactional=0)


def _with(topic: TopicPlan, **configs: str) -> TopicPlan:
    more = tuple((key.replace("_", "."), value) for key, value in configs.items())
    return replace(topic, configs=(*topic.configs, *more))


def _topic(rng: random.Random, name: str, nodes: int, *, only: bool) -> TopicPlan:
    """only: the world may have no other topic, so this one has clean elections only."""
    kinds = [Cleaning.NOTHING] * 2 + [Cleaning.COMPACTED, Cleaning.EXPIRING] + [Cleaning.UNCLEAN] * (not only)
    cleaning = rng.choice(kinds)
    configs = dict(rng.choice(CLEANINGS[cleaning]))
    if cleaning in (Cleaning.COMPACTED, Cleaning.EXPIRING):
        configs |= {"segment.bytes": "1024", "file.delete.delay.ms": "1000"}
    else:
        configs["segment.bytes"] = str(rng.choice((1024, 4096, 1 << 20)))
    if cleaning is Cleaning.COMPACTED:
        configs |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": rng.choice(("0.01", "0.5"))}
    risky = cleaning is Cleaning.UNCLEAN
    return TopicPlan(
        name,
        partitions=rng.randint(1, 3),
        replicas=2 if risky else min(nodes, 3),
        min_insync=1 if risky else rng.choice((1, 2, 2, 2)),
        cleaning=cleaning,
        configs=tuple(configs.items()),
    )


def _length(kind: Kind, lengths: Callable[[], float]) -> float:
    """The duration of a fault. A node must be fenced before its volume or its vote may be removed, which takes a
    session timeout."""
    return min(lengths(), 12.0) + (3.0 if kind in (Kind.EMPTY, Kind.REMOVE_VOTER) else 0.0)


def _faults(rng: random.Random, nodes: int, seconds: float, cleanings: set[Cleaning]) -> tuple[Fault, ...]:
    """Draw the faults: kinds and rate first, so that some worlds have few kinds and others many."""
    sensible = [kind for kind in Kind if NEEDS.get(kind) in (None, *cleanings) and kind not in ADDED]
    kinds = [kind for kind in sensible if rng.random() < (0.4 if kind in OPERATORS else 0.6)] or sensible
    pace = rng.choice((0.3, 0.8, 2.0))
    lengths: Callable[[], float] = rng.choice(
        (lambda: rng.uniform(0.05, 1.0), lambda: rng.uniform(0.5, 8.0), lambda: rng.expovariate(0.7))
    )
    faults, at, rots = [], rng.expovariate(1 / pace), rng.randrange(nodes)
    while at < seconds:
        kind = rng.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
        node = rng.randrange(nodes) if kind not in (Kind.ROT, Kind.ROT_BESIDE) else rots
        other = (node + rng.randrange(1, nodes)) % nodes
        faults.append(Fault(round(at, 3), kind, node, other, round(_length(kind, lengths), 3), round(rng.random(), 2)))
        at += rng.expovariate(1 / pace)
    return tuple(faults)
