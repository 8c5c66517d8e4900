"""Administration: topics, the cluster's state, offsets.

Questions go to any node that answers. What changes the cluster is sent once: where the connection breaks before the
answer, nobody can tell whether it was done, and the error says so instead of asking twice.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Final, Literal, TypeAlias
from uuid import UUID

from tidelog.client.cluster import BACKOFF_MS
from tidelog.client.connection import Service
from tidelog.client.offsets import EARLIEST, LATEST, list_offsets, list_positions
from tidelog.client.options import at_least, text, topic_name, topic_partition, topic_partitions, whole_number
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    InvalidRequest,
    NodeShuttingDown,
    RequestTimedOut,
    TidelogError,
    UnknownTopicOrPartition,
)
from tidelog.protocol import methods
from tidelog.protocol.methods import Answer, Method, Request
from tidelog.protocol.network import Clock, Transport
from tidelog.protocol.status import address_from_proto, from_proto
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import (
    DirectoryId,
    Endpoint,
    EpochEnd,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    TopicPartition,
)

VISIBLE_MS: Final = 5_000
"""How long `create_topic` waits until every partition has a leader; the topic exists, whatever comes of it."""


class TopicSettingWarning(UserWarning):
    """A setting of a topic does not have the effect that it names."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition: who holds it, who leads it (-1: nobody), who is in sync, who else has all that is committed
    (`elr`), who led last where nobody is either (`last_known_elr`), and what a reassignment under way brings and
    takes."""

    partition: PartitionIndex
    leader: NodeId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    offline: tuple[NodeId, ...]
    last_known_elr: tuple[NodeId, ...] = ()
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id, its partitions by index, every setting in force."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A registered node. `fenced`: not heard of, or not caught up; it leads nothing."""

    node_id: NodeId
    endpoint: Endpoint
    rack: str
    node_epoch: NodeEpoch
    incarnation: Incarnation
    fenced: bool
    draining: bool
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class VoterDescription:
    """A member of the metadata quorum: a node and the log directory that votes."""

    node_id: NodeId
    directory_id: DirectoryId


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as the answering node knows it. `controller_id` is -1 where no active controller is known, or none
    has been heard for longer than an election takes (`controller_silence_ms`): then all else is as old as that."""

    cluster_id: str
    controller_id: NodeId
    controller_epoch: int
    metadata_offset: int
    nodes: tuple[NodeDescription, ...]
    voters: tuple[VoterDescription, ...]
    topics: int
    partitions: int
    leaderless_partitions: int
    under_replicated_partitions: int
    under_min_isr_partitions: int
    feature_level: int = 1
    controller_silence_ms: int = 0
    full_partitions: int = 0
    """Their leader refuses every write: its disk is full."""
    damaged_partitions: int = 0
    """A replica of theirs has lost records."""
    unanswered_nodes: tuple[NodeId, ...] = ()
    """Unfenced nodes that did not say how their disks are: these may be full or damaged."""

    @property
    def trouble(self) -> str:
        """Why nothing can be changed or elected now, and what to do; empty where there is an active controller."""
        if self.controller_id >= 0:
            return ""
        silence = self.controller_silence_ms // 1_000
        heard = f"no active controller has been heard for {silence} s" if silence else "no active controller is known"
        if not self.voters:
            return f"{heard}: the node that answered belongs to no cluster yet; ask another one"
        voters = ", ".join(str(voter.node_id) for voter in self.voters)
        return (
            f"{heard}: a majority of the voters, nodes {voters}, has to run and reach each other; start what is down. "
            "All else that is told is as old as that"
        )


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What came of one partition's part in a request. error: why it was refused; leader: who leads after it (-1:
    nobody); loss: what may be lost by it, in words, empty where nothing is."""

    partition: TopicPartition
    error: TidelogError | None
    leader: NodeId
    leader_epoch: LeaderEpoch
    loss: str


