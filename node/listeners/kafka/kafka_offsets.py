"""ListOffsets and OffsetForLeaderEpoch of Kafka's protocol."""

from __future__ import annotations

from typing import Final

from node.api.fetch import isolation_of
from node.api.offsets import (
    EpochAnswer,
    EpochQuestion,
    ListedOffset,
    ListOffsetsAnswer,
    ListOffsetsPartition,
    ListOffsetsRequest,
    OffsetForLeaderEpochAnswer,
    OffsetForLeaderEpochRequest,
)
from node.api.table import DATA_LIST_OFFSETS, DATA_OFFSET_FOR_LEADER_EPOCH
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import TidelogError, UnsupportedVersion
from tidelog.protocol.kafka.messages import list_offsets_request as asked_offsets
from tidelog.protocol.kafka.messages import offset_for_leader_epoch_request as asked_epochs
from tidelog.protocol.kafka.messages.list_offsets_response import (
    LIST_OFFSETS_RESPONSE,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.kafka.messages.offset_for_leader_epoch_response import (
    OFFSET_FOR_LEADER_EPOCH_RESPONSE,
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.types import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    PartitionIndex,
)

_EPOCH_FROM: Final = 4
"""Version from which an answer has the leader epoch of the record."""

_SPECIAL: Final[dict[int, int]] = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Timestamps that stand for the end, the start, the record with the largest timestamp, the first one on local disks
(KIP-405) and the last one elsewhere (KIP-1005), with the version from which they may be asked for."""


# --- ListOffsets ---


def _is_known(timestamp: int, version: int) -> bool:
    return timestamp >= 0 or version >= _SPECIAL.get(timestamp, version + 1)


def _read_list_offsets(message: asked_offsets.ListOffsetsRequest, version: int) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        isolation_of(message.isolation_level),
        tuple(
            ListOffsetsPartition(
                topic.name,
                each.partition_index,
                LeaderEpoch(each.current_leader_epoch),
                each.timestamp,
            )
            for topic in message.topics
            for each in topic.partitions
            if _is_known(each.timestamp, version)
        ),
    )


def _write_listed(
    message: asked_offsets.ListOffsetsRequest, answer: ListOffsetsAnswer, version: int
) -> ListOffsetsResponse:
    listed = iter(answer.partitions)
    unknown = UnsupportedVersion("this timestamp has no meaning in this version")
    return ListOffsetsResponse(
        tuple(
            ListOffsetsTopicResponse(
                topic.name,
                tuple(
                    _listed(
                        next(listed)
                        if _is_known(each.timestamp, version)
                        else ListedOffset(topic.name, each.partition_index, unknown),
                        version,
                    )
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
    )


def _listed(found: ListedOffset, version: int) -> ListOffsetsPartitionResponse:
    epoch = found.leader_epoch if version >= _EPOCH_FROM else NO_LEADER_EPOCH
    return ListOffsetsPartitionResponse(found.partition, code_of(found.error), found.timestamp_ms, found.offset, epoch)


def _refuse_list_offsets(
    message: asked_offsets.ListOffsetsRequest, error: TidelogError, _version: int
) -> ListOffsetsResponse:
    code = code_of(error)
    return ListOffsetsResponse(
        tuple(
            ListOffsetsTopicResponse(
                topic.name,
                tuple(
                    ListOffsetsPartitionResponse(each.partition_index, code, NO_TIMESTAMP, Offset(-1))
                    for each in topic.partitions
                ),
            )
            for topic in message.topics
        )
    )


LIST_OFFSETS: Final = KafkaApi(
    range(1, 11),
    asked_offsets.LIST_OFFSETS_REQUEST,
    LIST_OFFSETS_RESPONSE,
    DATA_LIST_OFFSETS,
    _read_list_offsets,
    _write_listed,
    _refuse_list_offsets,
)


# --- OffsetForLeaderEpoch ---


def _read_epochs(message: asked_epochs.OffsetForLeaderEpochRequest, _version: int) -> OffsetForLeaderEpochRequest:
    return OffsetForLeaderEpochRequest(
        tuple(
            EpochQuestion(topic.topic, each.partition, LeaderEpoch(each.current_leader_epoch), each.leader_epoch)
            for topic in message.topics
            for each in topic.partitions
        )
    )


def _write_ends(
    message: asked_epochs.OffsetForLeaderEpochRequest, answer: OffsetForLeaderEpochAnswer, _version: int
) -> OffsetForLeaderEpochResponse:
    ends = iter(answer.partitions)
    return OffsetForLeaderEpochResponse(
        0,
        tuple(
            OffsetForLeaderTopicResult(topic.topic, tuple(_end(next(ends)) for _ in topic.partitions))
            for topic in message.topics
        ),
    )


def _end(found: EpochAnswer) -> EpochEndOffset:
    epoch, offset = (NO_LEADER_EPOCH, Offset(-1)) if found.end is None else (found.end.epoch, found.end.end_offset)
    return EpochEndOffset(code_of(found.error), PartitionIndex(found.partition), epoch, offset)


def _refuse_epochs(
    message: asked_epochs.OffsetForLeaderEpochRequest, error: TidelogError, _version: int
) -> OffsetForLeaderEpochResponse:
    code = code_of(error)
    return OffsetForLeaderEpochResponse(
        0,
        tuple(
            OffsetForLeaderTopicResult(
                topic.topic,
                tuple(EpochEndOffset(code, each.partition, NO_LEADER_EPOCH, Offset(-1)) for each in topic.partitions),
            )
            for topic in message.topics
        ),
    )


OFFSET_FOR_LEADER_EPOCH: Final = KafkaApi(
    range(2, 5),
    asked_epochs.OFFSET_FOR_LEADER_EPOCH_REQUEST,
    OFFSET_FOR_LEADER_EPOCH_RESPONSE,
    DATA_OFFSET_FOR_LEADER_EPOCH,
    _read_epochs,
    _write_ends,
    _refuse_epochs,
)
