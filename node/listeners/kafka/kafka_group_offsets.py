"""OffsetCommit and OffsetFetch of Kafka's protocol: the committed offsets of a group.

Answers have the topics and partitions in the order of the request: clients match them by position.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final

from node.api.table import GROUPS_OFFSET_COMMIT, GROUPS_OFFSET_FETCH
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.coordination.group_requests import (
    CommittedPartitions,
    FetchedOffset,
    NamedPartition,
    OffsetCommit,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
)
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages import offset_commit_request as asked_commit
from tidelog.protocol.kafka.messages import offset_fetch_request as asked_fetch
from tidelog.protocol.kafka.messages.offset_commit_response import (
    OFFSET_COMMIT_RESPONSE,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.kafka.messages.offset_fetch_response import (
    OFFSET_FETCH_RESPONSE,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tidelog.types import LeaderEpoch, Offset, PartitionIndex

# --- OffsetCommit ---


def _read_commit(message: asked_commit.OffsetCommitRequest, _version: int) -> OffsetCommit:
    return OffsetCommit(
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
    message: asked_commit.OffsetCommitRequest, error: TidelogError, _version: int
) -> OffsetCommitResponse:
    return _committed(message, [code_of(error)] * sum(len(topic.partitions) for topic in message.topics))


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
    range(2, 9),
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

_NO_MEMBER: Final = -1


def _read_fetch(message: asked_fetch.OffsetFetchRequest, _version: int) -> OffsetFetch:
    partitions = None
    if message.topics is not None:
        partitions = tuple(
            NamedPartition(topic.name, PartitionIndex(index))
            for topic in message.topics
            for index in topic.partition_indexes
        )
    return OffsetFetch(message.group_id, "", _NO_MEMBER, partitions, message.require_stable)


def _write_fetched(
    message: asked_fetch.OffsetFetchRequest, answer: OffsetFetchAnswer, _version: int
) -> OffsetFetchResponse:
    if message.topics is None:
        ordered = sorted(answer.partitions, key=attrgetter("topic", "partition"))
        return OffsetFetchResponse(0, tuple(_topic(*each) for each in groupby(ordered, key=attrgetter("topic"))))
    fetched = iter(answer.partitions)
    return OffsetFetchResponse(
        0, tuple(_topic(topic.name, [next(fetched) for _ in topic.partition_indexes]) for topic in message.topics)
    )


def _topic(name: str, partitions: Iterable[FetchedOffset]) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name,
        tuple(
            OffsetFetchResponsePartition(
                each.partition, each.offset, each.metadata, code_of(each.error), each.leader_epoch
            )
            for each in partitions
        ),
    )


def _refuse_fetch(message: asked_fetch.OffsetFetchRequest, error: TidelogError, version: int) -> OffsetFetchResponse:
    if version >= _ERROR_FROM:
        return OffsetFetchResponse(error_code=code_of(error))
    topics = message.topics or ()
    refused = (
        _topic(
            topic.name,
            [FetchedOffset(topic.name, PartitionIndex(index), error) for index in topic.partition_indexes],
        )
        for topic in topics
    )
    return OffsetFetchResponse(0, tuple(refused), NONE)


OFFSET_FETCH: Final = KafkaApi(
    range(1, 8),
    asked_fetch.OFFSET_FETCH_REQUEST,
    OFFSET_FETCH_RESPONSE,
    GROUPS_OFFSET_FETCH,
    _read_fetch,
    _write_fetched,
    _refuse_fetch,
)
