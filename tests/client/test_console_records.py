"""Which records of batches a page of the console has, and where the next page begins."""

from __future__ import annotations

from tidelog.console.record_pages import decoded_page
from tidelog.records import Record, build_batch
from tidelog.types import Codec, Millis, Offset


def batch(first: int, *keys: bytes, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(Offset(first + at), Millis(0), key, b"value") for at, key in enumerate(keys)]
    return build_batch(records, codec=codec)


DATA = batch(10, b"a", b"b", b"a") + batch(13, b"b", b"a", codec=Codec.GZIP)


def page(position: int, room: int, wanted: bytes | None = None) -> tuple[list[int], int]:
    found, behind = decoded_page(DATA, Offset(position), room, wanted)
    return [each.record.offset for each in found], behind


def test_pages_follow_each_other_without_gap_and_without_repetition() -> None:
    assert page(11, 50) == ([11, 12, 13, 14], 15)
    assert page(10, 2) == ([10, 11], 12)
    assert page(12, 2) == ([12, 13], 14)
    assert page(14, 2) == ([14], 15)


def test_a_search_looks_at_all_records_until_its_page_is_full() -> None:
    assert page(10, 50, b"a") == ([10, 12, 14], 15)
    assert page(10, 1, b"a") == ([10], 11), "the next page looks at offset 11"
    assert page(10, 50, b"c") == ([], 15)
