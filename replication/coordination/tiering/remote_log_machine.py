"""The state machine of one partition of `__remote_log_metadata`: the remote segments of some partitions of topics.

Invariants:
  1. Only the newest leader epoch that has registered begins, finishes and deletes copies. A deposed leader therefore
     deletes no segment of its successor, and one that comes back late with its copy is refused.
  2. A segment goes from COPY_SEGMENT_STARTED to COPY_SEGMENT_FINISHED or to DELETE_SEGMENT_STARTED, from there to a
     tombstone, and never back.
  3. The removal of an object is asked for only once DELETE_SEGMENT_STARTED is committed: a segment whose object may be
     gone is never listed as finished.
  4. A segment is forgotten only when its object is reported as removed. What is known before the upload begins and
     after it ends cannot be an orphan; what is not known is one, unless records were lost (FindOrphans).
  5. Segments of a topic that is gone are deleted here: it has no leader that could ask for it.
  6. The log start of a leader that deletes segments is recorded in the same batch: what is missing below it has
     expired, what is missing above it is lost.

Effects: RemoveObjects. Out of scope: the objects (node/tiering/), which segments a leader believes, copies and deletes
(remote_log.py), bytes (remote_log_records.py).
Source: KIP-405, RemoteLogMetadataCache; the fence by a registered epoch is Tidelog's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from replication.controller.image import EMPTY, ClusterImage
from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.encoded_segment import (
    EncodedSegment,
    encoded_segment,
    segment_head,
    segment_id_of,
    start_offset_of,
)
from replication.coordination.remote_log_records import (
    RemoteLogRecord,
    partition_record,
    remote_log_start,
    segment_record,
)
from replication.coordination.remote_log_requests import (
    FOLLOWED_MAX,
    BeginCopy,
    BeginRemoteLog,
    DeleteRemoteSegments,
    FindOrphans,
    FinishCopy,
    FollowRemoteLogs,
    ListRemoteSegments,
    ObjectsRemoved,
    OrphansFound,
    RemoteLogChanged,
    RemoteLogLeader,
    RemoteObject,
    RemoteSegmentsPage,
    RemoteSegmentsPages,
    RemoveObjects,
    SegmentPlace,
)
from replication.coordination.tiering.segment_table import SegmentTable
from tidelog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnreadableCoordinatorRecord,
)
from tidelog.protocol.kafka.messages.remote_log_partition_key import RemoteLogPartitionKey
from tidelog.protocol.kafka.messages.remote_log_partition_value import RemoteLogPartitionValue
from tidelog.protocol.kafka.messages.remote_log_segment_key import RemoteLogSegmentKey
from tidelog.protocol.kafka.messages.remote_log_segment_value import RemoteLogSegmentValue
from tidelog.tiering.remote_segment import (
    RemoteSegmentId,
    RemoteSegmentState,
)
from tidelog.types import (
    NO_LEADER_EPOCH,
    REMOTE_LOG_METADATA_TOPIC,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    TopicId,
)

SEGMENTS_MAX: Final = 1_000
"""Segments in one decision: their records are one batch, and their removals one effect."""

OVERLAPPING_MAX: Final = 16
"""So many segments are looked at for one with an offset: more leaders do not copy the same records."""

_STARTED, _FINISHED = RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.COPY_SEGMENT_FINISHED
_DELETED = RemoteSegmentState.DELETE_SEGMENT_STARTED
_CHANGED: Final = RemoteLogChanged()


class _RemotePartition:
    """What is known about one partition. topic: its name, empty until a leader has registered."""

    def __init__(self, key: PartitionKey) -> None:
        self.topic, self.leader_epoch, self.node_id = "", NO_LEADER_EPOCH, NodeId(-1)
        self.log_start: EpochStart | None = None
        """The log start with which a leader has deleted segments."""
        self.segments = SegmentTable(key)
        self.copying: RemoteSegmentId | None = None
        """The copy under way."""
        self.deleting: dict[RemoteSegmentId, None] = {}
        """Segments whose objects are being removed."""


class RemoteLogMachine:
    """The remote segments of one partition of the topic. Implements CoordinatorMachine."""

    def __init__(self) -> None:
        self._partitions: dict[PartitionKey, _RemotePartition] = {}
        self._image = EMPTY
        self._now: Instant | None = None  # None: replay has not ended
        self._gone: dict[PartitionKey, SegmentPlace | None] = {}
        """Partitions of deleted topics that have segments which are not being deleted yet; the last one looked at."""

    # --- records ------------------------------------------------------------------------------------------------

    def apply(
        self,
        record: CoordinatorRecord[Any, Any],
        offset: Offset,
        producer: TransactionalProducer | None,
        /,
    ) -> None:
        """Apply a record. Raises UnreadableCoordinatorRecord if no coordinator writes such a record."""
        if producer is not None:
            raise _never_written(offset, "is in a transaction")
        match record.key, record.value:
            case RemoteLogSegmentKey() as key, RemoteLogSegmentValue() as value:
                self._apply_segment(_partition_of(key), encoded_segment(key.segment_id, value), offset)
            case RemoteLogSegmentKey() as key, bytes() as encoded:  # decode_to_replay
                self._apply_segment(_partition_of(key), EncodedSegment(encoded), offset)
            case RemoteLogSegmentKey() as key, None:
                self._forget(_partition_of(key), RemoteSegmentId(key.segment_id))
            case RemoteLogPartitionKey() as key, RemoteLogPartitionValue() as value:
                known = self._known(_partition_of(key))
                known.topic, known.leader_epoch = value.topic_name, LeaderEpoch(value.leader_epoch)
                known.node_id, known.log_start = NodeId(value.node_id), remote_log_start(value)
            case RemoteLogPartitionKey() as key, None:
                self._partitions.pop(_partition_of(key), None)
                self._gone.pop(_partition_of(key), None)
            case key, _:
                raise _never_written(offset, f"has a value that does not belong to its key {key}")

    def _apply_segment(self, partition: PartitionKey, encoded: EncodedSegment, offset: Offset) -> None:
        known = self._known(partition)
        head = segment_head(encoded)
        try:
            known.segments.put(encoded, head)
        except ValueError as error:
            raise _never_written(offset, f"changes a segment: {error}") from error
        if head.state is _STARTED:
            known.copying = segment_id_of(encoded)
        elif known.copying is not None and known.copying == segment_id_of(encoded):
            known.copying = None
        if head.state is _DELETED:
            known.deleting[segment_id_of(encoded)] = None

    def _forget(self, partition: PartitionKey, segment_id: RemoteSegmentId) -> None:
        known = self._partitions.get(partition)
        if known is not None:
            known.segments.remove(segment_id)
            known.deleting.pop(segment_id, None)
            if known.copying == segment_id:
                known.copying = None

    def _known(self, partition: PartitionKey) -> _RemotePartition:
        known = self._partitions.get(partition)
        if known is None:
            known = self._partitions[partition] = _RemotePartition(partition)
        return known

    def apply_marker(self, producer: TransactionalProducer, /, *, committed: bool) -> None:
        """Nothing of this partition belongs to a transaction, so a marker ends nothing."""

    def loaded(self, image: ClusterImage, _coordinator_epoch: int, now: Instant, /) -> Sequence[Decision[Any]]:
        """Ask again for the removals that a former coordinator has not seen the end of."""
        self._image, self._now = image, now
        self._note_gone()
        return [
            Decision(None, effects=(self._removal(partition, ids),))
            for partition, known in self._partitions.items()
            for ids in _slices(tuple(known.deleting))
        ]

    # --- requests -----------------------------------------------------------------------------------------------

    def handle(self, request: Any, now: Instant, /) -> Decision[Any]:
        """Decide on a request of remote_log_requests.py, or on ObjectsRemoved."""
        self._now = now
        try:
            match request:
                case BeginRemoteLog():
                    return self._begin(request.leader, now)
                case BeginCopy():
                    return self._begin_copy(request, now)
                case FinishCopy():
                    return self._finish_copy(request, now)
                case DeleteRemoteSegments():
                    return self._delete_for_leader(request, now)
                case ListRemoteSegments():
                    return Decision(self._page(request))
                case FollowRemoteLogs():
                    return Decision(self._pages(request))
                case FindOrphans():
                    return Decision(self._orphans(request))
                case ObjectsRemoved():
                    return self._removed(request)
                case _:
                    raise TypeError(f"{type(request).__name__} is no request to a coordinator of remote segments")
        except TidelogError as error:
            return Decision(error)

    def _begin(self, leader: RemoteLogLeader, now: Instant) -> Decision[RemoteLogChanged]:
        topic = self._image.topics.get(leader.key.topic_id)
        if topic is None:  # deleted, or newer than this node's metadata
            raise UnknownTopicId(
                f"topic {leader.key.topic_id} is not in the metadata of the coordinator of its remote segments: "
                "it was deleted, or is new; try again after a pause while it exists"
            )
        known = self._partitions.get(leader.key)
        if known is not None and leader.leader_epoch < known.leader_epoch:
            raise _fenced(leader, known)
        if known is not None and leader.leader_epoch == known.leader_epoch:
            return Decision(_CHANGED)
        begun = partition_record(leader, topic.name, None if known is None else known.log_start)
        if known is None or known.copying is None:
            return Decision(_CHANGED, (begun,))
        # The older leader can no longer finish this copy, and only this decision knows of it.
        deleted = self._delete(known, (known.copying,), leader.node_id, now)
        return Decision(_CHANGED, (begun, *deleted.records), effects=deleted.effects)

    def _begin_copy(self, request: BeginCopy, now: Instant) -> Decision[RemoteLogChanged]:
        leader, segment = request.leader, request.segment
        known = self._led(leader)
        if (
            PartitionKey(segment.topic_id, segment.partition) != leader.key
            or segment.copied_in != leader.leader_epoch
            or not 0 <= segment.start_offset < segment.end_offset
            or not segment.leader_epochs
            or not segment.start_offset <= segment.leader_epochs[0].start_offset < segment.end_offset
            or segment.state is not _STARTED
        ):
            raise InvalidRequest(f"the leader of {leader.key} begins a copy that contradicts itself: {segment}")
        present = known.segments.get(segment.segment_id)
        if present is not None:
            if present.state is _STARTED and present.start_offset == segment.start_offset:
                return Decision(_CHANGED)  # the answer was lost
            raise InvalidRequest(
                f"segment {segment.segment_id} of {leader.key} is in state {present.state.name}: each copy needs "
                "an id of its own"
            )
        replaced: Decision[RemoteLogChanged] = Decision(_CHANGED)
        if known.copying is not None:
            replaced = self._delete(known, (known.copying,), leader.node_id, now)
        begun = segment_record(replace(segment, changed_ms=now.wall_ms, node_id=leader.node_id))
        return Decision(_CHANGED, (*replaced.records, begun), effects=replaced.effects)

    def _finish_copy(self, request: FinishCopy, now: Instant) -> Decision[RemoteLogChanged]:
        known = self._led(request.leader)
        segment = known.segments.get(request.segment_id)
        if segment is None or segment.state is _DELETED:
            raise InvalidRequest(
                f"the copy {request.segment_id} of {request.leader.key} was replaced or deleted meanwhile: copy "
                "the segment once more, under another id"
            )
        if segment.state is _FINISHED:
            return Decision(_CHANGED)  # the answer was lost
        if not request.sections:
            raise InvalidRequest(f"the copy {request.segment_id} of {request.leader.key} has no sections")
        finished = replace(
            segment,
            state=_FINISHED,
            sections=request.sections,
            node_id=request.leader.node_id,
            changed_ms=now.wall_ms,
        )
        return Decision(_CHANGED, (segment_record(finished),))

    def _page(self, request: ListRemoteSegments) -> RemoteSegmentsPage:
        if not 1 <= request.limit <= SEGMENTS_MAX:
            raise InvalidRequest(f"a page of {request.limit} remote segments is asked for; use 1 to {SEGMENTS_MAX}")
        if request.after is not None and request.after.start_offset < 0:
            raise InvalidRequest(
                f"remote segments behind offset {request.after.start_offset} are asked for; use 0 or more"
            )
        known = self._partitions.get(request.key)
        if known is None:
            return RemoteSegmentsPage((), has_more=False, leader_epoch=NO_LEADER_EPOCH)
        found = tuple(islice(known.segments.following(request.after, request.ends_behind), request.limit + 1))
        has_more = len(found) > request.limit
        return RemoteSegmentsPage(found[: request.limit], has_more, known.leader_epoch, known.log_start)

    def _pages(self, request: FollowRemoteLogs) -> RemoteSegmentsPages:
        if not 1 <= len(request.lists) <= FOLLOWED_MAX:
            raise InvalidRequest(
                f"remote segments of {len(request.lists)} partitions are asked for: 1 to {FOLLOWED_MAX}"
            )
        pages, left = [], SEGMENTS_MAX
        for asked in request.lists:
            if left > 0:
                pages.append(self._page(replace(asked, limit=min(asked.limit, left))))
                left -= len(pages[-1].segments)
            else:
                pages.append(RemoteSegmentsPage((), has_more=True, leader_epoch=NO_LEADER_EPOCH))
        return RemoteSegmentsPages(tuple(pages))

    def _orphans(self, request: FindOrphans) -> OrphansFound:
        orphans: list[RemoteObject] = []
        doubtful: list[RemoteObject] = []
        for each in request.objects:
            if each.start_offset < 0:
                raise InvalidRequest(f"an object that starts at offset {each.start_offset} is asked for; use 0 or more")
            known = self._partitions.get(each.key)
            if known is None:
                doubtful.append(each)
            elif each.segment_id.bytes not in known.segments:
                (orphans if _is_spare(known, each.start_offset) else doubtful).append(each)
        return OrphansFound(tuple(orphans), tuple(doubtful))

    def _removed(self, request: ObjectsRemoved) -> Decision[RemoteLogChanged]:
        known = self._partitions.get(request.key)
        if known is None:
            return Decision(_CHANGED)
        removed = [segment_id for segment_id in request.segment_ids if segment_id in known.deleting]
        records: list[RemoteLogRecord] = [
            CoordinatorRecord(RemoteLogSegmentKey(request.key.topic_id, request.key.partition, segment_id), None)
            for segment_id in removed
        ]
        if len(removed) == len(known.segments) and request.key.topic_id not in self._image.topics:
            key = RemoteLogPartitionKey(request.key.topic_id, request.key.partition)
            records.append(CoordinatorRecord(key, None))
        return Decision(_CHANGED, tuple(records))

    def _led(self, leader: RemoteLogLeader) -> _RemotePartition:
        """The partition of a leader. Raises FencedLeaderEpoch; UnknownLeaderEpoch if it has not registered."""
        known = self._partitions.get(leader.key)
        if known is None or known.leader_epoch < leader.leader_epoch:
            raise UnknownLeaderEpoch(
                f"the leader of {leader.key} in epoch {leader.leader_epoch} has not registered with the "
                "coordinator of its remote segments: it registers first"
            )
        if leader.leader_epoch < known.leader_epoch:
            raise _fenced(leader, known)
        if leader.key.topic_id not in self._image.topics:
            raise UnknownTopicId(f"topic {known.topic!r} was deleted: its remote segments are being deleted, too")
        return known

    def _delete_for_leader(self, request: DeleteRemoteSegments, now: Instant) -> Decision[RemoteLogChanged]:
        leader = request.leader
        known, ids = self._led(leader), _limited(request.segment_ids)
        deleted = self._delete(known, ids, leader.node_id, now)
        start = request.log_start
        if start is None or (known.log_start is not None and _order(start) <= _order(known.log_start)):
            return deleted
        moved = partition_record(leader, known.topic, start)
        return Decision(_CHANGED, (moved, *deleted.records), effects=deleted.effects)

    @staticmethod
    def _delete(
        known: _RemotePartition,
        ids: Sequence[RemoteSegmentId],
        node_id: NodeId,
        now: Instant,
    ) -> Decision[RemoteLogChanged]:
        found = [known.segments.get(segment_id) for segment_id in dict.fromkeys(ids)]
        deleted = tuple(
            replace(segment, state=_DELETED, node_id=node_id, changed_ms=now.wall_ms)
            for segment in found
            if segment is not None and segment.state is not _DELETED
        )
        if not deleted:
            return Decision(_CHANGED)
        return Decision(_CHANGED, tuple(map(segment_record, deleted)), effects=(RemoveObjects(known.topic, deleted),))

    def _removal(self, partition: PartitionKey, ids: Sequence[RemoteSegmentId]) -> RemoveObjects:
        known = self._partitions[partition]
        found = (known.segments.get(segment_id) for segment_id in ids)
        return RemoveObjects(known.topic, tuple(segment for segment in found if segment is not None))

    # --- metadata and time --------------------------------------------------------------------------------------

    def on_image(self, image: ClusterImage, now: Instant, /) -> Sequence[Decision[Any]]:
        """Begin to delete the segments of topics that are gone; `tick` goes on with it."""
        self._image, self._now = image, now
        self._note_gone()
        return ()

    def _note_gone(self) -> None:
        # A topic that this image does not have was deleted. It is not newer than the image: a leader has registered
        # with a coordinator whose image had the topic, and the image that made this node the coordinator came later.
        for partition, known in self._partitions.items():
            is_left = not known.segments or len(known.deleting) < len(known.segments)
            if partition.topic_id not in self._image.topics and is_left:
                self._gone.setdefault(partition, None)

    def tick(self, now: Instant, /) -> Sequence[Decision[Any]]:
        """Delete the next segments of topics that are gone."""
        self._now = now
        for partition in list(self._gone):
            known = self._partitions[partition]
            found = tuple(islice(known.segments.following(self._gone[partition]), SEGMENTS_MAX))
            if found:
                # No copy begins any more: what was looked at is not looked at again while its objects are removed.
                self._gone[partition] = SegmentPlace(start_offset_of(found[-1]), segment_id_of(found[-1]))
                ids = tuple(segment_id_of(each) for each in found if segment_head(each).state is not _DELETED)
                return [self._delete(known, ids, known.node_id, now)] if ids else ()
            del self._gone[partition]
            if not known.segments:
                key = RemoteLogPartitionKey(partition.topic_id, partition.partition)
                return [Decision(None, (CoordinatorRecord(key, None),))]
        return ()

    def deadline(self) -> Millis | None:
        """At once while segments of deleted topics are left."""
        return self._now.monotonic_ms if self._gone and self._now is not None else None

    # --- for metrics --------------------------------------------------------------------------------------------

    def sizes(self) -> Mapping[str, int]:
        """The partitions with remote segments, and these segments."""
        return {
            "remote_partition": len(self._partitions),
            "remote_segment": sum(len(known.segments) for known in self._partitions.values()),
        }


def _partition_of(key: RemoteLogSegmentKey | RemoteLogPartitionKey) -> PartitionKey:
    return PartitionKey(TopicId(key.topic_id), PartitionIndex(key.partition))


def _slices(ids: tuple[RemoteSegmentId, ...]) -> list[tuple[RemoteSegmentId, ...]]:
    return [ids[first : first + SEGMENTS_MAX] for first in range(0, len(ids), SEGMENTS_MAX)]


def _limited(ids: tuple[RemoteSegmentId, ...]) -> tuple[RemoteSegmentId, ...]:
    if len(ids) > SEGMENTS_MAX:
        raise InvalidRequest(f"{len(ids)} remote segments are to be deleted at once; send at most {SEGMENTS_MAX}")
    return ids


def _is_spare(known: _RemotePartition, offset: Offset) -> bool:
    """True if the log needs no further object with the record at this offset."""
    if known.log_start is not None and offset < known.log_start.start_offset:
        return True
    return any(each.state is _FINISHED for each in known.segments.with_offset(offset, OVERLAPPING_MAX))


def _order(start: EpochStart) -> tuple[LeaderEpoch, Offset]:
    """Later log starts are larger, in another leader's log too."""
    return start.epoch, start.start_offset


def _fenced(leader: RemoteLogLeader, known: _RemotePartition) -> FencedLeaderEpoch:
    return FencedLeaderEpoch(
        f"node {leader.node_id} leads {leader.key} in epoch {leader.leader_epoch}, and node {known.node_id} has "
        f"registered epoch {known.leader_epoch} for its remote segments: the older leader copies and deletes nothing"
    )


def _never_written(offset: Offset, what: str) -> UnreadableCoordinatorRecord:
    return UnreadableCoordinatorRecord(
        f"{REMOTE_LOG_METADATA_TOPIC}: the record at offset {offset} {what}, and no coordinator writes such records; "
        "restore the partition from another replica"
    )
