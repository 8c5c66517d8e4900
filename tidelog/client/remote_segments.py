"""Which remote segments the partitions of a topic have, by their leaders.

Not here: which segments a reader needs (tidelog/spark/ranges/remote_history.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.client.cluster import Cluster, PartitionView
from tidelog.client.offset_lookup import ask_leaders
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.v1 import data_pb2
from tidelog.tiering.remote_segment import RemoteSegment
from tidelog.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class RemoteSegments:
    """What of a partition is in the object store."""

    segments: tuple[RemoteSegment, ...]
    """By start offset: as few as have all copied offsets. They may overlap."""
    store_url: str
    """Where the nodes have their objects, without credentials; empty for a topic without a remote tier."""


async def list_remote_segments(
    cluster: Cluster, ranges: Mapping[TopicPartition, tuple[Offset, Offset]], *, timeout_ms: int
) -> dict[TopicPartition, RemoteSegments]:
    """The remote segments with offsets of these ranges: from the first offset to below the second. Raises as
    `ask_leaders`."""
    reached = {key: start for key, (start, end) in ranges.items() if start < end}
    found: dict[TopicPartition, list[RemoteSegment]] = {key: [] for key in ranges}
    urls = dict.fromkeys(ranges, "")

    def question(key: TopicPartition, partition: PartitionView) -> dict[str, object]:
        return {
            "current_leader_epoch": partition.leader_epoch,
            "start_offset": reached[key],
            "end_offset": ranges[key][1],
        }

    def take(key: TopicPartition, answer: data_pb2.DescribedRemoteLog) -> bool:
        found[key] += [read_message(RemoteSegment, each) for each in answer.segments]
        reached[key], urls[key] = Offset(answer.next_offset), answer.store_url
        return answer.next_offset >= ranges[key][1]

    await ask_leaders(cluster, list(reached), methods.DATA_DESCRIBE_REMOTE_LOGS, question, take, timeout_ms=timeout_ms)
    return {key: RemoteSegments(tuple(segments), urls[key]) for key, segments in found.items()}
