"""Real members of consumer groups: tidelog.Consumer with a group, one in each client process.

Their callbacks are compared with the coordinator's log (owners.py), what they are given with what is committed
(member_readings.py), what they commit with what they were given (group_log.py). A world may kill, pause and resume each
process at any moment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from testbed.sim import client_faults
from testbed.sim.clock import SimClock
from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Ledger
from testbed.sim.process import ProcessState
from testbed.sim.readings import Reading, in_log
from testbed.sim.watched_transport import WatchedTransport
from testbed.sim.workload import CORRUPT, Client
from tests.sim.kafka_members import SimKafkaMember
from tests.sim.member_readings import MemberReadings
from tests.sim.owners import Owners
from tidelog.client.consumer import Consumer
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.errors import CommitFailed, Retry, TidelogError
from tidelog.types import Isolation, TopicPartition

if TYPE_CHECKING:
    from testbed.sim.world import Simulation
    from tests.sim.classic_members import SimClassicGroup


class SimGroup:
    """A group and its members, past and present."""

    def __init__(self, sim: Simulation, name: str, topics: Sequence[str]) -> None:
        self.sim, self.name, self.topics = sim, name, tuple(topics)
        self.owners = Owners(name, logged=self.logged)
        self.members: list[SimMember] = []
        self.kafka: list[SimKafkaMember] = []
        """The members that speak Kafka's protocol."""
        self.classic: SimClassicGroup | None = None
        """The members of the group that speak the classic protocol."""

    def logged(self, member_id: str) -> set[Place] | None:
        """The partitions of a member by the committed log of its coordinator; None if it has no such member."""
        log = self.sim.coordination.log_of(self.name)
        if log is None or (self.classic is not None and self.classic.has_fenced(member_id)):
            return None
        group = log.groups[self.name]
        if member_id in group.classic:
            return set(group.classic[member_id].places)
        member = group.members.get(member_id)
        if member is None or not member.is_registered:
            return None
        image = self.sim.image()
        names = {topic.topic_id.hex: topic.name for topic in image.topics.values()}
        return {(names.get(topic_id.hex, "?"), partition) for topic_id, partition in member.owned}

    def committed(self, place: Place) -> int:
        """The offset that the group has committed; -1 for none."""
        log = self.sim.coordination.log_of(self.name)
        return -1 if log is None else log.committed(self.name, place)

    def member(self, **options: Any) -> SimMember:
        """A new member, not started. options: as of SimMember."""
        found = SimMember(self, **options)
        self.members.append(found)
        return found

    def join(self, **options: Any) -> SimMember:
        """A new member that reads until it is stopped."""
        found = self.member(**options)
        found.client.start(found.run(), f"reads in {self.name}")
        return found

    def join_by_kafka(self, **options: Any) -> SimKafkaMember:
        """A new member that speaks Kafka's protocol, and reads until it is stopped. options: as of SimKafkaMember."""
        found = SimKafkaMember(self, **options)
        self.kafka.append(found)
        found.client.start(found.run(), f"reads in {self.name}")
        return found

    @property
    def alive(self) -> list[SimMember]:
        """The members whose processes run, and have not been told to stop."""
        return [member for member in self.members if member.client.process.alive and not member.is_stopping]

    def places(self, topics: Iterable[str] | None = None) -> list[Place]:
        """All partitions of the group's topics that exist."""
        names = self.topics if topics is None else topics
        found = [topic for name in names if (topic := self.sim.image().topic(name)) is not None]
        return [(topic.name, int(state.partition)) for topic in found for state in topic.partitions]

    @property
    def is_settled(self) -> bool:
        """Whether each partition has one owner among the members that run."""
        return next(self.unsettled(), None) is None

    def unsettled(self) -> Iterator[str]:
        """The partitions that do not have one owner among the members that run, for messages."""
        classic = [] if self.classic is None else [member.member_id for member in self.classic.alive]
        kafka = [each.member_id for each in self.kafka if each.client.process.alive and not each.is_stopping]
        return self.owners.missing(self.places(), [*(member.member_id for member in self.alive), *kafka, *classic])

    def settle(self, within: float = 20.0) -> None:
        """Run the world until each partition has one owner."""
        self.sim.run_until(
            lambda: self.is_settled,
            within=within,
            what=lambda: f"every partition has one owner: {'; '.join(self.unsettled())}",
        )

    def owner(self, place: Place) -> SimMember:
        """The member that runs and owns the partition."""
        return next(member for member in self.alive if place in member.owned)


