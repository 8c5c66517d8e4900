"""The coordinator of remote segments: who may copy and delete them, what a replay and a compaction of its log leave,
and which objects are orphans. After each step a replay of the log, whole or compacted, gives the same state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from replication.coordination.coordinator_machine import CoordinatorMachine, Decision, Instant, TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.encoded_segment import (
    EncodedSegment,
    SegmentHead,
    decode_segment,
    segment_head,
    segment_id_of,
    start_offset_of,
)
from replication.coordination.remote_log_records import REMOTE_LOG_RECORDS, decode_to_replay
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
from replication.coordination.tiering import remote_log_machine
from replication.coordination.tiering.remote_log_machine import SEGMENTS_MAX, RemoteLogMachine
from tests.replication.remote_segments import FINISHED, ORDERS, SECTIONS, STARTED
from tests.replication.transaction_world import image
from tidelog.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    TidelogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnreadableCoordinatorRecord,
)
from tidelog.protocol.kafka.messages.remote_log_segment_value import RemoteLogSegmentValue
from tidelog.tiering.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
)
from tidelog.types import (
    NO_LEADER_EPOCH,
    EpochStart,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    PartitionIndex,
    PartitionKey,
    ProducerId,
    TopicId,
)

DELETED = RemoteSegmentState.DELETE_SEGMENT_STARTED
TOPICS = {"orders": 3}


def leader(epoch: int, node: int = 1, partition: PartitionKey = ORDERS) -> RemoteLogLeader:
    return RemoteLogLeader(partition, LeaderEpoch(epoch), NodeId(node))


def segment(number: int, start: int, end: int, by: RemoteLogLeader) -> RemoteSegment:
    return RemoteSegment(
        RemoteSegmentId(UUID(int=number)),
        by.key.topic_id,
        by.key.partition,
        Offset(start),
        Offset(end),
        (EpochStart(by.leader_epoch, Offset(start)),),
        Millis(1_600_000_000_000),
        1_000,
        by.leader_epoch,
        by.node_id,
        Millis(0),
        STARTED,
    )


class Coordinator:
    """A coordinator and its log, which commits at once. `removals`: those that were asked for and not yet reported."""

    def __init__(self, topics: dict[str, int] | None = None) -> None:
        self.image = image(TOPICS if topics is None else topics)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now = Instant(Millis(1_000), Millis(1_700_000_000_000))
        self.removals: list[RemoveObjects] = []
        self.machine = self._loaded()

    def _loaded(self) -> RemoteLogMachine:
        machine = RemoteLogMachine()
        runs: CoordinatorMachine[Any, Any] = machine
        for number, (key, value) in enumerate(self.log):
            runs.apply(decode_to_replay(key, value), Offset(number), None)
        self.removals = []
        for decision in runs.loaded(self.image, 0, self.now):
            self._carry_out(machine, decision)
        return machine

    def _carry_out(self, machine: RemoteLogMachine, decision: Decision[Any]) -> None:
        assert not (isinstance(decision.answer, TidelogError) and decision.records), "a refusal changes nothing"
        for record in decision.records:
            self.log.append(REMOTE_LOG_RECORDS.encode(record))
            machine.apply(record, Offset(-1), None)
        for effect in decision.effects:
            assert isinstance(effect, RemoveObjects)
            first = effect.segments[0]
            states = {
                each.segment_id: each.state for each in listed(machine, PartitionKey(first.topic_id, first.partition))
            }
            assert {states[each.segment_id] for each in effect.segments} == {DELETED}, "deleted before removed"
            self.removals.append(effect)

    def ask(self, request: object) -> Any:
        """The answer. Raises the error that is the answer."""
        decision = self.machine.handle(request, self.now)
        self._carry_out(self.machine, decision)
        if isinstance(decision.answer, TidelogError):
            raise decision.answer
        return decision.answer

    def fail_over(self, *, compacted: bool = False) -> None:
        """Another node loads the log."""
        if compacted:
            last = {key: number for number, (key, _) in enumerate(self.log)}
            self.log = [entry for number, entry in enumerate(self.log) if last[entry[0]] == number]
        self.machine = self._loaded()

    def topics_are(self, topics: dict[str, int]) -> None:
        """The metadata change, and all that follows at once."""
        self.image = image(topics)
        for decision in self.machine.on_image(self.image, self.now):
            self._carry_out(self.machine, decision)
        while self.machine.deadline() is not None:
            for decision in self.machine.tick(self.now):
                self._carry_out(self.machine, decision)

    def copy(self, copied: RemoteSegment, by: RemoteLogLeader) -> None:
        """Copy a segment from the first request to the last."""
        self.ask(BeginCopy(by, copied))
        self.ask(FinishCopy(by, copied.segment_id, SECTIONS))

    def report_removals(self) -> None:
        """The store has removed all that was asked for."""
        removals, self.removals = self.removals, []
        for effect in removals:
            first = effect.segments[0]
            ids = tuple(each.segment_id for each in effect.segments)
            self.ask(ObjectsRemoved(PartitionKey(first.topic_id, first.partition), ids))

    def segments(self, partition: PartitionKey = ORDERS) -> list[RemoteSegment]:
        """All segments of a partition, page by page."""
        return listed(self.machine, partition)

    def states(self) -> dict[int, RemoteSegmentState]:
        """The states by the number of the id."""
        return {each.segment_id.int: each.state for each in self.segments()}


def listed(machine: RemoteLogMachine, partition: PartitionKey, limit: int = SEGMENTS_MAX) -> list[RemoteSegment]:
    found: list[RemoteSegment] = []
    while True:
        after = SegmentPlace(found[-1].start_offset, found[-1].segment_id) if found else None
        page = machine.handle(ListRemoteSegments(partition, after, limit=limit), Instant(Millis(0), Millis(0))).answer
        assert isinstance(page, RemoteSegmentsPage)
        found.extend(decode_segment(partition, each) for each in page.segments)
        if not page.has_more:
            return found


@pytest.fixture
def coordinator() -> Coordinator:
    """A coordinator where the leader of epoch 3 has registered."""
    made = Coordinator()
    made.ask(BeginRemoteLog(leader(3)))
    return made


def test_a_segment_is_listed_as_finished_with_the_sections_of_its_object(coordinator: Coordinator) -> None:
    coordinator.copy(segment(1, 0, 100, leader(3)), leader(3))
    (found,) = coordinator.segments()
    assert (found.state, found.sections, found.changed_ms) == (FINISHED, SECTIONS, coordinator.now.wall_ms)


def test_repeated_requests_change_nothing(coordinator: Coordinator) -> None:
    first = segment(1, 0, 100, leader(3))
    coordinator.ask(BeginCopy(leader(3), first))
    records = len(coordinator.log)
    coordinator.ask(BeginCopy(leader(3), first))
    coordinator.ask(BeginRemoteLog(leader(3)))
    assert len(coordinator.log) == records
    coordinator.ask(FinishCopy(leader(3), first.segment_id, SECTIONS))
    coordinator.ask(FinishCopy(leader(3), first.segment_id, SECTIONS))
    coordinator.ask(DeleteRemoteSegments(leader(3), (first.segment_id, first.segment_id)))
    coordinator.ask(DeleteRemoteSegments(leader(3), (first.segment_id,)))
    assert (len(coordinator.log), len(coordinator.removals)) == (records + 2, 1)


def test_a_deposed_leader_copies_and_deletes_nothing(coordinator: Coordinator) -> None:
    coordinator.copy(segment(1, 0, 100, leader(3)), leader(3))
    unfinished = segment(2, 100, 200, leader(3))
    coordinator.ask(BeginCopy(leader(3), unfinished))
    coordinator.ask(BeginRemoteLog(leader(4, node=2)))
    for late in (
        FinishCopy(leader(3), unfinished.segment_id, SECTIONS),
        BeginCopy(leader(3), segment(3, 100, 200, leader(3))),
        DeleteRemoteSegments(leader(3), (RemoteSegmentId(UUID(int=1)),)),
        BeginRemoteLog(leader(3)),
    ):
        with pytest.raises(FencedLeaderEpoch, match="node 2 has registered epoch 4"):
            coordinator.ask(late)
    assert coordinator.states() == {1: FINISHED, 2: DELETED}, "the unfinished copy goes with its leader"
    with pytest.raises(InvalidRequest, match="replaced or deleted meanwhile"):
        coordinator.ask(FinishCopy(leader(4, node=2), unfinished.segment_id, SECTIONS))


def test_a_leader_registers_before_it_copies(coordinator: Coordinator) -> None:
    with pytest.raises(UnknownLeaderEpoch, match="registers first"):
        coordinator.ask(BeginCopy(leader(5), segment(1, 0, 100, leader(5))))
    other = leader(3, partition=PartitionKey(ORDERS.topic_id, PartitionIndex(1)))
    with pytest.raises(UnknownLeaderEpoch):
        coordinator.ask(DeleteRemoteSegments(other, ()))


def test_a_second_copy_replaces_one_that_never_finished(coordinator: Coordinator) -> None:
    coordinator.ask(BeginCopy(leader(3), segment(1, 0, 100, leader(3))))
    coordinator.ask(BeginCopy(leader(3), segment(2, 0, 100, leader(3))))
    assert coordinator.states() == {1: DELETED, 2: STARTED}
    coordinator.report_removals()
    assert coordinator.states() == {2: STARTED}


def test_a_removal_is_asked_for_by_every_coordinator_until_it_is_reported(coordinator: Coordinator) -> None:
    coordinator.copy(segment(1, 0, 100, leader(3)), leader(3))
    coordinator.ask(DeleteRemoteSegments(leader(3), (RemoteSegmentId(UUID(int=1)),)))
    asked = coordinator.removals
    for compacted in (False, True):
        coordinator.fail_over(compacted=compacted)
        assert coordinator.removals == asked
    assert asked[0].topic == "orders"
    coordinator.report_removals()
    coordinator.fail_over(compacted=True)
    assert (coordinator.segments(), coordinator.removals) == ([], [])
    with pytest.raises(FencedLeaderEpoch):
        coordinator.ask(BeginRemoteLog(leader(2)))


def test_the_log_start_of_a_deletion_is_recorded_for_the_next_leader(coordinator: Coordinator) -> None:
    """It outlives the segments, the leader and the coordinator; a repeated request that comes late does not lower
    it."""

    def log_start() -> EpochStart | None:
        page = coordinator.ask(ListRemoteSegments(ORDERS))
        assert isinstance(page, RemoteSegmentsPage)
        return page.log_start

    by = leader(3)
    first, second = segment(1, 0, 10, by), segment(2, 10, 20, by)
    for each in (first, second):
        coordinator.copy(each, by)
    assert log_start() is None, "nothing was deleted"
    later, earlier = EpochStart(LeaderEpoch(3), Offset(20)), EpochStart(LeaderEpoch(3), Offset(10))
    coordinator.ask(DeleteRemoteSegments(by, (second.segment_id,), later))
    coordinator.ask(DeleteRemoteSegments(by, (first.segment_id,), earlier))
    coordinator.report_removals()
    assert log_start() == later
    coordinator.ask(BeginRemoteLog(leader(4, node=2)))
    assert log_start() == later
    coordinator.fail_over(compacted=True)
    assert (log_start(), coordinator.segments()) == (later, [])
    unclean = EpochStart(LeaderEpoch(4), Offset(7))
    coordinator.ask(DeleteRemoteSegments(leader(4, node=2), (), unclean))
    assert log_start() == unclean, "the log of another leader"


def test_followers_ask_for_many_partitions_at_once_and_are_told_what_they_do_not_know(coordinator: Coordinator) -> None:
    """The segments of one answer are bounded: for the others, the follower asks again."""
    other = PartitionKey(ORDERS.topic_id, PartitionIndex(1))
    for by in (leader(3), leader(3, partition=other)):
        coordinator.ask(BeginRemoteLog(by))
        for number in range(3):
            coordinator.copy(segment(10 * by.key.partition + number, 10 * number, 10 * number + 10, by), by)

    def pages(*lists: ListRemoteSegments) -> list[tuple[list[int], bool]]:
        answer = coordinator.ask(FollowRemoteLogs(lists))
        assert isinstance(answer, RemoteSegmentsPages)
        return [([start_offset_of(each) for each in page.segments], page.has_more) for page in answer.pages]

    known = ListRemoteSegments(other, ends_behind=Offset(20))
    assert pages(ListRemoteSegments(ORDERS), known) == [([0, 10, 20], False), ([20], False)]
    assert pages(replace(known, ends_behind=Offset(30))) == [([], False)]
    unknown = ListRemoteSegments(PartitionKey(ORDERS.topic_id, PartitionIndex(2)))
    assert pages(unknown, ListRemoteSegments(ORDERS, limit=1)) == [([], False), ([0], True)]
    for lists in ((), (known,) * (FOLLOWED_MAX + 1)):
        with pytest.raises(InvalidRequest, match="1 to 500"):
            pages(*lists)


def test_an_answer_to_followers_has_a_bounded_number_of_segments(coordinator: Coordinator) -> None:
    by = leader(3)
    for number in range(300):
        coordinator.copy(segment(number, number, number + 1, by), by)
    answer = coordinator.ask(FollowRemoteLogs((ListRemoteSegments(ORDERS, limit=300),) * 5))
    assert isinstance(answer, RemoteSegmentsPages)
    found = [(len(page.segments), page.has_more) for page in answer.pages]
    assert found == [(300, False)] * 3 + [(100, True), (0, True)]


def test_a_page_behind_an_offset_that_no_log_has_is_refused(coordinator: Coordinator) -> None:
    coordinator.ask(BeginRemoteLog(leader(3)))
    place = SegmentPlace(Offset(-1), RemoteSegmentId(UUID(int=0)))
    with pytest.raises(InvalidRequest, match="behind offset -1 are asked for"):
        coordinator.ask(ListRemoteSegments(ORDERS, place))


def test_segments_of_a_deleted_topic_are_deleted_and_forgotten_in_bounded_steps() -> None:
    coordinator = Coordinator()
    coordinator.ask(BeginRemoteLog(leader(0)))
    count = SEGMENTS_MAX + 5
    for number in range(1, count + 1):
        coordinator.copy(segment(number, number, number + 1, leader(0)), leader(0))
    assert listed(coordinator.machine, ORDERS, limit=600) == coordinator.segments(), "in pages of any size"
    coordinator.topics_are({})
    assert [len(each.segments) for each in coordinator.removals] == [SEGMENTS_MAX, 5]
    with pytest.raises(UnknownTopicId):
        coordinator.ask(BeginCopy(leader(0), segment(count + 1, count + 1, count + 2, leader(0))))
    with pytest.raises(UnknownTopicId):
        coordinator.ask(BeginRemoteLog(leader(1)))
    coordinator.fail_over()
    assert [len(each.segments) for each in coordinator.removals] == [SEGMENTS_MAX, 5], "loading asks again"
    coordinator.report_removals()
    coordinator.fail_over(compacted=True)
    assert not any(coordinator.machine.sizes().values())
    assert all(value is None for _, value in coordinator.log), "the compacted log has tombstones only"


def test_segments_of_a_deleted_topic_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their objects are removed one after the other: 100,000 segments would hold the loop for seconds at each step, and
    at each image that comes meanwhile."""
    coordinator = Coordinator()
    coordinator.ask(BeginRemoteLog(leader(0)))
    count = SEGMENTS_MAX + 5
    for number in range(1, count + 1):
        coordinator.copy(segment(number, number, number + 1, leader(0)), leader(0))
    looked_at = []

    def counted(encoded: EncodedSegment) -> SegmentHead:
        looked_at.append(segment_id_of(encoded))
        return segment_head(encoded)

    monkeypatch.setattr(remote_log_machine, "segment_head", counted)
    coordinator.topics_are({})
    assert set(looked_at) == {each.segment_id for effect in coordinator.removals for each in effect.segments}
    looked_at.clear()
    coordinator.topics_are({})
    assert looked_at == [], "all are being deleted"


