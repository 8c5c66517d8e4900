"""Fetch of Kafka's protocol: of consumers, in full.

Sessions of fetches (KIP-227) are not kept: every answer has the session id 0, so that clients name all partitions in
each request. Replication is not done by this protocol.
"""

from __future__ import annotations

from typing import Any, Final

from node.api.fetch import FetchRequest, PartitionFetch, isolation_of
from node.api.table import DATA_FETCH
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import ClusterAuthorizationFailed, FetchSessionIdNotFound, TidelogError
from tidelog.protocol.kafka.messages import fetch_request as sent
from tidelog.protocol.kafka.messages.fetch_response import (
    FETCH_RESPONSE,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from tidelog.record_exchange import FetchAnswer, FetchedPartition
from tidelog.types import Isolation, LeaderEpoch, Offset

_FULL: Final = (0, -1)
"""Epochs of requests that continue no session."""

_ERROR_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_DIVERGING_FROM: Final = 12
"""Versions from which answers have these fields."""


def _read_fetch(message: sent.FetchRequest, _version: int) -> FetchRequest:
    if message.replica_id >= 0:
        raise ClusterAuthorizationFailed("nodes replicate by gRPC: a request with a replica id is for brokers of Kafka")
    if message.session_epoch not in _FULL:
        raise FetchSessionIdNotFound("this node keeps no sessions of fetches: name all partitions in each request")
    return FetchRequest(
        None,
        message.max_wait_ms,
        message.min_bytes,
        isolation_of(message.isolation_level),
        [
            PartitionFetch(
                topic.topic,
                partition.partition,
                Offset(partition.fetch_offset),
                current_leader_epoch=LeaderEpoch(partition.current_leader_epoch),
                last_fetched_epoch=LeaderEpoch(partition.last_fetched_epoch),
                max_bytes=max(1, partition.partition_max_bytes),
            )
            for topic in message.topics
            for partition in topic.partitions
        ],
        rack=message.rack_id,
        max_bytes=max(1, message.max_bytes),
    )


def _write_fetched(message: sent.FetchRequest, answer: FetchAnswer, version: int) -> FetchResponse:
    found = {(each.topic_id, each.partition): each for each in answer.partitions}
    isolation = isolation_of(message.isolation_level)
    return FetchResponse(
        0,
        tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    _partition(found[topic.topic, each.partition], version, isolation) for each in topic.partitions
                ),
            )
            for topic in message.topics
        ),
    )


def _partition(fetched: FetchedPartition, version: int, isolation: Isolation) -> PartitionData:
    diverging = fetched.diverging
    optional: dict[str, Any] = {}
    if version >= _PREFERRED_REPLICA_FROM:
        optional["preferred_read_replica"] = fetched.preferred_read_replica
    if version >= _DIVERGING_FROM and diverging is not None:
        optional["diverging_epoch"] = EpochEndOffset(diverging.epoch, diverging.end_offset)
    # Kafka's clients distinguish "not asked for" from "none".
    aborted = (
        None
        if isolation is Isolation.READ_UNCOMMITTED
        else tuple(AbortedTransaction(each.producer_id, each.first_offset) for each in fetched.aborted)
    )
    return PartitionData(
        fetched.partition,
        code_of(fetched.error),
        fetched.high_watermark,
        fetched.last_stable_offset,
        aborted,
        fetched.records,
        fetched.log_start_offset,
        **optional,
    )


def _refuse_fetch(message: sent.FetchRequest, error: TidelogError, version: int) -> FetchResponse:
    code = code_of(error)
    if version >= _ERROR_FROM:
        return FetchResponse(0, (), code)
    unknown = Offset(-1)
    return FetchResponse(
        0,
        tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    PartitionData(each.partition, code, unknown, unknown, None, b"") for each in topic.partitions
                ),
            )
            for topic in message.topics
        ),
    )


FETCH: Final = KafkaApi(
    range(4, 13), sent.FETCH_REQUEST, FETCH_RESPONSE, DATA_FETCH, _read_fetch, _write_fetched, _refuse_fetch
)
