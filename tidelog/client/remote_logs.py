"""Asks the leaders which parts of their logs are in the object store.

Not here: which segments a reader of a range needs (tidelog/spark/ranges/remote_history.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.client.cluster import Cluster, PartitionView
from tidelog.client.offset_lookup import ask_leaders
from tidelog.errors import UnknownServerError
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.v1 import data_pb2
from tidelog.tiering.remote_segment import CopyProgress, LostRemoteSegment, RemoteSegment
from tidelog.types import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition


class AskedRange(NamedTuple):
    """The offsets `start` to `end` - 1 of a partition."""

    topic_id: TopicId
    start: Offset
    end: Offset
    known_epoch: LeaderEpoch = NO_LEADER_EPOCH
    """A leader of an older epoch is not asked: it may be deposed, and its segments of a lost epoch."""
    lost: bool = False
    """True: about the lost segments that begin in the range and the progress of copies, instead of the segments with
    its offsets."""


@dataclass(frozen=True, slots=True)
class RemoteSegments:
    """What of a range is in the object store, as the leader believes."""

    segments: tuple[RemoteSegment, ...]
    """By start offset: as few as have all copied offsets of the range. They may overlap."""
    store_url: str
    """Where the nodes have their objects, without credentials; empty for a topic without a remote tier."""
    lost: tuple[LostRemoteSegment, ...] = ()
    """By start offset, if they were asked for: those that no reader is given, since an unclean election has lost their
    records. The leader deletes them after a while."""
    progress: CopyProgress | None = None
    """Of the copies, likewise; None for a topic without a remote tier, and of older nodes."""


async def describe_remote_logs(
    cluster: Cluster, wanted: Mapping[TopicPartition, AskedRange], *, timeout_ms: int
) -> dict[TopicPartition, RemoteSegments]:
    """The stored part of each range. timeout_ms: for each page of segments, as many as one answer has: a long history
    takes many. Raises TopicAuthorizationFailed, UnsupportedVersion if the nodes do not know the request, and the last
    error after `timeout_ms`."""
    reached = {key: one.start for key, one in wanted.items()}
    found: dict[TopicPartition, list[RemoteSegment]] = {key: [] for key in wanted}
    lost: dict[TopicPartition, list[LostRemoteSegment]] = {key: [] for key in wanted}
    progress: dict[TopicPartition, CopyProgress] = {}
    urls = dict.fromkeys(wanted, "")

    def question(key: TopicPartition, partition: PartitionView) -> dict[str, object]:
        return {
            "topic_id": wanted[key].topic_id.bytes,
            "current_leader_epoch": partition.leader_epoch,
            "start_offset": reached[key],
            "end_offset": wanted[key].end,
            "lost": wanted[key].lost,
        }

    def take(key: TopicPartition, answer: data_pb2.DescribedRemoteLog) -> bool:
        found[key] += [read_message(RemoteSegment, each) for each in answer.segments]
        lost[key] += [read_message(LostRemoteSegment, each) for each in answer.lost]
        if answer.HasField("progress"):
            progress[key] = read_message(CopyProgress, answer.progress)
        reached[key] = Offset(answer.next_offset)
        # An answer without segments may have no URL: it must not replace that of the segments before.
        urls[key] = answer.store_url or urls[key]
        return True

    while left := [key for key, one in wanted.items() if reached[key] < one.end]:
        before = dict(reached)
        await ask_leaders(
            cluster,
            left,
            methods.DATA_DESCRIBE_REMOTE_LOGS,
            question,
            take,
            lambda key: wanted[key].known_epoch,
            timeout_ms=timeout_ms,
        )
        if reached == before:
            raise UnknownServerError(
                f"the leader of {left[0]} describes no remote segments from offset {reached[left[0]]} on, and does not "
                "say that there are none: look at the versions and logs of the nodes"
            )
    return {key: RemoteSegments(tuple(found[key]), urls[key], tuple(lost[key]), progress.get(key)) for key in wanted}