def test_a_deleted_topic_without_segments_is_forgotten(coordinator: Coordinator) -> None:
    coordinator.topics_are({})
    assert not any(coordinator.machine.sizes().values())


def test_an_object_is_an_orphan_only_if_its_segment_is_not_known(coordinator: Coordinator) -> None:
    begun, finished = segment(1, 100, 200, leader(3)), segment(2, 0, 100, leader(3))
    coordinator.copy(finished, leader(3))
    coordinator.ask(BeginCopy(leader(3), begun))
    late = RemoteObject(ORDERS, RemoteSegmentId(UUID(int=9)), Offset(99))
    objects = (
        RemoteObject(ORDERS, begun.segment_id, begun.start_offset),
        late,
        RemoteObject(ORDERS, finished.segment_id, finished.start_offset),
    )
    assert coordinator.ask(FindOrphans(objects)) == OrphansFound((late,))
    start = EpochStart(LeaderEpoch(3), Offset(100))
    coordinator.ask(DeleteRemoteSegments(leader(3), (finished.segment_id,), start))
    assert coordinator.ask(FindOrphans(objects)) == OrphansFound((late,)), "its removal is under way"


def test_an_object_whose_offsets_no_finished_segment_has_may_be_all_that_is_left(coordinator: Coordinator) -> None:
    """The coordinator has an older copy of its records: it knows nothing of what was copied since then."""
    for number, start in enumerate(range(0, 4_000, 100)):
        coordinator.copy(segment(number, start, start + 100, leader(3)), leader(3))
    coordinator.ask(BeginCopy(leader(3), segment(77, 4_000, 4_100, leader(3))))
    within, behind, newest = (
        RemoteObject(ORDERS, RemoteSegmentId(UUID(int=100 + start)), Offset(start)) for start in (3_999, 4_000, 4_100)
    )
    elsewhere = RemoteObject(PartitionKey(TopicId(UUID(int=77)), PartitionIndex(0)), within.segment_id, Offset(0))
    found = coordinator.ask(FindOrphans((newest, within, behind, elsewhere)))
    assert found == OrphansFound((within,), (newest, behind, elsewhere))
    with pytest.raises(InvalidRequest):
        coordinator.ask(FindOrphans((replace(within, start_offset=Offset(-1)),)))


