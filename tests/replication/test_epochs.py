"""Two diverged logs are reconciled by epochs alone, compared with logs as lists of records."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.epochs import common_end, divergence, end_of_epoch, epoch_before
from tidelog.types import EpochEnd, EpochStart, LeaderEpoch, Offset

Log = list[int]
"""A log as the epoch of each of its records: the slow and obvious form."""


def history_of(log: Log) -> tuple[EpochStart, ...]:
    return tuple(
        EpochStart(LeaderEpoch(epoch), Offset(offset))
        for offset, epoch in enumerate(log)
        if offset == 0 or log[offset - 1] != epoch
    )


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Logs as elections make them: an epoch's records are appended by one leader, and copied from its log only.

    Each leader of an epoch starts from one of the logs so far; other logs copy prefixes of it.
    """
    logs: list[Log] = [[], [], []]
    for epoch in range(draw(st.integers(1, 6))):
        leader = draw(st.integers(0, 2))
        logs[leader] = logs[leader] + [epoch] * draw(st.integers(0, 5))
        for follower in range(3):
            if follower != leader and draw(st.booleans()):
                common = 0
                while common < min(len(logs[leader]), len(logs[follower])) and same(
                    logs[leader], logs[follower], common
                ):
                    common += 1
                upto = draw(st.integers(common, len(logs[leader])))
                logs[follower] = logs[leader][:upto]
    return logs[0], logs[1]


def same(one: Log, other: Log, offset: int) -> bool:
    return one[offset] == other[offset]


def common_prefix(one: Log, other: Log) -> int:
    end = 0
    while end < min(len(one), len(other)) and one[end] == other[end]:
        end += 1
    return end


@given(two_logs())
@example(([1] * 50 + [4] * 50, [1] * 30 + [2] * 30 + [3] * 20))
def test_a_follower_ends_as_a_prefix_of_its_leader_and_loses_nothing_they_share(logs: tuple[Log, Log]) -> None:
    leader, follower = logs
    shared = common_prefix(leader, follower)
    history = history_of(leader)
    for _ in range(20):
        last = LeaderEpoch(follower[-1]) if follower else LeaderEpoch(-1)
        end = divergence(history, Offset(0), Offset(len(leader)), Offset(len(follower)), last)
        if end is None:
            break
        cut = common_end(history_of(follower), Offset(len(follower)), end)
        follower = follower[: 0 if cut is None else cut]
    else:
        raise AssertionError("the same question for ever")
    assert follower == leader[: len(follower)]
    assert len(follower) >= shared


@given(st.lists(st.integers(0, 6), max_size=12).map(sorted), st.integers(-1, 8))
def test_where_an_epoch_ends(log: Log, epoch: int) -> None:
    found = end_of_epoch(history_of(log), LeaderEpoch(epoch), Offset(0), Offset(len(log)))
    offsets = [offset for offset, of in enumerate(log) if of <= epoch]
    if not offsets:
        assert found == EpochEnd(LeaderEpoch(-1), Offset(0))
    else:
        assert found == EpochEnd(LeaderEpoch(log[offsets[-1]]), Offset(offsets[-1] + 1))


def test_the_epoch_of_the_record_before_an_offset() -> None:
    history = [EpochStart(LeaderEpoch(1), Offset(5)), EpochStart(LeaderEpoch(4), Offset(9))]
    assert [epoch_before(history, Offset(offset)) for offset in (0, 5, 6, 9, 10, 99)] == [-1, -1, 1, 1, 4, 4]
    assert epoch_before([], Offset(3)) == -1
