"""Asks the leaders which parts of their logs are in the object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidelog.client.cluster import Cluster, PartitionView
from tidelog.client.offset_lookup import ask_leaders
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.v1 import data_pb2
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition


class AskedRange(NamedTuple):
    """The offsets `start` to `end` - 1 of a partition."""

    topic_id: TopicId
    start: Offset
    end: Offset
    known_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """A leader of an older epoch is not asked: it may be deposed, and its segments of a lost epoch."""


class StoredRange(NamedTuple):
    """What of a range is in the object store, as the leader believes."""

    store_url: str
    """As the nodes have it."""
    segments: tuple[RemoteSegment, ...]
    """By start offset; they may overlap."""


async def describe_remote_logs(
    cluster: Cluster, wanted: Mapping[TopicPartition, AskedRange], *, timeout_ms: int
) -> dict[TopicPartition, StoredRange]:
    """The stored part of each range; partitions without one are left out. Raises TopicAuthorizationFailed,
    UnsupportedVersion if the nodes do not know the request, and the last error after `timeout_ms`."""
    reached = {key: one.start for key, one in wanted.items()}
    found: dict[TopicPartition, list[RemoteSegment]] = {key: [] for key in wanted}
    urls: dict[TopicPartition, str] = {}

    def question(key: TopicPartition, partition: PartitionView) -> dict[str, object]:
        return {
            "topic_id": wanted[key].topic_id.bytes,
            "current_leader_epoch": partition.leader_epoch,
            "start_offset": reached[key],
            "end_offset": wanted[key].end,
        }

    def take(key: TopicPartition, answer: data_pb2.DescribedRemoteLog) -> bool:
        found[key] += [read_message(RemoteSegment, each) for each in answer.segments]
        reached[key], urls[key] = Offset(answer.next_offset), answer.store_url
        return answer.next_offset >= wanted[key].end

    await ask_leaders(
        cluster,
        [key for key, one in wanted.items() if one.end > one.start],
        methods.DATA_DESCRIBE_REMOTE_LOGS,
        question,
        take,
        lambda key: wanted[key].known_epoch,
        timeout_ms=timeout_ms,
    )
    return {key: StoredRange(urls[key], tuple(segments)) for key, segments in found.items() if segments}
