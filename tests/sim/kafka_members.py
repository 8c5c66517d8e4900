"""Members of consumer groups (KIP-848) that speak Kafka's protocol, in a world: heartbeats, the partitions that they
are given, records, and committed offsets, all in frames at the listener. They share groups with tidelog.Consumer.

A member has two tasks, as Kafka's Java client has: one sends heartbeats and gives up at once what is revoked; the other
takes over what is granted, once it knows the committed offsets, reads, and commits. What it owns, reads and commits is
judged like that of the others (owners.py, member_readings.py, group_log.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from testbed.sim import client_faults
from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Ledger, Violation
from testbed.sim.readings import Reading
from testbed.sim.watched_offsets import WatchedOffsets
from testbed.sim.workload import CORRUPT, records_shown
from tests.sim.kafka_client import KafkaClient, message_of, raise_for
from tests.sim.kafka_coordinators import CALL_S, GROUP_KEY, KafkaCoordinator, KafkaOffsets, by_topic
from tests.sim.member_readings import MemberReadings
from tidelog.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    OffsetOutOfRange,
    Retry,
    StaleMemberEpoch,
    TidelogError,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tidelog.records.v2.record import Record
from tidelog.types import Endpoint

if TYPE_CHECKING:
    from testbed.sim.workload import Client
    from tests.sim.members import SimGroup

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""Member epochs that say what a member does."""

REBALANCE_MS: Final = 4_000
REMOVED: Final = (UnknownMemberId, FencedMemberEpoch, GroupIdNotFound)
"""Errors after which a member has nothing, and joins again."""


