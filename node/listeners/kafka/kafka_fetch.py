"""Fetch of Kafka's protocol: of consumers, in full or in incremental fetch sessions (KIP-227). Replication is not done
by this protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final
from uuid import UUID

from node.api.fetch import NEW_SESSION, NO_SESSION, FetchRequest, PartitionFetch, SessionFetch, isolation_of
from node.api.table import DATA_FETCH
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from tidelog.errors import ClusterAuthorizationFailed, TidelogError
from tidelog.protocol.kafka.messages import fetch_request as sent
from tidelog.protocol.kafka.messages.fetch_response import (
    FETCH_RESPONSE,
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tidelog.record_exchange import FetchAnswer, FetchedPartition, TopicReference
from tidelog.types import Isolation, LeaderEpoch, NodeAddress, Offset

_SESSIONS_FROM: Final = 7
"""Version from which clients have sessions."""

_ERROR_FROM: Final = 7
_PREFERRED_REPLICA_FROM: Final = 11
_DIVERGING_FROM: Final = 12
_LEADERS_FROM: Final = 16
"""Versions from which answers have these fields."""

_IDS_FROM: Final = 13
"""Version from which topics are named by their ids (KIP-516)."""

_REPLICA_STATE_FROM: Final = 15
"""Version from which a request of a replica says so in another field (KIP-903)."""


def _reference(topic: sent.FetchTopic | sent.ForgottenTopic, version: int) -> TopicReference:
    return topic.topic_id.bytes if version >= _IDS_FROM else topic.topic


def _read_fetch(message: sent.FetchRequest, version: int) -> FetchRequest:
    replica_id = message.replica_state.replica_id if version >= _REPLICA_STATE_FROM else message.replica_id
    if replica_id >= 0:
        raise ClusterAuthorizationFailed("nodes replicate by gRPC: a request with a replica id is for brokers of Kafka")
    numbers = count()
    return FetchRequest(
        None,
        message.max_wait_ms,
        message.min_bytes,
        isolation_of(message.isolation_level),
        [
            PartitionFetch(
                _reference(topic, version),
                partition.partition,
                Offset(partition.fetch_offset),
                current_leader_epoch=LeaderEpoch(partition.current_leader_epoch),
                last_fetched_epoch=LeaderEpoch(partition.last_fetched_epoch),
                max_bytes=max(1, partition.partition_max_bytes),
                correlation_id=next(numbers),  # as the handler numbers them: it copies none then
            )
            for topic in message.topics
            for partition in topic.partitions
        ],
        rack=message.rack_id,
        max_bytes=max(1, message.max_bytes),
        session=_session(message, version),
    )


def _session(message: sent.FetchRequest, version: int) -> SessionFetch | None:
    if version < _SESSIONS_FROM or (message.session_id == 0 and message.session_epoch == NO_SESSION):
        return None
    forgotten = [
        (_reference(topic, version), partition)
        for topic in message.forgotten_topics_data
        for partition in topic.partitions
    ]
    return SessionFetch(message.session_id, message.session_epoch, version >= _IDS_FROM, forgotten)


def _write_fetched(message: sent.FetchRequest, answer: FetchAnswer, version: int) -> FetchResponse:
    isolation = isolation_of(message.isolation_level)
    leaders: dict[int, NodeAddress] | None = {} if version >= _LEADERS_FROM else None
    topics = tuple(
        FetchableTopicResponse(tuple(_partition(each, version, isolation, leaders) for each in partitions), **named)
        for named, partitions in _by_topic(message, answer.partitions, version)
    )
    endpoints = tuple(
        NodeEndpoint(each.node_id, each.endpoint.host, each.endpoint.port, each.rack or None)
        for each in (leaders or {}).values()
    )
    return FetchResponse(0, topics, session_id=answer.session_id, node_endpoints=endpoints)


def _by_topic(
    message: sent.FetchRequest, fetched: Sequence[FetchedPartition], version: int
) -> Iterator[tuple[dict[str, Any], Sequence[FetchedPartition]]]:
    """The fields that name each topic of the answer, and its partitions: those of the request, in its order. Within a
    session, those of which there is something to tell."""
    if version >= _SESSIONS_FROM and message.session_epoch not in (NEW_SESSION, NO_SESSION):
        topics: dict[TopicReference, list[FetchedPartition]] = {}
        for each in fetched:
            topics.setdefault(each.topic_id, []).append(each)
        for topic, partitions in topics.items():
            yield {"topic": topic} if isinstance(topic, str) else {"topic_id": UUID(bytes=topic)}, partitions
        return
    found = {(each.topic_id, each.partition): each for each in fetched}
    for asked in message.topics:
        named = {"topic": asked.topic, "topic_id": asked.topic_id}
        yield named, [found[_reference(asked, version), each.partition] for each in asked.partitions]


def _partition(
    fetched: FetchedPartition, version: int, isolation: Isolation, leaders: dict[int, NodeAddress] | None
) -> PartitionData:
    """leaders: gets the next leader if the answer names it (KIP-951); None: the version cannot."""
    diverging = fetched.diverging
    optional: dict[str, Any] = {}
    if leaders is not None and fetched.error is not None and (leader := fetched.error.leader) is not None:
        leaders[leader.node_id] = leader
        optional["current_leader"] = LeaderIdAndEpoch(leader.node_id, leader.leader_epoch)
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
                tuple(PartitionData(each.partition, code, unknown, unknown, None, b"") for each in topic.partitions),
                topic.topic,
            )
            for topic in message.topics
        ),
    )


FETCH: Final = KafkaApi(
    range(4, 19), sent.FETCH_REQUEST, FETCH_RESPONSE, DATA_FETCH, _read_fetch, _write_fetched, _refuse_fetch
)
