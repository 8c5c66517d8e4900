"""Members of a group that speak the classic protocol, in a world: each follows it as a consumer of Kafka does, and
commits offsets of the partitions that it has.

An eager member gives everything up before it joins again, a cooperative one goes on, and joins once more when it has
given something up. What it is assigned must be in the committed log of its coordinator, and no other member that is not
fenced may have it. The group may have members of KIP-848, too (members.py). Not here: the log (group_log.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from replication.coordination.classic_requests import (
    ClassicHeartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from replication.coordination.group_records import ClassicProtocol
from testbed.consumer_bytes import assigned, owned_in, places_in, subscription
from testbed.sim import client_faults
from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Violation
from tests.sim.classic_calls import ClassicCalls, KafkaCalls, RpcCalls
from tidelog.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    RebalanceInProgress,
    Retry,
    TidelogError,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from testbed.sim.world import Simulation
    from tests.sim.members import SimGroup

SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 4_000
HEARTBEAT_S: Final = 0.4


class SimClassicGroup:
    """A classic group and its members, past and present."""

    def __init__(
        self,
        sim: Simulation,
        name: str,
        topics: Sequence[str],
        *,
        cooperative: bool = False,
        beside: SimGroup | None = None,
    ) -> None:
        """beside: the members of the same group that speak the other protocol."""
        self.sim, self.name, self.topics = sim, name, tuple(topics)
        self.cooperative, self.beside = cooperative, beside
        if beside is not None:
            beside.classic = self
        self.members: list[SimClassicMember] = []
        self.shared: dict[int, list[Place]] = {}
        """The partitions that the leader of a generation has assigned. A static leader that restarts skips the
        assignment (KIP-814), and its process does not know what the one before it had seen."""

    def join(self, **options: Any) -> SimClassicMember:
        """A new member that lives until it is stopped."""
        member = SimClassicMember(self, **options)
        self.members.append(member)
        member.client.start(member.run(), f"is a member of {self.name}")
        return member

    @property
    def alive(self) -> list[SimClassicMember]:
        """The members whose processes run, and have not been told to stop."""
        return [each for each in self.members if each.client.process.alive and not each.is_stopping]

    def places(self) -> list[Place]:
        """All partitions of the group's topics that exist."""
        found = [topic for name in self.topics if (topic := self.sim.image().topic(name)) is not None]
        return [(topic.name, int(state.partition)) for topic in found for state in topic.partitions]

    @property
    def is_settled(self) -> bool:
        """Whether each partition has one owner among the members that live."""
        return next(self.unsettled(), None) is None

    def unsettled(self) -> Iterator[str]:
        """The partitions that do not have one owner among the members that live, for messages."""
        alive = [(each.member_id, each.places) for each in self.alive]
        for place in self.places():
            names = [member_id for member_id, places in alive if place in places]
            if len(names) != 1:
                yield f"{place[0]}-{place[1]} of classic group {self.name} is with {names or 'no member'}"

    def settle(self, within: float = 20.0) -> None:
        """Run the world until each partition has one owner."""
        self.sim.run_until(
            lambda: self.is_settled,
            within=within,
            what=lambda: f"every partition has one owner: {'; '.join(self.unsettled())}",
        )

    def was_assigned(self, member: SimClassicMember, assignment: bytes) -> None:
        """A member has its assignment. Raises Violation if it must not have it."""
        log = self.sim.coordination.log_of(self.name)
        in_epoch = member.generation, member.member_id
        places = places_in(assignment)
        if log is None or (
            (*in_epoch, assignment) not in log.group(self.name).classic_assigned
            and (*in_epoch, frozenset(places)) not in log.group(self.name).given
        ):
            raise Violation(
                f"{member.member_id} has {sorted(places)} in generation {member.generation} of group {self.name}, and "
                "its committed log does not say so"
            )
        for other in self.members:
            shared = places & other.places
            if other is not member and shared and not self.is_fenced(other) and not self.is_fenced(member):
                raise Violation(f"{member.member_id} and {other.member_id} have {sorted(shared)} of group {self.name}")

    def has_fenced(self, member_id: str) -> bool:
        """Whether this is the id of a member that is fenced."""
        return any(each.member_id == member_id and self.is_fenced(each) for each in self.members)

    def is_fenced(self, member: SimClassicMember) -> bool:
        """Whether the committed log does not have the member, or has it in another generation."""
        log = self.sim.coordination.log_of(self.name)
        group = None if log is None else log.group(self.name)
        if group is not None and member.member_id in group.classic:
            return member.generation != group.generation
        found = None if group is None else group.members.get(member.member_id)
        return found is None or not found.is_registered or member.generation != found.epoch


