"""Systems that take turns: what the parts of the suite `cluster` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from bench.clients import Clients, Work, settle
from bench.figure import Better, Figure, Run
from bench.loads.job import Job
from bench.systems.system import System, SystemFailed

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Effort:
    """Durations and repetitions of the measurements."""

    seconds: float
    warm_up_seconds: float
    jvm_seconds: float
    settle_seconds: float
    idle_seconds: float
    latency_rounds: int
    latencies: int
    read_rounds: int
    processes: tuple[int, ...]
    crowds: tuple[int, ...]
    consumers: int
    kills: tuple[int, ...]


FULL = Effort(
    seconds=4,
    warm_up_seconds=0.5,
    jvm_seconds=4,
    settle_seconds=10,
    idle_seconds=5,
    latency_rounds=3,
    latencies=250,
    read_rounds=3,
    processes=(1, 4),
    crowds=(4, 50),
    consumers=200,
    kills=(0, 1, 2),
)
QUICK = Effort(
    seconds=0.5,
    warm_up_seconds=0.1,
    jvm_seconds=0.2,
    settle_seconds=1,
    idle_seconds=0.5,
    latency_rounds=2,
    latencies=20,
    read_rounds=1,
    processes=(1, 2),
    crowds=(2,),
    consumers=4,
    kills=(1,),
)


class Lane(NamedTuple):
    """A system and its client processes."""

    system: System
    clients: Clients

    @property
    def kind(self) -> str:
        """The client that is compared first."""
        return self.system.clients[0]

    def job(self, do: str, topic: str, partitions: int = 1) -> Job:
        return Job(do, self.system.bootstrap, topic, partitions)

    def work(self, job: Job, processes: int = 1, kind: str = "") -> Work:
        kind = kind or self.kind
        return self.clients.work([(kind, job._replace(bootstrap=self.system.bootstrap_of(kind)))] * processes)

    @contextmanager
    def topic(
        self, name: str, partitions: int, effort: Effort, *, fsync: bool = False, replicas: int = 3
    ) -> Iterator[Job]:
        """A topic for the length of the block. Yields a job that names it. An interrupt leaves it: the nodes end."""
        kind = self.system.topics_by
        job = Job("create_topic", self.system.bootstrap_of(kind), name, partitions, fsync=fsync, replicas=replicas)
        self.clients.do(kind, job)
        settle(self.system, effort.settle_seconds)
        try:
            yield job
        except SystemFailed:
            self._delete(job, effort)
            raise
        self._delete(job, effort)

    def _delete(self, job: Job, effort: Effort) -> None:
        self.clients.do(self.system.topics_by, job._replace(do="delete_topic"))
        settle(self.system, effort.settle_seconds)


@dataclass(slots=True)
class Contest:
    """The systems of a run, Tidelog first."""

    run: Run
    effort: Effort
    lanes: list[Lane]
    failures: list[str] = field(default_factory=list)
    _turns: int = field(default=0)

    @property
    def tidelog(self) -> Lane:
        return self.lanes[0]

    @property
    def smallest(self) -> int:
        return self.run.partitions[0]

    @property
    def largest(self) -> int:
        return self.run.partitions[-1]

    def warm_up(self) -> None:
        """Load every system once: the compiler of a JVM needs it."""

        def load(lane: Lane) -> None:
            with lane.topic("warm-up", 6, self.effort) as job:
                for _ in range(2):
                    lane.work(job._replace(do="produce", seconds=self.effort.jvm_seconds))

        self.run.say("warm-up")
        self.each(6, load)

    def each(self, partitions: int, measure: Callable[[Lane], Found]) -> dict[str, Found]:
        """The same measurement of every system that takes so many partitions, by name; the order rotates.

        A peer that fails is left out of this figure. Raises SystemFailed if Tidelog fails.
        """
        turn = self._turns % len(self.lanes)
        self._turns += 1
        found: dict[str, Found] = {}
        for lane in [*self.lanes[turn:], *self.lanes[:turn]]:
            system = lane.system
            if partitions > system.partitions_max:
                continue
            began = time.perf_counter()
            try:
                found[system.name] = measure(lane)
            except SystemFailed as error:
                if lane is self.tidelog:
                    raise
                self.run.say(f"  {system.name} is left out of this figure: {' '.join(str(error).split())[:300]}")
                continue
            self.run.say(f"  {system.name}: {time.perf_counter() - began:.0f} s")
        return {lane.system.name: found[lane.system.name] for lane in self.lanes if lane.system.name in found}

    def unless_failed(self, figures: Iterator[Figure]) -> Iterator[Figure]:
        """The figures, up to a failure of Tidelog, which is said and kept for the end of the run."""
        try:
            yield from figures
        except SystemFailed as error:
            self.failures.append(" ".join(str(error).split())[:300])
            self.run.say(f"  left out, because Tidelog failed: {self.failures[-1]}")

    def measured(self, parts: Mapping[str, Callable[[], Iterator[Figure]]]) -> Iterator[Figure]:
        """The figures of those parts that the run has chosen, in their order."""
        for name, part in parts.items():
            if not self.run.only or name in self.run.only:
                self.run.say(name)
                yield from self.unless_failed(part())

    def ensure_complete(self) -> None:
        """Raise SystemFailed if Tidelog failed in a part."""
        if self.failures:
            raise SystemFailed(f"{len(self.failures)} measurements of Tidelog failed, the first: {self.failures[0]}")

    def label(self, name: str) -> str:
        """The label of a system by its name."""
        return next(lane.system.label() for lane in self.lanes if lane.system.name == name)

    def labelled(self, found: Mapping[str, float]) -> dict[str, float]:
        """Values of the peers by their labels."""
        return {self.label(name): value for name, value in found.items() if name != self.tidelog.system.name}


def compare(
    name: str,
    value: float,
    unit: str,
    peers: Mapping[str, float],
    *,
    target: float | None = None,
    only: str = "Kafka, librdkafka",
    better: Better = Better.MORE,
) -> Iterator[Figure]:
    """One figure for each peer, with the peer's value as its baseline; one figure alone without peers.

    peers: values by label. target: of the ratio to those peers whose label begins with `only`.
    """
    usable = {label: baseline for label, baseline in peers.items() if baseline > 0}
    if not usable:
        yield Figure(name, value, unit, better=better)
    for label, baseline in usable.items():
        wanted = target if label.startswith(only) else None
        yield Figure(f"{name} / {label}", value, unit, baseline=baseline, target=wanted, better=better)
