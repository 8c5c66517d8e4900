"""Rules for creating and changing a topic: name, partition and replica counts, settings, placement.

Not here: which settings exist and their valid values (a validator given to the controller).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

from replication.controller.elections import eligible_beside
from replication.controller.events import (
    ConfigChange,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ReplicaAssignment,
)
from replication.controller.image import (
    DURABILITY,
    MIN_INSYNC_REPLICAS,
    ClusterImage,
    NodeRegistration,
    PartitionState,
    TopicState,
    apply,
)
from replication.controller.metadata_records import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicConfigsRecord,
    TopicRecord,
)
from replication.controller.node_cordon import end_of_cordon
from replication.controller.partition_limits import PartitionLimits, PartitionRoom
from replication.controller.placement import DirectoryChooser, place, refuse_replicas
from tidelog.errors import (
    InconsistentTopicId,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    TooFewNodes,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.types import (
    METADATA_TOPIC,
    TOPIC_NAME_LENGTH_MAX,
    TOPIC_NAME_RULE,
    Durability,
    LeaderEpoch,
    NodeId,
    PartitionEpoch,
    PartitionIndex,
    TopicId,
    is_topic_name,
)

PARTITIONS_MAX: Final = 10_000  # a topic is one atomic batch of the metadata log: this bounds it to about 2 MB


def refuse_impossible(image: ClusterImage, request: CreateTopic) -> None:
    """Raise an error for an invalid name, invalid counts, or replicas that cannot be assigned."""
    name = request.name
    if not is_topic_name(name):
        raise InvalidTopic(f"invalid topic name {name[: TOPIC_NAME_LENGTH_MAX + 1]!r}: {TOPIC_NAME_RULE}")
    if name == METADATA_TOPIC:
        raise InvalidTopic(f"the topic name {name} is reserved for the metadata log: choose another name")
    if name in image.topic_ids:
        raise TopicExists(f"topic {name} already exists, with id {image.topic_ids[name]}")
    if request.assignments and (request.partitions, request.replication_factor) != (-1, -1):
        raise InvalidRequest(
            f"topic {name} has {request.partitions} partitions and {request.replication_factor} replicas, and replicas "
            "that are assigned by hand: name either the numbers or the replicas"
        )
    count = request.partition_count
    if not 1 <= count <= PARTITIONS_MAX:
        raise InvalidPartitions(f"topic {name} cannot have {count} partitions: use 1 to {PARTITIONS_MAX}")
    if not request.assignments:
        return refuse_factor(image, name, request.replication_factor)
    return _refuse_assignments(image, name, 0, request.assignments, request.replica_count)


def _refuse_assignments(
    image: ClusterImage, name: str, first: int, assignments: Sequence[ReplicaAssignment], replication_factor: int
) -> None:
    """Raise InvalidReplicaAssignment if the partitions from `first` on cannot have these replicas."""
    for index, assigned in enumerate(assignments, first):
        refuse_replicas(image, f"{name}-{index}", assigned.replicas)
        if len(assigned.replicas) != replication_factor:
            raise InvalidReplicaAssignment(
                f"{name}-{index} cannot have {len(assigned.replicas)} replicas, because {name}-0 has "
                f"{replication_factor}: assign as many to each partition"
            )
        if not any(image.nodes[node].active for node in assigned.replicas):
            raise InvalidReplicaAssignment(
                f"{name}-{index} cannot have the replicas {list(assigned.replicas)} now, because none could lead: the "
                "nodes are fenced or being stopped; name one that runs"
            )


def refuse_factor(image: ClusterImage, name: str, replication_factor: int) -> None:
    """Raise InvalidReplicationFactor, also where cordons leave too few nodes, or TooFewNodes if there are too few for
    that many replicas now."""
    if replication_factor < 1:
        raise InvalidReplicationFactor(f"topic {name} cannot have {replication_factor} replicas: request 1 or more")
    usable = _usable(image)
    if replication_factor > len(usable):
        # Clients repeat a request that has too few nodes, because others may be starting: those end no cordon.
        able = sum(not node.gets_no_replicas for node in image.nodes.values())
        barred = able < replication_factor <= len(image.nodes)
        raise (InvalidReplicationFactor if barred else TooFewNodes)(
            f"topic {name} cannot have {replication_factor} replicas: {len(usable)} of {len(image.nodes)} "
            f"registered nodes are usable now; start more nodes, or request fewer replicas{_cordons(image)}"
        )
    if all(node.fenced for node in usable):
        raise TooFewNodes(
            f"topic {name} would have no leader: all {len(usable)} registered nodes that may get replicas are fenced "
            f"now; start one{_cordons(image)}"
        )


def _cordons(image: ClusterImage) -> str:
    """What an error says of the cordoned nodes; empty if there are none."""
    cordoned = [node for _, node in sorted(image.nodes.items()) if node.gets_no_replicas]
    if not cordoned:
        return ""
    names = ", ".join(str(node.node_id) for node in cordoned)
    return f". Cordoned nodes get no replicas: node {names} ({end_of_cordon(cordoned[0])})"


def _usable(image: ClusterImage) -> list[NodeRegistration]:
    """The nodes that may get replicas of new partitions. A node that has stopped is fenced, and runs again later; one
    that is being stopped hands over what it has, and one that is cordoned may be emptied."""
    return [node for node in image.nodes.values() if (node.fenced or not node.draining) and not node.gets_no_replicas]


def records_of(
    image: ClusterImage, request: CreateTopic, rng: random.Random, limits: PartitionLimits
) -> tuple[TopicId, tuple[MetadataRecord, ...]]:
    """The new topic's id and the records that create it. The request has passed `refuse_impossible`. Raises
    PolicyViolation."""
    topic_id = TopicId(UUID(int=rng.getrandbits(128), version=4))
    topic = TopicState(request.name, topic_id, dict(request.configs), ())
    if request.assignments:
        placed = _assigned(image, request.name, request.assignments, limits)
    else:
        placed = _placed(image, topic.name, request.partitions, request.replication_factor, rng, limits)
    return topic_id, (TopicRecord(topic.name, topic_id, topic.configs), *_partition_records(image, topic, placed))


def _assigned(
    image: ClusterImage, name: str, assignments: Sequence[ReplicaAssignment], limits: PartitionLimits
) -> list[tuple[NodeId, ...]]:
    """The replicas of each new partition that a request names. Raises PolicyViolation."""
    room = PartitionRoom(image, limits)
    room.ensure_partitions(name, len(assignments))
    assigned = [each.replicas for each in assignments]
    if full := room.full(name, assigned):
        raise room.refusal(f"topic {name} cannot have the replicas that are assigned to it", full)
    return assigned


def _placed(
    image: ClusterImage,
    name: str,
    count: int,
    replication_factor: int,
    rng: random.Random,
    limits: PartitionLimits,
) -> list[tuple[NodeId, ...]]:
    """The replicas of so many new partitions of a topic, over the usable nodes that may have more replicas. Nodes that
    are down stand in for others that are down, never for nodes that are full: there would be fewer copies for as long
    as they are. Raises PolicyViolation."""
    racks = {node.node_id: node.rack for node in _usable(image)}
    fenced = {node for node in racks if image.nodes[node].fenced}
    room = PartitionRoom(image, limits)
    room.ensure_partitions(name, count)
    running = racks.keys() - fenced
    emptied = _without_replicas(image, fenced) if replication_factor > len(running) else frozenset()
    placed = place(racks, count, replication_factor, rng, fenced=fenced, emptied=emptied)
    refused: set[NodeId] = set()
    while full := room.full(name, placed):
        refused |= full
        left = {node: rack for node, rack in racks.items() if node not in refused}
        if len(left) < replication_factor or len(left.keys() & running) < min(replication_factor, len(running)):
            what = f"topic {name} cannot get {count} more partitions with {replication_factor} replicas"
            raise room.refusal(what, refused)
        placed = place(left, count, replication_factor, rng, fenced=fenced, emptied=emptied)
    return placed


def _without_replicas(image: ClusterImage, nodes: Collection[NodeId]) -> frozenset[NodeId]:
    """Those of the nodes that have no replica of any partition."""
    return frozenset(nodes).difference(node for state in image.partitions() for node in state.replicas)


def _partition_records(
    image: ClusterImage, topic: TopicState, placed: Sequence[tuple[NodeId, ...]]
) -> tuple[PartitionRecord, ...]:
    """New partitions of a topic with these replicas. Those on active nodes, one at least of each partition, are in sync
    from the start, because nothing is written yet; the first of them leads."""
    chooser = DirectoryChooser(image)
    return tuple(
        _new_partition(image, topic.topic_id, PartitionIndex(index), replicas, chooser)
        for index, replicas in enumerate(placed, len(topic.partitions))
    )


def _new_partition(
    image: ClusterImage,
    topic_id: TopicId,
    index: PartitionIndex,
    replicas: tuple[NodeId, ...],
    chooser: DirectoryChooser,
) -> PartitionRecord:
    # The log of a fenced node is made, and fetched, once the node runs; until then it must not count as a copy.
    in_sync = tuple(node for node in replicas if image.nodes[node].active)
    return PartitionRecord(
        topic_id,
        index,
        replicas,
        directories=tuple(chooser.choose(image.nodes[node]) for node in replicas),
        isr=in_sync,
        elr=(),
        last_known_elr=(),
        leader=in_sync[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=PartitionEpoch(0),
    )


def more_partitions(
    image: ClusterImage, topic: TopicState, request: CreatePartitions, rng: random.Random, limits: PartitionLimits
) -> tuple[MetadataRecord, ...]:
    """The records of the partitions that the topic does not have yet; each has as many replicas as its first one.

    Raises InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor, PolicyViolation, InvalidRequest.
    """
    have, count = len(topic.partitions), request.total
    if request.assignments and request.count:
        raise InvalidRequest(
            f"topic {topic.name}: {request.count} partitions, and replicas that are assigned by hand: name either the "
            "number or the replicas"
        )
    if not have < count <= PARTITIONS_MAX:
        raise InvalidPartitions(
            f"topic {topic.name} has {have} partitions and cannot have {count}: use {have + 1} to {PARTITIONS_MAX}; "
            "partitions cannot be removed, create another topic instead"
        )
    factor = factor_of(topic)
    if not request.assignments:
        refuse_factor(image, topic.name, factor)
        return _partition_records(image, topic, _placed(image, topic.name, count - have, factor, rng, limits))
    if request.first != have:
        raise InvalidReplicaAssignment(
            f"topic {topic.name} has {have} partitions and gets {count - have} more, but replicas are assigned to "
            f"{len(request.assignments)}: assign replicas to each new partition"
        )
    _refuse_assignments(image, topic.name, have, request.assignments, factor)
    return _partition_records(image, topic, _assigned(image, topic.name, request.assignments, limits))


def factor_of(topic: TopicState) -> int:
    """The replication factor: the replicas of the first partition, without those that a reassignment is adding."""
    return max(len(topic.partitions[0].replicas) - len(topic.partitions[0].adding), 1)


def warnings(name: str, configs: Mapping[str, str], replication_factor: int) -> tuple[str, ...]:
    """Warnings for settings that do not have the effect that they name."""
    wanted = int(configs.get(MIN_INSYNC_REPLICAS, "1"))
    if wanted <= replication_factor:
        return ()
    text = (
        f"topic {name} has {MIN_INSYNC_REPLICAS}={wanted}, but a replication factor of {replication_factor}: the "
        f"effective value is {replication_factor}, so writes need every replica in sync; lower the setting, "
        "or add replicas"
    )
    return (text,)


def absences(name: str, records: Iterable[MetadataRecord]) -> tuple[str, ...]:
    """A warning if new partitions have replicas on nodes that do not run."""
    absent = {
        node
        for record in records
        if isinstance(record, PartitionRecord)
        for node in record.replicas
        if node not in record.isr
    }
    if not absent:
        return ()
    names = ", ".join(f"node {node}" for node in sorted(absent))
    text = (
        f"topic {name} has replicas on {names}, fenced or being stopped now: they are in sync once they run and have "
        "copied the records; until then there are fewer copies"
    )
    return (text,)


def altered(configs: Mapping[str, str], changes: Sequence[ConfigChange]) -> dict[str, str]:
    """The topic's settings after the changes. Raises InvalidConfig if a setting is named twice or cannot be changed."""
    result = dict(configs)
    seen: set[str] = set()
    for change in changes:
        if change.key in seen:
            raise InvalidConfig(f"{change.key} is changed twice in one request: name it only once")
        seen.add(change.key)
        if change.key == DURABILITY and change.value != result.get(DURABILITY, Durability.FSYNC.value):
            raise InvalidConfig(
                f"{DURABILITY} cannot be changed after the topic's creation: older records would be less durable than "
                "the setting states; create a new topic and copy the records"
            )
        if change.value is None:
            result.pop(change.key, None)
        else:
            result[change.key] = change.value
    return result


