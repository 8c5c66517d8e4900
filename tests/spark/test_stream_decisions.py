"""The pure parts of the streaming source: offsets as JSON, rate, data loss, identity, plans of batches."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.group_metadata import CommittedOffset
from tidelog.client.query_notes import parse_note, transactional_id_of
from tidelog.errors import (
    InconsistentTopicId,
    InvalidRequest,
    LogTruncated,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tidelog.spark.options.query_options import TriggerLimits, parse_stream_options
from tidelog.spark.streaming.data_loss import LogState, LossKind, find_loss, loss_error
from tidelog.spark.streaming.query_identity import (
    began_empty,
    group_entries,
    group_of,
    pinned_offset,
    start_digest,
)
from tidelog.spark.streaming.rate_sharing import TriggerGate, share_rate
from tidelog.spark.streaming.source_progress import offsets_behind_latest
from tidelog.spark.streaming.stream_offsets import PartitionPosition, StreamOffset, parse_offset, stream_offset
from tidelog.spark.streaming.stream_planner import chosen_again, find_backlog, plan_batch
from tidelog.types import EpochEnd, LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition

OLD, NEW = TopicId(UUID(int=1)), TopicId(UUID(int=2))
KEY = TopicPartition("orders", PartitionIndex(0))
OTHER = TopicPartition("orders", PartitionIndex(1))


def at(offset: int, epoch: int = 0, skipped: int = 0) -> PartitionPosition:
    return PartitionPosition(Offset(offset), LeaderEpoch(epoch), skipped)


def read_to(*positions: PartitionPosition, topic_id: TopicId = OLD, lineage: str = "abc") -> StreamOffset:
    keys = (TopicPartition("orders", PartitionIndex(index)) for index in range(len(positions)))
    return stream_offset("cluster", lineage, {key: (topic_id, each) for key, each in zip(keys, positions, strict=True)})


def log(
    start: int, end: int, *, epoch: int = 0, topic_id: TopicId = OLD, mark: int | None = None, answer: Any = None
) -> LogState:
    """answer: epoch and end offset that the leader returns for the epoch of the position."""
    told = None if answer is None else EpochEnd(LeaderEpoch(answer[0]), Offset(answer[1]))
    return LogState(
        topic_id, Offset(start), Offset(end), LeaderEpoch(epoch), Offset(end if mark is None else mark), told
    )


# --- offsets -----------------------------------------------------------------------------------------------------

numbers = st.integers(0, (1 << 63) - 1)
positions = st.builds(PartitionPosition, numbers.map(Offset), st.integers(-1, (1 << 31) - 1).map(LeaderEpoch), numbers)


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["a", "b", "é"]), st.integers(0, (1 << 31) - 1).map(PartitionIndex)),
        positions,
    ),
    numbers,
)
def test_an_offset_survives_the_checkpoint_with_the_same_text(
    chosen: dict[TopicPartition, PartitionPosition], skipped: int
) -> None:
    offset = stream_offset("c", "l", {key: (OLD, each) for key, each in chosen.items()}, skipped)
    text = json.dumps(offset.to_json())
    again = parse_offset(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda each: st.lists(each) | st.dictionaries(st.text(), each),
)


@given(
    anything
    | st.fixed_dictionaries(
        {
            "version": st.just(1) | anything,
            "cluster": st.text(),
            "lineage": st.text(),
            "skipped": st.just(0) | anything,
            "topics": st.dictionaries(
                st.text(),
                st.fixed_dictionaries(
                    {"id": st.just(str(OLD)) | anything, "partitions": st.dictionaries(st.text(), anything)}
                ),
            ),
        }
    )
)
def test_another_text_in_the_checkpoint_is_refused_in_words(value: object) -> None:
    with suppress(InvalidRequest, UnsupportedVersion):
        parse_offset(value)


# --- rate --------------------------------------------------------------------------------------------------------

backlogs = st.dictionaries(
    st.integers(0, 5).map(lambda index: TopicPartition("t", PartitionIndex(index))),
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: (Offset(pair[0]), Offset(sum(pair)))),
)


@given(backlogs, st.integers(1, 500))
def test_the_rate_is_shared_in_proportion_and_nobody_starves(
    chosen: dict[TopicPartition, tuple[Offset, Offset]], most: int
) -> None:
    ends = share_rate(chosen, most)
    total = sum(end - begin for begin, end in chosen.values())
    taken = {key: ends[key] - begin for key, (begin, _) in chosen.items()}
    assert sum(taken.values()) < most + max(1, len(chosen)) or total <= most
    for key, (begin, end) in chosen.items():
        assert begin <= ends[key] <= end
        assert (ends[key] > begin) == (end > begin)
        if total > most:
            assert taken[key] <= max(1, most * (end - begin) / total)
    assert total > most or ends == {key: end for key, (_, end) in chosen.items()}


def test_a_backlog_that_is_three_times_as_large_gets_three_times_as_much() -> None:
    chosen = {KEY: (Offset(0), Offset(3000)), OTHER: (Offset(50), Offset(1050))}
    assert share_rate(chosen, 100) == {KEY: 75, OTHER: 75}


def test_a_batch_waits_for_enough_offsets_but_not_longer_than_the_delay() -> None:
    gate = TriggerGate(TriggerLimits(offsets_min=10, delay_ms_max=1000))
    assert gate.is_open(1, Millis(0)), "the first batch is not delayed"
    gate.note_batch(Millis(0))
    assert not gate.is_open(9, Millis(999))
    assert gate.is_open(10, Millis(1))
    assert gate.is_open(1, Millis(1000))
    assert TriggerGate(TriggerLimits()).is_open(0, Millis(0))


# --- data loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "state", "kind", "first", "last", "resume"),
    [
        (at(5), log(0, 9), None, 0, 0, 0),
        (at(5), log(5, 9), None, 0, 0, 0),
        (at(5), log(0, 5), None, 0, 0, 0),
        (at(5, 3), log(0, 9, answer=(3, 9)), None, 0, 0, 0),
        (at(5, 3), log(0, 9, answer=(2, 5)), None, 0, 0, 0),  # the epoch has no records below the position
        (at(5, 3), log(5, 9, answer=(-1, -1)), None, 0, 0, 0),  # nothing below the log's start can be compared
        (at(5), log(0, 3, mark=5), None, 0, 0, 0),  # an open transaction begins at 3
        (None, log(0, 9), None, 0, 0, 0),
        (at(5), log(8, 9), LossKind.AGED_OUT, 5, 8, 8),
        (at(5), log(6, 9), LossKind.AGED_OUT, 5, 6, 6),
        (None, log(4, 9), LossKind.AGED_OUT, 0, 4, 4),
        (at(5), None, LossKind.GONE, 5, None, None),
        (at(5), log(0, 9, topic_id=NEW), LossKind.RECREATED, 5, None, 0),
        (at(5), log(0, 3), LossKind.TRUNCATED, 3, 5, 3),
        (at(5, 3), log(0, 9, answer=(2, 4)), LossKind.TRUNCATED, 4, 5, 4),
        (at(5, 3), log(2, 9, answer=(-1, -1)), LossKind.TRUNCATED, 2, 5, 2),
        (at(5, 3), log(0, 9, answer=(3, 4)), LossKind.TRUNCATED, 4, 5, 4),
    ],
)
def test_what_is_lost_is_told_by_kind(
    position: PartitionPosition | None,
    state: LogState | None,
    kind: LossKind | None,
    first: int,
    last: int | None,
    resume: int | None,
) -> None:
    loss = find_loss(KEY, None if position is None else OLD, position, state)
    if kind is None:
        assert loss is None
    else:
        assert loss is not None
        assert (loss.kind, loss.first, loss.last, loss.resume) == (kind, first, last, resume)


def test_the_error_names_what_is_missing_and_has_the_type_of_the_loss() -> None:
    wanted = {
        OffsetOutOfRange: (log(8, 9), "orders-0: aged out: offsets 5 to 7, at most 3 records"),
        UnknownTopicOrPartition: (None, "offsets from 5 on, an unknown number"),
        InconsistentTopicId: (log(0, 9, topic_id=NEW), f"read as topic id {OLD}, now it is {NEW}"),
        LogTruncated: (log(0, 3), "truncated: offsets 3 to 4, at most 2 records"),
    }
    for kind, (state, said) in wanted.items():
        loss = find_loss(KEY, OLD, at(5), state)
        assert loss is not None
        error = loss_error([loss])
        assert type(error) is kind
        assert said in error.message
        assert "failOnDataLoss" in error.message


# --- plans -------------------------------------------------------------------------------------------------------


def test_nothing_new_gives_the_same_text_so_that_no_batch_runs() -> None:
    start = read_to(at(5, 1), at(7, 2))
    backlog = find_backlog(start, {KEY: log(0, 5, epoch=9), OTHER: log(0, 7, epoch=9)})
    assert backlog.available == 0
    assert backlog.take(None) == start


def test_new_partitions_are_read_from_their_start_and_the_next_epoch_is_noted() -> None:
    backlog = find_backlog(read_to(at(5, 1)), {KEY: log(0, 8, epoch=4), OTHER: log(0, 3, epoch=2)})
    assert not backlog.losses
    assert backlog.available == 6
    assert backlog.take(None) == read_to(at(8, 4), at(3, 2))


def test_an_end_below_the_position_reads_nothing_and_goes_not_back() -> None:
    """A new leader may not know yet which transactions have ended."""
    start = read_to(at(5, 1))
    assert find_backlog(start, {KEY: log(0, 3, mark=9)}).take(None) == start


def test_skipped_offsets_are_counted_once_and_stay_counted() -> None:
    backlog = find_backlog(read_to(at(5, 0, skipped=2)), {KEY: log(8, 9)}, extra_skipped={KEY: 1})
    assert [str(each.kind.value) for each in backlog.losses] == ["aged out"]
    assert backlog.take(None) == read_to(at(9, 0, skipped=2 + 3 + 1))
    gone = find_backlog(backlog.take(None), {})
    assert (gone.skipped, gone.take(None).topics) == (6, {})


def test_what_the_incarnation_before_has_skipped_is_not_counted_against_the_new_one() -> None:
    """The new topic has lost its first offsets as well: they are counted when the batch is chosen, and no more when it
    is planned; those that age out in between are."""
    start = read_to(at(5, skipped=2))
    backlog = find_backlog(start, {KEY: log(3, 9, topic_id=NEW)}, extra_skipped={KEY: 1})
    assert [(each.kind, each.first, each.last) for each in backlog.losses] == [
        (LossKind.RECREATED, 5, None),
        (LossKind.AGED_OUT, 0, 3),
    ]
    assert "data loss in 1 partitions" in loss_error(backlog.losses).message
    end = backlog.take(None)
    assert end.skipped == 3
    assert end.find(KEY, NEW) == at(9, skipped=3)
    for earliest, extra in ((3, {}), (4, {KEY: 1})):
        states = {KEY: log(earliest, 9, topic_id=NEW)}
        plan = plan_batch(start, end, states, states)
        assert [(each.start, each.end) for each in plan.ranges] == [(earliest, 9)]
        assert plan.extra_skipped == extra


def test_available_now_reads_up_to_the_target_and_no_partition_beyond_it() -> None:
    start = read_to(at(5))
    target = {KEY: (OLD, Offset(7))}
    states = {KEY: log(0, 9), OTHER: log(0, 3)}
    end = find_backlog(start, states, target=target).take(None)
    assert end == read_to(at(7))
    assert find_backlog(end, states, target=target).take(None) == end
    recreated = {KEY: log(0, 9, topic_id=NEW)}
    again = find_backlog(end, recreated, target=target).take(None)
    assert find_backlog(again, recreated, target=target).take(None) == again, "it ends"


def test_a_partition_that_is_not_selected_any_more_is_no_loss() -> None:
    backlog = find_backlog(read_to(at(5), at(6, skipped=4)), {KEY: log(0, 5)}, deselected=frozenset({OTHER}))
    assert (backlog.losses, backlog.skipped) == ((), 4)


@pytest.mark.parametrize(
    ("chosen", "lost", "again"),
    [
        (read_to(at(8), at(9)), {KEY}, {KEY: (OLD, at(8)), OTHER: (OLD, at(6))}),
        (read_to(at(8), at(9), at(9)), {OTHER}, {KEY: (OLD, at(5)), OTHER: (OLD, at(9))}),
        (read_to(), {KEY}, {OTHER: (OLD, at(6))}),
        (read_to(at(0), topic_id=NEW), {OTHER}, {KEY: (NEW, at(0))}),
    ],
    ids=["only what is lost moves", "new ones stay new", "gone", "created again in between"],
)
def test_a_start_is_chosen_again_only_where_it_is_lost(
    chosen: StreamOffset, lost: set[TopicPartition], again: dict[TopicPartition, tuple[TopicId, PartitionPosition]]
) -> None:
    assert chosen_again(read_to(at(5), at(6)), chosen, lost) == again


def test_losses_of_new_partitions_are_none_of_the_start() -> None:
    backlog = find_backlog(read_to(at(5)), {KEY: log(7, 9), OTHER: log(3, 9)})
    assert [each.topic_partition for each in backlog.losses] == [KEY, OTHER]
    assert [each.topic_partition for each in backlog.start_losses] == [KEY]


def test_a_batch_is_the_offsets_between_two_positions() -> None:
    states = {KEY: log(0, 20), OTHER: log(0, 20)}
    plan = plan_batch(read_to(at(5)), read_to(at(9, 3), at(4, 2)), states, states)
    assert [(each.topic_partition, each.start, each.end, each.planned_epoch) for each in plan.ranges] == [
        (KEY, 5, 9, 3),
        (OTHER, 0, 4, 2),
    ]
    assert (plan.losses, plan.extra_skipped) == ([], {})


def test_a_repeated_batch_whose_records_aged_out_reads_the_rest_and_counts_what_its_end_does_not() -> None:
    states = {KEY: log(8, 20)}
    plan = plan_batch(read_to(at(5)), read_to(at(9, skipped=1)), states, states)
    assert [(each.start, each.end) for each in plan.ranges] == [(8, 9)]
    assert [(each.first, each.last) for each in plan.losses] == [(5, 8)]
    assert plan.extra_skipped == {KEY: 2}
    states = {KEY: log(15, 20)}
    plan = plan_batch(read_to(at(5)), read_to(at(9)), states, states)
    assert (plan.ranges, plan.losses[0].last, plan.extra_skipped) == ([], 9, {KEY: 4})


def test_a_repeated_batch_of_a_topic_that_is_another_now_reads_nothing_of_it() -> None:
    for state in ({}, {KEY: log(0, 20, topic_id=NEW)}):
        plan = plan_batch(read_to(at(5)), read_to(at(9)), state, state)
        assert plan.ranges == []
        assert [(each.first, each.last) for each in plan.losses] == [(5, 9)]
        assert plan.extra_skipped == {KEY: 4}


def test_a_batch_that_was_truncated_within_reads_up_to_the_cut_with_the_epoch_that_is_there() -> None:
    plan = plan_batch(
        read_to(at(5, 1)), read_to(at(9, 3)), {KEY: log(0, 20, answer=(1, 20))}, {KEY: log(0, 20, answer=(2, 7))}
    )
    assert [(each.start, each.end, each.planned_epoch) for each in plan.ranges] == [(5, 7, 2)]
    assert [(each.kind, each.first, each.last) for each in plan.losses] == [(LossKind.TRUNCATED, 7, 9)]


@given(st.data())
def test_batches_read_each_offset_of_the_logs_once(data: st.DataObject) -> None:
    """However the logs grow and whatever the limits are: the ranges of all batches together are the log."""
    offset, ends, seen = read_to(at(0)), {KEY: 0, OTHER: 0}, {KEY: 0, OTHER: 0}
    for grown, most in data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)))):
        ends = {key: end + grown for key, end in ends.items()}
        states = {key: log(0, end, epoch=1) for key, end in ends.items()}
        to = find_backlog(offset, states).take(most)
        for one in plan_batch(offset, to, states, states).ranges:
            assert one.start == seen[one.topic_partition]
            seen[one.topic_partition] = one.end
        offset = to
    states = {key: log(0, end, epoch=1) for key, end in ends.items()}
    for one in plan_batch(offset, find_backlog(offset, states).take(None), states, states).ranges:
        assert one.start == seen[one.topic_partition]
        seen[one.topic_partition] = one.end
    assert seen == ends


# --- identity ----------------------------------------------------------------------------------------------------


def options(**given_options: str) -> Any:
    return parse_stream_options({"tidelog.bootstrap.servers": "localhost:1", "subscribe": "orders", **given_options})


def test_the_identity_is_named_by_an_option_or_that_of_the_checkpoint() -> None:
    assert group_of(options(), "abc") == "spark-tidelog-abc"
    assert group_of(options(subscribe="payments", groupIdPrefix="team"), "abc") == "team-abc"
    assert group_of(options(**{"kafka.group.id": "mine"}), "abc") == "mine"
    assert transactional_id_of("mine") == "spark-source-mine"
    assert group_of(options(), "") == f"spark-tidelog-{start_digest(options())}", "a checkpoint of an earlier version"
    assert began_empty("")
    assert began_empty("none-abc")
    assert not began_empty("abc")


def test_a_pin_serves_what_reads_the_same_from_the_same_start() -> None:
    others = {
        start_digest(options()),
        start_digest(options(subscribe="payments")),
        start_digest(options(startingOffsets="earliest")),
        start_digest(options(startingTimestamp="5")),
        start_digest(options(startingOffsets='{"orders": {"0": 5}}')),
        start_digest(options(startingOffsetsByTimestamp='{"orders": {"0": 5}}')),
    }
    assert len(others) == 6
    assert start_digest(options(maxOffsetsPerTrigger="5", failOnDataLoss="false")) == start_digest(options())


def test_a_pin_is_found_again_until_its_lineage_has_progress() -> None:
    digest = start_digest(options())
    chosen = read_to(at(5, 2), at(7), lineage="one")
    pins = group_entries(chosen, "pinned", digest, Millis(10))
    assert pinned_offset({}, digest, "cluster") is None
    assert pinned_offset(pins, digest, "cluster") == chosen
    assert pinned_offset(pins, "of another start", "cluster") is None
    part_of_it = {**pins, **group_entries(read_to(at(6), lineage="one"), "progress", digest, Millis(20))}
    assert pinned_offset(part_of_it, digest, "cluster") is None
    older = group_entries(read_to(at(1), lineage="old"), "progress", digest, Millis(5))
    assert pinned_offset({**older, OTHER: pins[OTHER]}, digest, "cluster") is not None, "progress of another checkpoint"
    newer = group_entries(read_to(at(9), lineage="two"), "pinned", digest, Millis(30))
    found = pinned_offset({**pins, **newer}, digest, "cluster")
    assert found == read_to(at(9), lineage="two"), "the newer pin counts"


@given(st.text() | anything.map(json.dumps))
def test_entries_of_other_programs_are_no_pin(metadata: str) -> None:
    assert parse_note(metadata) is None
    assert (
        pinned_offset({KEY: CommittedOffset(Offset(1), LeaderEpoch(0), metadata), OTHER: None}, "", "cluster") is None
    )


def test_the_progress_of_a_query_says_how_far_it_is_behind() -> None:
    end = read_to(at(5, 2))
    latest = read_to(at(9, 2), at(4))

    def progress(**offsets: StreamOffset | None) -> dict[str, str | None]:
        return {f"{name}Offset": None if each is None else json.dumps(each.to_json()) for name, each in offsets.items()}

    assert offsets_behind_latest(progress(end=end, latest=latest)) == {str(KEY): 4, str(OTHER): 4}
    assert offsets_behind_latest(progress(end=latest, latest=latest)) == {str(KEY): 0, str(OTHER): 0}
    recreated = read_to(at(9), topic_id=NEW)
    assert offsets_behind_latest(progress(end=recreated, latest=latest)) == {str(KEY): 9, str(OTHER): 4}
    assert offsets_behind_latest(progress(end=end, latest=None)) == {}


def test_a_partition_that_is_new_to_a_query_is_behind_by_what_the_query_reads_of_it() -> None:
    """Retention has removed its first 60 offsets before the query saw it: they were counted."""
    start = read_to(at(5))
    latest = find_backlog(start, {KEY: log(0, 9), OTHER: log(60, 64)}).take(None)
    progress = {"endOffset": json.dumps(start.to_json()), "latestOffset": json.dumps(latest.to_json())}
    assert offsets_behind_latest(progress) == {str(KEY): 4, str(OTHER): 4}
    again = find_backlog(start, {KEY: log(20, 29, topic_id=NEW)}).take(None)
    assert offsets_behind_latest({**progress, "latestOffset": json.dumps(again.to_json())}) == {str(KEY): 9}
