"""The index of aborted transactions: Kafka's bytes, searches that stop early, truncation, damage."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.files.file_system import read_file, write_file
from storage.segment.abstract_index import CorruptIndex
from storage.segment.transaction_index import AbortedTransaction, TransactionIndex, encode_transactions
from testbed.fake_disk import FakeDisk
from tests.storage.kafka_producers import files_of, recorded_of
from tidelog.types import Offset, ProducerId

PATH = "/log/00000000000000000000.txnindex"


def aborted(producer: int, first: int, last: int, stable: int) -> AbortedTransaction:
    return AbortedTransaction(ProducerId(producer), Offset(first), Offset(last), Offset(stable))


FOUR = [aborted(0, 0, 10, 2), aborted(1, 5, 15, 16), aborted(2, 18, 35, 25), aborted(3, 32, 50, 40)]


def an_index(*entries: AbortedTransaction, base: int = 0) -> TransactionIndex:
    disk = FakeDisk()
    disk.make_directory("/log")
    index = TransactionIndex(disk, PATH, Offset(base))
    for entry in entries:
        index.append(entry)
    return index


def on_disk(index: TransactionIndex) -> bytes | None:
    return read_file(index._files, index.path)


def put(index: TransactionIndex, data: bytes) -> TransactionIndex:
    """The index, opened again over these bytes."""
    write_file(index._files, index.path, data)
    return TransactionIndex(index._files, index.path, index.base_offset)


@pytest.mark.parametrize("directory", ["cluster", "unclean"])
def test_every_index_that_kafka_wrote_is_read_as_by_kafka(directory: str) -> None:
    compared = 0
    for partition, recorded in recorded_of(directory).items():
        for segment in recorded["segments"]:
            if not segment.get("txnindex"):
                continue
            data = files_of(directory)[f"{partition}/{segment['baseOffset']:020d}.txnindex"]
            index = put(an_index(base=segment["baseOffset"]), data)
            _ = index.entries
            assert [[0, *entry] for entry in index.entries] == segment["txnindex"]
            assert encode_transactions(index.entries) == data
            again = an_index(*index.entries, base=segment["baseOffset"])
            assert on_disk(again) == data
            compared += 1
    assert compared >= 7


def test_a_segment_without_aborted_transactions_has_no_file() -> None:
    index = an_index()
    assert index.collect(Offset(0), Offset(100)) == ((), False)
    index.truncate_to(Offset(5))
    index.replace([])
    assert on_disk(index) is None


def test_it_is_read_again_after_it_was_reopened() -> None:
    index = an_index(*FOUR)
    again = TransactionIndex(index._files, PATH, Offset(0))
    again.append(aborted(4, 51, 60, 61))
    assert list(TransactionIndex(index._files, PATH, Offset(0)).entries) == [*FOUR, aborted(4, 51, 60, 61)]


@pytest.mark.parametrize(
    ("start", "end", "found", "complete"),
    [
        (0, 100, [0, 1, 2, 3], False),
        (0, 32, [0, 1, 2], True),
        (0, 35, [0, 1, 2, 3], True),
        (10, 35, [0, 1, 2, 3], True),
        (11, 35, [1, 2, 3], True),
        (20, 41, [2, 3], False),
        (51, 60, [], False),
        (0, 1, [0], True),
    ],
)
def test_a_search_finds_overlaps_and_stops_as_early_as_possible(
    start: int, end: int, found: list[int], complete: bool
) -> None:
    """Complete: an entry shows that the log was stable up to the end of the range."""
    assert an_index(*FOUR).collect(Offset(start), Offset(end)) == (tuple(FOUR[i] for i in found), complete)


def test_markers_must_be_in_order() -> None:
    index = an_index(aborted(0, 0, 10, 11))
    for last in (10, 9):
        with pytest.raises(CorruptIndex):
            index.append(aborted(1, 2, last, 11))
    assert list(index.entries) == [aborted(0, 0, 10, 11)]


def test_a_truncation_removes_transactions_whose_markers_are_removed() -> None:
    index = an_index(*FOUR)
    index.truncate_to(Offset(51))
    assert list(index.entries) == FOUR
    index.truncate_to(Offset(50))
    assert list(index.entries) == FOUR[:3]
    assert on_disk(index) == encode_transactions(FOUR[:3])
    index.append(aborted(9, 40, 50, 51))
    index.truncate_to(Offset(0))
    assert on_disk(index) is None


def test_a_full_disk_loses_nothing_and_a_later_append_completes_the_file() -> None:
    index = an_index(FOUR[0])
    disk = index._files
    assert isinstance(disk, FakeDisk)
    disk.capacity = disk.used
    index.append(FOUR[1])
    assert list(index.entries) == FOUR[:2]
    disk.capacity = None
    index.append(FOUR[2])
    assert on_disk(index) == encode_transactions(FOUR[:3])


def test_a_file_that_a_full_disk_does_not_let_begin_is_written_later() -> None:
    """The error must not reach the append: the marker is in the log already."""
    index = an_index()
    disk = index._files
    assert isinstance(disk, FakeDisk)
    index.begin()
    disk.fail("open", ".txnindex", error=errno.ENOSPC)
    index.append(FOUR[0])
    assert list(index.entries) == FOUR[:1]
    index.append(FOUR[1])
    assert on_disk(index) == encode_transactions(FOUR[:2])


def test_an_incomplete_entry_of_a_crash_is_overwritten() -> None:
    index = put(an_index(), encode_transactions(FOUR[:2]) + encode_transactions(FOUR[2:3])[:20])
    assert list(index.entries) == FOUR[:2]
    index.append(FOUR[3])
    assert on_disk(index) == encode_transactions([*FOUR[:2], FOUR[3]])


@pytest.mark.parametrize(
    ("entries", "base"),
    [
        ([aborted(0, 0, 10, 11)], 11),
        ([aborted(0, 12, 10, 11)], 0),
        ([aborted(0, -1, 10, 11)], 0),
        ([FOUR[1], FOUR[0]], 0),
    ],
)
def test_an_impossible_index_is_rejected(entries: list[AbortedTransaction], base: int) -> None:
    index = put(an_index(base=base), encode_transactions(entries))
    with pytest.raises(CorruptIndex):
        _ = index.entries


def test_an_unknown_version_is_rejected() -> None:
    with pytest.raises(CorruptIndex):
        _ = put(an_index(), b"\0\x01" + encode_transactions(FOUR)[2:]).entries


@given(st.binary(max_size=120))
def test_any_bytes_are_an_index_or_corrupt(data: bytes) -> None:
    index = put(an_index(), data)
    try:
        entries = index.entries
    except CorruptIndex:
        return
    assert encode_transactions(entries) == data[: len(data) - len(data) % 34]
