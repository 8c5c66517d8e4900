"""Many members of one group in one process, that do nothing but heartbeats: the load of a large group.

Each member sends its heartbeats as single calls and takes what it is assigned at once. Not here: real consumers
(members.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from testbed.sim.commit_attempts import Place
from testbed.sim.coordinator_answers import ask
from testbed.sim.workload import Client
from tests.sim.stories import TOPIC
from tidelog.errors import FencedMemberEpoch, UnknownMemberId
from tidelog.protocol import methods
from tidelog.protocol.v1 import groups_pb2

if TYPE_CHECKING:
    from testbed.sim.world import Simulation

JOIN_WITHIN_S: Final = 1.0
INTERVAL_S: Final = 0.5


class CrowdMember:
    """One member. epoch: 0 until it has joined."""

    def __init__(self, number: int) -> None:
        self.member_id = str(UUID(int=number))
        self.epoch = 0
        self.assigned: frozenset[tuple[bytes, int]] = frozenset()
        self.has_new = True
        self.is_stubborn = False
        """It keeps what it has, whatever it is assigned."""


class Crowd:
    """count members of a group, which join within a second. rebalance_ms: how long they may take to give partitions
    up."""

    def __init__(self, sim: Simulation, group: str, count: int, *, rebalance_ms: int = 30_000) -> None:
        self._sim, self._group, self._rebalance_ms = sim, group, rebalance_ms
        self.members = [CrowdMember(number) for number in range(count)]
        self._clients = [sim.client() for _ in range(20)]
        for number, member in enumerate(self.members):
            client = self._clients[number % len(self._clients)]
            client.start(self._live(client, member), f"is member {member.member_id}")

    async def _live(self, client: Client, member: CrowdMember) -> None:
        await client.sleep(client.rng.uniform(0, JOIN_WITHIN_S))
        while True:
            await self._beat(client, member)
            await client.sleep(INTERVAL_S)

    async def _beat(self, client: Client, member: CrowdMember) -> None:
        request = groups_pb2.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=member.member_id,
            member_epoch=member.epoch,
            rebalance_timeout_ms=-1 if member.epoch else self._rebalance_ms,
        )
        if member.epoch == 0:
            request.subscribed_topic_names.names.append(TOPIC)
        if member.has_new:
            request.topic_partitions.SetInParent()
            for topic_id, partition in sorted(member.assigned):
                request.topic_partitions.topics.add(topic_id=topic_id, partitions=[partition])
        group = groups_pb2.COORDINATOR_TYPE_GROUP
        try:
            answer = await ask(client, group, self._group, methods.GROUPS_CONSUMER_GROUP_HEARTBEAT, request)
        except (UnknownMemberId, FencedMemberEpoch):  # it was removed: it gives everything up and joins again
            member.epoch, member.has_new, member.assigned = 0, True, frozenset()
            return
        member.epoch, member.has_new = answer.member_epoch, answer.HasField("assignment")
        if member.is_stubborn:
            member.has_new = False
        elif member.has_new:
            member.assigned = frozenset(
                (topic.topic_id, partition) for topic in answer.assignment.topics for partition in topic.partitions
            )

    @property
    def owned(self) -> set[Place]:
        """What all members have together."""
        return {(TOPIC, partition) for member in self.members for _, partition in member.assigned}

    @property
    def is_settled(self) -> bool:
        """Whether every member has joined and is in the epoch of the last assignment."""
        log = self._sim.coordination.log_of(self._group)
        if log is None:
            return False
        group = log.groups[self._group]
        return group.epoch == group.assignment_epoch and all(each.epoch == group.epoch for each in self.members)

    @property
    def assignments(self) -> int:
        """How many target assignments the group has had."""
        log = self._sim.coordination.log_of(self._group)
        return 0 if log is None else log.groups[self._group].assignments

    def __str__(self) -> str:
        return f"{sum(each.epoch > 0 for each in self.members)} of {len(self.members)} members have joined"
