"""The story: a cluster under load loses the node that leads most, continues, gets it back and heals; then it loses its
active controller.

Kept true: of nodes that lead as much as each other the first killed is not the active controller, so that each death is
measured by itself; every wait asks the cluster and has an end; no task outlives `run`. The cluster is the caller's.
Left to others: what Spark finds (check.py), what is written down (report.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from examples.demo.inputs import Item
from examples.demo.ledger import Ledger
from examples.demo.load import Load
from examples.demo.meter import Failover, InSync, Meter, Sample
from examples.demo.progress import Progress
from node.process.local_cluster import LocalCluster
from tidelog import Admin, Producer, TidelogError, TopicDescription

TOPIC: Final = "demo"
COUNTS_TOPIC: Final = "demo-counts"
"""What the streaming queries at the end write."""
PARTITIONS: Final = 6
REPLICAS: Final = 3
CONFIGS: Final = {"min.insync.replicas": "2", "durability": "fsync"}

SAMPLE_SECONDS: Final = 0.2
ASK_SECONDS: Final = 0.2
FAILOVER_SECONDS_MAX: Final = 30.0
HEAL_SECONDS_MAX: Final = 60.0
OUTCOME_SECONDS_MAX: Final = 60.0


class DemoFailed(Exception):
    """The demo cannot continue; the message gives the reason and what to check."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The duration of each part (seconds), and the rate of records."""

    warm_up: float = 8.0
    without: float = 6.0
    """How long the load continues without the killed node after its partitions acknowledge again."""
    after: float = 5.0
    records_per_second: int = 3_000
    configs: Mapping[str, str] = field(default_factory=lambda: CONFIGS)
    """Settings of the topic."""

    @classmethod
    def quick(cls, records_per_second: int) -> Plan:
        """The shortest plan with all parts."""
        return cls(warm_up=3.0, without=1.0, after=1.0, records_per_second=records_per_second)


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the timeline that the chart names."""

    name: str
    at: float
    text: str


@dataclass(slots=True)
class Story:
    """What happened, in numbers."""

    marks: list[Mark] = field(default_factory=list)
    killed_node: int = -1
    killed_partitions: tuple[int, ...] = ()
    failover: Failover | None = None
    controller: int = -1
    """The active controller that was killed, second."""
    controller_failover: Failover | None = None
    sent: int = 0
    keys: int = 0
    value_bytes: int = 0
    failed: int = 0
    failure: str | None = None

    def at(self, name: str) -> float:
        """When that moment was."""
        return next(mark.at for mark in self.marks if mark.name == name)


def node_to_kill(topic: TopicDescription, controller: int) -> tuple[int, tuple[int, ...]]:
    """The node that leads most partitions, and what it leads; of several one that is not the controller, the lowest.
    Raises DemoFailed if none leads any."""
    led = Counter(int(partition.leader) for partition in topic.partitions if partition.leader != -1)
    if not led:
        raise DemoFailed("no partition has a leader: nothing to kill; the nodes' logs say why")
    victim = min(led, key=lambda node: (-led[node], node == controller, node))
    return victim, tuple(int(each.partition) for each in topic.partitions if each.leader == victim)


def in_sync(topic: TopicDescription) -> InSync:
    """How many replicas are in sync."""
    sizes = [len(partition.isr) for partition in topic.partitions]
    return InSync(min(sizes), sum(sizes), sum(len(partition.replicas) for partition in topic.partitions))


async def run(
    cluster: LocalCluster, items: Iterator[Item], ledger: Ledger, meter: Meter, plan: Plan, progress: Progress
) -> Story:
    """Tell the whole story on a running cluster. Raises DemoFailed, or what the load or the client raises."""
    story = Story()
    async with (
        Admin(cluster.bootstrap) as admin,
        Producer(cluster.bootstrap, acks="all", request_timeout_ms=10_000) as producer,
    ):
        await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=REPLICAS, configs=plan.configs)
        await admin.create_topic(COUNTS_TOPIC, partitions=1, replication_factor=REPLICAS)
        scene = _Scene(cluster, admin, meter, progress, story)
        await scene.wait_full("every replica in sync", HEAL_SECONDS_MAX)
        progress.step(f"topic {TOPIC!r}: {PARTITIONS} partitions, {REPLICAS} replicas, min.insync.replicas=2, fsync")
        load = Load(
            producer,
            TOPIC,
            items,
            ledger=ledger,
            meter=meter,
            seconds=lambda: progress.seconds,
            records_per_second=plan.records_per_second,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = [tasks.create_task(scene.watch()), tasks.create_task(scene.sample())]
                loading = tasks.create_task(load.run())
                await scene.act(load, plan)
                load.stop()
                await _finish(loading, load, meter)
                for task in watching:
                    task.cancel()
        except BaseException as failure:  # noqa: BLE001 - raised again, as its first cause
            await producer.close(flush=False)  # a failed demo does not wait for outcomes
            raise _first(failure) from None
    story.sent, story.keys, story.value_bytes = meter.sent, len(load.numbers), load.value_bytes
    story.failed, story.failure = load.failed, str(load.failure) if load.failure else None
    return story


async def _finish(loading: asyncio.Task[None], load: Load, meter: Meter) -> None:
    try:
        async with asyncio.timeout(OUTCOME_SECONDS_MAX):
            await asyncio.wait([loading])
    except TimeoutError:
        raise DemoFailed(
            f"{meter.waiting - load.failed} records have no outcome {OUTCOME_SECONDS_MAX:.0f} s after the last was sent"
        ) from None


def _first(failure: BaseException) -> BaseException:
    """One cause says enough: the others of its group are what it brought about."""
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return failure


class _Scene:
    """The parts of the story, and what watches them."""

    def __init__(self, cluster: LocalCluster, admin: Admin, meter: Meter, progress: Progress, story: Story) -> None:
        self._cluster, self._admin, self._meter = cluster, admin, meter
        self._progress, self._story = progress, story

    async def act(self, load: Load, plan: Plan) -> None:
        """Warm up; kill a node, recover, run without it, restart it, heal; the same with the controller; run on."""
        self._mark("load", f"load begins: {plan.records_per_second:,} records/s, acks=all")
        await asyncio.sleep(plan.warm_up)
        failover = await self._kill()
        await self._recover(load, failover, "recovered")
        await asyncio.sleep(plan.without)
        await self._bring_back(self._story.killed_node, "")
        failover = await self._kill_controller()
        await self._recover(load, failover, "controller recovered")
        await asyncio.sleep(plan.without)
        await self._bring_back(self._story.controller, "controller ")
        await asyncio.sleep(plan.after)
        self._mark("stopped", "the load ends")

    async def _recover(self, load: Load, failover: Failover, name: str) -> None:
        load.failover = failover
        try:
            async with asyncio.timeout(FAILOVER_SECONDS_MAX):
                await failover.wait_over()
        except TimeoutError:
            raise DemoFailed(
                f"partitions {failover.missing} did not acknowledge within {FAILOVER_SECONDS_MAX:.0f} s of the kill: "
                "the nodes' logs say why"
            ) from None
        self._mark(
            name,
            f"all {len(failover.recovered_at)} partitions it led acknowledge again, {failover.seconds:.2f} s after",
            at=max(failover.recovered_at.values()),
        )

    async def _bring_back(self, node: int, whose: str) -> None:
        self._cluster.start_node(node)
        self._mark(f"{whose}restarted", f"node {node} is started again on its data")
        await self.wait_full("in-sync sets heal", HEAL_SECONDS_MAX)
        took = self._progress.seconds - self._story.at(f"{whose}restarted")
        self._mark(f"{whose}healed", f"every replica is in sync again, {took:.1f} s after the restart")

    async def _kill(self) -> Failover:
        described = await self._admin.describe_cluster()
        topic = await self._admin.describe_topic(TOPIC)
        victim, partitions = node_to_kill(topic, int(described.controller_id))
        failover = self._send_sigkill("killed", victim, f"leader of partitions {_listed(partitions)}", partitions)
        self._story.killed_node, self._story.killed_partitions, self._story.failover = victim, partitions, failover
        return failover

    async def _kill_controller(self) -> Failover:
        """Where it leads nothing, any partition's next acknowledgement will do."""
        described = await self._admin.describe_cluster()
        topic = await self._admin.describe_topic(TOPIC)
        victim = int(described.controller_id)
        if victim < 0:
            raise DemoFailed("no controller is active: the nodes' logs say why")
        led = tuple(int(each.partition) for each in topic.partitions if each.leader == victim)
        partitions = led or tuple(range(PARTITIONS))
        failover = self._send_sigkill(
            "controller killed", victim, f"the controller, leader of {_listed(led)}", partitions
        )
        self._story.controller, self._story.controller_failover = victim, failover
        return failover

    def _send_sigkill(self, name: str, victim: int, role: str, partitions: tuple[int, ...]) -> Failover:
        pid = self._cluster.nodes[victim].pid
        self._cluster.kill(victim)
        failover = Failover(partitions, self._progress.seconds)
        text = f"SIGKILL to node {victim} (process {pid}), {role}"
        self._mark(name, text, at=failover.killed_at, style="bold red")
        return failover

    async def watch(self) -> None:
        """Keep the in-sync sizes of the meter true, and end the demo when a node ends that should run."""
        while True:
            self._refuse_dead_nodes()
            try:
                self._meter.in_sync = in_sync(await self._admin.describe_topic(TOPIC))
            except TidelogError:  # the node asked is the one that is down: another one is asked next
                self._meter.in_sync = None
            await asyncio.sleep(ASK_SECONDS)

    async def sample(self) -> None:
        """Add a point to the timeline, show it."""
        while True:
            self._progress.live(_line(self._meter.sample(self._progress.seconds), self._meter))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def wait_full(self, what: str, seconds_max: float) -> None:
        """Until every replica of the topic is in sync, as a node says that is asked again and again."""
        deadline = self._progress.seconds + seconds_max
        seen: object = "nothing"
        while self._progress.seconds < deadline:
            self._refuse_dead_nodes()
            try:
                state = in_sync(await self._admin.describe_topic(TOPIC))
                if state.total == state.full:
                    return
                seen = f"{state.total} of {state.full} in sync"
            except TidelogError as refusal:
                seen = refusal
            await asyncio.sleep(ASK_SECONDS)
        raise DemoFailed(f"{what}: not within {seconds_max:.0f} s; last answer: {seen}")

    def _refuse_dead_nodes(self) -> None:
        for node in self._cluster.nodes:
            if node.process is not None and not node.running:
                raise DemoFailed(
                    f"node {node.node_id} ended by itself with code {node.process.returncode}; it said last:\n"
                    f"{node.log_tail()}"
                )

    def _mark(self, name: str, text: str, *, at: float | None = None, style: str = "") -> None:
        self._story.marks.append(Mark(name, self._progress.seconds if at is None else at, text))
        self._progress.step(text, style=style)


def _line(sample: Sample, meter: Meter) -> str:
    latency = "-" if sample.p99_ms is None else f"{sample.p50_ms:.0f}/{sample.p99_ms:.0f} ms"
    state = meter.in_sync
    replicas = "?" if state is None else f"{state.total}/{state.full}"
    return (
        f"{sample.acks_per_second:6,.0f}/s  p50/p99 {latency:>12}  in sync {replicas:>5}  "
        f"waiting {sample.waiting:,}  acked {meter.acknowledged:,}"
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