class SimKafkaMember:
    """One member in its own client process."""

    def __init__(
        self,
        group: SimGroup,
        *,
        client: Client | None = None,
        decided: bool = True,
        auto_commit: bool = True,
        instance_id: str | None = None,
        topics: Sequence[str] | None = None,
    ) -> None:
        """client: its process; None: a new one. decided: it reads with read_committed. auto_commit: False: offsets are
        committed elsewhere, in transactions. topics: None: those of the group."""
        sim = group.sim
        self.group, self.client = group, sim.client() if client is None else client
        self.member_id = f"{self.client.process.name}-{self.client.rng.getrandbits(32):08x}"
        self.instance_id, self.epoch = instance_id, JOINS
        self.is_stopping = self.is_over = self.is_fenced = False
        self.values: list[bytes | None] = []
        self._topics, self._decided, self._commits = tuple(topics or group.topics), decided, auto_commit
        self._kafka = KafkaClient(self.client)
        self._coordinator = KafkaCoordinator(self.client, GROUP_KEY, group.name)
        self._offsets = KafkaOffsets(
            self._coordinator, group.name, WatchedOffsets(sim.coordination, sim.loop, self.client.process.name)
        )
        self.readings = MemberReadings(
            self.client.process.name,
            ledger=self._ledger,
            committed=group.committed,
            decided=decided,
            keep=self._keep,
        )
        self._granted: set[Place] = set()
        """What it may have, by the last heartbeat."""
        self.positions: dict[Place, tuple[int, int]] = {}
        """Of what it owns: the next offset, and the leader epoch of the record before it."""
        self._committed: dict[Place, tuple[int, int]] = {}
        """The last of these that it has committed."""
        self._is_told = False
        """Whether the coordinator has all of its state: after an error it is sent once more."""
        self._ids: dict[str, UUID] = {}
        """Of its topics."""
        self._beat_s = 0.5
        self._next_commit_s = 0.0

    # --- what others see ---

    @property
    def owned(self) -> set[Place]:
        """What it owns, as it believes."""
        return self.group.owners.of(self.member_id)

    # --- its life ---

    async def run(self) -> None:
        """Read until `stop`."""
        self.start()
        while not self.is_stopping and not self.is_fenced:
            await self._step()
        await self.close()

    def start(self) -> None:
        """Begin to send heartbeats."""
        self.client.start(self._beats(), f"is a member of {self.group.name}")

    async def _step(self) -> None:
        """One poll, and a commit if it is due."""
        await self.poll()
        if self._commits and self.client.loop.time() >= self._next_commit_s:
            self._next_commit_s = self.client.loop.time() + self.client.rng.uniform(0.1, 1.0)
            await self._attempt(self._commit)

    async def close(self) -> None:
        """Commit, give everything up and leave."""
        self.is_stopping = True
        if self._commits and not self.is_fenced:
            await self._attempt(self._commit)
        self._give_up(self._granted | self.owned)
        if self.epoch > JOINS and not self.is_fenced:
            await self._attempt(self._leave)
        self._kafka.close()
        self._coordinator.close()
        self.is_over = True

    async def _leave(self) -> None:
        await self._beat(LEAVES if self.instance_id is None else LEAVES_FOR_A_WHILE)

    async def _attempt(self, what: Callable[[], Awaitable[Any]]) -> None:
        """One attempt, after whose failure the member goes on."""
        try:
            await what()
        except REMOVED:
            self._removed()
        except StaleMemberEpoch:  # its next heartbeat tells it the present one
            pass
        except FencedInstanceId:
            self._fenced()
        except TidelogError as error:
            if error.retry is Retry.NEVER:
                raise

    def stop(self) -> None:
        """Leave after the present poll."""
        self.is_stopping = True

    def kill(self) -> None:
        client_faults.kill_client(self.group.sim, self.client)
        self.group.owners.ended(self.member_id)

    # --- heartbeats ---

    async def _beats(self) -> None:
        while not self.is_stopping and not self.is_fenced:
            try:
                answer = await self._beat(self.epoch)
            except REMOVED:
                self._removed()
            except FencedInstanceId:
                self._fenced()
            except UnreleasedInstanceId:  # the process that has the instance id is about to leave, or to time out
                self._is_told = False
                await self.client.pause()
            except TidelogError as error:
                self._is_told = False
                if error.retry is Retry.NEVER:
                    raise
                await self.client.pause()
            else:
                if not self._take(answer):
                    await self.client.sleep(self.client.rng.uniform(0.5, 1) * self._beat_s)

    async def _beat(self, epoch: int) -> Any:
        """One heartbeat. Raises its error."""
        sent, ids = message_of("ConsumerGroupHeartbeat"), await self._topic_ids()
        is_whole, self._is_told = not self._is_told or epoch == JOINS, True
        parts = {ids[name]: tuple(indexes) for name, indexes in by_topic(self._granted).items()}
        owned = tuple(sent.TopicPartitions(topic_id, indexes) for topic_id, indexes in parts.items())
        message = sent.ConsumerGroupHeartbeatRequest(
            self.group.name,
            self.member_id,
            epoch,
            self.instance_id,
            None,
            REBALANCE_MS if is_whole else -1,
            self._topics if is_whole else None,
            None,
            owned if is_whole else None,
        )
        answer = await self._coordinator.ask("ConsumerGroupHeartbeat", message, CALL_S)
        self._coordinator.raise_for(answer.error_code, f"a heartbeat of {self.member_id} in epoch {epoch}")
        if answer.member_id != self.member_id:
            raise Violation(f"a heartbeat of {self.member_id} is answered for {answer.member_id}")
        if epoch >= JOINS and answer.member_epoch < max(epoch, 1):
            raise Violation(f"{self.member_id} goes back from epoch {epoch} to {answer.member_epoch}")
        return answer

    def _take(self, answer: Any) -> bool:
        """What a heartbeat says. Returns True if the coordinator is to know at once what the member has now."""
        if self.is_stopping:
            return False
        self.epoch, self._beat_s = answer.member_epoch, answer.heartbeat_interval_ms / 1_000
        if answer.assignment is None:
            return False
        names = {topic_id: name for name, topic_id in self._ids.items()}
        granted = {
            (names[each.topic_id], partition)
            for each in answer.assignment.topic_partitions
            for partition in each.partitions
        }
        had, self._granted = self._granted, granted
        self._give_up(had - granted)
        self._is_told = had == granted
        return had != granted

    async def _topic_ids(self) -> dict[str, UUID]:
        for name in self._topics:
            if name not in self._ids:
                self._ids[name] = UUID(bytes=(await self._kafka.place((name, 0))).topic_id)
        return self._ids

    def _removed(self) -> None:
        """The group does not have it any more: it has nothing, and joins again."""
        self.group.sim.note(f"{self.member_id} is removed in epoch {self.epoch}")
        self._give_up(self._granted | self.owned)
        self._granted, self.epoch, self._is_told = set(), JOINS, False

    def _fenced(self) -> None:
        """Another process has its instance id."""
        self.group.sim.note(f"{self.member_id} is fenced")
        self.is_fenced = True
        self._give_up(self._granted | self.owned)

    def _give_up(self, places: set[Place]) -> None:
        owned = sorted(places & self.owned)
        for place in owned:
            del self.positions[place]
        if owned:
            self.group.sim.note(f"{self.member_id} gives up {owned}")
        self.readings.revoked(owned)
        self.group.owners.revoked(self.member_id, owned)

    # --- records ---

    async def poll(self) -> list[tuple[Place, Record]]:
        """Take over what is granted, and read once from each leader. Returns the records."""
        await self._attempt(self._take_over)
        by_leader: dict[Endpoint, list[Place]] = {}
        found: list[tuple[Place, Record]] = []
        for place in sorted(self.owned):
            with contextlib.suppress(TidelogError):
                by_leader.setdefault((await self._kafka.place(place)).leader, []).append(place)
        for leader, places in by_leader.items():
            try:
                found += await self._read(leader, [place for place in places if place in self.owned])
            except TidelogError as error:
                if error.retry is Retry.NEVER and not isinstance(error, (*CORRUPT, OffsetOutOfRange)):
                    raise
                for place in places:
                    self._kafka.forget(place)
                await self.client.pause()
        if not by_leader:
            await self.client.pause()
        return found

    async def _take_over(self) -> None:
        """Begin with what is granted, from the committed offsets."""
        if not self._granted - self.owned:
            return
        offsets = await self._offsets.fetched(self._granted - self.owned, self.member_id, self.epoch)
        # While it waited, some may have been revoked.
        places = [place for place in sorted(offsets) if place in self._granted - self.owned]
        for place in places:
            self.positions[place] = max(0, offsets[place][0]), offsets[place][1]
            self._committed.pop(place, None)
        self.group.sim.note(f"{self.member_id} begins {places}")
        self.readings.assigned(places)
        self.group.owners.assigned(self.member_id, places)

    async def _read(self, leader: Endpoint, places: list[Place]) -> list[tuple[Place, Record]]:
        asked = {place: self.positions[place] for place in places}
        if not asked:
            return []
        wire = await self._kafka.wire(leader)
        wait_ms = self.client.rng.choice((50, 300))
        answers = await self._kafka.fetch(wire, asked, decided=self._decided, wait_ms=wait_ms)
        found: list[tuple[Place, Record]] = []
        failure: TidelogError | None = None
        for place, answer in answers.items():
            if self.positions.get(place) != asked[place]:
                continue  # it was given up meanwhile
            try:
                found += await self._got(place, answer)
            except TidelogError as error:
                failure = error
        if failure is not None and not found:
            raise failure
        return found

    async def _got(self, place: Place, answer: Any) -> list[tuple[Place, Record]]:
        """What an answer has for a partition. Raises its error."""
        before = position, _ = self.positions[place]
        if answer.error_code == OffsetOutOfRange.code or answer.diverging_epoch.end_offset >= 0:
            earliest = await self._kafka.earliest(place)
            if self.positions.get(place) == before:
                self.positions[place] = max(earliest, position), -1
            return []
        raise_for(answer.error_code, f"a fetch of {place}")
        aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()]
        shown = records_shown(bytes(answer.records or b""), aborted, position)
        for record in shown.records:
            self.values.append(record.value)
            self.readings.got(place, record)
        self.positions[place] = shown.position, max(shown.epoch, before[1])
        return [(place, record) for record in shown.records]

    # --- offsets ---

    async def _commit(self) -> None:
        """Commit its positions. Raises the error of the answer."""
        changed = [place for place in sorted(self.owned) if self.positions[place] != self._committed.get(place)]
        offsets = {place: self.positions[place] for place in changed}
        if offsets and self.epoch > JOINS:
            given = {place: self.readings.may_commit(place, offset) for place, (offset, _) in offsets.items()}
            await self._offsets.commit(offsets, self.member_id, self.epoch, self.instance_id, given)
            self._committed |= offsets

    def _ledger(self, place: Place) -> Ledger:
        return self.group.sim.ledger(*place)

    def _keep(self, reading: Reading) -> Reading:
        self.group.sim.checkers.readings.append(reading)
        return reading
