"""The clients of coordinators in a random world: members of a consumer group, of a classic one, and of one that changes
between the two; workers of a pipeline, transactional producers.

Each has a slot. A fault kills, pauses or stops the client of a slot; another one takes the slot, with the same
transactional id or instance id, at once or when the fault ends. A paused client continues beside its successor: it is a
zombie that has to be fenced. Once faults have ended, every partition has an owner again, every record its result, and
every transaction an end.

Not here: the rules (coordination.py), the choice of the clients and faults (plan.py).
"""

from __future__ import annotations

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from testbed.sim import client_faults
from testbed.sim.commit_attempts import Place
from testbed.sim.coordinator_answers import ask
from testbed.sim.watched_transport import WatchedTransport
from testbed.sim.workload import Client
from tests.sim.classic_members import SimClassicGroup, SimClassicMember
from tests.sim.kafka_members import SimKafkaMember
from tests.sim.kafka_transactor import OpenKafkaTransaction, SimKafkaTransactor
from tests.sim.kafka_workers import SimKafkaWorker
from tests.sim.members import SimGroup, SimMember
from tests.sim.pipelines import Pipeline, SimWorker
from tests.sim.plan import DECIDABLE, Cleaning, CoordinatorPlan, Fault, Kind, Plan
from tests.sim.transactors import OpenTransaction, SimTransactor
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2

if TYPE_CHECKING:
    from testbed.sim.world import Simulation

RESULTS: Final = "results"
"""The topic that the pipeline writes."""
OWNED_WITHIN: Final = 30.0
"""Seconds until every partition has an owner once faults have ended: a session, an election, and a join."""
KEYS: Final = 6


class Slot(ABC):
    """The place of one client, and the clients that had it before."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._paused: list[Client] = []

    @property
    @abstractmethod
    def client(self) -> Client:
        """The process of the present client."""

    @abstractmethod
    def start(self) -> None:
        """Put a new client here."""

    @abstractmethod
    def stop(self) -> None:
        """Tell the present client to end."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the present client."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the present client has ended after `stop`."""

    def pause(self, *, replaced: bool) -> None:
        """Pause the present client. replaced: a successor starts meanwhile."""
        client_faults.pause_client(self._sim, self.client)
        self._paused.append(self.client)
        if replaced:
            self.stop()  # it ends with what it was doing once it continues
            self.start()

    def resume(self) -> None:
        """Let all paused clients continue."""
        for client in self._paused:
            client_faults.resume_client(self._sim, client)
        self._paused.clear()

    def restart(self) -> None:
        """Put a new client here if the present one has ended or is ending."""
        if not self.client.process.alive or self.is_over:
            self.start()


class MemberSlot(Slot):
    """A member of a group. instance_id: of a static member. kafka: how often it speaks Kafka's protocol."""

    def __init__(self, sim: Simulation, group: SimGroup, number: int, *, instance_id: str | None, kafka: float) -> None:
        super().__init__(sim)
        self._group, self._number, self._instance_id, self._kafka = group, number, instance_id, kafka
        self.start()

    def start(self) -> None:
        rng, topics = self._sim.rng, self._group.topics
        if self._number > 0 and rng.random() < 0.3:  # the first one subscribes to all of them
            topics = (rng.choice(topics),)
        options = {"decided": self._number % 2 == 0, "instance_id": self._instance_id, "topics": topics}
        self.member: SimMember | SimKafkaMember
        if self._kafka and rng.random() < self._kafka:
            self.member = self._group.join_by_kafka(**options)
        else:
            self.member = self._group.join(auto_commit=rng.random() < 0.7, **options)

    @property
    def client(self) -> Client:
        return self.member.client

    @property
    def is_over(self) -> bool:
        return self.member.is_over

    def stop(self) -> None:
        self.member.stop()

    def kill(self) -> None:
        self.member.kill()


class ClassicSlot(Slot):
    """A member of a classic group. instance_id: of a static member. kafka: as of MemberSlot."""

    def __init__(self, sim: Simulation, group: SimClassicGroup, *, instance_id: str | None, kafka: float) -> None:
        super().__init__(sim)
        self._group, self._instance_id, self._kafka = group, instance_id, kafka
        self.start()

    def start(self) -> None:
        kafka = self._kafka > 0 and self._sim.rng.random() < self._kafka
        self._member: SimClassicMember = self._group.join(instance_id=self._instance_id, kafka=kafka)

    @property
    def client(self) -> Client:
        return self._member.client

    @property
    def is_over(self) -> bool:
        return self._member.is_over

    def stop(self) -> None:
        self._member.stop()

    def kill(self) -> None:
        self._member.kill()


