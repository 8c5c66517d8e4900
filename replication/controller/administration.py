"""Administrative requests: each is checked against the image and becomes records and an answer.

Not here: appending, and answering once committed (controller.py); unclean elections (unclean.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, assert_never

from replication.controller import (
    access_control,
    client_quota_records,
    elections,
    events,
    features,
    group_configs,
    move_queue,
    node_cordon,
    pinned_topics,
    reassignment,
    scram_users,
    snapshot_events,
    topics,
)
from replication.controller.image import MIN_INSYNC_REPLICAS, ClusterImage, PartitionState, apply, changed
from replication.controller.metadata_records import (
    ClusterRecord,
    MetadataRecord,
    PartitionChangeRecord,
    TopicRemovalRecord,
)
from replication.controller.partition_limits import PartitionLimits, PartitionRoom
from replication.controller.placement import DirectoryChooser
from replication.controller.tiered_topics import ensure_tier_allowed
from tidelog.errors import TidelogError, UnknownTopicOrPartition
from tidelog.types import NodeId, Offset, PartitionKey

ConfigCheck: TypeAlias = Callable[[Mapping[str, str]], None]
"""Raises InvalidConfig or UnsupportedVersion for invalid settings of a topic."""

GroupConfigCheck: TypeAlias = Callable[[Mapping[str, str]], dict[str, str]]
"""The settings of a group as they are kept. Raises InvalidConfig for invalid ones."""


class Batch:
    """The records of one atomic batch under construction, and the resulting image."""

    def __init__(self, image: ClusterImage) -> None:
        self.base_offset = image.offset
        self.image = image
        self.records: list[MetadataRecord] = []

    def add(self, records: Iterable[MetadataRecord]) -> None:
        """Add records; later decisions see their effect."""
        taken = list(records)
        start = self.image.offset
        self.image = apply(self.image, [(Offset(start + index), record) for index, record in enumerate(taken)])
        self.records.extend(taken)


def decide(
    batch: Batch,
    request: events.AdminRequest,
    *,
    rng: random.Random,
    check_configs: ConfigCheck,
    valid_group_configs: GroupConfigCheck,
    limits: PartitionLimits,
    known_levels: Mapping[NodeId, int],
) -> events.Result:
    """Add the records of the request to the batch and return the answer. Raises the reason for a rejection.

    known_levels: see features.refuse_update.
    """
    match request:
        case events.CreateTopic():
            return _create_topic(batch, request, rng, check_configs, limits)
        case events.DeleteTopic():
            return _delete_topic(batch, request)
        case events.ElectLeaders():
            assert request.type is events.ElectionType.PREFERRED, "unclean elections are asynchronous: see unclean.py"
            return _elect_preferred(batch, request)
        case events.AlterReassignments():
            features.require(batch.image, 2, "a reassignment")
            return _each(
                batch, [wanted.partition for wanted in request.partitions], _reassign(batch.image, request, limits)
            )
        case events.AlterConfigs():
            return _alter_configs(batch, request, check_configs)
        case events.CreatePartitions():
            topic = topics.named(batch.image, request.name)
            records = topics.more_partitions(batch.image, topic, request, rng, limits)
            batch.add(() if request.validate_only else records)
            warnings = (
                *topics.warnings(topic.name, topic.configs, topics.factor_of(topic)),
                *topics.absences(topic.name, records),
            )
            return events.ChangedTopic(topic.name, None, topic.topic_id, batch.image.offset, warnings)
        case events.AlterClientQuotas():
            return _alter_client_quotas(batch, request)
        case events.AlterGroupConfigs():
            return _alter_group_configs(batch, request, valid_group_configs)
        case events.UpdateFeatures() | events.AlterCordon():
            return _change_nodes(batch, request, known_levels)
        case events.CreateAcls() | events.DeleteAcls() | events.AlterScramCredentials():
            return _change_access(batch, request, rng)
        case (
            snapshot_events.RecordTopicSnapshot()
            | snapshot_events.ExtendTopicSnapshot()
            | snapshot_events.DeleteTopicSnapshot()
        ):
            return _change_topic_snapshots(batch, request)
        case _:
            assert_never(request)


def _change_access(
    batch: Batch, request: events.CreateAcls | events.DeleteAcls | events.AlterScramCredentials, rng: random.Random
) -> events.AclsCreated | events.AclsDeleted | events.ScramCredentialsAltered:
    if isinstance(request, events.AlterScramCredentials):
        features.require(batch.image, features.SCRAM_CREDENTIALS, "a SCRAM credential")
        batch.add(scram_users.records_of(batch.image, request, rng))
        return events.ScramCredentialsAltered(batch.image.offset)
    if isinstance(request, events.CreateAcls):
        new = access_control.created(batch.image, request.bindings)
        batch.add(() if request.validate_only else new)
        return events.AclsCreated(len(new), batch.image.offset)
    gone = access_control.removed(batch.image, request.filters)
    batch.add(() if request.validate_only else gone)
    return events.AclsDeleted(tuple(each.binding for each in gone), batch.image.offset)


def _change_topic_snapshots(
    batch: Batch,
    request: snapshot_events.RecordTopicSnapshot
    | snapshot_events.ExtendTopicSnapshot
    | snapshot_events.DeleteTopicSnapshot,
) -> snapshot_events.TopicSnapshotChanged:
    match request:
        case snapshot_events.RecordTopicSnapshot():
            batch.add([pinned_topics.recorded(batch.image, request)])
        case snapshot_events.ExtendTopicSnapshot():
            batch.add([pinned_topics.extended(batch.image, request)])
        case snapshot_events.DeleteTopicSnapshot():
            batch.add([pinned_topics.removed(batch.image, request)])
    return snapshot_events.TopicSnapshotChanged(batch.image.offset)


def _alter_client_quotas(batch: Batch, request: events.AlterClientQuotas) -> events.ClientQuotasAltered:
    features.require(batch.image, features.CLIENT_QUOTAS, "a client quota")
    records = client_quota_records.of_change(batch.image, request)
    batch.add(() if request.validate_only else records)
    return events.ClientQuotasAltered(batch.image.offset)


def _alter_group_configs(
    batch: Batch, request: events.AlterGroupConfigs, valid_group_configs: GroupConfigCheck
) -> events.GroupConfigsAltered:
    features.require(batch.image, features.GROUP_CONFIGS, "a setting of a group")
    configs = group_configs.altered(batch.image, request)
    if request.changes:  # else it asks how new the settings are, which need not be valid any more
        configs = valid_group_configs(configs)
    batch.add(() if request.validate_only else group_configs.records_of(batch.image, request.group_id, configs))
    return events.GroupConfigsAltered(batch.image.offset)


def _change_nodes(
    batch: Batch, request: events.UpdateFeatures | events.AlterCordon, known_levels: Mapping[NodeId, int]
) -> events.FeaturesUpdated | events.CordonAltered:
    if isinstance(request, events.AlterCordon):
        records = node_cordon.records_of(batch.image, request)
        batch.add(records)
        return events.CordonAltered(bool(records), batch.image.offset)
    features.refuse_update(batch.image, request.level, known_levels)
    if request.level > batch.image.feature_level and not request.validate_only:
        batch.add([ClusterRecord(batch.image.cluster_id, request.level)])
    return events.FeaturesUpdated(request.level)


def _create_topic(
    batch: Batch, request: events.CreateTopic, rng: random.Random, check_configs: ConfigCheck, limits: PartitionLimits
) -> events.ChangedTopic:
    topics.refuse_impossible(batch.image, request)
    check_configs(request.configs)
    ensure_tier_allowed(batch.image, {}, request.configs)
    topic_id, records = topics.records_of(batch.image, request, rng, limits)
    warnings = (
        *topics.warnings(request.name, request.configs, request.replica_count),
        *topics.absences(request.name, records),
    )
    if request.validate_only:
        return events.ChangedTopic(request.name, None, None, batch.image.offset, warnings)
    batch.add(records)
    return events.ChangedTopic(request.name, None, topic_id, batch.image.offset, warnings)


def _delete_topic(batch: Batch, request: events.DeleteTopic) -> events.ChangedTopic:
    topic = topics.find(batch.image, request)
    pinned_topics.ensure_unpinned(batch.image, topic, f"topic {topic.name} cannot be deleted")
    batch.add([TopicRemovalRecord(topic.topic_id)])
    return events.ChangedTopic(topic.name, None, topic.topic_id, batch.image.offset)


def _alter_configs(batch: Batch, request: events.AlterConfigs, check_configs: ConfigCheck) -> events.ChangedTopic:
    features.require(batch.image, 2, "a change of topic settings")
    topic = topics.named(batch.image, request.name)
    configs = topics.altered(topic.configs, request.changes)
    if request.changes:  # else it asks how new the settings are, which need not be valid any more
        check_configs(configs)
        ensure_tier_allowed(batch.image, topic.configs, configs)
    if pinned_topics.compacts(configs) and not pinned_topics.compacts(topic.configs):
        pinned_topics.ensure_unpinned(batch.image, topic, f"topic {topic.name} cannot be compacted")
    if configs != topic.configs and not request.validate_only:
        batch.add(topics.records_of_change(batch.image, topic, configs))
    changes_minimum = any(change.key == MIN_INSYNC_REPLICAS for change in request.changes)
    warnings = topics.warnings(topic.name, configs, topics.factor_of(topic)) if changes_minimum else ()
    return events.ChangedTopic(topic.name, None, topic.topic_id, batch.image.offset, warnings)


def state_of(image: ClusterImage, key: PartitionKey) -> PartitionState:
    """The partition. Raises UnknownTopicOrPartition."""
    state = image.partition(key)
    if state is None:
        raise UnknownTopicOrPartition(f"partition {key.partition} of topic {key.topic_id} does not exist")
    return state


def _elect_preferred(batch: Batch, request: events.ElectLeaders) -> events.PartitionOutcomes:
    wanted = [state.key for state in batch.image.partitions() if elections.wants_preferred(state)]
    return _each(batch, request.partitions or wanted, elections.preferred_change)


def _reassign(
    before: ClusterImage, request: events.AlterReassignments, limits: PartitionLimits
) -> Callable[[ClusterImage, PartitionState], PartitionChangeRecord | None]:
    wanted = {each.partition: each for each in request.partitions}
    room, chooser = PartitionRoom(before, limits), DirectoryChooser(before)

    def change_of(image: ClusterImage, state: PartitionState) -> PartitionChangeRecord | None:
        asked = wanted[state.key]
        if asked.queued:
            change = move_queue.enqueue(image, state, asked.replicas)
        else:
            change = reassignment.begin(image, state, asked, chooser)
        new = [node for node in asked.replicas if node not in state.replicas]
        if full := room.full(image.topics[state.topic_id].name, [new]):
            raise room.refusal(f"{elections.name_of(image, state)} cannot be moved", full)
        room.add(new)
        return change

    return change_of


def begin_wave(batch: Batch, moves_per_node: int, limits: PartitionLimits) -> list[str]:
    """Begin the queued moves whose turn it is, and drop those that can never begin. Returns why, for each of these."""
    wave = move_queue.next_wave(batch.image, moves_per_node)
    if not wave:
        return []
    change_of = _reassign(batch.image, events.AlterReassignments(tuple(wave)), limits)
    outcomes = _each(batch, (move.partition for move in wave), change_of).partitions
    refused = [(each.key, each.outcome.message) for each in outcomes if isinstance(each.outcome, TidelogError)]
    batch.add(PartitionChangeRecord(key.topic_id, key.partition, queued=()) for key, _ in refused)
    return [why for _, why in refused]


def _each(
    batch: Batch,
    keys: Iterable[PartitionKey],
    change_of: Callable[[ClusterImage, PartitionState], PartitionChangeRecord | None],
) -> events.PartitionOutcomes:
    """Change each partition on its own: neither a rejection nor a change of one affects the others."""
    refused: dict[PartitionKey, TidelogError] = {}
    records: list[PartitionChangeRecord] = []
    keys = list(dict.fromkeys(keys))
    for key in keys:
        try:
            state = state_of(batch.image, key)
            change = change_of(batch.image, state)
        except TidelogError as refusal:
            refused[key] = refusal
            continue
        if change is not None:
            records.append(change)
            if (end := reassignment.finished(batch.image, changed(state, change))) is not None:
                records.append(end)
    batch.add(records)  # at once: each call copies the mapping of all topics
    return events.PartitionOutcomes(
        tuple(events.PartitionOutcome(key, refused.get(key) or state_of(batch.image, key)) for key in keys)
    )
