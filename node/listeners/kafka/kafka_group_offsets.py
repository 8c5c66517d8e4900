"""OffsetCommit, OffsetFetch and OffsetDelete of Kafka's protocol: the committed offsets of groups.

Answers have the topics and partitions in the order of the request: clients match them by position.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from node.api.table import GROUPS_FETCH_OFFSETS_OF_GROUPS, GROUPS_OFFSET_COMMIT, GROUPS_OFFSET_DELETE
from node.listeners.kafka.error_codes import NONE, code_of, coordinator_code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.coordination.group_requests import (
    CommittedPartitions,
    FetchedOffset,
    FetchOffsetsOfGroups,
    FetchOffsetsOfGroupsAnswer,
    GenerationOffsetCommit,
    NamedPartition,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetsOfGroup,
    OffsetToCommit,
)
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    TidelogError,
)
from tidelog.protocol.kafka.messages import offset_commit_request as asked_commit
from tidelog.protocol.kafka.messages import offset_delete_request as asked_delete
from tidelog.protocol.kafka.messages import offset_fetch_request as asked_fetch
from tidelog.protocol.kafka.messages.offset_commit_response import (
    OFFSET_COMMIT_RESPONSE,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.kafka.messages.offset_delete_response import (
    OFFSET_DELETE_RESPONSE,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.protocol.kafka.messages.offset_fetch_response import (
    OFFSET_FETCH_RESPONSE,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.types import LeaderEpoch, Offset, PartitionIndex

# --- OffsetCommit ---

_EPOCHS_FROM: Final = 9
"""Version from which members of KIP-848 commit, and a member learns that its group does not exist. Before it, members
join again after ILLEGAL_GENERATION, and stop after an error that they do not know."""


def _read_commit(message: asked_commit.OffsetCommitRequest, version: int) -> OffsetCommit:
    kind = OffsetCommit if version >= _EPOCHS_FROM else GenerationOffsetCommit
    return kind(
        message.group_id,
        message.member_id,
        message.generation_id_or_member_epoch,
        message.group_instance_id,
        tuple(
            OffsetToCommit(
                topic.name,
                PartitionIndex(each.partition_index),
                Offset(each.committed_offset),
                LeaderEpoch(each.committed_leader_epoch),
                each.committed_metadata or "",
            )
            for topic in message.topics
            for each in topic.partitions
        ),
    )


def _write_committed(
    message: asked_commit.OffsetCommitRequest, answer: CommittedPartitions, _version: int
) -> OffsetCommitResponse:
    return _committed(message, [code_of(each.error) for each in answer.partitions])


def _refuse_commit(
    message: asked_commit.OffsetCommitRequest, error: TidelogError, version: int
) -> OffsetCommitResponse:
    is_unknown = version < _EPOCHS_FROM and isinstance(error, GroupIdNotFound)
    code = IllegalGeneration.code if is_unknown else coordinator_code_of(error)
    return _committed(message, [code] * sum(len(topic.partitions) for topic in message.topics))


def _committed(message: asked_commit.OffsetCommitRequest, codes: list[int]) -> OffsetCommitResponse:
    """codes: of all partitions, in the order of the request."""
    code = iter(codes)
    return OffsetCommitResponse(
        tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(each.partition_index, next(code)) for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
    )


OFFSET_COMMIT: Final = KafkaApi(
    range(2, 10),
    asked_commit.OFFSET_COMMIT_REQUEST,
    OFFSET_COMMIT_RESPONSE,
    GROUPS_OFFSET_COMMIT,
    _read_commit,
    _write_committed,
    _refuse_commit,
)


# --- OffsetFetch ---

_ERROR_FROM: Final = 2
"""Version from which the whole answer may have an error."""

_GROUPS_FROM: Final = 8
"""Version from which a request names several groups, each with its own error."""


def _groups(message: asked_fetch.OffsetFetchRequest, version: int) -> tuple[asked_fetch.OffsetFetchRequestGroup, ...]:
    """The groups of a request, as later versions name them."""
    if version >= _GROUPS_FROM:
        return message.groups
    topics = None
    if message.topics is not None:
        topics = tuple(
            asked_fetch.OffsetFetchRequestTopics(each.partition_indexes, each.name) for each in message.topics
        )
    return (asked_fetch.OffsetFetchRequestGroup(message.group_id, topics),)


def _read_fetch(message: asked_fetch.OffsetFetchRequest, version: int) -> FetchOffsetsOfGroups:
    groups = _groups(message, version)
    return FetchOffsetsOfGroups(tuple(_fetch_of(group, require_stable=message.require_stable) for group in groups))


def _fetch_of(group: asked_fetch.OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetch:
    partitions = None
    if group.topics is not None:
        partitions = tuple(
            NamedPartition(topic.name, PartitionIndex(index))
            for topic in group.topics
            for index in topic.partition_indexes
        )
    return OffsetFetch(group.group_id, group.member_id or "", group.member_epoch, partitions, require_stable)


def _write_fetched(
    message: asked_fetch.OffsetFetchRequest, answer: FetchOffsetsOfGroupsAnswer, version: int
) -> OffsetFetchResponse:
    pairs = list(zip(_groups(message, version), answer.groups, strict=True))
    if version >= _GROUPS_FROM:
        return OffsetFetchResponse(groups=tuple(_fetched_group(*pair) for pair in pairs))
    [(group, found)] = pairs
    topics = tuple(
        OffsetFetchResponseTopic(name, tuple(OffsetFetchResponsePartition(**_fields(each)) for each in partitions))
        for name, partitions in _by_topic(group, found, is_error_apart=version >= _ERROR_FROM)
    )
    return OffsetFetchResponse(0, topics, _fetch_code(found.error))


def _fetched_group(group: asked_fetch.OffsetFetchRequestGroup, found: OffsetsOfGroup) -> OffsetFetchResponseGroup:
    topics = tuple(
        OffsetFetchResponseTopics(tuple(OffsetFetchResponsePartitions(**_fields(each)) for each in partitions), name)
        for name, partitions in _by_topic(group, found, is_error_apart=True)
    )
    return OffsetFetchResponseGroup(found.group_id, topics, _fetch_code(found.error))


def _by_topic(
    group: asked_fetch.OffsetFetchRequestGroup, found: OffsetsOfGroup, *, is_error_apart: bool
) -> Iterator[tuple[str, list[FetchedOffset]]]:
    """The partitions of each topic of an answer. is_error_apart: an error of the group is not repeated for each."""
    if group.topics is None:
        ordered = sorted(found.partitions, key=attrgetter("topic", "partition"))
        yield from ((name, list(partitions)) for name, partitions in groupby(ordered, key=attrgetter("topic")))
    elif found.error is None:
        fetched = iter(found.partitions)
        for topic in group.topics:
            yield topic.name, [next(fetched) for _ in topic.partition_indexes]
    elif not is_error_apart:
        for topic in group.topics:
            indexes = map(PartitionIndex, topic.partition_indexes)
            yield topic.name, [FetchedOffset(topic.name, index, found.error) for index in indexes]


def _fields(fetched: FetchedOffset) -> dict[str, Any]:
    """Those of a partition, which has another class from version 8 on."""
    return {
        "partition_index": fetched.partition,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": _fetch_code(fetched.error),
    }


def _fetch_code(error: TidelogError | None) -> int:
    """Clients know the number by which they ask the same node again. After COORDINATOR_NOT_AVAILABLE aiokafka, and
    Java's consumers before 3.9, stop, and librdkafka never asks again, as after NOT_COORDINATOR (its issue 5586): a
    coordinator that may not answer for a moment would leave its consumers without offsets."""
    code = coordinator_code_of(error)
    return CoordinatorLoadInProgress.code if code == CoordinatorNotAvailable.code else code


def _refuse_fetch(message: asked_fetch.OffsetFetchRequest, error: TidelogError, version: int) -> OffsetFetchResponse:
    refused = tuple(OffsetsOfGroup(group.group_id, error) for group in _groups(message, version))
    return _write_fetched(message, FetchOffsetsOfGroupsAnswer(refused), version)


OFFSET_FETCH: Final = KafkaApi(
    range(1, 10),
    asked_fetch.OFFSET_FETCH_REQUEST,
    OFFSET_FETCH_RESPONSE,
    GROUPS_FETCH_OFFSETS_OF_GROUPS,
    _read_fetch,
    _write_fetched,
    _refuse_fetch,
)


# --- OffsetDelete ---


def _read_delete(message: asked_delete.OffsetDeleteRequest, _version: int) -> OffsetDelete:
    return OffsetDelete(
        message.group_id,
        tuple(
            NamedPartition(topic.name, PartitionIndex(each.partition_index))
            for topic in message.topics
            for each in topic.partitions
        ),
    )


def _write_deleted(
    message: asked_delete.OffsetDeleteRequest, answer: CommittedPartitions, _version: int
) -> OffsetDeleteResponse:
    outcome = iter(answer.partitions)
    return OffsetDeleteResponse(
        NONE,
        0,
        tuple(
            OffsetDeleteResponseTopic(
                topic.name,
                tuple(
                    OffsetDeleteResponsePartition(each.partition_index, code_of(next(outcome).error))
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        ),
    )


def _refuse_delete(_message: object, error: TidelogError, _version: int) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(coordinator_code_of(error), 0, ())


OFFSET_DELETE: Final = KafkaApi(
    range(1),
    asked_delete.OFFSET_DELETE_REQUEST,
    OFFSET_DELETE_RESPONSE,
    GROUPS_OFFSET_DELETE,
    _read_delete,
    _write_deleted,
    _refuse_delete,
)
