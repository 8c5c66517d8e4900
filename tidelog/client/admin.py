"""Admin client: the cluster, its nodes, partitions and users, access, offsets.

Not here: retries and the choice of nodes (admin_calls.py), topics (topic_admin.py), groups (group_admin.py),
transactions (transaction_admin.py), snapshots of topics (snapshot_admin.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

from tidelog.client.acl_options import checked_acl, checked_acl_field
from tidelog.client.admin_arguments import id_bytes, mapping_of, paths_of, replicas_of
from tidelog.client.group_admin import GroupAdmin
from tidelog.client.machine import run_beside, secure_rng
from tidelog.client.offset_lookup import list_positions, raise_for_partition, timestamp_of
from tidelog.client.options import (
    text,
    topic_partition,
    topic_partitions,
    unchecked_partition,
    whole_number,
)
from tidelog.client.read_committed import IsolationLevel, isolation_of
from tidelog.client.record_deletion import delete_below, ends_of_deletion
from tidelog.client.remote_logs import AskedRange, RemoteSegments, describe_remote_logs
from tidelog.client.snapshot_admin import SnapshotAdmin
from tidelog.client.topic_admin import (
    NODE_DEFAULT,
    NewTopic,
    PartitionDescription,
    TopicAdmin,
    TopicDescription,
    TopicSettingWarning,
)
from tidelog.client.transaction_admin import TransactionAdmin
from tidelog.client.users import UserDescription, described, mechanisms_of, upsertions
from tidelog.cluster_descriptions import (
    ClusterDescription,
    ConfigResourceType,
    PartitionExplanation,
    PartitionResult,
    ReassignmentDescription,
    ReplicaLogDir,
    ResourceConfigs,
)
from tidelog.errors import InvalidRequest, NodeNotAvailable, ResourceNotFound, TidelogError, UnsupportedVersion
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message, write_message
from tidelog.protocol.rpc import Answer, Method, Request
from tidelog.protocol.v1 import acl_pb2, admin_pb2, common_pb2, sasl_pb2
from tidelog.security.acls import (
    AclBinding,
    AclDecision,
    AclFilter,
    AclOperation,
    ResourceType,
    checked_binding,
    checked_host,
    checked_principal,
)
from tidelog.security.scram import ITERATIONS
from tidelog.types import (
    EARLIEST_LOCAL,
    INT64_MAX,
    LATEST,
    LATEST_TIERED,
    ByPartition,
    DirectoryId,
    EpochEnd,
    NodeId,
    Offset,
    QuotaEntity,
    TopicPartition,
)

__all__ = [
    "NODE_DEFAULT",
    "Admin",
    "NewTopic",
    "PartitionDescription",
    "Place",
    "RestartExplanation",
    "TopicDescription",
    "TopicSettingWarning",
]

Known = TypeVar("Known", AclBinding, AclDecision)

_OF_TIERS: Final = {"earliest-local": EARLIEST_LOCAL, "latest-tiered": LATEST_TIERED}
"""Places in a log with a remote tier, by the names of Kafka's tools."""

DIRECTORY_CORDONS: Final = 10
"""The feature level from which every node knows cordons of log directories."""


@dataclass(frozen=True, slots=True)
class RestartExplanation:
    """Whether the node can be stopped for a while; if not, `reasons` lists what stops working."""

    node_id: NodeId
    safe: bool
    reasons: tuple[str, ...]


Place: TypeAlias = TopicPartition | tuple[str, int]
"""A partition: topic name and index."""


