"""Which position a table has, whatever others did to its snapshots."""

from __future__ import annotations

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import InvalidConfig, LogTruncated
from tidelog.jobs.table_position import SnapshotNote, ensure_continues, position_of
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.streaming.stream_offsets import PartitionPosition, stream_offset
from tidelog.types import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition

TOPIC = TopicId(UUID(int=7))
PLACE = TopicPartition("orders", PartitionIndex(0))


def test_a_new_table_has_none() -> None:
    assert position_of([], None, None, "t") is None


@given(st.lists(st.booleans(), min_size=1), st.data())
def test_it_is_that_of_the_last_commit_of_the_job_that_the_table_still_has(
    commits: list[bool], data: st.DataObject
) -> None:
    """Commits of the job and of others, a rollback to any of them, and expiry of all that is older than one that is
    left: the position is that of the rows that are there, or the job refuses to guess."""
    notes, prop = [], None
    for number, is_ours in enumerate(commits):
        prop = str(number) if is_ours else prop
        notes.append(SnapshotNote(number, number - 1 if number else None, str(number) if is_ours else None))
    current = data.draw(st.integers(0, len(commits) - 1), label="rolled back to")
    first = data.draw(st.integers(0, current), label="expired below")
    expected = max((number for number in range(current + 1) if commits[number]), default=None)
    try:
        found = position_of(notes[first:], current, prop, "t")
    except InvalidConfig as error:
        assert "was rolled back" in error.message and current < len(commits) - 1  # noqa: PT017
    else:
        if any(commits[current + 1 :]) or any(commits[first : current + 1]) or not first:
            assert found == (None if expected is None else str(expected))
        else:
            assert found == prop  # nothing but compaction since: the property is right


def test_a_chain_of_snapshots_without_an_end_is_not_followed_forever() -> None:
    notes = [SnapshotNote(one, other, None) for one, other in pairwise((1, 2, 1))]
    assert position_of(notes, 1, "p", "t") == "p"


def test_an_offset_that_the_table_has_is_not_read_again() -> None:
    start = stream_offset("c", "l", {PLACE: (TOPIC, PartitionPosition(Offset(10)))})
    ensure_continues(start, [OffsetRange(PLACE, TOPIC, LeaderEpoch(1), Offset(10), Offset(12))])
    with pytest.raises(LogTruncated, match="truncated to offset 9, and the table has rows up to 9"):
        ensure_continues(start, [OffsetRange(PLACE, TOPIC, LeaderEpoch(1), Offset(9), Offset(12))])
