"""The rules of the remote tier in a simulated cluster: what is committed to `__remote_log_metadata` and what the object
store does are compared with each other, with the committed log, and with what nodes remove.

  - Only the newest registered leader epoch copies; a partition has one copy under way; a state never goes back.
  - A segment is finished only when its whole object is in the store, with the records that are committed there.
  - No object is removed before the deletion of its segment is committed; a segment is forgotten once it is gone.
  - A finished segment is deleted only if the log of a leader starts behind it, if its records were lost by an unclean
    election, or with its topic.
  - Local segments leave a node only if finished segments have their records.
  - Nothing is uploaded whose copy was not known before: what no coordinator knows is an orphan.

Invariants: the states are replayed from the committed log, in code that the coordinators do not share. Not here:
whether retention allows a log to start where it does (checkers.py), what readers are given (readings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from replication.coordination.encoded_segment import remote_segment
from replication.coordination.remote_log_records import REMOTE_LOG_RECORDS
from testbed.fake_object_store import StoreCall
from testbed.sim.ledger import Ledger, Violation
from testbed.sim.object_store import SimObjectStore
from tidelog.errors import TidelogError
from tidelog.protocol.kafka.messages.remote_log_partition_key import RemoteLogPartitionKey
from tidelog.protocol.kafka.messages.remote_log_partition_value import RemoteLogPartitionValue
from tidelog.protocol.kafka.messages.remote_log_segment_key import RemoteLogSegmentKey
from tidelog.records import RecordBatch, iter_batches
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.tiering.segment_manifest import SEGMENT_SUFFIX, parse_key, segment_key
from tidelog.tiering.segment_object import verify_object
from tidelog.types import PartitionIndex, PartitionKey, TopicId

STARTED, FINISHED = RemoteSegmentState.COPY_SEGMENT_STARTED, RemoteSegmentState.COPY_SEGMENT_FINISHED
DELETED = RemoteSegmentState.DELETE_SEGMENT_STARTED
BEFORE: Mapping[RemoteSegmentState, tuple[RemoteSegmentState | None, ...]] = {
    STARTED: (None,),
    FINISHED: (STARTED,),
    DELETED: (STARTED, FINISHED),
}
"""The states that one may follow; None: the segment was not known."""


@dataclass(slots=True)
class _Tier:
    """The remote segments of one partition. epoch: the newest that has registered."""

    topic: str = ""
    epoch: int = -1
    segments: dict[RemoteSegmentId, RemoteSegment] = field(default_factory=dict)
    forgotten: set[RemoteSegmentId] = field(default_factory=set)


class RemoteSegments:
    """All remote segments of a world. `store`: with their objects; None: the world has no tier."""

    def __init__(self, ledgers: Mapping[PartitionKey, Ledger], exists: Callable[[PartitionKey], bool]) -> None:
        """exists: whether the newest metadata have the partition."""
        self.store: SimObjectStore | None = None
        self.copied = self.deleted = 0
        """How many segments were finished, and how many forgotten."""
        self._ledgers, self._exists = ledgers, exists
        self._tiers: dict[PartitionKey, _Tier] = {}
        self._sound: dict[RemoteSegmentId, tuple[int, bool]] = {}  # by segment: as of how many losses of its ledger

    # --- what is committed ----------------------------------------------------------------------------------------

    def replayed(self, batch: RecordBatch) -> None:
        """A batch of `__remote_log_metadata` is committed. Raises Violation."""
        for record in batch.records():
            found = REMOTE_LOG_RECORDS.decode(record.key, record.value)
            partition = PartitionKey(TopicId(found.key.topic_id), PartitionIndex(found.key.partition))
            tier = self._tiers.setdefault(partition, _Tier())
            if isinstance(found.key, RemoteLogPartitionKey):
                if isinstance(found.value, RemoteLogPartitionValue):
                    self._registered(tier, found.value)
            elif found.value is None:
                self._forgotten(tier, found.key)
            else:
                assert not isinstance(found.value, RemoteLogPartitionValue), "a segment has a value of its own"
                self._moved(tier, remote_segment(partition, found.key.segment_id, found.value))

    @staticmethod
    def _registered(tier: _Tier, value: RemoteLogPartitionValue) -> None:
        if value.leader_epoch < tier.epoch:
            raise Violation(f"remote segments of {tier.topic}: epoch {value.leader_epoch} registers after {tier.epoch}")
        tier.topic, tier.epoch = value.topic_name, value.leader_epoch

    def _moved(self, tier: _Tier, segment: RemoteSegment) -> None:
        known = tier.segments.get(segment.segment_id)
        before = None if known is None else known.state
        if before not in BEFORE[segment.state] or segment.segment_id in tier.forgotten:
            was = "not known" if before is None else before.name
            raise Violation(f"{_name(tier, segment)} is {segment.state.name}, and was {was}")
        if segment.state is not DELETED and segment.copied_in != tier.epoch:
            raise Violation(
                f"{_name(tier, segment)} is {segment.state.name} by the leader of epoch {segment.copied_in}, after "
                f"epoch {tier.epoch} has registered"
            )
        others = [each for each in tier.segments.values() if each.state is STARTED]
        if segment.state is STARTED and others:
            raise Violation(f"{_name(tier, segment)} is copied beside {_name(tier, others[0])}")
        if segment.state is FINISHED:
            self.copied += 1
            self._is_whole(tier, segment)
        if known is not None and before is FINISHED and segment.state is DELETED:
            self._may_be_deleted(tier, known)
        tier.segments[segment.segment_id] = segment

    def _forgotten(self, tier: _Tier, key: RemoteLogSegmentKey) -> None:
        known = tier.segments.pop(RemoteSegmentId(key.segment_id), None)
        if known is None or known.state is not DELETED:
            raise Violation(f"segment {key.segment_id} of {tier.topic} is forgotten, and was not being deleted")
        object_key = segment_key(tier.topic, known)
        if self._there(object_key) is not None and object_key not in self._store.was_late:
            raise Violation(f"{_name(tier, known)} is forgotten, and its object is in the store")
        tier.forgotten.add(known.segment_id)
        self.deleted += 1

    def _is_whole(self, tier: _Tier, segment: RemoteSegment) -> None:
        try:
            verify_object(self._store.there, segment_key(tier.topic, segment), segment)
        except TidelogError as error:
            raise Violation(f"{_name(tier, segment)} is finished, but {error.message}") from error
        ledger = self._ledger(segment)
        # A leader that an unclean election has replaced may end its copy before the next one has registered.
        if (
            ledger is not None
            and not ledger.lossy
            and ledger.loss is None
            and not self._is_sound(tier, segment, ledger)
        ):
            raise Violation(f"{_name(tier, segment)} is finished with other records than those that are committed")

    def _may_be_deleted(self, tier: _Tier, segment: RemoteSegment) -> None:
        ledger = self._ledger(segment)
        if ledger is None or ledger.lossy or not self._exists(_key(segment)):
            return
        if segment.end_offset > ledger.start and self._is_sound(tier, segment, ledger):
            raise Violation(
                f"{_name(tier, segment)} is deleted, but no log starts behind {ledger.start}, and its records are "
                "committed"
            )

    def _is_sound(self, tier: _Tier, segment: RemoteSegment, ledger: Ledger) -> bool:
        """Whether the object has what is committed at the offsets of its segment."""
        checked = self._sound.get(segment.segment_id)
        if checked is None or checked[0] != ledger.forgiven:
            data = self._there(segment_key(tier.topic, segment)) or b""
            checked = self._sound[segment.segment_id] = ledger.forgiven, _has(ledger, segment, data)
        return checked[1]

    # --- what the store does --------------------------------------------------------------------------------------

    def store_changed(self, call: StoreCall) -> None:
        """A write or a deletion has taken effect. Raises Violation."""
        name = parse_key(call.key)
        if name is None or not call.key.endswith(SEGMENT_SUFFIX):
            return
        tier = self._tiers.get(PartitionKey(name.topic_id, name.partition), _Tier())
        segment = tier.segments.get(name.segment_id)
        if call.operation == "put" and segment is None and name.segment_id not in tier.forgotten:
            raise Violation(f"{call.key} is uploaded, and no coordinator knows that copy")
        if call.operation == "put" and segment is not None and segment.state is FINISHED:
            raise Violation(f"{call.key} is uploaded again after its segment was finished")
        if call.operation == "delete" and segment is not None and segment.state is not DELETED:
            raise Violation(f"{call.key} is removed, and its segment is {segment.state.name}")

    # --- what nodes do --------------------------------------------------------------------------------------------

    def left_node(self, key: PartitionKey, what: str, start: int, end: int) -> None:
        """Records in [start, end) have left a node: finished segments must have them. Raises Violation."""
        ledger = self._ledgers[key]
        start = max(start, ledger.start)
        if ledger.lossy or start >= end:
            return
        tier = self._tiers.get(key, _Tier())
        for segment in self.finished(key):
            if segment.start_offset <= start < segment.end_offset and self._is_sound(tier, segment, ledger):
                start = segment.end_offset
        if start < end:
            raise Violation(f"{what}: its local log starts at {end}, and no remote segment has offset {start}")

    # --- looking --------------------------------------------------------------------------------------------------

    def segments(self, key: PartitionKey) -> list[RemoteSegment]:
        """The known segments of a partition, in the order of their offsets."""
        found = self._tiers[key].segments.values() if key in self._tiers else ()
        return sorted(found, key=lambda each: (each.start_offset, each.end_offset))

    def finished(self, key: PartitionKey) -> list[RemoteSegment]:
        """Those that readers use."""
        return [each for each in self.segments(key) if each.state is FINISHED]

    def orphans(self) -> list[str]:
        """The keys of objects whose segment no coordinator knows any more."""
        known = {each.segment_id for tier in self._tiers.values() for each in tier.segments.values()}
        names = {key: parse_key(key) for key in self._store.there.objects if key.endswith(SEGMENT_SUFFIX)}
        return sorted(key for key, name in names.items() if name is not None and name.segment_id not in known)

    def deleting(self) -> list[str]:
        """The segments that are being deleted, for messages."""
        return [
            _name(tier, each)
            for tier in self._tiers.values()
            for each in tier.segments.values()
            if each.state is DELETED
        ]

    @property
    def _store(self) -> SimObjectStore:
        assert self.store is not None, "a world with remote segments has a store"
        return self.store

    def _there(self, key: str) -> bytes | None:
        return self._store.there.objects.get(key)

    def _ledger(self, segment: RemoteSegment) -> Ledger | None:
        return self._ledgers.get(_key(segment))


def _has(ledger: Ledger, segment: RemoteSegment, data: bytes) -> bool:
    at = -1
    for batch in iter_batches(data[: segment.log_size]):
        if ledger.batches.get(int(batch.base_offset)) != bytes(batch.buffer):
            return False
        at = int(batch.next_offset)
    return at == segment.end_offset


def _key(segment: RemoteSegment) -> PartitionKey:
    return PartitionKey(segment.topic_id, segment.partition)


def _name(tier: _Tier, segment: RemoteSegment) -> str:
    return (
        f"the remote segment of {tier.topic}-{segment.partition} with offsets {segment.start_offset} to "
        f"{segment.end_offset - 1} (copied in epoch {segment.copied_in})"
    )