def test_requests_that_contradict_themselves_are_refused(coordinator: Coordinator) -> None:
    fine = segment(1, 0, 100, leader(3))
    for wrong in (
        replace(fine, end_offset=Offset(0)),
        replace(fine, leader_epochs=()),
        replace(fine, leader_epochs=(EpochStart(LeaderEpoch(3), Offset(100)),)),
        replace(fine, start_offset=Offset(1)),
        replace(fine, state=FINISHED),
        replace(fine, copied_in=LeaderEpoch(2)),
        replace(fine, partition=PartitionIndex(1)),
    ):
        with pytest.raises(InvalidRequest, match="contradicts itself"):
            coordinator.ask(BeginCopy(leader(3), wrong))
    coordinator.ask(BeginCopy(leader(3), fine))
    with pytest.raises(InvalidRequest, match="no sections"):
        coordinator.ask(FinishCopy(leader(3), fine.segment_id, ()))
    coordinator.ask(FinishCopy(leader(3), fine.segment_id, SECTIONS))
    with pytest.raises(InvalidRequest, match="an id of its own"):
        coordinator.ask(BeginCopy(leader(3), fine))
    with pytest.raises(InvalidRequest, match="at most"):
        coordinator.ask(DeleteRemoteSegments(leader(3), (fine.segment_id,) * (SEGMENTS_MAX + 1)))
    for limit in (0, SEGMENTS_MAX + 1):
        with pytest.raises(InvalidRequest, match=str(limit)):
            coordinator.ask(ListRemoteSegments(ORDERS, limit=limit))