class MovingSlot(Slot):
    """A member that may speak the other protocol each time that it starts, and starts every few seconds. instance_id:
    of a static member. kafka: as of MemberSlot."""

    def __init__(
        self,
        sim: Simulation,
        group: SimGroup,
        classic: SimClassicGroup,
        *,
        instance_id: str | None,
        kafka: float,
    ) -> None:
        super().__init__(sim)
        self._group, self._classic, self._instance_id, self._kafka = group, classic, instance_id, kafka
        self.stays = False
        """It does not start again by itself any more."""
        self.start()
        self._later()

    def start(self) -> None:
        self.member: SimMember | SimKafkaMember | SimClassicMember
        is_classic = self._sim.rng.random() < 0.5
        kafka = self._kafka > 0 and self._sim.rng.random() < self._kafka
        if is_classic:
            self.member = self._classic.join(instance_id=self._instance_id, kafka=kafka)
        else:
            join = self._group.join_by_kafka if kafka else self._group.join
            self.member = join(instance_id=self._instance_id)

    def _later(self) -> None:
        self._sim.loop.call_later(self._sim.rng.uniform(1, 5), self._start_again)

    def _start_again(self) -> None:
        if self.stays:
            return
        if self.is_over:
            self.start()
        elif self.client.process.alive:
            self.stop()
        self._later()

    @property
    def client(self) -> Client:
        return self.member.client

    @property
    def is_over(self) -> bool:
        return self.member.is_over

    def stop(self) -> None:
        self.member.stop()

    def kill(self) -> None:
        self.member.kill()


class WorkerSlot(Slot):
    """A worker of a pipeline. kafka: as of MemberSlot."""

    def __init__(self, sim: Simulation, pipeline: Pipeline, number: int, *, kafka: float) -> None:
        super().__init__(sim)
        self._pipeline, self._number, self._kafka = pipeline, number, kafka
        self.start()

    def start(self) -> None:
        kafka = self._kafka > 0 and self._sim.rng.random() < self._kafka
        work = self._pipeline.worker_by_kafka if kafka else self._pipeline.worker
        self.worker: SimWorker | SimKafkaWorker = work(self._number, pause=self._sim.rng.choice((0.0, 0.0, 0.5)))

    @property
    def client(self) -> Client:
        return self.worker.client

    @property
    def is_over(self) -> bool:
        return self.worker.is_over

    def stop(self) -> None:
        self.worker.stop()

    def kill(self) -> None:
        self.worker.kill()


class TransactorSlot(Slot):
    """A transactional id whose instances write to some partitions."""

    def __init__(
        self, sim: Simulation, number: int, places: list[tuple[Place, bool]], pace: float, kafka: float
    ) -> None:
        """places: the partitions, and whether their records have keys. pace: as of Plan. kafka: the share of instances
        that speak Kafka's protocol."""
        super().__init__(sim)
        self._name, self._places, self._pace, self._kafka = f"transactor-{number}", places, pace, kafka
        self._is_stopping, self._count = False, 0
        self.start()

    def start(self) -> None:
        self._client = self._sim.client()
        self._over = self._is_stopping = False
        self._client.start(self._run(self._client), f"produces as {self._name}")

    @property
    def client(self) -> Client:
        return self._client

    @property
    def is_over(self) -> bool:
        return self._over

    def stop(self) -> None:
        self._is_stopping = True

    def kill(self) -> None:
        client_faults.kill_client(self._sim, self._client)

    async def _run(self, client: Client) -> None:
        """One instance after the other in this process, until the slot has another client or is stopped."""
        while client is self._client and not self._is_stopping:
            await self._run_instance(client)
            await client.pause()
        if client is self._client:
            self._over = True

    async def _run_instance(self, client: Client) -> None:
        rng = client.rng
        transactor = self._new_of_kafka(client) if self._kafka and rng.random() < self._kafka else self._new(client)
        await transactor.start()
        while transactor.over is None and client is self._client and not self._is_stopping:
            await transactor.transact(self._fill)
            await client.sleep(rng.uniform(0, 4 * self._pace))
        await transactor.stop()

    def _new_of_kafka(self, client: Client) -> SimKafkaTransactor:
        rng = client.rng
        return SimKafkaTransactor(
            self._sim,
            self._name,
            client=client,
            delivery_s=rng.choice((3.0, 10.0)),
            transaction_timeout_ms=rng.choice((1_500, 4_000, 10_000)),
        )

    def _new(self, client: Client) -> SimTransactor:
        rng = client.rng
        return SimTransactor(
            self._sim,
            self._name,
            client=client,
            batch_bytes=rng.choice((300, 16_384)),
            linger_ms=rng.choice((0, 5)),
            request_timeout_ms=rng.choice((800, 3_000)),
            delivery_timeout_ms=rng.choice((3_000, 10_000)),
            max_block_ms=5_000,
            transaction_timeout_ms=rng.choice((1_500, 4_000, 10_000)),
        )

    async def _fill(self, opened: OpenTransaction | OpenKafkaTransaction) -> None:
        client = opened.client
        rng = client.rng
        for _ in range(rng.randint(1, 6)):
            self._count += 1
            (topic, partition), keyed = rng.choice(self._places)
            value = f"{client.process.name}-{self._count} ".encode() + b"." * rng.choice((0, 100))
            await opened.send(topic, value, partition, b"key-%d" % rng.randrange(KEYS) if keyed else None)
            await client.sleep(rng.choice((0.0, 0.0, rng.uniform(0, 2 * self._pace))))
        if rng.random() < 0.2:
            await opened.abort()


