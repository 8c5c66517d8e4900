"""The cluster that the metadata log describes: an immutable image, and how one batch of records makes the next.

Invariants:
  1. An image never changes: a reader may keep it, and `is` shows whether a topic has changed between two images.
  2. `apply` is a pure function of the image and the batch: replaying the log gives the same image on every node.
  3. A batch is applied whole or, where a record contradicts the image, not at all (`CorruptLog`).

Not here: which records are committed (node/), which to write (replication/controller/controller.py).
Cost of a batch: a shallow copy of each mapping that changes, once, and a new tuple for each topic that changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from operator import attrgetter
from typing import Final, assert_never

from replication.controller.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ClusterRecord,
    DirectoryState,
    GroupConfigsRecord,
    LocatedRecord,
    MetadataRecord,
    NodeChangeRecord,
    NodeCordonRecord,
    NodeRegistrationRecord,
    NodeRemovalRecord,
    NodeStateSnapshot,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    SaslSecretRecord,
    ScramCredentialRecord,
    ScramCredentialRemovalRecord,
    TopicConfigsRecord,
    TopicRecord,
    TopicRemovalRecord,
    TopicSnapshotRecord,
    TopicSnapshotRemovalRecord,
    VotersRecord,
)
from replication.raft.voters import Voter
from tidelog.errors import CorruptLog
from tidelog.security.acls import AclBinding
from tidelog.types import (
    DirectoryId,
    Durability,
    Endpoint,
    Incarnation,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    Offset,
    PartitionEpoch,
    PartitionKey,
    ProducerId,
    QuotaEntity,
    QuotaValue,
    ScramMechanism,
    TopicId,
)
from tidelog.values import dataclass

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
DURABILITY: Final = "durability"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """A node as it last registered."""

    node_id: NodeId
    node_epoch: NodeEpoch
    incarnation: Incarnation
    listeners: Mapping[str, Endpoint]
    rack: str
    boot_id: bytes
    directories: tuple[DirectoryState, ...]
    """The log directories that are not known to have failed. `last_registration` is the smallest registration number by
    which a directory is known to be the same one: a copy with a smaller number is older. It becomes this
    registration's number when the node is unfenced, because the node has fsynced that number in each directory by
    then."""
    fenced: bool
    draining: bool
    former_directories: tuple[DirectoryState, ...] = ()
    """Directories of earlier registrations that this one did not name."""
    offline_directories: tuple[DirectoryState, ...] = ()
    """Directories that this registration named, and that have failed since."""
    cordoned: bool = False
    """It gets no new replicas; those that it has stay."""
    cordoned_directories: tuple[DirectoryId, ...] = ()
    """Log directories that get no new replicas, whether or not this registration named them; sorted."""

    @property
    def active(self) -> bool:
        """Whether replicas of this node may join in-sync sets: it is unfenced, and not being stopped."""
        return not (self.fenced or self.draining)

    @property
    def gets_no_replicas(self) -> bool:
        """Whether the node is cordoned, by itself or because each of its log directories is."""
        return self.cordoned or (bool(self.cordoned_directories) and not self.open_directories)

    @property
    def open_directories(self) -> tuple[DirectoryState, ...]:
        """The log directories that may get new replicas."""
        if not self.cordoned_directories:
            return self.directories
        return tuple(each for each in self.directories if each.directory_id not in self.cordoned_directories)

    def known_directories(self) -> dict[DirectoryId, NodeEpoch]:
        """Every directory the node ever registered, and the least number by which it is still the same."""
        states = (*self.former_directories, *self.offline_directories, *self.directories)
        return {state.directory_id: state.last_registration for state in states}


class PartitionState(PartitionRecord):
    """The replicas, the in-sync set and the leader of a partition: the fields of the record that creates it."""

    __slots__ = ()

    @property
    def counted_on(self) -> frozenset[NodeId]:
        """Replicas whose logs must be kept: the members of both sets or, if both are empty, the last leader."""
        return frozenset((*self.isr, *self.elr, *self.last_known_elr))

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        """The log directory of a replica. `node_id` must be one of `replicas`."""
        return self.directories[self.replicas.index(node_id)]


partition_fields: Final = attrgetter(*(each.name for each in fields(PartitionRecord)))
"""The field values of a PartitionRecord or PartitionState, in the order of their constructors."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic and its partitions, by index from 0."""

    name: str
    topic_id: TopicId
    configs: Mapping[str, str]
    partitions: tuple[PartitionState, ...]
    pinned: bool = False
    """A snapshot needs its records: none of them is removed."""

    @property
    def min_insync_replicas(self) -> int:
        """The topic's `min.insync.replicas`, 1 if not set. Effective for a partition: `ClusterImage.min_insync`."""
        return int(self.configs.get(MIN_INSYNC_REPLICAS, "1"))

    @property
    def allows_unclean(self) -> bool:
        """May a replica lead that lacks committed records, where no other is left?"""
        return self.configs.get(UNCLEAN_ELECTION) == "true"

    @property
    def durability(self) -> Durability:
        """What an acknowledgement promises; fixed when the topic was created."""
        return Durability(self.configs.get(DURABILITY, Durability.FSYNC.value))


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All of the cluster at one offset of the metadata log. `offset` is one past the last record applied;
    `next_producer_id` the first that no node has been given; `acls` the rules of the access control lists; `scram` the
    credentials of users by name and mechanism; `sasl_secret` random bytes from which salts for other names are
    computed, empty before the first credential; `quotas` those of each entity that has any; `group_configs` the
    settings of each group that has any, by its id; `topic_snapshots` the snapshots of topics, by name."""

    offset: Offset
    cluster_id: str
    feature_level: int
    voters: tuple[Voter, ...]
    nodes: Mapping[NodeId, NodeRegistration]
    topics: Mapping[TopicId, TopicState]
    topic_ids: Mapping[str, TopicId]
    next_producer_id: ProducerId = ProducerId(0)
    acls: frozenset[AclBinding] = frozenset()
    scram: Mapping[tuple[str, ScramMechanism], ScramCredentialRecord] = field(default_factory=dict)
    sasl_secret: bytes = field(default=b"", repr=False)
    quotas: Mapping[QuotaEntity, tuple[QuotaValue, ...]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    topic_snapshots: Mapping[str, TopicSnapshotRecord] = field(default_factory=dict)

    def partition(self, key: PartitionKey) -> PartitionState | None:
        """The partition, or None if its topic or the index does not exist."""
        topic = self.topics.get(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]

    def topic(self, name: str) -> TopicState | None:
        """The topic that bears this name now, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def reachable_nodes(self, listener: str) -> Iterator[NodeRegistration]:
        """The nodes in service that have the listener, by id: those that its clients are told of."""
        for _, node in sorted(self.nodes.items()):
            if not node.fenced and listener in node.listeners:
                yield node

    def min_insync(self, state: PartitionState) -> int:
        """How many replicas of a partition must be in sync for anything to be committed: `min.insync.replicas`, at most
        as many as the partition has, without those that a reassignment is still adding. Source: Kafka's effective
        minimum ISR."""
        return min(self.topics[state.topic_id].min_insync_replicas, len(state.replicas) - len(state.adding))

    def partitions(self) -> Iterator[PartitionState]:
        """Every partition, by topic in the order of creation."""
        for topic in self.topics.values():
            yield from topic.partitions


