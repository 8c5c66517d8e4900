"""What may be gone and what a reader must receive: over a hand-made ledger, without a cluster."""

from __future__ import annotations

import pytest

from testbed.sim.ledger import Violation
from testbed.sim.readings import Reading
from tests.sim.ledger_book import Book
from tidelog.records import build_batch, iter_batches
from tidelog.records.v2.builder import empty_batch

COMPACTED = {"cleanup.policy": "compact"}


def test_a_log_that_is_not_compacted_lacks_no_record() -> None:
    book = Book().put((b"k", b"a")).put((b"k", b"b"))
    assert book.gone() == []
    assert book.ledger.missing(0, 2) == 0
    assert not book.ledger.is_left_of(book.batches[1], book.ledger.batches[0])


def test_of_each_key_the_last_record_stays() -> None:
    book = Book(**COMPACTED).put((b"k", b"a"), (b"l", b"b")).put((b"k", b"c"))
    assert book.gone() == [0]
    left = next(iter(iter_batches(build_batch([*book.batches[0].records()][1:], base_offset=0, leader_epoch=0))))
    assert book.ledger.is_left_of(left, book.ledger.batches[0])
    wrong = next(
        iter(iter_batches(build_batch([*book.batches[0].records()][:1], base_offset=0, leader_epoch=0, last_offset=1)))
    )
    assert not book.ledger.is_left_of(wrong, book.ledger.batches[0])
    assert not book.ledger.is_left_of(next(iter(iter_batches(empty_batch(book.batches[1])))), book.ledger.batches[2])


def test_a_record_overruled_by_one_that_is_not_decided_stays() -> None:
    book = Book(**COMPACTED).put((b"k", b"a")).put((b"k", b"b"), producer=7).put((b"k", b"c"))
    assert book.gone() == []
    assert book.gone() == []
    book.decide(7, 1, commit=False)
    assert book.gone() == [0, 1]


def test_a_record_overruled_by_an_aborted_one_stays() -> None:
    book = Book(**COMPACTED).put((b"k", b"a")).put((b"k", b"b"), producer=7).decide(7, 1, commit=False)
    assert book.gone() == [1]
    assert book.ledger.missing(1, 3) == 2, "a marker stays as long as delete.retention.ms"
    assert Book(**COMPACTED).put((b"k", b"a")).put((b"k", b"b"), producer=7).decide(7, 1, commit=True).gone() == [0]


def test_a_tombstone_stays_for_the_configured_time() -> None:
    slow, quick = Book(**COMPACTED), Book(**COMPACTED, delete_retention_ms="500")
    assert slow.put((b"k", b"a"), (b"k", None)).gone() == [0]
    assert quick.put((b"k", b"a"), (b"k", None)).gone() == [0, 1]


def test_settings_of_the_past_still_excuse() -> None:
    book = Book(retention_ms="1000")
    book.cleanup.widen({})
    assert book.cleanup.retention_ms == 1000
    assert not book.cleanup.compact


def test_records_after_the_marker_of_their_transaction() -> None:
    book = Book().put((None, b"a"), producer=7, epoch=3).decide(7, 4, commit=False, coordinator=1)
    with pytest.raises(Violation, match="of producer 7 in epoch 3 is committed at 2, after the marker of epoch 4"):
        book.put((None, b"b"), producer=7, epoch=3)
    with pytest.raises(Violation, match="coordinator epoch 0 is committed"):
        Book().decide(7, 4, commit=False, coordinator=1).decide(7, 4, commit=False)


def test_a_reader_is_given_each_record_once_and_in_order() -> None:
    book = Book().put((None, b"a")).put((None, b"b")).put((None, b"c"))
    assert not book.give([0, 1]).complete
    assert book.give([0, 1, 2]).complete
    with pytest.raises(Violation, match="was to continue at 2, from 1 on, without being given offset 1"):
        book.give([0, 2])
    with pytest.raises(Violation, match="at 2 was given offset 1"):
        book.give([0, 1, 1])


def test_a_reader_of_decided_transactions() -> None:
    book = Book().put((None, b"a"), producer=7).put((None, b"b")).put((None, b"c"), producer=8)
    assert Reading(book.ledger, decided=True).complete, "all records follow an open transaction"
    with pytest.raises(Violation, match="of one that is open"):
        book.give([0], decided=True)
    book.decide(7, 1, commit=False)
    with pytest.raises(Violation, match="of one that is aborted"):
        book.give([0], decided=True)
    assert book.give([1], decided=True).complete
    with pytest.raises(Violation, match="of one that is open"):
        book.give([1, 2], decided=True)
    book.decide(8, 1, commit=True)
    assert not book.give([1], decided=True).complete
    assert book.give([1, 2], decided=True).complete
    assert book.give([0, 1, 2]).complete, "a read_uncommitted reader gets aborted records too"


def test_a_reader_skips_records_that_may_be_deleted() -> None:
    book = Book(**COMPACTED).put((b"k", b"a")).put((b"k", b"b"))
    assert book.give([1]).complete
    expiring = Book().put((None, b"a")).put((None, b"b"))
    with pytest.raises(Violation, match="without being given offset 0"):
        expiring.give([1])
    expiring.ledger.start = 1
    assert expiring.give([1]).complete
