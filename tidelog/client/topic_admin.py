"""Admin calls about topics: create, delete, change, describe, one or many at a time.

Not here: requests, and when they are sent again (admin_calls.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final
from uuid import UUID

from tidelog.client.admin_arguments import id_bytes, made_or_error, mapping_of, replicas_of, settings_of
from tidelog.client.admin_calls import AdminCalls
from tidelog.client.options import topic_name, whole_number
from tidelog.client.retries import BACKOFF_MS
from tidelog.cluster_descriptions import ConfigResourceType, ResourceConfigs
from tidelog.errors import InvalidRequest, TidelogError, UnknownTopicOrPartition
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import admin_pb2
from tidelog.types import LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId

VISIBLE_MS: Final = 5_000
"""How long `create_topic` waits until every partition has a leader; the topic exists in any case."""

PARTITIONS_AT_ONCE: Final = 1_000
"""Partitions that are read from an answer before the loop has its turn: some ten milliseconds."""

NODE_DEFAULT: Final = -1
"""Partitions or replicas of a new topic: as many as the node's configuration says."""


class TopicSettingWarning(UserWarning):
    """A topic setting does not have the effect that its name suggests, or new replicas are on nodes that do not run."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partitions: int = NODE_DEFAULT
    replication_factor: int = NODE_DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings by Kafka's names, and `durability` ("fsync" or "page-cache")."""
    assignments: Sequence[Sequence[int]] = ()
    """The replicas of each partition as node ids, the preferred leader first; then neither number is given."""


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition."""

    partition: PartitionIndex
    leader: NodeId
    """-1 if there is none."""
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    elr: tuple[NodeId, ...]
    """Eligible leader replicas: they have all committed records although they are not in sync."""
    offline: tuple[NodeId, ...]
    last_known_elr: tuple[NodeId, ...] = ()
    """The last leader, if neither `isr` nor `elr` has a member."""
    adding: tuple[NodeId, ...] = ()
    """Replicas that a reassignment in progress adds."""
    removing: tuple[NodeId, ...] = ()
    """Replicas that it removes."""
    queued: tuple[NodeId, ...] = ()
    """The replicas that a queued move gives the partition."""


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: its id, its partitions by index, all effective settings."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]


class TopicAdmin(AdminCalls):
    """The part of Admin about topics."""

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = NODE_DEFAULT,
        replication_factor: int = NODE_DEFAULT,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
        on_warning: Callable[[str], object] | None = None,
    ) -> TopicId:
        """Create a topic. Returns its id once its partitions have leaders, or after 5 s; the topic exists in both
        cases.

        partitions, replication_factor: by default those of the node (`num.partitions`, `default.replication.factor`).
        configs: topic settings by Kafka's names, and `durability` ("fsync" or "page-cache"). validate_only: check and
        change nothing. on_warning: called with a sentence about each setting without effect, and about replicas on
        nodes that do not run. None: warnings of Python (TopicSettingWarning).

        Raises TopicExists, InvalidTopic, InvalidPartitions, InvalidReplicationFactor, InvalidConfig, PolicyViolation;
        TooFewNodes after 5 s, in which more nodes may start (at once if validate_only); RequestTimedOut or
        ConnectionLost if the outcome is unknown (`describe_topic` shows it).
        """
        topic = _to_create(NewTopic(name, partitions, replication_factor, configs or {}), validate_only=validate_only)
        request = admin_pb2.CreateTopicsRequest(topics=[topic])
        created = await self._change_topic(methods.ADMIN_CREATE_TOPICS, request, validate_only=validate_only)
        if on_warning is None:
            _warn(created.warnings)
        else:
            for warning in created.warnings:
                on_warning(warning)
        if validate_only:
            return TopicId(UUID(int=0))
        topic_id = TopicId(UUID(bytes=created.topic_id))
        await self._wait_visible({name: topic_id})
        return topic_id

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicId | TidelogError]:
        """Create topics with one request. Returns the id of each, or why it was not created, as `create_topic` does for
        one and raises it: InvalidTopic for a name that is not allowed, InvalidRequest for one that is listed twice."""
        asked: dict[str, admin_pb2.CreateTopic | TidelogError] = {}
        for topic in topics:
            new = made_or_error(_to_create, topic, validate_only=validate_only)
            if topic.name in asked:  # as in Kafka, neither is created: they may differ
                new = InvalidRequest(f"topic {topic.name!r} is listed twice: list each topic once")
            asked[topic.name] = new
        changed = await self._change_topics(
            methods.ADMIN_CREATE_TOPICS, admin_pb2.CreateTopicsRequest, asked, validate_only=validate_only
        )
        created: dict[str, TopicId | TidelogError] = {}
        for name, outcome in changed.items():
            if isinstance(outcome, TidelogError):
                created[name] = outcome
            else:
                _warn(outcome.warnings)
                created[name] = TopicId(UUID(bytes=outcome.topic_id or bytes(16)))
        if not validate_only:
            await self._wait_visible({name: each for name, each in created.items() if isinstance(each, UUID)})
        return created

    async def delete_topic(self, name: str, *, topic_id: TopicId | None = None) -> None:
        """Delete a topic and all its records. topic_id: delete only if the topic still has this id.

        Raises UnknownTopicOrPartition, InconsistentTopicId; RequestTimedOut or ConnectionLost if the outcome is
        unknown.
        """
        topic = admin_pb2.DeleteTopic(name=topic_name(name), topic_id=id_bytes("topic_id", topic_id))
        await self._change_topic(methods.ADMIN_DELETE_TOPICS, admin_pb2.DeleteTopicsRequest(topics=[topic]))

    async def delete_topics(self, names: Iterable[str]) -> dict[str, TidelogError | None]:
        """Delete topics and all their records with one request. Returns None for each that was deleted, or why it was
        not, as `delete_topic` does for one and raises it."""
        asked = {name: error or admin_pb2.DeleteTopic(name=name) for name, error in _names(names).items()}
        changed = await self._change_topics(methods.ADMIN_DELETE_TOPICS, admin_pb2.DeleteTopicsRequest, asked)
        return _errors(changed)

    async def create_partitions(
        self, name: str, count: int, *, assignments: Sequence[Sequence[int]] = (), validate_only: bool = False
    ) -> None:
        """Increase the number of partitions of a topic to `count`.

        assignments: the replicas of each new partition as node ids, the preferred leader first; empty: the controller
        places them. Raises InvalidPartitions, InvalidReplicaAssignment, InvalidReplicationFactor, PolicyViolation,
        UnknownTopicOrPartition; RequestTimedOut or ConnectionLost if the outcome is unknown.
        """
        total = whole_number("count", count)
        topic = admin_pb2.CreatePartitions(name=topic_name(name), count=total, validate_only=validate_only)
        if assignments:
            topic.count, topic.first = 0, total - len(assignments)
            topic.assignments.extend(admin_pb2.ReplicaAssignment(replicas=replicas_of(each)) for each in assignments)
        request = admin_pb2.CreatePartitionsRequest(topics=[topic])
        changed = await self._change_topic(methods.ADMIN_CREATE_PARTITIONS, request, validate_only=validate_only)
        _warn(changed.warnings)

    async def alter_topic(self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Change settings of a topic; None resets a setting to its default. Nodes apply changes at once. `durability`
        cannot be changed. Warns as `create_topic` does.

        Raises InvalidConfig, UnknownTopicOrPartition, UnsupportedVersion; RequestTimedOut or ConnectionLost if the
        outcome is unknown.
        """
        request = admin_pb2.IncrementalAlterConfigsRequest(topics=[_to_alter(name, changes, validate_only)])
        _warn((await self._change_topic(methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, request)).warnings)

    async def alter_topics(
        self, changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> dict[str, TidelogError | None]:
        """Change settings of topics with one request. Returns None for each topic whose settings were changed, or why
        none of them was, as `alter_topic` does for one and raises it."""
        asked = {
            name: made_or_error(_to_alter, name, each, validate_only)
            for name, each in mapping_of("changes", changes).items()
        }
        changed = await self._change_topics(
            methods.ADMIN_INCREMENTAL_ALTER_CONFIGS, admin_pb2.IncrementalAlterConfigsRequest, asked
        )
        for outcome in changed.values():
            if not isinstance(outcome, TidelogError):
                _warn(outcome.warnings)
        return _errors(changed)

    async def describe_topic_settings(self, names: Iterable[str]) -> dict[str, ResourceConfigs]:
        """Return every setting of topics with its source and what it would be otherwise; an error for each topic that
        is not described."""
        wanted = _names(names)
        asked = [name for name, error in wanted.items() if error is None]
        resources = [admin_pb2.ConfigResource(type=ConfigResourceType.TOPIC, name=name) for name in asked]
        request = admin_pb2.DescribeConfigsRequest(resources=resources)
        answer = (
            await self._query(methods.ADMIN_DESCRIBE_CONFIGS, request) if asked else admin_pb2.DescribeConfigsResponse()
        )
        found = dict(zip(asked, answer.resources, strict=True))
        return {
            name: read_message(ResourceConfigs, found[name]) if error is None else ResourceConfigs(error)
            for name, error in wanted.items()
        }

    async def list_topics(self) -> list[TopicDescription]:
        """Return all topics, sorted by name."""
        answer = await self._metadata(all_topics=True)
        topics, partitions = [], 0
        for topic in answer.topics:
            if not topic.HasField("error"):
                topics.append(read_message(TopicDescription, topic))
                partitions += len(topic.partitions)
            if partitions >= PARTITIONS_AT_ONCE:
                # A hundred thousand take a second, in which a node whose console asks would answer nobody else.
                await self._clock.sleep_ms(0)
                partitions = 0
        return sorted(topics, key=attrgetter("name"))

    async def describe_topic(self, name: str) -> TopicDescription:
        """Return one topic. Raises UnknownTopicOrPartition."""
        found = (await self.describe_topics([name]))[name]
        if isinstance(found, TidelogError):
            raise found
        return found

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription | TidelogError]:
        """Return the description of each topic, or why there is none: UnknownTopicOrPartition,
        TopicAuthorizationFailed, InvalidTopic."""
        wanted = _names(names)
        asked = [name for name, error in wanted.items() if error is None]
        answer = await self._metadata(topics=asked) if asked else admin_pb2.GetMetadataResponse()
        topics = {topic.name: topic for topic in answer.topics}
        return {
            name: error or _described(name, topics.get(name, admin_pb2.TopicMetadata()))
            for name, error in wanted.items()
        }

    async def _wait_visible(self, created: Mapping[str, TopicId]) -> None:
        """Return once all partitions of these topics have leaders, or after `VISIBLE_MS`."""
        left, start = dict(created), self._clock.monotonic_ms()
        while left and self._clock.monotonic_ms() - start < VISIBLE_MS:
            try:
                found = await self.describe_topics(left)
            except TidelogError:
                found = {}
            # A topic that the queried node does not know yet: the node may lag behind.
            for name, topic in found.items():
                if isinstance(topic, TopicDescription) and (
                    topic.topic_id != left[name] or all(partition.leader >= 0 for partition in topic.partitions)
                ):
                    del left[name]
            if left:
                await self._clock.sleep_ms(BACKOFF_MS // 4)


def _to_create(topic: NewTopic, *, validate_only: bool) -> admin_pb2.CreateTopic:
    """Return the message of a topic. Raises TypeError, InvalidTopic, InvalidRequest."""
    if not isinstance(topic, NewTopic):
        raise TypeError(f"a topic to create must be a NewTopic, not {type(topic).__name__}: {topic!r}")
    return admin_pb2.CreateTopic(
        name=topic_name(topic.name),
        partitions=whole_number("partitions", topic.partitions),
        replication_factor=whole_number("replication_factor", topic.replication_factor),
        configs={key: value for key, value in settings_of("configs", topic.configs).items() if value is not None},
        assignments=[admin_pb2.ReplicaAssignment(replicas=replicas_of(each)) for each in topic.assignments],
        validate_only=validate_only,
    )


def _to_alter(name: str, changes: Mapping[str, str | None], validate_only: bool) -> admin_pb2.AlterConfigs:
    """Return the message of changed settings. Raises TypeError, InvalidTopic, InvalidRequest."""
    return admin_pb2.AlterConfigs(
        name=topic_name(name),
        changes=[
            admin_pb2.ConfigChange(key=key, value=value)
            for key, value in sorted(settings_of("changes", changes).items())
        ],
        validate_only=validate_only,
    )


def _described(name: str, topic: admin_pb2.TopicMetadata) -> TopicDescription | TidelogError:
    if error := error_of(topic):
        return error
    if not topic.topic_id:
        return UnknownTopicOrPartition(
            f"there is no topic {name!r}: check its name (`tidelog topic list`), or create it"
        )
    return read_message(TopicDescription, topic)


def _names(names: object) -> dict[str, TidelogError | None]:
    """Return names of topics, each once, with InvalidTopic for those that are not allowed. Raises TypeError."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"names must be a list of names of topics, not {type(names).__name__}: {names!r}")
    found: dict[str, TidelogError | None] = {}
    for name in names:
        checked = made_or_error(topic_name, name)
        found[name] = checked if isinstance(checked, TidelogError) else None
    return found


def _errors(changed: Mapping[str, admin_pb2.ChangedTopic | TidelogError]) -> dict[str, TidelogError | None]:
    return {name: each if isinstance(each, TidelogError) else None for name, each in changed.items()}


def _warn(texts: Iterable[str]) -> None:
    for warning in texts:
        warnings.warn(warning, TopicSettingWarning, stacklevel=3)  # at the caller's line