def test_records_that_no_coordinator_writes_are_reported(coordinator: Coordinator) -> None:
    coordinator.ask(BeginCopy(leader(3), segment(1, 0, 100, leader(3))))
    moved = Coordinator()
    moved.ask(BeginRemoteLog(leader(3)))
    moved.ask(BeginCopy(leader(3), segment(1, 50, 100, leader(3))))
    elsewhere = REMOTE_LOG_RECORDS.decode(*moved.log[-1])
    with pytest.raises(UnreadableCoordinatorRecord, match=r"offset 7 changes a segment: .* another offset"):
        coordinator.machine.apply(elsewhere, Offset(7), None)
    with pytest.raises(UnreadableCoordinatorRecord, match="is in a transaction"):
        coordinator.machine.apply(elsewhere, Offset(7), TransactionalProducer(ProducerId(1), 0))
    partition = REMOTE_LOG_RECORDS.decode(*moved.log[0])
    with pytest.raises(UnreadableCoordinatorRecord, match="does not belong to its key"):
        coordinator.machine.apply(CoordinatorRecord(elsewhere.key, partition.value), Offset(7), None)
    assert isinstance(elsewhere.value, RemoteLogSegmentValue)
    newer = CoordinatorRecord(elsewhere.key, elsewhere.value.replace(segment_state=9))
    with pytest.raises(UnreadableCoordinatorRecord, match=r"9 is not a valid .* upgrade this node"):
        coordinator.machine.apply(newer, Offset(7), None)