class CoordinatedWorkload:
    """All clients of coordinators in a world."""

    def __init__(self, sim: Simulation, plan: Plan, coordinators: CoordinatorPlan) -> None:
        self._sim = sim
        clean = [topic for topic in plan.topics if topic.cleaning is not Cleaning.UNCLEAN]
        whole = [topic for topic in clean if topic.cleaning is Cleaning.NOTHING]
        self.group = SimGroup(sim, "readers", [topic.name for topic in clean])
        self.pipeline: Pipeline | None = None
        names = [f"static-{number}" for number in range(coordinators.static)]
        instances = (*names, *(None for _ in range(coordinators.members)))
        self._members: list[Slot] = [
            MemberSlot(sim, self.group, number, instance_id=instances[number], kafka=coordinators.kafka)
            for number in range(coordinators.members)
        ]
        self.classic = SimClassicGroup(sim, "workers", [topic.name for topic in clean])
        static = [f"worker-{number}" for number in range(coordinators.classic_static)]
        ids = (*static, *(None for _ in range(coordinators.classic)))[: coordinators.classic]
        self._classic: list[Slot] = [
            ClassicSlot(sim, self.classic, instance_id=instance_id, kafka=coordinators.kafka) for instance_id in ids
        ]
        self.moving = SimGroup(sim, "movers", [topic.name for topic in clean])
        self.moving_classic = SimClassicGroup(
            sim, "movers", self.moving.topics, cooperative=coordinators.cooperative, beside=self.moving
        )
        self._movers = [
            MovingSlot(
                sim,
                self.moving,
                self.moving_classic,
                instance_id="mover" if number == 0 else None,
                kafka=coordinators.kafka,
            )
            for number in range(coordinators.movers)
        ]
        self._workers: list[Slot] = []
        if whole and coordinators.workers:
            first = whole[0]
            sim.create_topic(RESULTS, partitions=2, replicas=first.replicas, min_insync=first.min_insync)
            self.pipeline = Pipeline(sim, first.name, RESULTS)
            self._workers = [
                WorkerSlot(sim, self.pipeline, number, kafka=coordinators.kafka)
                for number in range(coordinators.workers)
            ]
        places = [
            ((topic.name, partition), topic.cleaning is Cleaning.COMPACTED)
            for topic in plan.topics
            if topic.cleaning in DECIDABLE
            for partition in range(topic.partitions)
        ]
        count = coordinators.transactors if places else 0
        kafka = coordinators.kafka_transactors
        self._transactors: list[Slot] = [
            TransactorSlot(sim, number, places, plan.pace, kafka) for number in range(count)
        ]

    @property
    def _slots(self) -> list[Slot]:
        return [*self._members, *self._workers, *self._transactors, *self._classic, *self._movers]

    # --- faults ---

    def _slot(self, fault: Fault) -> Slot:
        return random.Random(str(fault)).choice(self._slots)

    def begin(self, fault: Fault) -> None:
        """Begin the fault of a client."""
        slot = self._slot(fault)
        match fault.kind:
            case Kind.CLIENT_KILL:
                slot.kill()
            case Kind.CLIENT_PAUSE:
                slot.pause(replaced=fault.amount < 0.5 and not isinstance(slot, MemberSlot | MovingSlot))
            case Kind.CLIENT_STOP:
                slot.stop()
            case Kind.RESET_OFFSETS:
                for member in self._members:
                    member.stop()
                client = self._sim.client()
                client.start(self._reset(client, fault.amount), "resets offsets")

    async def _reset(self, client: Client, share: float) -> None:
        """Set the offsets of the group back, as soon as it has no members; refused while it has some."""
        while not all(slot.is_over or not slot.client.process.alive for slot in self._members):
            await client.pause()
        transport = WatchedTransport(
            client.transport, self._sim.loop, self._sim.coordination, name=client.process.name, resets=True
        )
        client.transport = transport  # type: ignore[assignment]
        request = groups_pb2.OffsetCommitRequest(group_id=self.group.name, member_epoch=-1)
        for topic, partition in self.group.places():
            offset = int(share * max(0, self.group.committed((topic, partition))))
            request.partitions.add(topic=topic, partition=partition, offset=offset, leader_epoch=-1)
        with contextlib.suppress(TidelogError):
            group = groups_pb2.COORDINATOR_TYPE_GROUP
            await ask(client, group, self.group.name, methods.GROUPS_OFFSET_COMMIT, request)

    def end(self, fault: Fault) -> None:
        """End the fault of a client."""
        if fault.kind is Kind.RESET_OFFSETS:
            for member in self._members:
                member.restart()
            return
        slot = self._slot(fault)
        slot.resume()
        slot.restart()

    # --- the end ---

    def recover(self) -> None:
        """All faults have ended: paused clients continue, and every partition must have an owner again."""
        for mover in self._movers:
            mover.stays = True
        for slot in self._slots:
            slot.resume()
        self._sim.run_until(
            self._is_owned, within=OWNED_WITHIN, what=lambda: f"every partition: {list(self._unowned())}"
        )

    def _is_owned(self) -> bool:
        """Whether every partition has one owner. Clients that end only now are replaced."""
        for slot in self._slots:
            slot.restart()
        return next(self._unowned(), None) is None

    def _unowned(self) -> Iterator[str]:
        """The partitions that do not have one owner."""
        yield from self.group.unsettled()
        if self.pipeline is not None and self._workers:
            yield from self.pipeline.group.unsettled()
        if self._movers:
            yield from self.moving.unsettled()
        if self._classic:
            yield from self.classic.unsettled()

    def stop_transactors(self, within: float) -> None:
        """Every instance ends its transaction, and none begins another one."""
        for slot in self._transactors:
            slot.stop()
        self._sim.run_until(
            lambda: all(slot.is_over for slot in self._transactors), within=within, what="every transaction has its end"
        )

    def finish(self, within: float) -> None:
        """Once nothing is written any more: everything is read and transformed, then all clients leave."""
        if self.pipeline is not None:
            self.pipeline.finish(within)
        self._sim.run_until(lambda: not self._unread(), within=within, what=lambda: f"all is read: {self._unread()}")
        line = self.pipeline
        readers: list[SimMember | SimKafkaMember | SimWorker | SimKafkaWorker | SimClassicMember] = [
            *self.group.members,
            *self.group.kafka,
            *([] if line is None else line.workers),
            *([] if line is None else line.kafka_workers),
            *self.classic.members,
            *self.moving.members,
            *self.moving.kafka,
            *self.moving_classic.members,
        ]
        running = [reader for reader in readers if reader.client.process.alive]
        for reader in running:
            reader.stop()
        self._sim.run_until(
            lambda: all(reader.is_over for reader in running), within=within, what="every member has left"
        )

    def _unread(self) -> list[str]:
        """The partitions of which the group has not read everything that is decided, for messages."""
        found = []
        for place in self.group.places():
            ledger, committed = self._sim.ledger(*place), self.group.committed(place)
            if ledger.passed_over(max(0, committed), ledger.stable, decided=True) is not None:
                found.append(f"{ledger.name} at {committed}")
        return found