class SimClassicMember:
    """One member in its own client process."""

    def __init__(self, group: SimClassicGroup, *, instance_id: str | None = None, kafka: bool = False) -> None:
        """kafka: it speaks through the listener of Kafka's protocol."""
        sim = group.sim
        self.group, self.client, self.instance_id = group, sim.client(), instance_id
        self.member_id, self.generation = "", -1
        self.places: set[Place] = set()
        """What it has, as far as it knows."""
        self.generations = 0
        """How many assignments it has had."""
        self.fenced = 0
        """How often its generation was over before it could join the next one."""
        self.is_stopping = self.is_over = False
        self._leads = False
        self._next: dict[Place, int] = {}
        self.calls: ClassicCalls = (KafkaCalls if kafka else RpcCalls)(sim, self.client, group.name)

    @property
    def identity(self) -> ClassicHeartbeat:
        """Who it is, in its present generation."""
        return ClassicHeartbeat(self.group.name, self.member_id, self.generation, self.instance_id)

    # --- its life ---

    async def run(self) -> None:
        """Live until `stop`, or until another process takes the place of its instance id."""
        while not self.is_stopping:
            try:
                await self._live()
            except (UnknownMemberId, GroupIdNotFound):
                self._has(set())
                self.member_id = ""
            except FencedInstanceId:
                break
            except IllegalGeneration:
                self.fenced += 1
                self._has(set())
            except TidelogError as error:
                if error.retry is Retry.NEVER:
                    raise
                if not isinstance(error, RebalanceInProgress):
                    await self.client.pause()
            if not self.group.cooperative:
                self._has(set())
        self._has(set())
        if self.is_stopping and self.member_id and self.instance_id is None:
            with contextlib.suppress(TidelogError):
                await self.calls.leave(LeaveGroup(self.group.name, (LeavingMember(self.member_id),)))
        self.is_over = True

    async def _live(self) -> None:
        """One generation, until the coordinator ends it."""
        joined = await self._join()
        assignment = await self._sync(joined)
        self.group.was_assigned(self, assignment)
        gone, self.generations = self.places - places_in(assignment), self.generations + 1
        self._has(places_in(assignment))
        self.client.loop.call_soon(self.group.sim.note, f"{self.member_id} has {sorted(self.places)}")
        if gone:
            return  # only once it joins again is it known that it has given this up
        await self._fetch_offsets()
        while not self.is_stopping:
            await self.client.sleep(self.client.rng.uniform(0, HEARTBEAT_S))
            if self._leads and sorted(self.group.places()) != self.group.shared.get(self.generation):
                return  # nobody else notices partitions that were added: the leader joins again, to assign them
            await self._patiently(self._beat)  # while its coordinator moves, a member keeps what it has

    async def _beat(self) -> None:
        await self.calls.beat(self.identity)
        if self.places and self.client.rng.random() < 0.5:
            await self._commit()

    def _has(self, places: set[Place]) -> None:
        """It has these partitions from now on."""
        beside, had = self.group.beside, self.places
        self.places = places
        if beside is not None:
            beside.owners.revoked(self.member_id, had - places)
            beside.owners.assigned(self.member_id, places - had)

    async def _join(self) -> JoinGroupAnswer:
        metadata = subscription(self.group.topics, self.places)
        names = ("cooperative-sticky",) if self.group.cooperative else ("range", "roundrobin")
        request = JoinGroup(
            self.group.name,
            self.member_id,
            self.instance_id,
            "consumer",
            tuple(ClassicProtocol(name, metadata) for name in names),
            SESSION_MS,
            REBALANCE_MS,
        )
        answer = await self.calls.join(request)
        self.member_id = answer.member_id
        if answer.error is not None:
            return await self._join()
        self.generation = answer.generation
        return answer

    async def _sync(self, joined: JoinGroupAnswer) -> bytes:
        members = sorted(each.instance_id or each.member_id for each in joined.members)
        ids = {each.instance_id or each.member_id: each.member_id for each in joined.members}
        had = {place: each.member_id for each in joined.members for place in owned_in(each.metadata)}
        shares: dict[str, list[Place]] = {ids[name]: [] for name in members}
        self._leads = bool(members)
        if members and not joined.skip_assignment:
            self.group.shared[self.generation] = sorted(self.group.places())
            for number, place in enumerate(self.group.shared[self.generation]):
                owner = ids[members[number % len(members)]]
                if had.get(place, owner) == owner:  # else its present owner gives it up first
                    shares[owner].append(place)
        assignments = tuple(MemberAssignment(name, assigned(share)) for name, share in shares.items())
        request = SyncGroup(
            self.group.name,
            self.member_id,
            self.generation,
            self.instance_id,
            joined.protocol_type,
            joined.protocol,
            assignments,
        )
        # A leader that joined again instead would begin a rebalance.
        return bytes(await self._patiently(lambda: self.calls.sync(request)))

    # --- offsets ---

    async def _fetch_offsets(self) -> None:
        places = sorted(self.places)
        found: dict[Place, int] = await self._patiently(lambda: self.calls.committed(places))
        self._next = {place: max(0, offset) for place, offset in found.items()}

    async def _commit(self) -> None:
        """Commit a further offset of one partition."""
        place = self.client.rng.choice(sorted(self.places))
        known = self._next.get(place)
        if known is None:
            return
        self._next[place] = known + self.client.rng.randint(0, 3)
        if self.group.beside is not None:  # a member of KIP-848 will read from there
            self._next[place] = max(known, min(self._next[place], self.group.sim.ledger(*place).stable))
        await self.calls.commit(place, self._next[place], known, self.identity)

    # --- calls ---

    async def _patiently(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer, after as many attempts as it takes. Raises what another attempt does not change."""
        while True:
            try:
                return await call()
            except TidelogError as error:
                if error.retry is Retry.NEVER or isinstance(error, RebalanceInProgress):
                    raise
                await self.client.pause()

    # --- faults ---

    def stop(self) -> None:
        """End the present generation: a dynamic member leaves, a static one only goes away."""
        self.is_stopping = True

    def kill(self) -> None:
        client_faults.kill_client(self.group.sim, self.client)
        self.places = set()
        if self.group.beside is not None:
            self.group.beside.owners.ended(self.member_id)