class AnyOrder(RuleBasedStateMachine):
    """Leaders of two partitions that are deposed and come back, a store that answers at any time, coordinators that
    fail, a topic that is deleted; against a plain model of what may be listed as finished."""

    begun = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.epochs: dict[PartitionKey, int] = {}
        self.finished: dict[RemoteSegmentId, RemoteSegment] = {}
        self.known: set[RemoteSegmentId] = set()
        self.next_id, self.is_there = 1, True

    @rule(partition=st.integers(0, 1), epoch=st.integers(0, 6), node=st.integers(1, 3))
    def begin(self, partition: int, epoch: int, node: int) -> None:
        key = PartitionKey(ORDERS.topic_id, PartitionIndex(partition))
        try:
            self.coordinator.ask(BeginRemoteLog(leader(epoch, node, key)))
        except UnknownTopicId:
            assert not self.is_there
        except FencedLeaderEpoch:
            assert epoch < self.epochs[key]
        else:
            assert self.is_there
            assert epoch >= self.epochs.get(key, -1)
            self.epochs[key] = epoch

    @rule(target=begun, partition=st.integers(0, 1), epoch=st.integers(0, 6), start=st.integers(0, 5))
    def begin_copy(self, partition: int, epoch: int, start: int) -> RemoteSegment:
        by = leader(epoch, partition=PartitionKey(ORDERS.topic_id, PartitionIndex(partition)))
        made = segment(self.next_id, start, start + 2, by)
        self.next_id += 1
        if self._accepted(BeginCopy(by, made), by):
            self.known.add(made.segment_id)
        return made

    @rule(copied=consumes(begun))
    def finish_copy(self, copied: RemoteSegment) -> None:
        by = leader(copied.copied_in, partition=PartitionKey(copied.topic_id, copied.partition))
        if self._accepted(FinishCopy(by, copied.segment_id, SECTIONS), by):
            self.finished[copied.segment_id] = copied

    @rule(data=st.data(), epoch=st.integers(0, 6))
    def delete(self, data: st.DataObject, epoch: int) -> None:
        if not self.finished:
            return
        chosen = self.finished[data.draw(st.sampled_from(sorted(self.finished, key=lambda each: each.int)))]
        by = leader(epoch, partition=PartitionKey(chosen.topic_id, chosen.partition))
        if self._accepted(DeleteRemoteSegments(by, (chosen.segment_id,)), by):
            del self.finished[chosen.segment_id]

    @rule()
    def the_store_answers(self) -> None:
        self.coordinator.report_removals()

    @rule(compacted=st.booleans())
    def fail_over(self, compacted: bool) -> None:
        self.coordinator.fail_over(compacted=compacted)

    @rule(there=st.sampled_from([True, True, False]))
    def topics(self, there: bool) -> None:
        if self.is_there and not there:
            self.is_there = False
            self.finished.clear()
            self.coordinator.topics_are({})

    def _accepted(self, request: BeginCopy | FinishCopy | DeleteRemoteSegments, by: RemoteLogLeader) -> bool:
        current = self.epochs.get(by.key, NO_LEADER_EPOCH)
        try:
            assert self.coordinator.ask(request) == RemoteLogChanged()
        except FencedLeaderEpoch:
            assert by.leader_epoch < current
            return False
        except UnknownLeaderEpoch:
            assert by.leader_epoch > current or not self.is_there
            return False
        except UnknownTopicId:
            assert not self.is_there
            return False
        except InvalidRequest:
            assert isinstance(request, FinishCopy), "only a replaced or deleted copy is refused so"
            return False
        assert by.leader_epoch == current
        assert self.is_there
        return True

    @invariant()
    def what_is_finished_is_what_the_newest_leaders_finished(self) -> None:
        every = [
            each
            for index in range(2)
            for each in self.coordinator.segments(PartitionKey(ORDERS.topic_id, PartitionIndex(index)))
        ]
        assert {each.segment_id for each in every if each.state is FINISHED} == set(self.finished)
        known = {each.segment_id for each in every}
        assert known <= self.known
        objects = tuple(RemoteObject(ORDERS, each, Offset(0)) for each in sorted(self.known, key=str))
        orphans = self.coordinator.ask(FindOrphans(objects))
        assert not {each.segment_id for each in (*orphans.objects, *orphans.doubtful)} & {
            each.segment_id for each in every if each.partition == ORDERS.partition
        }

    @invariant()
    def a_replay_gives_the_state(self) -> None:
        state = [self.coordinator.segments(PartitionKey(ORDERS.topic_id, PartitionIndex(index))) for index in range(2)]
        sizes = self.coordinator.machine.sizes()
        for compacted in (False, True):
            replayed = Coordinator()
            replayed.image, replayed.log = self.coordinator.image, list(self.coordinator.log)
            replayed.fail_over(compacted=compacted)
            assert state == [
                replayed.segments(PartitionKey(ORDERS.topic_id, PartitionIndex(index))) for index in range(2)
            ]
            assert replayed.machine.sizes() == sizes
            asked = {each.segment_id for effect in replayed.removals for each in effect.segments}
            assert asked == {each.segment_id for each in (*state[0], *state[1]) if each.state is DELETED}


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestAnyOrder = AnyOrder.TestCase
