"""Start and end of epochs: the applicable cases of Kafka's LeaderEpochFileCacheTest.

Answers for epochs that a log does not have are Tidelog's own (design section 4, rule 2): the largest epoch not above
the requested one, for which Kafka returns "undefined"."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.checkpoints.checkpoint_file import encode_epochs, read_epochs
from storage.files.file_system import write_file
from storage.segment.epoch_cache import EpochFile, LeaderEpochCache
from testbed.fake_disk import FakeDisk
from tidelog.epochs import end_of_epoch, epoch_before
from tidelog.errors import CorruptLog
from tidelog.types import EpochStart, LeaderEpoch, Offset

PATH = "/orders-0/leader-epoch-checkpoint"


def entries(*pairs: tuple[int, int]) -> list[EpochStart]:
    return [EpochStart(LeaderEpoch(epoch), Offset(start)) for epoch, start in pairs]


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(entries(*pairs))


def end(of: LeaderEpochCache, epoch: int, *, log_start: int = 0, log_end: int = 100) -> tuple[int, int]:
    found = end_of_epoch(of.entries, LeaderEpoch(epoch), Offset(log_start), Offset(log_end))
    return found.epoch, found.end_offset


def assign(to: LeaderEpochCache, *pairs: tuple[int, int]) -> None:
    for epoch, start in pairs:
        to.assign(LeaderEpoch(epoch), Offset(start))


# --- ends of epochs -------------------------------------------------------------------------------------------------


def test_the_latest_epoch_ends_where_the_log_ends() -> None:
    assert end(cache((2, 9)), 2) == (2, 100)


def test_an_earlier_epoch_ends_where_the_next_one_begins() -> None:
    known = cache((2, 9), (3, 20), (7, 60))
    assert [end(known, epoch) for epoch in (2, 3, 7)] == [(2, 20), (3, 60), (7, 100)]


def test_the_answer_for_a_skipped_epoch_is_the_one_before_it() -> None:
    known = cache((2, 9), (7, 60))
    assert end(known, 5) == (2, 60)
    assert end(known, 9) == (7, 100), "Kafka: undefined, for an epoch that has not begun"


def test_an_epoch_before_the_first_one_ends_at_the_log_start() -> None:
    assert end(cache((2, 9)), 1, log_start=9) == (-1, 9)
    assert end(cache(), 0, log_start=4) == (-1, 4), "a log without any epoch"


def test_the_epoch_of_the_last_record_is_not_that_of_a_leader_without_records() -> None:
    known = cache((2, 9), (5, 100))
    assert (known.latest, epoch_before(known.entries, 100), epoch_before(known.entries, 101)) == (5, 2, 5)
    assert epoch_before(known.entries, 9) == -1


# --- assigning ------------------------------------------------------------------------------------------------------


def test_an_epoch_keeps_its_first_start() -> None:
    known = cache()
    assign(known, (2, 6), (2, 7), (2, 9))
    assert known.entries == tuple(entries((2, 6)))


def test_contradicted_entries_are_removed() -> None:
    known = cache((2, 6), (3, 10), (4, 20))
    assign(known, (5, 10))
    assert known.entries == tuple(entries((2, 6), (5, 10))), "later epochs began at a lower offset"
    known = cache((2, 6), (3, 10), (4, 20))
    assign(known, (3, 15))
    assert known.entries == tuple(entries((2, 6), (3, 15))), "an older epoch writes again: later entries are removed"


def test_an_epoch_without_records_stays_until_it_is_contradicted() -> None:
    known = cache((1, 0))
    assign(known, (2, 10), (3, 10))
    assert known.entries == tuple(entries((1, 0), (3, 10)))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=20))
def test_epochs_and_starts_grow_for_any_assignments(pairs: list[tuple[int, int]]) -> None:
    known = cache()
    for epoch, start in pairs:
        assign(known, (epoch, start))
        found = known.entries
        assert known.latest == epoch
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(found))
    assert read_back(known) == known.entries


def read_back(known: LeaderEpochCache) -> tuple[EpochStart, ...] | None:
    disk = FakeDisk()
    disk.make_directory("/orders-0")
    write_file(disk, PATH, encode_epochs(known.entries))
    return read_epochs(disk, PATH)


# --- truncation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cut", "kept"),
    [(12, ((2, 6), (3, 8), (4, 11))), (11, ((2, 6), (3, 8))), (9, ((2, 6), (3, 8))), (8, ((2, 6),)), (0, ())],
)
def test_epochs_that_begin_at_or_above_a_truncation_are_removed(cut: int, kept: tuple[tuple[int, int], ...]) -> None:
    known = cache((2, 6), (3, 8), (4, 11))
    known.truncate_from_end(Offset(cut))
    assert known.entries == tuple(entries(*kept))


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (0, ((2, 6), (3, 8), (4, 11))),
        (6, ((2, 6), (3, 8), (4, 11))),
        (7, ((2, 7), (3, 8), (4, 11))),
        (8, ((3, 8), (4, 11))),
        (10, ((3, 10), (4, 11))),
        (15, ((4, 15),)),
    ],
)
def test_the_epoch_in_force_begins_at_a_moved_log_start(start: int, kept: tuple[tuple[int, int], ...]) -> None:
    known = cache((2, 6), (3, 8), (4, 11))
    known.truncate_from_start(Offset(start))
    assert known.entries == tuple(entries(*kept))


def test_the_entries_over_a_range() -> None:
    known = cache((2, 6), (3, 8), (4, 11))
    assert known.over(Offset(7), Offset(9)) == tuple(entries((2, 6), (3, 8)))
    assert known.over(Offset(12), Offset(13)) == tuple(entries((4, 11)))
    assert known.over(Offset(0), Offset(7)) == tuple(entries((2, 6)))
    assert known.over(Offset(9), Offset(9)) == ()


# --- the file -------------------------------------------------------------------------------------------------------


def test_the_file_never_gets_older_contents() -> None:
    """A flush that began before a truncation ends after it."""
    disk = FakeDisk()
    disk.make_directory("/orders-0")
    known = cache((2, 6), (3, 8))
    file = EpochFile(disk, PATH, -1)
    before, version = known.entries, known.version
    known.truncate_from_end(Offset(7))
    file.write(known.version, known.entries)
    file.write(version, before)
    assert read_epochs(disk, PATH) == tuple(entries((2, 6)))
    file.retire()
    file.write(known.version + 1, ())
    assert read_epochs(disk, PATH) == tuple(entries((2, 6))), "a closed log does not write into its successor's file"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0\n",
        "1\n0\n",
        "0\n2\n1 2\n",
        "0\n1\n1\n",
        "0\n1\nx 2\n",
        "0\n2\n2 5\n1 9\n",
        "0\n2\n1 5\n2 5\n",
        "0\n0\n1 1\n",
    ],
)
def test_a_file_is_read_completely_or_rejected(text: str) -> None:
    disk = FakeDisk()
    disk.make_directory("/orders-0")
    write_file(disk, PATH, text.encode())
    with pytest.raises(CorruptLog):
        read_epochs(disk, PATH)


def test_a_missing_file_differs_from_an_empty_one() -> None:
    disk = FakeDisk()
    disk.make_directory("/orders-0")
    assert read_epochs(disk, PATH) is None
    write_file(disk, PATH, b"0\n0\n")
    assert read_epochs(disk, PATH) == ()
