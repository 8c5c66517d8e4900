"""Requests to the coordinator of remote segments and their answers, and its effects.

Source: KIP-405, RemoteLogMetadataManager.
"""

from __future__ import annotations

from typing import Final

from replication.coordination.encoded_segment import EncodedSegment, segment_id_of, start_offset_of
from tidelog.tiering.remote_segment import ObjectSection, RemoteSegment, RemoteSegmentId
from tidelog.types import EpochStart, LeaderEpoch, NodeId, Offset, PartitionKey
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class RemoteLogLeader:
    """The leader of a partition, which sends a request."""

    key: PartitionKey
    leader_epoch: LeaderEpoch
    node_id: NodeId


@dataclass(frozen=True, slots=True)
class BeginRemoteLog:
    """A leadership begins: from now on no leader of an older epoch copies or deletes segments of the partition. Copies
    that an older leader has not finished are deleted. Answered by RemoteLogChanged."""

    leader: RemoteLogLeader


@dataclass(frozen=True, slots=True)
class BeginCopy:
    """The leader is about to upload a segment. It replaces an unfinished copy of the same leader, if there is one:
    a partition has at most one copy under way. Answered by RemoteLogChanged; only then may the upload begin."""

    leader: RemoteLogLeader
    segment: RemoteSegment


@dataclass(frozen=True, slots=True)
class FinishCopy:
    """The object of the segment was uploaded and read back. Answered by RemoteLogChanged."""

    leader: RemoteLogLeader
    segment_id: RemoteSegmentId
    sections: tuple[ObjectSection, ...]


@dataclass(frozen=True, slots=True)
class DeleteRemoteSegments:
    """The leader wants segments to be deleted: by retention, or since no reader may believe them. Those that are not
    known, or are being deleted, are left as they are. Answered by RemoteLogChanged."""

    leader: RemoteLogLeader
    segment_ids: tuple[RemoteSegmentId, ...]
    """At most SEGMENTS_MAX."""
    log_start: EpochStart | None = None
    """That of the leader's log, durably, with the epoch of the record there. It is recorded with the deletion: without
    it the next leader, whose log may start below it, could not tell expired segments from lost ones."""


@dataclass(frozen=True, slots=True)
class RemoteLogChanged:
    """The change is committed."""


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """The place of a segment in the order of its partition."""

    start_offset: Offset
    segment_id: RemoteSegmentId


@dataclass(frozen=True, slots=True)
class ListRemoteSegments:
    """A page of a partition's segments, in any state, by start offset and id. Answered by RemoteSegmentsPage."""

    key: PartitionKey
    after: SegmentPlace | None = None
    """That of the last segment of the page before; None for the first page."""
    limit: int = 500
    """At most SEGMENTS_MAX. Each takes 1 us of the coordinator's loop, and 8 of the leader's."""
    ends_behind: Offset = Offset(0)
    """Only segments that end behind this offset: what a follower knows already is not sent again."""


@dataclass(frozen=True, slots=True)
class RemoteSegmentsPage:
    """Some segments of a partition."""

    segments: tuple[EncodedSegment, ...]
    has_more: bool
    leader_epoch: LeaderEpoch
    """The newest one that has registered; -1 if none has."""
    log_start: EpochStart | None = None
    """The log start with which a leader has deleted segments: of a log with this record none is missing below it."""

    @property
    def end(self) -> SegmentPlace | None:
        """The place of its last segment; None without one."""
        if not self.segments:
            return None
        last = self.segments[-1]
        return SegmentPlace(start_offset_of(last), segment_id_of(last))


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """An object of the store, or the manifest beside it, as its key names it."""

    key: PartitionKey
    segment_id: RemoteSegmentId
    start_offset: Offset


@dataclass(frozen=True, slots=True)
class FollowRemoteLogs:
    """Pages of many partitions. Answered by RemoteSegmentsPages. Followers ask for all their partitions with the same
    coordinator at once: most have nothing new."""

    lists: tuple[ListRemoteSegments, ...]
    """At most FOLLOWED_MAX."""


@dataclass(frozen=True, slots=True)
class RemoteSegmentsPages:
    """The pages, in the order of the request. Together they have a bounded number of segments: behind it they are empty
    and have more."""

    pages: tuple[RemoteSegmentsPage, ...]


FOLLOWED_MAX: Final = 500
"""Partitions in one request of a follower: 30 kB."""


@dataclass(frozen=True, slots=True)
class FindOrphans:
    """Which of these objects belong to no segment? Answered by OrphansFound. All must be of partitions that this
    coordinator has: it would take those of another one for orphans.

    An object that was listed before the request and is not known is an orphan for ever: its BeginCopy was committed
    before its upload began, so its segment was known, and was forgotten since. That holds while this coordinator has
    all records that were ever committed: it cannot tell an orphan from a segment whose record was lost, as after an
    old copy of `__remote_log_metadata` was restored. So nothing is removed whose offsets no finished segment has."""

    objects: tuple[RemoteObject, ...]


@dataclass(frozen=True, slots=True)
class OrphansFound:
    """The objects without a segment, each in the order of the request."""

    objects: tuple[RemoteObject, ...]
    """Orphans: a finished segment has the offset at which they start, or the log starts behind it."""
    doubtful: tuple[RemoteObject, ...] = ()
    """Those that may be all that is left of their offsets."""


@dataclass(frozen=True, slots=True)
class ObjectsRemoved:
    """The driver has removed the objects of segments that are being deleted, or found them missing."""

    key: PartitionKey
    segment_ids: tuple[RemoteSegmentId, ...]


@dataclass(frozen=True, slots=True)
class RemoveObjects:
    """Effect: remove the objects of these segments of one partition from the store, then report ObjectsRemoved. Asked
    again when a coordinator is loaded, until it is reported."""

    topic: str
    """Name of the topic, which the keys of its objects begin with; the topic may be gone."""
    segments: tuple[RemoteSegment, ...]
