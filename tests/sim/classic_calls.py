"""What a member of a classic group asks of its coordinator in a world, by the protocol of the simulated network or
through the listener of Kafka's protocol. The values are those of the coordinator.

Every call is one attempt, at the coordinator that a node names. It raises the error of the answer.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Final, Protocol

from replication.coordination.classic_requests import (
    ClassicHeartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupAnswer,
    LeaveGroup,
    SyncGroup,
)
from testbed.sim.classic_wire import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, Pickled
from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Violation
from testbed.sim.watched_offsets import WatchedOffsets
from testbed.sim.watched_transport import WatchedTransport
from tests.sim.kafka_client import message_of
from tests.sim.kafka_coordinators import CALL_S, GROUP_KEY, KafkaCoordinator, KafkaOffsets
from tidelog.errors import MemberIdRequired
from tidelog.protocol import methods, status
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import groups_pb2
from tidelog.types import Endpoint

if TYPE_CHECKING:
    from testbed.sim.workload import Client
    from testbed.sim.world import Simulation

JOIN_S: Final = 8.0
"""How long a member waits for the answer to its JoinGroup: longer than the others may take to join again."""


class ClassicCalls(Protocol):
    """The calls of one member."""

    async def join(self, request: JoinGroup) -> JoinGroupAnswer: ...

    async def sync(self, request: SyncGroup) -> bytes:
        """The assignment."""

    async def beat(self, request: ClassicHeartbeat) -> None: ...

    async def leave(self, request: LeaveGroup) -> None: ...

    async def committed(self, places: Collection[Place]) -> dict[Place, int]:
        """The committed offsets, -1 for none; without those of which the answer is an error."""

    async def commit(self, place: Place, offset: int, known: int, member: ClassicHeartbeat) -> None:
        """Commit an offset. known: the one that the member knows as committed. member: who it is."""


class RpcCalls:
    """The calls by the protocol of the simulated network."""

    def __init__(self, sim: Simulation, client: Client, group: str) -> None:
        self._client, self._group = client, group
        self._transport = WatchedTransport(client.transport, sim.loop, sim.coordination, name=client.process.name)

    async def join(self, request: JoinGroup) -> JoinGroupAnswer:
        answer: JoinGroupAnswer = await self._ask(JOIN_GROUP, request, JOIN_S)
        return answer

    async def sync(self, request: SyncGroup) -> bytes:
        return bytes((await self._ask(SYNC_GROUP, request, JOIN_S)).assignment)

    async def beat(self, request: ClassicHeartbeat) -> None:
        await self._ask(HEARTBEAT, request)

    async def leave(self, request: LeaveGroup) -> None:
        await self._ask(LEAVE_GROUP, request)

    async def committed(self, places: Collection[Place]) -> dict[Place, int]:
        partitions = [groups_pb2.NamedPartition(topic=topic, partition=index) for topic, index in sorted(places)]
        request = groups_pb2.OffsetFetchRequest(
            group_id=self._group,
            member_epoch=-1,
            partitions=groups_pb2.NamedPartitions(partitions=partitions),
        )
        answer = await self._call(methods.GROUPS_OFFSET_FETCH, request)
        return {(each.topic, each.partition): each.offset for each in answer.partitions if not each.HasField("error")}

    async def commit(self, place: Place, offset: int, known: int, member: ClassicHeartbeat) -> None:
        request = groups_pb2.OffsetCommitRequest(
            group_id=self._group,
            member_id=member.member_id,
            member_epoch=member.generation,
            instance_id=member.instance_id,
            partitions=[
                groups_pb2.OffsetToCommit(
                    topic=place[0], partition=place[1], offset=offset, leader_epoch=-1, known_offset=known
                )
            ],
        )
        await self._call(methods.GROUPS_OFFSET_COMMIT, request)

    async def _ask(self, method: Method[Pickled[Any], Pickled[Any]], request: object, within_s: float = CALL_S) -> Any:
        return (await self._call(method, Pickled(request), within_s)).value

    async def _call(self, method: Method[Any, Any], request: Any, within_s: float = CALL_S) -> Any:
        call_ms = int(CALL_S * 1_000)
        lookup = groups_pb2.FindCoordinatorRequest(type=groups_pb2.COORDINATOR_TYPE_GROUP, keys=[self._group])
        at = self._client.rng.choice(self._client.bootstrap)
        found = await self._transport.call(at, methods.COORDINATORS_FIND_COORDINATOR, lookup, timeout_ms=call_ms)
        (coordinator,) = found.coordinators
        if coordinator.HasField("error"):
            raise status.from_proto(coordinator.error)
        endpoint = Endpoint(coordinator.node.host, coordinator.node.port)
        return await self._transport.call(endpoint, method, request, timeout_ms=int(within_s * 1_000))


class KafkaCalls:
    """The calls through the listener of Kafka's protocol."""

    def __init__(self, sim: Simulation, client: Client, group: str) -> None:
        self._group = group
        self._coordinator = KafkaCoordinator(client, GROUP_KEY, group)
        watched = WatchedOffsets(sim.coordination, sim.loop, client.process.name)
        self._offsets = KafkaOffsets(self._coordinator, group, watched)

    async def join(self, request: JoinGroup) -> JoinGroupAnswer:
        sent = message_of("JoinGroup")
        message = sent.JoinGroupRequest(
            request.group_id,
            request.session_timeout_ms,
            request.member_id,
            request.protocol_type,
            tuple(sent.JoinGroupRequestProtocol(each.name, each.metadata) for each in request.protocols),
            request.rebalance_timeout_ms,
            request.instance_id,
        )
        answer = await self._coordinator.ask("JoinGroup", message, JOIN_S)
        if answer.error_code == MemberIdRequired.code:
            return JoinGroupAnswer(answer.member_id, error=MemberIdRequired("join again with the member id"))
        self._coordinator.raise_for(answer.error_code, f"JoinGroup of {request.member_id}")
        if answer.generation_id < 0 or not answer.member_id:
            raise Violation(f"{request} is answered with generation {answer.generation_id} of {answer.member_id!r}")
        members = (JoinedMember(each.member_id, each.group_instance_id, each.metadata) for each in answer.members)
        return JoinGroupAnswer(
            answer.member_id,
            answer.generation_id,
            answer.protocol_type,
            answer.protocol_name,
            answer.leader,
            tuple(members),
            answer.skip_assignment,
        )

    async def sync(self, request: SyncGroup) -> bytes:
        sent = message_of("SyncGroup")
        message = sent.SyncGroupRequest(
            request.group_id,
            request.generation,
            request.member_id,
            tuple(sent.SyncGroupRequestAssignment(each.member_id, each.assignment) for each in request.assignments),
            request.instance_id,
            request.protocol_type,
            request.protocol,
        )
        answer = await self._coordinator.ask("SyncGroup", message, JOIN_S)
        self._coordinator.raise_for(answer.error_code, f"SyncGroup of {request.member_id}")
        return bytes(answer.assignment)

    async def beat(self, request: ClassicHeartbeat) -> None:
        message = message_of("Heartbeat").HeartbeatRequest(
            request.group_id, request.generation, request.member_id, request.instance_id
        )
        answer = await self._coordinator.ask("Heartbeat", message, CALL_S)
        self._coordinator.raise_for(answer.error_code, f"Heartbeat of {request.member_id}")

    async def leave(self, request: LeaveGroup) -> None:
        sent = message_of("LeaveGroup")
        members = tuple(sent.MemberIdentity(each.member_id, each.instance_id, "it leaves") for each in request.members)
        answer = await self._coordinator.ask(
            "LeaveGroup", sent.LeaveGroupRequest(request.group_id, members=members), CALL_S
        )
        self._coordinator.raise_for(answer.error_code, f"LeaveGroup of {members}")
        if [each.member_id for each in answer.members] != [each.member_id for each in request.members]:
            raise Violation(f"{request} is answered for {answer.members}")
        for each in answer.members:
            self._coordinator.raise_for(each.error_code, f"LeaveGroup of {each.member_id}")

    async def committed(self, places: Collection[Place]) -> dict[Place, int]:
        # As clients do for classic groups: neither the member nor its generation is named.
        found = await self._offsets.fetched(places, "", -1)
        return {place: offset for place, (offset, _) in found.items()}

    async def commit(self, place: Place, offset: int, known: int, member: ClassicHeartbeat) -> None:
        del known  # the protocol has no place for it
        await self._offsets.commit({place: (offset, -1)}, member.member_id, member.generation, member.instance_id)