EMPTY: Final = ClusterImage(Offset(0), "", 0, (), {}, {}, {})
"""The image before the first record."""


def apply(image: ClusterImage, batch: Sequence[LocatedRecord]) -> ClusterImage:
    """The image after one atomic batch.

    batch: records with their offsets, which grow and lie at or above `image.offset`; empty: the same image.
    Raises CorruptLog where a record contradicts the image; the given image is untouched then, as always.
    """
    if not batch:
        return image
    draft = _Draft(image)
    for offset, record in batch:
        if offset < draft.offset:
            raise CorruptLog(
                f"metadata record at offset {offset} lies below offset {draft.offset}, which is applied already"
            )
        draft.apply(offset, record)
    return draft.image()


def advance(image: ClusterImage, offset: Offset) -> ClusterImage:
    """The same cluster one or more offsets later: past a control batch, which changes nothing."""
    return image if offset <= image.offset else replace(image, offset=offset)


def register(offset: Offset, record: NodeRegistrationRecord, previous: NodeRegistration | None) -> NodeRegistration:
    """The node's entry after this registration record at `offset`, given the one before."""
    if record.state is not None:
        return _as_it_stood(record, record.state)
    known = {} if previous is None else previous.known_directories()
    directories = tuple(
        DirectoryState(
            named.directory_id, min(named.last_registration, known.pop(named.directory_id, named.last_registration))
        )
        for named in record.directories
    )
    former = tuple(DirectoryState(directory_id, number) for directory_id, number in known.items())
    return NodeRegistration(
        record.node_id,
        NodeEpoch(offset),
        record.incarnation,
        record.listeners,
        record.rack,
        record.boot_id,
        directories,
        fenced=True,
        draining=False,
        former_directories=former,
        # A node that is to be emptied may restart meanwhile: without this it would get replicas again by that.
        cordoned=previous is not None and previous.cordoned,
        cordoned_directories=() if previous is None else previous.cordoned_directories,
    )