class SimMember:
    """One member in its own client process."""

    def __init__(
        self,
        group: SimGroup,
        *,
        client: Client | None = None,
        decided: bool = True,
        auto_commit: bool = True,
        topics: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        """client: its process; None: a new one. decided: it reads with read_committed. auto_commit: False: it commits
        after each poll. topics: None: those of the group. options: as of tidelog.Consumer."""
        sim = group.sim
        self.group, self.client = group, sim.client() if client is None else client
        self.is_stopping = self.is_over = False
        self.values: list[bytes | None] = []
        self.callbacks: list[tuple[str, list[Place]]] = []
        """What was called, with the partitions, in order."""
        self.before_revoked: Callable[[], Awaitable[None]] | None = None
        """Awaited before a revocation takes effect: the application is slow to give partitions up."""
        self.commits = True
        """False: it does not commit after each poll."""
        self.processing: Callable[[], Awaitable[None]] | None = None
        """Awaited between a poll and the next one, before its records count as processed."""
        self._auto_commit = auto_commit
        self.readings = MemberReadings(
            self.client.process.name,
            ledger=self._ledger,
            committed=group.committed,
            decided=decided,
            keep=self._keep,
        )
        transport = WatchedTransport(
            self.client.transport,
            sim.loop,
            sim.coordination,
            name=self.client.process.name,
            given_to=self.readings.may_commit,
        )
        self.consumer = Consumer(
            [str(endpoint) for endpoint in self.client.bootstrap],
            group=group.name,
            topics=group.topics if topics is None and "topic_pattern" not in options else topics,
            auto_commit=auto_commit,
            auto_commit_interval_ms=options.pop("auto_commit_interval_ms", 500),
            auto_offset_reset="earliest",
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            on_lost=self._lost,
            max_wait_ms=self.client.rng.choice((50, 500)),
            fetch_bytes=self.client.rng.choice((500, 20_000)),
            request_timeout_ms=options.pop("request_timeout_ms", 3_000),
            isolation=Isolation.READ_COMMITTED if decided else Isolation.READ_UNCOMMITTED,
            on_out_of_range="earliest",
            transport=transport,
            clock=SimClock(sim.loop),
            rng=self.client.rng,
            **options,
        )

    def __repr__(self) -> str:
        return f"<{self.client.process.name} of {self.group.name}>"

    # --- what others see ---

    @property
    def member_id(self) -> str:
        """The id by which the coordinator knows it; the name of its process before it has started."""
        member = self.consumer._member_or_none
        return self.client.process.name if member is None else member.member_id

    @property
    def owned(self) -> set[Place]:
        """What it owns by its callbacks."""
        return self.group.owners.of(self.member_id)

    # --- its life ---

    async def run(self) -> None:
        """Read until `stop`."""
        await self.consumer.start()
        while not self.is_stopping:
            await self.step()
        with contextlib.suppress(TidelogError):
            self.consumer.pause(self.consumer.assignment)
            self.got(await self.consumer.poll(timeout=0))  # what the last poll returned is processed
        await self.consumer.close()
        self.is_over = True

    async def step(self, timeout: float = 0.5) -> list[ConsumerRecord]:
        """One poll, and a commit if the member does not commit by itself."""
        try:
            records = await self.consumer.poll(timeout=timeout)
            if records and self.processing is not None:
                await self.processing()
            self.got(records)
            if records and self.commits and not self._auto_commit:
                await self.consumer.commit()
        except CORRUPT:
            await self._ask_again()
        except CommitFailed:
            for key, cursor in self.consumer.assigned_cursors().items():
                if cursor.position is not None:
                    self.readings.continues((str(key.topic), int(key.partition)), int(cursor.position))
            return []
        except TidelogError as error:
            if error.retry is Retry.NEVER:
                raise
            return []
        else:
            return records
        return []

    def got(self, records: Iterable[ConsumerRecord]) -> None:
        """The application was given these records."""
        for found in records:
            self.values.append(found.value)
            place = found.topic, int(found.partition)
            self.readings.got(place, in_log(found))

    def stop(self) -> None:
        """Close the consumer after its present poll: it commits, gives everything up and leaves."""
        self.is_stopping = True

    def kill(self) -> None:
        client_faults.kill_client(self.group.sim, self.client)
        self.group.owners.ended(self.member_id)

    def pause(self) -> None:
        client_faults.pause_client(self.group.sim, self.client)

    def resume(self) -> None:
        client_faults.resume_client(self.group.sim, self.client)

    @property
    def is_paused(self) -> bool:
        return self.client.process.state is ProcessState.PAUSED

    # --- its callbacks ---

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        places = self._called("assigned", partitions)
        self.readings.assigned(places)
        self.group.owners.assigned(self.member_id, places)

    async def _revoked(self, partitions: list[TopicPartition]) -> None:
        if self.before_revoked is not None:
            await self.before_revoked()
        self._give_up(self._called("revoked", partitions))

    def _lost(self, partitions: list[TopicPartition]) -> None:
        self._give_up(self._called("lost", partitions))

    def _called(self, what: str, partitions: list[TopicPartition]) -> list[Place]:
        places = [(str(each.topic), int(each.partition)) for each in partitions]
        self.callbacks.append((what, places))
        self.group.sim.note(f"{self.client.process.name}: {what} {places}")
        return places

    def _give_up(self, places: list[Place]) -> None:
        self.readings.revoked(places)
        self.group.owners.revoked(self.member_id, places)

    # --- reading ---

    def _ledger(self, place: Place) -> Ledger:
        return self.group.sim.ledger(*place)

    def _keep(self, reading: Reading) -> Reading:
        self.group.sim.checkers.readings.append(reading)
        return reading

    async def _ask_again(self) -> None:
        """Corrupt bytes: continue at the present positions, until a node with a sound log leads."""
        await self.client.pause()
        for key in list(self.consumer.assignment):
            await self.consumer.seek(key, await self.consumer.position(key))
