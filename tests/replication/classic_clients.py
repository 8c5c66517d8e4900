"""Members of classic groups, as clients of Kafka are: they join, the leader assigns, all ask for their assignments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from replication.coordination.classic_requests import (
    AnsweredLater,
    ClassicHeartbeat,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    LeavingMember,
    LeftMember,
    MemberAssignment,
    MemberJoin,
    MemberSync,
    SyncGroup,
    SyncGroupAnswer,
)
from replication.coordination.group_records import ClassicProtocol
from tests.replication.group_stories import Coordinator
from tidelog.errors import MemberIdRequired, TidelogError

RANGE = {"range": b"topics t"}
TICKETS = count(1)

Assign = Callable[[JoinGroupAnswer], Mapping[str, bytes]]


def by_id(joined: JoinGroupAnswer) -> dict[str, bytes]:
    """An assignment that names generation and member: no two are equal."""
    return {each.member_id: f"{joined.generation}:{each.member_id}".encode() for each in joined.members}


class ClassicClient:
    """A member. What it is answered later is taken when `look` is called, and before its next request."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        *,
        group_id: str = "g",
        protocols: Mapping[str, bytes] = RANGE,
        protocol_type: str = "consumer",
        instance: str | None = None,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        needs_member_id: bool = True,
        skips_assignment: bool = True,
        assign: Assign = by_id,
    ) -> None:
        self.coordinator, self.name, self.group_id = coordinator, name, group_id
        self.protocols, self.protocol_type, self.instance = dict(protocols), protocol_type, instance
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.needs_member_id, self.skips_assignment, self.assign = needs_member_id, skips_assignment, assign
        self.member_id = ""
        self.joined: JoinGroupAnswer | None = None
        self.assignment: bytes | None = None
        self.error: TidelogError | None = None
        self.waiting: int | None = None
        self.given = 0

    @property
    def generation(self) -> int:
        return -1 if self.joined is None else self.joined.generation

    @property
    def is_leader(self) -> bool:
        return self.joined is not None and self.joined.leader == self.member_id

    def join(self) -> JoinGroupAnswer | None:
        """Join, a second time if it is given an id. Returns None if the answer comes later. Raises the refusal."""
        answer = self.send_join()
        if answer is not None and isinstance(answer.error, MemberIdRequired):
            answer = self.send_join()
        return answer

    def send_join(self) -> JoinGroupAnswer | None:
        """One JoinGroup."""
        request = JoinGroup(
            self.group_id,
            self.member_id,
            self.instance,
            self.protocol_type,
            tuple(ClassicProtocol(name, metadata) for name, metadata in self.protocols.items()),
            self.session_ms,
            self.rebalance_ms,
            self.needs_member_id,
            self.skips_assignment,
        )
        ticket = next(TICKETS)
        self.given += 1
        new_id = f"{self.name}-{self.given}"
        answer = self.coordinator.ask(MemberJoin(request, ticket, f"client-{self.name}", "/127.0.0.1", new_id))
        self.error, self.waiting = None, ticket
        return self._joined(answer)

    def _joined(self, answer: object) -> JoinGroupAnswer | None:
        if isinstance(answer, AnsweredLater):
            return None
        assert isinstance(answer, JoinGroupAnswer)
        self.waiting, self.member_id = None, answer.member_id
        if answer.error is None:
            self.joined, self.assignment = answer, None
        return answer

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> bytes | None:
        """Ask for the assignment, with those of all if it is the leader. Returns None if the answer comes later."""
        assert self.joined is not None, f"{self.name} has not joined"
        if assignments is None and self.is_leader and not self.joined.skip_assignment:
            assignments = self.assign(self.joined)
        assigned = tuple(MemberAssignment(*each) for each in (assignments or {}).items())
        request = SyncGroup(
            self.group_id,
            self.member_id,
            self.generation,
            self.instance,
            self.joined.protocol_type,
            self.joined.protocol,
            assigned,
        )
        ticket = next(TICKETS)
        answer = self.coordinator.ask(MemberSync(request, ticket))
        self.error, self.waiting = None, ticket
        return self._synced(answer)

    def _synced(self, answer: object) -> bytes | None:
        if isinstance(answer, AnsweredLater):
            return None
        assert isinstance(answer, SyncGroupAnswer)
        self.waiting, self.assignment = None, answer.assignment
        return answer.assignment

    def look(self) -> object:
        """Take the answer to the request that waits, if it is there. Returns it."""
        answer = None if self.waiting is None else self.coordinator.late.get(self.waiting)
        if answer is None:
            return None
        self.waiting = None
        if isinstance(answer, TidelogError):
            self.error = answer
        elif isinstance(answer, JoinGroupAnswer):
            self._joined(answer)
        else:
            self._synced(answer)
        return answer

    def heartbeat(self) -> None:
        """Raises the refusal."""
        self.coordinator.ask(ClassicHeartbeat(self.group_id, self.member_id, self.generation, self.instance))

    def leave(self) -> LeftMember:
        return leave(self.coordinator, LeavingMember(self.member_id, self.instance), group_id=self.group_id)[0]


def leave(coordinator: Coordinator, *members: LeavingMember, group_id: str = "g") -> tuple[LeftMember, ...]:
    """Let members leave with one request."""
    answer = coordinator.ask(LeaveGroup(group_id, members))
    found: tuple[LeftMember, ...] = answer.members
    return found


def settle(*clients: ClassicClient, ms: int = 6_000) -> None:
    """All join, wait until the generation begins, and ask for their assignments."""
    for client in clients:
        client.join()
    clients[0].coordinator.pass_time(ms)
    synced(*clients)


def synced(*clients: ClassicClient) -> None:
    """The generation has begun: all ask for their assignments, the leader last."""
    for client in clients:
        client.look()
    for client in sorted(clients, key=lambda each: each.is_leader):
        client.sync()
    for client in clients:
        client.look()


def said(ask: Callable[[], object]) -> str:
    """The name of the refusal; "nothing" if there is none."""
    try:
        ask()
    except TidelogError as error:
        return type(error).__name__
    return "nothing"