@dataclass(frozen=True, slots=True)
class ReassignmentDescription:
    """A reassignment under way: `adding` come, `removing` go once they have come."""

    partition: TopicPartition
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class PartitionExplanation:
    """What of a partition works (`writable`: with acks=all), what is wrong, and what a person can do about it."""

    partition: TopicPartition
    error: TidelogError | None
    readable: bool
    writable: bool
    causes: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RestartExplanation:
    """May the node be stopped for a while: nothing stops working, or the reasons tell what does."""

    node_id: NodeId
    safe: bool
    reasons: tuple[str, ...]


Place: TypeAlias = TopicPartition | tuple[str, int]
"""A partition: its topic's name and its index."""


class Admin(Service):
    """Asks and changes the cluster. Use it inside `async with`.

    bootstrap: addresses of some nodes, "host:port,host:port". request_timeout_ms: how long one answer may take.
    patience_ms: how long questions are asked again while no node answers.
    """

    def __init__(
        self,
        bootstrap: str | list[str] | tuple[str, ...],
        *,
        request_timeout_ms: int = 30_000,
        patience_ms: int = 30_000,
        transport: Transport | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
    ) -> None:
        super().__init__(bootstrap, transport=transport, clock=clock, rng=rng)
        at_least(1, request_timeout_ms=request_timeout_ms)
        at_least(0, patience_ms=patience_ms)
        self._timeout_ms, self._patience_ms = request_timeout_ms, patience_ms

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> TopicId:
        """Create a topic; return its id once its partitions have leaders (or after 5 s: it exists all the same).

        configs: topic settings by Kafka's names, and `durability` ("fsync" or "page-cache"). validate_only: check,
        change nothing. Warns (TopicSettingWarning) where a setting cannot have its effect.

        Raises TopicExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig;
        RequestTimedOut or ConnectionLost where nobody can tell (`describe_topic` tells).
        """
        request = admin_pb2.CreateTopicRequest(
            name=topic_name(name),
            partitions=whole_number("partitions", partitions),
            replication_factor=whole_number("replication_factor", replication_factor),
            configs={key: value for key, value in _settings("configs", configs or {}).items() if value is not None},
            validate_only=validate_only,
        )
        answer = await self._change(methods.ADMIN_CREATE_TOPIC, request)
        _warn(answer.warnings)
        if validate_only:
            return TopicId(UUID(int=0))
        topic_id = TopicId(UUID(bytes=answer.topic_id))
        await self._wait_visible(name, topic_id)
        return topic_id

    async def delete_topic(self, name: str, *, topic_id: TopicId | None = None) -> None:
        """Delete a topic and all its records. topic_id: only if it is still this life of it.

        Raises UnknownTopicOrPartition, InconsistentTopicId; RequestTimedOut or ConnectionLost where nobody can tell.
        """
        request = admin_pb2.DeleteTopicRequest(name=topic_name(name), topic_id=_id("topic_id", topic_id))
        await self._change(methods.ADMIN_DELETE_TOPIC, request)

    async def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Let a topic have `count` partitions in all. Raises InvalidPartitions, InvalidReplicationFactor,
        UnknownTopicOrPartition; RequestTimedOut or ConnectionLost where nobody can tell."""
        request = admin_pb2.CreatePartitionsRequest(
            topic=topic_name(name), count=whole_number("count", count), validate_only=validate_only
        )
        _warn((await self._change(methods.ADMIN_CREATE_PARTITIONS, request)).warnings)

    async def alter_topic(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Change settings of a topic; None: the default again. Nodes act by them at once; `durability` is fixed. Warns
        as `create_topic`.

        Raises InvalidConfig, UnknownTopicOrPartition, UnsupportedVersion; RequestTimedOut or ConnectionLost where
        nobody can tell.
        """
        request = admin_pb2.IncrementalAlterConfigsRequest(
            topic=topic_name(name),
            changes=[
                admin_pb2.ConfigChange(key=key, value=value)
                for key, value in sorted(_settings("changes", changes).items())
            ],
            validate_only=validate_only,
        )
        _warn((await self._change(methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, request)).warnings)

    async def elect_leaders(
        self, partitions: Iterable[Place] = (), *, unclean: bool = False, validate_only: bool = False
    ) -> list[PartitionOutcome]:
        """Let preferred leaders lead; `unclean`: where nobody may lead, let the one of those that answer lead that has
        most: what only others had is lost then, and each outcome says so. No partitions: every one that wants it.
        validate_only: of an unclean election, tell who would lead and what would be lost, and change nothing.

        Errors of single partitions are in their outcomes: PreferredLeaderNotAvailable, EligibleLeadersNotAvailable,
        ElectionNotNeeded. Raises RequestTimedOut or ConnectionLost where nobody can tell.
        """
        request = admin_pb2.ElectLeadersRequest(
            type=admin_pb2.ELECTION_TYPE_UNCLEAN if unclean else admin_pb2.ELECTION_TYPE_PREFERRED,
            partitions=_places(partitions),
            validate_only=validate_only,
        )
        answer = await self._change(methods.ADMIN_ELECT_LEADERS, request)
        return [_outcome(told) for told in answer.partitions]

    async def reassign(self, replicas: Mapping[Place, Sequence[int] | None]) -> list[PartitionOutcome]:
        """Give partitions these replicas, the preferred leader first; None: end the reassignment under way. Returns
        once it has begun: `list_reassignments` tells what is still being moved.

        Errors of single partitions are in their outcomes: InvalidReplicaAssignment, NoReassignmentInProgress. Raises
        RequestTimedOut or ConnectionLost where nobody can tell.
        """
        if not isinstance(replicas, Mapping):
            raise TypeError(
                f"replicas is a mapping of partitions to node ids, not {type(replicas).__name__}: {replicas!r}"
            )
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.PartitionReassignment(
                    partition=_place(place),
                    replicas=_replicas(nodes),
                    cancel=nodes is None,
                )
                for place, nodes in replicas.items()
            ]
        )
        answer = await self._change(methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)
        return [_outcome(told) for told in answer.partitions]

    async def list_reassignments(self) -> list[ReassignmentDescription]:
        """What is being moved."""
        request = admin_pb2.ListPartitionReassignmentsRequest()
        answer = await self._ask(methods.ADMIN_LIST_PARTITION_REASSIGNMENTS, request)
        return [
            ReassignmentDescription(
                _named(told.partition), _ids(told.replicas), _ids(told.adding), _ids(told.removing), _ids(told.isr)
            )
            for told in answer.partitions
        ]

    async def update_features(self, level: int = 0, *, validate_only: bool = False) -> int:
        """Raise the feature level of the metadata (0: to the latest that the active controller knows); return the one
        in force. Raises FeatureUpdateFailed."""
        request = admin_pb2.UpdateFeaturesRequest(level=whole_number("level", level), validate_only=validate_only)
        return (await self._change(methods.ADMIN_UPDATE_FEATURES, request)).level

    async def explain_partitions(self, partitions: Iterable[Place] = ()) -> list[PartitionExplanation]:
        """Why partitions cannot be read or written, in words; none named: all with which something is wrong."""
        request = admin_pb2.ExplainPartitionsRequest(partitions=_places(partitions))
        answer = await self._ask(methods.ADMIN_EXPLAIN_PARTITIONS, request)
        return [
            PartitionExplanation(
                _named(told.partition),
                from_proto(told.error) if told.HasField("error") else None,
                told.readable,
                told.writable,
                tuple(told.causes),
                tuple(told.steps),
            )
            for told in answer.partitions
        ]

    async def explain_restart(self, node_id: int) -> RestartExplanation:
        """May the node be stopped for a while?"""
        request = admin_pb2.ExplainRestartRequest(node_id=whole_number("node_id", node_id))
        answer = await self._ask(methods.ADMIN_EXPLAIN_RESTART, request)
        return RestartExplanation(NodeId(node_id), answer.safe, tuple(answer.reasons))

    async def remove_voter(self, node_id: int, *, directory_id: DirectoryId | None = None) -> None:
        """Let a node that is gone for good vote no more in the metadata quorum; another node takes its place by itself.

        directory_id: only if it votes by that directory. Raises VoterNotFound, InvalidRequest where the node is alive
        or the only voter, VoterChangePending.
        """
        request = admin_pb2.RemoveVoterRequest(
            node_id=whole_number("node_id", node_id), directory_id=_id("directory_id", directory_id)
        )
        await self._change(methods.ADMIN_REMOVE_VOTER, request)

    async def list_topics(self) -> list[TopicDescription]:
        """Every topic, by name."""
        answer = await self._ask(methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(all_topics=True))
        topics = [_topic(told) for told in answer.topics if not told.HasField("error")]
        return sorted(topics, key=lambda topic: topic.name)

    async def describe_topic(self, name: str) -> TopicDescription:
        """One topic. Raises UnknownTopicOrPartition."""
        answer = await self._ask(methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(topics=[topic_name(name)]))
        told = answer.topics[0] if answer.topics else admin_pb2.TopicMetadata()
        if told.HasField("error"):
            raise from_proto(told.error)
        if not told.topic_id:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}: create it first")
        return _topic(told)

    async def describe_cluster(self) -> ClusterDescription:
        """Nodes, controller, voters, and how many partitions want something."""
        answer = await self._ask(methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest())
        voters = tuple(
            VoterDescription(NodeId(told.node_id), DirectoryId(UUID(bytes=told.directory_id or bytes(16))))
            for told in answer.voters
        )
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=NodeId(answer.controller_id),
            controller_epoch=answer.controller_epoch,
            metadata_offset=answer.metadata_offset,
            nodes=tuple(sorted((_node(told) for told in answer.nodes), key=lambda node: node.node_id)),
            voters=voters,
            topics=answer.topics,
            partitions=answer.partitions,
            leaderless_partitions=answer.leaderless_partitions,
            under_replicated_partitions=answer.under_replicated_partitions,
            under_min_isr_partitions=answer.under_min_isr_partitions,
            full_partitions=answer.full_partitions,
            damaged_partitions=answer.damaged_partitions,
            unanswered_nodes=tuple(map(NodeId, answer.unanswered_nodes)),
            feature_level=answer.feature_level,
            controller_silence_ms=answer.controller_silence_ms,
        )

    async def list_offsets(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        place: Literal["earliest", "latest"] | datetime = "latest",
    ) -> dict[TopicPartition, Offset]:
        """For each partition where it begins ("earliest"), ends ("latest": one past the last committed record), or
        its first record at or after a moment (an aware datetime; the end where there is none)."""
        if isinstance(place, datetime):
            if place.tzinfo is None:
                raise InvalidRequest(f"{place!r} names no moment without a time zone: give tzinfo, for example UTC")
            timestamp = max(0, int(place.timestamp() * 1000))
        elif place in ("earliest", "latest"):
            timestamp = EARLIEST if place == "earliest" else LATEST
        else:
            raise InvalidRequest(f"{place!r} is no place in a log: use 'earliest', 'latest' or a datetime")
        wanted = dict.fromkeys(topic_partitions(partitions), timestamp)
        return await list_offsets(self._cluster, wanted, timeout_ms=self._timeout_ms)

    async def end_positions(self, partitions: Iterable[Place]) -> dict[TopicPartition, EpochEnd]:
        """One past the last committed record of each partition, and the leader epoch of that record (NO_LEADER_EPOCH
        where there is none): a log that ends that epoch below that offset, or does not know it, was truncated since."""
        wanted = dict.fromkeys(topic_partitions(partitions), LATEST)
        return await list_positions(self._cluster, wanted, timeout_ms=self._timeout_ms)

    async def _ask(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Ask node after node, round after round, until one answers; ConnectionFailed after `patience_ms`."""
        start = self._clock.monotonic_ms()
        while True:
            try:
                return await self._cluster.call_any(method, request)
            except ConnectionFailed:
                if self._clock.monotonic_ms() + BACKOFF_MS - start >= self._patience_ms:
                    raise
            await self._clock.sleep_ms(BACKOFF_MS)

    async def _change(self, method: Method[Request, Answer], request: Request) -> Answer:
        """Send a change to the first node that can be reached."""
        failures: list[TidelogError] = []
        for endpoint in self._cluster.candidates():
            try:
                return await self._cluster.transport.call(endpoint, method, request, timeout_ms=self._timeout_ms)
            except ConnectionLost as error:
                raise ConnectionLost(
                    f"{error.message} Nobody can tell whether it was done: look before asking again."
                ) from error
            except RequestTimedOut as error:
                raise RequestTimedOut(
                    f"{error.message} Nobody can tell whether it was done: look before asking again."
                ) from error
            except (ConnectionFailed, NodeShuttingDown) as error:
                failures.append(error)
        raise self._cluster.nobody(failures)

    async def _wait_visible(self, name: str, topic_id: TopicId) -> None:
        start = self._clock.monotonic_ms()
        while self._clock.monotonic_ms() - start < VISIBLE_MS:
            try:
                topic = await self.describe_topic(name)
            except TidelogError:
                pass  # the node asked may be behind
            else:
                if topic.topic_id != topic_id or all(partition.leader >= 0 for partition in topic.partitions):
                    return
            await self._clock.sleep_ms(BACKOFF_MS // 4)


def _warn(texts: Iterable[str]) -> None:
    for warning in texts:
        warnings.warn(warning, TopicSettingWarning, stacklevel=3)  # where the change is asked for


def _topic(told: admin_pb2.TopicMetadata) -> TopicDescription:
    partitions = tuple(
        PartitionDescription(
            partition=PartitionIndex(one.partition),
            leader=NodeId(one.leader),
            leader_epoch=LeaderEpoch(one.leader_epoch),
            partition_epoch=PartitionEpoch(one.partition_epoch),
            replicas=_ids(one.replicas),
            isr=_ids(one.isr),
            elr=_ids(one.elr),
            offline=_ids(one.offline),
            last_known_elr=_ids(one.last_known_elr),
            adding=_ids(one.adding),
            removing=_ids(one.removing),
        )
        for one in sorted(told.partitions, key=lambda one: one.partition)
    )
    return TopicDescription(
        told.name, TopicId(UUID(bytes=told.topic_id)), partitions, dict(sorted(told.configs.items()))
    )


def _settings(name: str, settings: object) -> dict[str, str | None]:
    """Settings of a topic. Raises TypeError, InvalidRequest."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"{name} is a mapping of settings to values, not {type(settings).__name__}: {settings!r}")
    return {
        text("the name of a setting", key): None if value is None else text(f"the value of setting {key!r}", value)
        for key, value in settings.items()
    }


def _id(name: str, value: object) -> bytes:
    """The bytes of an id, none of None. Raises TypeError."""
    if value is not None and not isinstance(value, UUID):
        raise TypeError(f"{name} is a UUID, not {type(value).__name__}: {value!r}")
    return b"" if value is None else value.bytes


def _replicas(nodes: object) -> list[int]:
    """Ids of nodes, none of None. Raises TypeError."""
    if nodes is None:
        return []
    if isinstance(nodes, str | bytes | bytearray | memoryview) or not isinstance(nodes, Iterable):
        raise TypeError(
            f"the replicas of a partition are a list of node ids or None, not {type(nodes).__name__}: {nodes!r}"
        )
    return [whole_number("a replica", node) for node in nodes]


def _places(places: object) -> list[admin_pb2.TopicPartitionId]:
    return [_place(place) for place in topic_partitions(places)]


def _place(place: Place) -> admin_pb2.TopicPartitionId:
    named = topic_partition(place)
    return admin_pb2.TopicPartitionId(topic=named.topic, partition=named.partition)


def _named(told: admin_pb2.TopicPartitionId) -> TopicPartition:
    return TopicPartition(told.topic, PartitionIndex(told.partition))


def _outcome(told: admin_pb2.PartitionOutcome) -> PartitionOutcome:
    return PartitionOutcome(
        _named(told.partition),
        from_proto(told.error) if told.HasField("error") else None,
        NodeId(told.leader),
        LeaderEpoch(told.leader_epoch),
        told.loss,
    )


def _node(told: admin_pb2.NodeStatus) -> NodeDescription:
    address = address_from_proto(told.address)
    return NodeDescription(
        node_id=address.node_id,
        endpoint=address.endpoint,
        rack=address.rack,
        node_epoch=NodeEpoch(told.node_epoch),
        incarnation=Incarnation(UUID(bytes=told.incarnation or bytes(16))),
        fenced=told.fenced,
        draining=told.draining,
        leaders=told.leaders,
        replicas=told.replicas,
    )


def _ids(numbers: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)