def records_of_change(image: ClusterImage, topic: TopicState, configs: Mapping[str, str]) -> tuple[MetadataRecord, ...]:
    """One atomic batch with the settings and, if `min.insync.replicas` changes, a new partition epoch for every
    partition, so that no leader combines an old minimum with a new set. An eligible set whose in-sync set is now large
    enough is emptied, because that set commits without it from now on."""
    configured = TopicConfigsRecord(topic.topic_id, dict(configs))
    after = apply(image, [(image.offset, configured)])
    if after.topics[topic.topic_id].min_insync_replicas == topic.min_insync_replicas:
        return (configured,)
    return configured, *(_with_new_minimum(after, state) for state in topic.partitions)


def _with_new_minimum(image: ClusterImage, state: PartitionState) -> PartitionChangeRecord:
    return PartitionChangeRecord(state.topic_id, state.partition, elr=eligible_beside(image, state, state.isr))


def named(image: ClusterImage, name: str) -> TopicState:
    """The topic of that name. Raises UnknownTopicOrPartition."""
    topic = image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"topic {name!r} does not exist")
    return topic


def find(image: ClusterImage, request: DeleteTopic) -> TopicState:
    """The topic that a deletion names. Raises UnknownTopicId or UnknownTopicOrPartition if there is none,
    InconsistentTopicId if the name belongs to a topic with another id."""
    if not request.name and request.topic_id is not None:
        found = image.topics.get(request.topic_id)
        if found is None:
            raise UnknownTopicId(f"topic id {request.topic_id} does not exist")
        return found
    topic = named(image, request.name)
    if request.topic_id not in (None, topic.topic_id):
        raise InconsistentTopicId(
            f"topic {request.name} has the id {topic.topic_id} now, not {request.topic_id}: it was deleted and "
            "created again"
        )
    return topic