class Admin(TopicAdmin, GroupAdmin, TransactionAdmin, SnapshotAdmin):
    """Queries and changes the cluster. Use it inside `async with`.

    bootstrap: addresses of some nodes, "host:port,host:port".
    request_timeout_ms: timeout of one request.
    patience_ms: how long queries are retried while no node answers.
    tls: the files for TLS; None: plain text.
    sasl: the user that the client authenticates as; None: the client does not authenticate.
    client_id: the client's name in quotas and in the nodes' logs.
    """

    async def check_connection(self) -> None:
        """Return once a node has answered: it gets the next request. Raises ConnectionFailed, which names each address
        and what failed there, after `patience_ms`; the error of the node if it refuses this client."""
        await self._metadata()

    async def describe_node_settings(self, node_id: int) -> ResourceConfigs:
        """Return every setting of a node, or its error. Raises NodeNotAvailable if no node of this id is alive,
        ConnectionFailed."""
        name = str(whole_number("node_id", node_id))
        resource = admin_pb2.ConfigResource(type=ConfigResourceType.NODE, name=name)
        request = admin_pb2.DescribeConfigsRequest(resources=[resource])
        (found,) = (await self._of_node(NodeId(node_id), methods.ADMIN_DESCRIBE_CONFIGS, request)).resources
        return read_message(ResourceConfigs, found)

    async def describe_log_dirs(
        self, nodes: Iterable[int] | None = None, partitions: Iterable[Place] = ()
    ) -> dict[NodeId, list[ReplicaLogDir] | TidelogError]:
        """Return the log directories of nodes with the sizes of the logs in them; the error of each node that does not
        answer. nodes: None for all. partitions: only their logs; none: all."""
        wanted = list(await self._refreshed_nodes()) if nodes is None else nodes
        request = admin_pb2.DescribeReplicaLogsRequest(partitions=_places(partitions))
        found: dict[NodeId, list[ReplicaLogDir] | TidelogError] = {}
        for node in sorted(NodeId(whole_number("a node", each)) for each in wanted):
            try:
                answer = await self._of_node(node, methods.ADMIN_DESCRIBE_REPLICA_LOGS, request)
            except TidelogError as error:
                found[node] = error
            else:
                found[node] = [read_message(ReplicaLogDir, each) for each in answer.log_dirs]
        return found

    async def move_replicas(self, node_id: int, replicas: Mapping[Place, str]) -> list[PartitionResult]:
        """Move replicas of a node to other log directories of it, given by their paths (KIP-113). Returns once the
        moves have begun; `describe_log_dirs` shows their copies. The present directory of a replica cancels its move.

        The outcomes carry errors of single partitions: LogDirNotFound, ReplicaNotAvailable, UnknownTopicOrPartition,
        KafkaStorageError if a directory is offline, InvalidReplicaAssignment if it is cordoned. Raises
        NodeNotAvailable, UnsupportedVersion, ConnectionFailed."""
        node = NodeId(whole_number("node_id", node_id))
        moves = [
            admin_pb2.LogDirMove(partition=place, path=path)
            for place, path in zip(_places(replicas), paths_of("replicas", list(replicas.values())), strict=True)
        ]
        request = admin_pb2.AlterReplicaLogDirsRequest(moves=moves)
        answer = await self._of_node(node, methods.ADMIN_ALTER_REPLICA_LOG_DIRS, request)
        return [read_message(PartitionResult, result) for result in answer.partitions]

    async def _of_node(self, node: NodeId, method: Method[Request, Answer], request: Request) -> Answer:
        """Query one node."""
        nodes = await self._refreshed_nodes()
        if node not in nodes:
            known = ", ".join(map(str, sorted(nodes)))
            raise NodeNotAvailable(f"node {node} is not alive, as far as the cluster knows; alive are {known}")
        return await self._cluster.transport.call(nodes[node], method, request, timeout_ms=self._timeout_ms)

    async def elect_leaders(
        self, partitions: Iterable[Place] = (), *, unclean: bool = False, validate_only: bool = False
    ) -> list[PartitionResult]:
        """Elect leaders. By default the preferred leader of each partition becomes leader. `unclean`: if no replica is
        eligible, elect the available replica with the most records; records that only other replicas have are lost, and
        each outcome states the loss. No partitions: all partitions that need the election. validate_only: for an
        unclean election, report the new leader and the loss, and change nothing.

        The outcomes carry errors of single partitions: PreferredLeaderNotAvailable, EligibleLeadersNotAvailable,
        ElectionNotNeeded. Raises RequestTimedOut or ConnectionLost if the outcome is unknown.
        """
        request = admin_pb2.ElectLeadersRequest(
            type=admin_pb2.ELECTION_TYPE_UNCLEAN if unclean else admin_pb2.ELECTION_TYPE_PREFERRED,
            partitions=_places(partitions),
            validate_only=validate_only,
        )
        answer = await self._change(methods.ADMIN_ELECT_LEADERS, request)
        return [read_message(PartitionResult, result) for result in answer.partitions]

    async def reassign(
        self, replicas: Mapping[Place, Sequence[int] | None], *, queued: bool = False
    ) -> list[PartitionResult]:
        """Reassign partitions to these replicas, the preferred leader first; None cancels the reassignment in progress
        and the queued one. Returns once the reassignment has started; `list_reassignments` shows its progress. queued:
        returns once it is queued. The controller begins it while few enough others are in progress.

        The outcomes carry errors of single partitions: InvalidReplicaAssignment, NoReassignmentInProgress,
        PolicyViolation. Raises UnsupportedVersion for queued ones below feature level 10, RequestTimedOut or
        ConnectionLost if the outcome is unknown.
        """
        if not isinstance(replicas, Mapping):
            raise TypeError(
                f"replicas must be a mapping of partitions to node ids, not {type(replicas).__name__}: {replicas!r}"
            )
        request = admin_pb2.AlterPartitionReassignmentsRequest(
            partitions=[
                admin_pb2.PartitionReassignment(
                    partition=_place(place),
                    replicas=replicas_of(nodes),
                    cancel=nodes is None,
                    queued=queued and nodes is not None,
                )
                for place, nodes in replicas.items()
            ]
        )
        answer = await self._change(methods.ADMIN_ALTER_PARTITION_REASSIGNMENTS, request)
        return [read_message(PartitionResult, result) for result in answer.partitions]

    async def list_reassignments(self) -> list[ReassignmentDescription]:
        """Return the reassignments in progress, and the queued ones."""
        request = admin_pb2.ListPartitionReassignmentsRequest()
        answer = await self._query(methods.ADMIN_LIST_PARTITION_REASSIGNMENTS, request)
        return [read_message(ReassignmentDescription, each) for each in answer.partitions]

    async def update_features(self, level: int = 0, *, validate_only: bool = False) -> int:
        """Raise the feature level of the metadata (0: to the latest level of the active controller) and return the
        effective level. Raises FeatureUpdateFailed."""
        request = admin_pb2.UpdateFeaturesRequest(level=whole_number("level", level), validate_only=validate_only)
        return (await self._change(methods.ADMIN_UPDATE_FEATURES, request)).level

    async def explain_partitions(self, partitions: Iterable[Place] = ()) -> list[PartitionExplanation]:
        """Explain why partitions cannot be read or written. No partitions: all partitions with a problem."""
        request = admin_pb2.ExplainPartitionsRequest(partitions=_places(partitions))
        answer = await self._query(methods.ADMIN_EXPLAIN_PARTITIONS, request)
        return [read_message(PartitionExplanation, each) for each in answer.partitions]

    async def explain_restart(self, node_id: int) -> RestartExplanation:
        """Report whether the node can be stopped for a while."""
        request = admin_pb2.ExplainRestartRequest(node_id=whole_number("node_id", node_id))
        answer = await self._query(methods.ADMIN_EXPLAIN_RESTART, request)
        return read_message(RestartExplanation, answer, node_id=NodeId(node_id))

    async def remove_voter(self, node_id: int, *, directory_id: DirectoryId | None = None) -> None:
        """Remove a permanently lost node from the voters of the metadata quorum. Another node replaces it
        automatically.

        directory_id: remove only if the node votes with this directory. Raises VoterNotFound, VoterChangePending,
        InvalidRequest if the node is alive or is the only voter.
        """
        request = admin_pb2.RemoveVoterRequest(
            node_id=whole_number("node_id", node_id), directory_id=id_bytes("directory_id", directory_id)
        )
        await self._change(methods.ADMIN_REMOVE_VOTER, request)

    async def unregister_node(self, node_id: int) -> bool:
        """Remove a node that is gone for good from the cluster, with its vote in the metadata quorum: it is no longer
        listed as fenced. Returns True if it was a voter; another node takes its place automatically.

        Raises NodeIdNotRegistered, VoterChangePending, InvalidRequest if the node is alive, has replicas, or if too few
        of the other voters are alive.
        """
        request = admin_pb2.UnregisterNodeRequest(node_id=whole_number("node_id", node_id))
        return (await self._change(methods.ADMIN_UNREGISTER_NODE, request)).removed_voter

    async def cordon_node(self, node_id: int, *, log_dirs: Iterable[str] = ()) -> bool:
        """Place no new replicas on a node, until `uncordon_node` (KIP-1066): neither of new topics and partitions, nor
        by reassignments. The replicas that it has stay, and a restart does not change it. log_dirs: only these log
        directories of it, by their paths, while the node is alive; if that is all that it has, the node gets no
        replicas either. Returns False if that was so already. Raises NodeIdNotRegistered; UnsupportedVersion below
        feature level 9, with log_dirs 10; InvalidRequest if the node has no such log directory."""
        return await self._alter_cordon(node_id, log_dirs, cordoned=True)

    async def uncordon_node(self, node_id: int, *, log_dirs: Iterable[str] = ()) -> bool:
        """Let a node get new replicas again. log_dirs: these log directories of it; otherwise they stay as they are.
        Returns False if nothing was cordoned. Raises as `cordon_node`."""
        return await self._alter_cordon(node_id, log_dirs, cordoned=False)

    async def _alter_cordon(self, node_id: int, log_dirs: Iterable[str], *, cordoned: bool) -> bool:
        paths = paths_of("log_dirs", log_dirs)
        request = admin_pb2.AlterCordonRequest(
            node_id=whole_number("node_id", node_id),
            cordoned=cordoned,
            directories=await self._directory_ids(NodeId(node_id), paths) if paths else (),
        )
        changed: bool = (await self._change(methods.ADMIN_ALTER_CORDON, request)).changed
        return changed

    async def _directory_ids(self, node: NodeId, paths: Sequence[str]) -> list[bytes]:
        level = (await self.describe_cluster()).feature_level
        if level < DIRECTORY_CORDONS:  # a node of an older version would cordon the whole node
            raise UnsupportedVersion(
                f"the cordon of a log directory needs feature level {DIRECTORY_CORDONS}, the cluster has level "
                f"{level}: once every node runs this version, raise it (`tidelog cluster upgrade`)"
            )
        found = (await self.describe_log_dirs([node]))[node]
        if isinstance(found, TidelogError):
            raise found
        ids = {each.path: each.directory_id for each in found}
        known = {path: directory.bytes for path, directory in ids.items() if directory is not None}
        for path in paths:
            if path not in known:
                raise InvalidRequest(
                    f"node {node} has no log directory {path!r}: name one of {', '.join(sorted(known))}, as "
                    f"`tidelog log-dirs --node {node}` shows them"
                )
        return [known[path] for path in paths]

    async def create_acls(self, bindings: Iterable[AclBinding], *, validate_only: bool = False) -> int:
        """Add rules to the access control lists, all or none. Returns how many did not exist before.

        Raises InvalidRequest, UnsupportedVersion, ClusterAuthorizationFailed; RequestTimedOut or ConnectionLost if the
        outcome is unknown (`describe_acls` shows it).
        """
        request = admin_pb2.CreateAclsRequest(
            bindings=[_binding(each) for each in bindings], validate_only=validate_only
        )
        return (await self._change(methods.ADMIN_CREATE_ACLS, request)).created

    async def delete_acls(self, filters: Iterable[AclFilter], *, validate_only: bool = False) -> list[AclBinding]:
        """Remove the rules that any of the filters selects, and return them. validate_only: remove none.

        Raises InvalidRequest, UnsupportedVersion, ClusterAuthorizationFailed; RequestTimedOut or ConnectionLost if the
        outcome is unknown.
        """
        request = admin_pb2.DeleteAclsRequest(filters=[_filter(each) for each in filters], validate_only=validate_only)
        answer = await self._change(methods.ADMIN_DELETE_ACLS, request)
        return [_known_acls(AclBinding, each) for each in answer.bindings]

    async def describe_acls(self, selecting: AclFilter = AclFilter()) -> list[AclBinding]:  # noqa: B008 (immutable)
        """Return the rules that the filter selects, by default all, sorted. Raises ClusterAuthorizationFailed."""
        answer = await self._query(
            methods.ADMIN_DESCRIBE_ACLS, admin_pb2.DescribeAclsRequest(filter=_filter(selecting))
        )
        return [_known_acls(AclBinding, each) for each in answer.bindings]

    async def test_acl(
        self,
        principal: str,
        operation: AclOperation,
        resource_type: ResourceType,
        resource_name: str,
        *,
        host: str = "127.0.0.1",
    ) -> AclDecision:
        """Return whether the principal, connected from that IP address, may do the operation with the resource, and
        which rule decides. Nothing is done. Raises InvalidRequest, ClusterAuthorizationFailed."""
        request = admin_pb2.ExplainAclRequest(
            principal=checked_principal(checked_acl_field("principal", principal)),
            operation=checked_acl_field("operation", operation),
            resource_type=checked_acl_field("resource_type", resource_type),
            resource_name=checked_acl_field("resource_name", resource_name),
            host=checked_host(checked_acl_field("host", host)),
        )
        return _known_acls(AclDecision, await self._query(methods.ADMIN_EXPLAIN_ACL, request))

    async def alter_client_quotas(
        self, changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
    ) -> None:
        """Set the limits of some types of quota for users and client ids, by the names of QuotaType; None removes a
        limit. All changes are made or none. Every node applies them at once, also to clients that are connected.

        Raises InvalidRequest, UnsupportedVersion; RequestTimedOut or ConnectionLost if the outcome is unknown.
        """
        request = admin_pb2.AlterClientQuotasRequest(
            entries=[
                admin_pb2.QuotaAlteration(entity=_entity(entity), changes=_quota_changes(limits))
                for entity, limits in mapping_of("changes", changes).items()
            ],
            validate_only=validate_only,
        )
        await self._change(methods.ADMIN_ALTER_CLIENT_QUOTAS, request)

    async def describe_client_quotas(
        self, *, user: str | None = None, client_id: str | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of each entity with this user and this client id. Empty: the default; None: all."""
        request = admin_pb2.DescribeClientQuotasRequest(
            user=None if user is None else text("user", user),
            client_id=None if client_id is None else text("client_id", client_id),
        )
        answer = await self._query(methods.ADMIN_DESCRIBE_CLIENT_QUOTAS, request)
        return {
            read_message(QuotaEntity, each.entity): {value.key: value.value for value in each.values}
            for each in answer.entries
        }

    async def describe_cluster(self) -> ClusterDescription:
        """Return nodes, controller, voters and the number of partitions that need attention."""
        answer = await self._query(methods.ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest())
        return read_message(ClusterDescription, answer)

    async def list_offsets(
        self,
        partitions: Iterable[Place],
        place: Literal["earliest", "latest", "earliest-local", "latest-tiered"] | datetime = "latest",
        *,
        isolation: IsolationLevel = "read_uncommitted",
        on_missing: Callable[[TopicPartition, TidelogError], None] | None = None,
    ) -> ByPartition[Offset]:
        """Return an offset for each partition: "earliest" is the log start, "latest" is one past the last committed
        record, an aware datetime is the first record at or after that time (the end if there is none). With a remote
        tier, "earliest-local" is where the log on the leader's disk starts, and "latest-tiered" the last offset that is
        copied to the object store (-1 if none is). isolation: with
        "read_committed" the log ends at the first transaction that is open. on_missing: called with each partition
        whose leader does not answer within `patience_ms`, and its error; the others are returned. None: the call
        fails."""
        in_tiers = _OF_TIERS.get(place) if isinstance(place, str) else None
        timestamp = timestamp_of(place) if in_tiers is None else in_tiers
        wanted = dict.fromkeys(topic_partitions(partitions), timestamp)
        level = isolation_of(isolation)
        positions = await list_positions(
            self._cluster,
            wanted,
            timeout_ms=self._patience_ms,
            isolation=level,
            on_error=on_missing or raise_for_partition,
        )
        return ByPartition({key: position.end_offset for key, position in positions.items()})

    async def describe_remote_segments(self, topic: str) -> ByPartition[RemoteSegments]:
        """Return what of each partition of a topic is in the object store, as its leader believes, what an unclean
        election has lost of it, and whether copies wait or fail. Raises UnknownTopicOrPartition, UnknownTopicId if the
        topic is created again meanwhile, TopicAuthorizationFailed, UnsupportedVersion; OffsetNotAvailable if a leader
        does not know its remote segments within `patience_ms`."""
        description = await self.describe_topic(topic)
        partitions = [(topic, each.partition) for each in description.partitions]
        starts, ends = await self.list_offsets(partitions, "earliest"), await self.end_positions(partitions)
        ranges = {
            key: AskedRange(description.topic_id, starts[key], position.end_offset, position.epoch)
            for key, position in ends.items()
        }
        everything = {
            key: each._replace(start=Offset(0), end=Offset(INT64_MAX), lost=True) for key, each in ranges.items()
        }
        found = await describe_remote_logs(self._cluster, ranges, timeout_ms=self._patience_ms)
        lost = await describe_remote_logs(self._cluster, everything, timeout_ms=self._patience_ms)
        # The leader of an emptied log has no range to be asked about: only the second answer has the URL.
        return ByPartition({key: replace(lost[key], segments=found[key].segments) for key in lost})

    async def delete_records(
        self, before: Mapping[Place, int | datetime | Literal["latest"]]
    ) -> ByPartition[Offset | TidelogError]:
        """Delete the first records of partitions, on all replicas: those below an offset, those before the first one at
        or after an aware datetime, or with "latest" (or -1, as in Kafka) all. Returns where the log of each partition
        starts now, or why its records were not deleted. Readers that are below continue or raise `OffsetOutOfRange`, by
        their `on_out_of_range`.

        The errors are OffsetOutOfRange for an offset above the last committed record, InvalidRequest for a negative one
        and a datetime without a zone, PolicyViolation for a compacted topic, InvalidTopic for an internal one and for a
        name that no topic can have, TopicAuthorizationFailed, UnknownTopicOrPartition; RequestTimedOut
        after `request_timeout_ms`: not all replicas in service have deleted the records yet, or no leader was found. A
        repeated deletion does no harm.
        """
        outcomes: dict[TopicPartition, Offset | TidelogError] = {}
        asked, note, timeout_ms = mapping_of("before", before), outcomes.__setitem__, self._timeout_ms
        offsets = await ends_of_deletion(self._cluster, asked, timeout_ms=timeout_ms, on_error=note)
        outcomes |= await delete_below(self._cluster, offsets, timeout_ms=timeout_ms, on_error=note)
        return ByPartition({key: outcomes[key] for key in map(unchecked_partition, asked)})

    async def end_positions(
        self, partitions: Iterable[Place], *, isolation: IsolationLevel = "read_uncommitted"
    ) -> ByPartition[EpochEnd]:
        """Return one past the last committed record of each partition and that record's leader epoch (NO_LEADER_EPOCH
        if there is none). A log that ends this epoch below this offset, or lacks the epoch, was truncated since.
        isolation: as in `list_offsets`."""
        wanted = dict.fromkeys(topic_partitions(partitions), LATEST)
        level = isolation_of(isolation)
        positions = await list_positions(self._cluster, wanted, timeout_ms=self._patience_ms, isolation=level)
        return ByPartition(positions)

    async def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        iterations: int = ITERATIONS,
    ) -> None:
        """Create a user, or change its password: sessions with the former one end. The password itself is not sent,
        only keys from which nobody can log in (KIP-554). mechanisms: those that get the password; further mechanisms of
        the user keep theirs. iterations: 4,096 to 600,000; each handshake of a client computes them once.

        Raises UnacceptableCredential, UnsupportedSaslMechanism, UnsupportedVersion; RequestTimedOut or ConnectionLost
        if the outcome is unknown.
        """
        chosen = mechanisms_of(mechanisms)
        request = await run_beside(lambda: upsertions(name, password, chosen, iterations, secure_rng()))
        await self._change(methods.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, request)

    async def remove_user(self, name: str) -> None:
        """Remove all credentials of a user: its sessions end. Raises ResourceNotFound if it has none; RequestTimedOut
        or ConnectionLost if the outcome is unknown."""
        found = await self._query(
            methods.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS,
            sasl_pb2.DescribeUserScramCredentialsRequest(users=[text("name", name)]),
        )
        if not found.credentials:
            raise ResourceNotFound(f"there is no user {name!r}; `tidelog user list` shows all")
        deletions = [
            sasl_pb2.ScramCredentialDeletion(name=each.name, mechanism=each.mechanism) for each in found.credentials
        ]
        request = sasl_pb2.AlterUserScramCredentialsRequest(deletions=deletions)
        await self._change(methods.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, request)

    async def list_users(self) -> list[UserDescription]:
        """Return the users and their mechanisms, sorted by name."""
        request = sasl_pb2.DescribeUserScramCredentialsRequest()
        answer = await self._query(methods.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS, request)
        return [described(each) for each in answer.credentials]


def _binding(binding: object) -> acl_pb2.AclBinding:
    checked = checked_binding(checked_acl(AclBinding, "an ACL", binding))
    return write_message(acl_pb2.AclBinding, checked)


def _filter(selecting: object) -> acl_pb2.AclFilter:
    return write_message(acl_pb2.AclFilter, checked_acl(AclFilter, "a filter", selecting))


def _known_acls(kind: type[Known], message: Any) -> Known:
    try:
        return read_message(kind, message)
    except ValueError as error:  # an enumeration has a number that this version does not know
        raise InvalidRequest(f"an ACL of the cluster is of a newer version ({error}): update this client") from None


def _entity(entity: object) -> common_pb2.QuotaEntity:
    """Return an entity of quotas. Raises TypeError."""
    if not isinstance(entity, QuotaEntity):
        raise TypeError(f"the entity of a quota must be a QuotaEntity, not {type(entity).__name__}: {entity!r}")
    return common_pb2.QuotaEntity(
        user=None if entity.user is None else text("user", entity.user),
        client_id=None if entity.client_id is None else text("client_id", entity.client_id),
    )


def _quota_changes(limits: object) -> list[admin_pb2.QuotaChange]:
    """Return changes of quotas. Raises TypeError."""
    changes = []
    for key, value in sorted(mapping_of("the quotas of an entity", limits).items()):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise TypeError(f"the quota {key!r} must be a number or None, not {type(value).__name__}: {value!r}")
        changes.append(admin_pb2.QuotaChange(key=text("the name of a quota", key), value=value))
    return changes


def _places(places: object) -> list[admin_pb2.TopicPartitionId]:
    return [_place(place) for place in topic_partitions(places)]


def _place(place: Place) -> admin_pb2.TopicPartitionId:
    named = topic_partition(place)
    return admin_pb2.TopicPartitionId(topic=named.topic, partition=named.partition)
