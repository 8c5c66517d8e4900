"""DescribeRemoteLogs: the copies of segments from which a range of a partition can be read, past the nodes."""

from __future__ import annotations

from tidelog.errors import TidelogError
from tidelog.record_exchange import TopicReference
from tidelog.tiering.remote_segment import CopyProgress, LostRemoteSegment, RemoteSegment
from tidelog.types import LeaderEpoch, Offset
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class RemoteLogQuestion:
    """A question about the offsets `start_offset` to `end_offset` - 1 of a partition that the node leads."""

    topic_id: TopicReference
    partition: int
    current_leader_epoch: LeaderEpoch
    start_offset: Offset
    end_offset: Offset
    lost: bool = False
    """True: about the segments of lost leader epochs that begin in the range, and the progress of copies, instead."""


@dataclass(frozen=True, slots=True)
class DescribeRemoteLogsRequest:
    """Questions about ranges of partitions."""

    partitions: tuple[RemoteLogQuestion, ...]


@dataclass(frozen=True, slots=True)
class DescribedRemoteLog:
    """What is copied of the range. `segments`: by start offset, as few as possible; they may overlap."""

    topic_id: TopicReference
    partition: int
    error: TidelogError | None = None
    segments: tuple[RemoteSegment, ...] = ()
    next_offset: Offset = Offset(-1)
    """The answer is complete below it; below the range's end: ask again from there on."""
    store_url: str = ""
    """Where the nodes have their objects; empty without a remote tier."""
    lost: tuple[LostRemoteSegment, ...] = ()
    """By start offset, if they are asked for."""
    progress: CopyProgress | None = None
    """With them; None without a remote tier."""


@dataclass(frozen=True, slots=True)
class DescribeRemoteLogsAnswer:
    """In the order of the request."""

    partitions: tuple[DescribedRemoteLog, ...]
