"""Consumers of the classic protocol, whose groups may become consumer groups and classic ones again."""

from __future__ import annotations

from collections.abc import Mapping

from replication.coordination.classic_requests import JoinGroupAnswer
from testbed.consumer_bytes import assigned, owned_in, places_in, subscription
from tests.replication.classic_clients import ClassicClient
from tests.replication.group_stories import Client, Coordinator, Partition
from tidelog.errors import FencedInstanceId, IllegalGeneration, RebalanceInProgress, TidelogError, UnknownMemberId

EAGER, COOPERATIVE = "range", "cooperative-sticky"


class Roller(ClassicClient):
    """A consumer of the classic protocol. cooperative: it reads on while it joins again."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        *,
        cooperative: bool = False,
        topics: tuple[str, ...] = ("t",),
        version: int = 1,
        instance: str | None = None,
        rebalance_ms: int = 60_000,
        session_ms: int = 10_000,
    ) -> None:
        super().__init__(
            coordinator,
            name,
            instance=instance,
            rebalance_ms=rebalance_ms,
            session_ms=session_ms,
            assign=self._assigns,
        )
        self.cooperative, self.topics, self.version = cooperative, topics, version
        self.places: set[Partition] = set()
        self.refusals: list[str] = []
        self.must_join = True

    def send_join(self) -> JoinGroupAnswer | None:
        if not self.cooperative:
            self.places = set()
        kind = COOPERATIVE if self.cooperative else EAGER
        self.protocols = {kind: subscription(self.topics, self.places, self.version)}
        return super().send_join()

    def _assigns(self, joined: JoinGroupAnswer) -> Mapping[str, bytes]:
        """As the leader: in turn; of a partition that another member has, nobody gets it yet if they go on reading."""
        members = sorted((each.instance_id or each.member_id, each.member_id) for each in joined.members)
        had = {place: each.member_id for each in joined.members for place in owned_in(each.metadata)}
        images = self.coordinator.image.topics.values()
        places = [(each.name, n) for each in images if each.name in self.topics for n in range(len(each.partitions))]
        shares: dict[str, list[Partition]] = {member_id: [] for _, member_id in members}
        for number, place in enumerate(sorted(places)):
            _, member_id = members[number % len(members)]
            if had.get(place, member_id) == member_id:
                shares[member_id].append(place)
        return {member_id: assigned(share) for member_id, share in shares.items()}

    def step(self) -> None:
        """One step of a client that follows the protocol."""
        self.look()
        if self.waiting is not None:
            return
        try:
            if self.error is not None:
                raised, self.error = self.error, None
                raise raised
            self._act()
        except TidelogError as error:
            self._refused(error)
        if self.assignment is not None and not self.must_join:
            self._take(places_in(self.assignment))

    def _act(self) -> None:
        if self.must_join or self.joined is None:
            self.must_join = False
            self.assignment = None
            self.join()
        elif self.assignment is None:
            self.sync()
        else:
            self.heartbeat()

    def _take(self, places: set[Partition]) -> None:
        self.must_join = self.cooperative and bool(self.places - places)  # to confirm what it gives up
        self.places = places

    def _refused(self, error: TidelogError) -> None:
        self.refusals.append(type(error).__name__)
        self.must_join = True
        if isinstance(error, (UnknownMemberId, FencedInstanceId)):
            self.member_id, self.joined = "", None
        elif not isinstance(error, (RebalanceInProgress, IllegalGeneration)):
            raise error
        if not isinstance(error, RebalanceInProgress):
            self.places = set()


def settle_rolling(*members: Roller | Client, rounds: int = 60, step_ms: int = 500) -> None:
    """Let members do what they have to until nothing changes for some rounds."""
    quiet, before = 0, None
    for _ in range(rounds):
        for member in members:
            if isinstance(member, Roller):
                member.step()
            else:
                member.heartbeat()
        members[0].coordinator.pass_time(step_ms)
        now = [member.places if isinstance(member, Roller) else member.partitions for member in members]
        steady = now == before and not any(isinstance(each, Roller) and each.must_join for each in members)
        quiet, before = quiet + 1 if steady else 0, [set(each) for each in now]
        if quiet == 3:
            return
    raise AssertionError(f"the members do not come to rest: {before}")