def _as_it_stood(record: NodeRegistrationRecord, state: NodeStateSnapshot) -> NodeRegistration:
    values = {each.name: getattr(part, each.name) for part in (record, state) for each in fields(part)}
    del values["state"]
    return NodeRegistration(**values)


@dataclass(slots=True)
class _Topic:
    """A topic while its batch is applied."""

    state: TopicState
    partitions: list[PartitionState] = field(default_factory=list)


class _Draft:
    """The next image while it is made: each mapping is copied when it first changes."""

    def __init__(self, image: ClusterImage) -> None:
        self._old = image
        self.offset = image.offset
        self._cluster_id, self._feature_level, self._voters = image.cluster_id, image.feature_level, image.voters
        self._nodes: dict[NodeId, NodeRegistration] | None = None
        self._topics: dict[TopicId, TopicState] | None = None
        self._topic_ids: dict[str, TopicId] | None = None
        self._next_producer_id = image.next_producer_id
        self._acls: set[AclBinding] | None = None
        self._scram: dict[tuple[str, ScramMechanism], ScramCredentialRecord] | None = None
        self._sasl_secret = image.sasl_secret
        self._quotas: dict[QuotaEntity, tuple[QuotaValue, ...]] | None = None
        self._group_configs: dict[str, Mapping[str, str]] | None = None
        self._topic_snapshots: Mapping[str, TopicSnapshotRecord] = image.topic_snapshots
        self._open: dict[TopicId, _Topic] = {}

    def image(self) -> ClusterImage:
        """Return the finished image."""
        for topic_id, topic in self._open.items():
            self._own_topics()[topic_id] = replace(topic.state, partitions=tuple(topic.partitions))
        old = self._old
        return ClusterImage(
            self.offset,
            self._cluster_id,
            self._feature_level,
            self._voters,
            old.nodes if self._nodes is None else self._nodes,
            old.topics if self._topics is None else self._topics,
            old.topic_ids if self._topic_ids is None else self._topic_ids,
            self._next_producer_id,
            old.acls if self._acls is None else frozenset(self._acls),
            old.scram if self._scram is None else self._scram,
            self._sasl_secret,
            old.quotas if self._quotas is None else self._quotas,
            old.group_configs if self._group_configs is None else self._group_configs,
            self._topic_snapshots,
        )

    def apply(self, offset: Offset, record: MetadataRecord) -> None:
        """Take one record in."""
        match record:
            case PartitionChangeRecord():
                self._change_partition(offset, record)
            case PartitionRecord():
                self._add_partition(offset, record)
            case NodeRegistrationRecord():
                nodes = self._own_nodes()
                nodes[record.node_id] = register(offset, record, nodes.get(record.node_id))
            case NodeChangeRecord() | NodeRemovalRecord() | NodeCordonRecord():
                self._change_node(offset, record)
            case TopicRecord():
                self._add_topic(offset, record)
            case TopicConfigsRecord() | TopicRemovalRecord():
                self._change_topic(offset, record)
            case ClusterRecord() | VotersRecord() | ProducerIdsRecord() | ClientQuotaRecord() | GroupConfigsRecord():
                self._change_cluster(offset, record)
            case AccessControlEntryRecord() | RemoveAccessControlEntryRecord():
                self._change_acls(offset, record)
            case ScramCredentialRecord() | ScramCredentialRemovalRecord() | SaslSecretRecord():
                self._change_users(offset, record)
            case TopicSnapshotRecord() | TopicSnapshotRemovalRecord():
                self._change_topic_snapshots(offset, record)
            case _:
                assert_never(record)
        self.offset = Offset(offset + 1)

    def _change_topic_snapshots(self, offset: Offset, record: TopicSnapshotRecord | TopicSnapshotRemovalRecord) -> None:
        snapshots = dict(self._topic_snapshots)
        if isinstance(record, TopicSnapshotRecord):
            changed = snapshots[record.name] = record
        elif record.name in snapshots:
            changed = snapshots.pop(record.name)
        else:
            raise _contradiction(offset, f"there is no topic snapshot {record.name}")
        self._topic_snapshots = snapshots
        needed = {topic.topic_id for each in snapshots.values() for topic in each.topics}
        for topic_id in (topic.topic_id for topic in changed.topics):
            topic = self._open_topic(offset, topic_id)
            topic.state = replace(topic.state, pinned=topic_id in needed)

    def _change_cluster(
        self,
        offset: Offset,
        record: ClusterRecord | VotersRecord | ProducerIdsRecord | ClientQuotaRecord | GroupConfigsRecord,
    ) -> None:
        """Take in a record of the cluster as a whole."""
        match record:
            case ClusterRecord():
                self._cluster_id, self._feature_level = record.cluster_id, record.feature_level
            case VotersRecord():
                self._voters = record.voters
            case ProducerIdsRecord(_, _, next_producer_id):
                if next_producer_id <= self._next_producer_id:
                    raise _contradiction(
                        offset, f"producer ids below {self._next_producer_id} are allocated, not {next_producer_id}"
                    )
                self._next_producer_id = next_producer_id
            case ClientQuotaRecord():
                self._change_quotas(record)
            case GroupConfigsRecord():
                self._change_group(record)
            case _:
                assert_never(record)

    def _change_acls(self, offset: Offset, record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> None:
        if self._acls is None:
            self._acls = set(self._old.acls)
        exists = record.binding in self._acls
        if isinstance(record, AccessControlEntryRecord):
            if exists:
                raise _contradiction(offset, f"the ACL exists already: {record.binding}")
            self._acls.add(record.binding)
        else:
            if not exists:
                raise _contradiction(offset, f"the ACL does not exist: {record.binding}")
            self._acls.remove(record.binding)

    def _change_users(
        self, offset: Offset, record: ScramCredentialRecord | ScramCredentialRemovalRecord | SaslSecretRecord
    ) -> None:
        if isinstance(record, SaslSecretRecord):
            self._sasl_secret = record.secret
            return
        if self._scram is None:
            self._scram = dict(self._old.scram)
        key = record.name, record.mechanism
        if isinstance(record, ScramCredentialRecord):
            self._scram[key] = record
        elif self._scram.pop(key, None) is None:
            raise _contradiction(offset, f"user {record.name} has no credential {record.mechanism.mechanism_name}")

    def _change_quotas(self, record: ClientQuotaRecord) -> None:
        if self._quotas is None:
            self._quotas = dict(self._old.quotas)
        if record.values:
            self._quotas[record.entity] = record.values
        else:
            self._quotas.pop(record.entity, None)

    def _change_group(self, record: GroupConfigsRecord) -> None:
        if self._group_configs is None:
            self._group_configs = dict(self._old.group_configs)
        if record.configs:
            self._group_configs[record.group_id] = record.configs
        else:
            self._group_configs.pop(record.group_id, None)

    def _own_nodes(self) -> dict[NodeId, NodeRegistration]:
        if self._nodes is None:
            self._nodes = dict(self._old.nodes)
        return self._nodes

    def _own_topics(self) -> dict[TopicId, TopicState]:
        if self._topics is None:
            self._topics = dict(self._old.topics)
        return self._topics

    def _own_topic_ids(self) -> dict[str, TopicId]:
        if self._topic_ids is None:
            self._topic_ids = dict(self._old.topic_ids)
        return self._topic_ids

    def _open_topic(self, offset: Offset, topic_id: TopicId) -> _Topic:
        topic = self._open.get(topic_id)
        if topic is None:
            state = (self._old.topics if self._topics is None else self._topics).get(topic_id)
            if state is None:
                raise _contradiction(offset, f"topic {topic_id} does not exist")
            topic = self._open[topic_id] = _Topic(state, list(state.partitions))
        return topic

    def _add_topic(self, offset: Offset, record: TopicRecord) -> None:
        names = self._own_topic_ids()
        if record.name in names or record.topic_id in self._own_topics():
            raise _contradiction(offset, f"topic {record.name} ({record.topic_id}) already exists")
        names[record.name] = record.topic_id
        self._own_topics()[record.topic_id] = TopicState(record.name, record.topic_id, record.configs, ())

    def _change_topic(self, offset: Offset, record: TopicConfigsRecord | TopicRemovalRecord) -> None:
        topic = self._open_topic(offset, record.topic_id)
        if isinstance(record, TopicConfigsRecord):
            topic.state = replace(topic.state, configs=record.configs)
            return
        name = topic.state.name
        del self._open[record.topic_id], self._own_topics()[record.topic_id], self._own_topic_ids()[name]

    def _add_partition(self, offset: Offset, record: PartitionRecord) -> None:
        partitions = self._open_topic(offset, record.topic_id).partitions
        if record.partition != len(partitions):
            raise _contradiction(offset, f"partition {record.key} comes where {len(partitions)} is next")
        partitions.append(PartitionState(*partition_fields(record)))

    def _change_partition(self, offset: Offset, change: PartitionChangeRecord) -> None:
        partitions = self._open_topic(offset, change.topic_id).partitions
        if not 0 <= change.partition < len(partitions):
            raise _contradiction(offset, f"partition {change.key} does not exist")
        partitions[change.partition] = changed(partitions[change.partition], change)

    def _change_node(self, offset: Offset, record: NodeChangeRecord | NodeRemovalRecord | NodeCordonRecord) -> None:
        node = self._own_nodes().get(record.node_id)
        if node is None:
            raise _contradiction(offset, f"node {record.node_id} is not registered")
        if isinstance(record, NodeCordonRecord):
            self._own_nodes()[record.node_id] = replace(
                node, cordoned=record.cordoned, cordoned_directories=record.directories
            )
            return
        if node.node_epoch != record.node_epoch:
            raise _contradiction(offset, f"node {record.node_id} has no registration {record.node_epoch}")
        if isinstance(record, NodeRemovalRecord):
            del self._own_nodes()[record.node_id]
        else:
            self._change_registration(node, record)

    def _change_registration(self, node: NodeRegistration, change: NodeChangeRecord) -> None:
        if change.fenced is False:
            directories = tuple(
                DirectoryState(directory.directory_id, node.node_epoch) for directory in node.directories
            )
            node = replace(node, directories=directories)
        offline = [directory for directory in node.directories if directory.directory_id in change.offline_directories]
        if offline:
            working = tuple(directory for directory in node.directories if directory not in offline)
            node = replace(node, directories=working, offline_directories=(*node.offline_directories, *offline))
        self._own_nodes()[change.node_id] = replace(
            node,
            fenced=node.fenced if change.fenced is None else change.fenced,
            draining=node.draining if change.draining is None else change.draining,
        )


def changed(state: PartitionState, change: PartitionChangeRecord) -> PartitionState:
    """The partition after the change: partition epoch one up, leader epoch one up where a leader is given."""
    is_new_leadership = change.leader is not None
    return PartitionState(
        state.topic_id,
        state.partition,
        state.replicas if change.replicas is None else change.replicas,
        state.directories if change.directories is None else change.directories,
        state.isr if change.isr is None else change.isr,
        state.elr if change.elr is None else change.elr,
        state.last_known_elr if change.last_known_elr is None else change.last_known_elr,
        state.leader if change.leader is None else change.leader,
        LeaderEpoch(state.leader_epoch + is_new_leadership),
        PartitionEpoch(state.partition_epoch + 1),
        state.adding if change.adding is None else change.adding,
        state.removing if change.removing is None else change.removing,
        state.queued if change.queued is None else change.queued,
    )


def _contradiction(offset: Offset, what: str) -> CorruptLog:
    return CorruptLog(
        f"metadata record at offset {offset} contradicts the records before it: {what}. "
        "This node applies no further records; replace its metadata directory with an empty one and restart it"
    )
