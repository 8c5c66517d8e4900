"""Which records of batches a page of the console has, and where the next page begins."""

from __future__ import annotations

import pytest

from tidelog.console import seen_records
from tidelog.console.seen_records import KEPT_BYTES_MAX, LOOKED_BYTES_MAX, RECORDS_SHOWN, PageContent
from tidelog.records import Record, build_batch
from tidelog.types import Codec, Millis, Offset


def batch(first: int, *keys: bytes, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(Offset(first + at), Millis(0), key, b"value") for at, key in enumerate(keys)]
    return build_batch(records, codec=codec)


DATA = batch(10, b"a", b"b", b"a") + batch(13, b"b", b"a", codec=Codec.GZIP)


def page(data: bytes, position: int, wanted: bytes | None = None) -> tuple[list[int], int]:
    content = PageContent(Offset(position), wanted)
    content.take(data)
    return [each.offset for each in content.records], content.position


def test_pages_follow_each_other_without_gap_and_without_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    assert page(DATA, 11) == ([11, 12, 13, 14], 15)
    monkeypatch.setattr(seen_records, "RECORDS_SHOWN", 2)
    assert page(DATA, 10) == ([10, 11], 12)
    assert page(DATA, 12) == ([12, 13], 14)
    assert page(DATA, 14) == ([14], 15)


def test_a_search_looks_at_all_records_until_its_page_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    assert page(DATA, 10, b"a") == ([10, 12, 14], 15)
    assert page(DATA, 10, b"c") == ([], 15)
    monkeypatch.setattr(seen_records, "RECORDS_SHOWN", 1)
    assert page(DATA, 10, b"a") == ([10], 11), "the next page looks at offset 11"


def test_of_a_large_record_the_beginning_is_kept_and_its_length() -> None:
    headers = [("n" * 1_000, b"h" * 10_000), *[("x", None)] * 30]
    record = Record(Offset(0), Millis(0), b"k" * 100_000, b"v" * 8_000_000, tuple(headers))
    content = PageContent(Offset(0), None)
    content.take(build_batch([record], codec=Codec.NONE))
    [seen] = content.records
    assert seen.key is not None and seen.value is not None
    assert (len(seen.key.data), seen.key.length) == (16_384, 100_000)
    assert (len(seen.value.data), seen.value.length) == (16_384, 8_000_000)
    name, data = seen.headers[0]
    assert data is not None
    assert (len(name), len(data.data), data.length) == (256, 1_024, 10_000)
    assert (len(seen.headers), seen.headers_more) == (20, 11)


def test_a_page_of_large_records_ends_before_its_fifty_are_there() -> None:
    many = [Record(Offset(at), Millis(0), b"k" * 20_000, b"v" * 20_000) for at in range(RECORDS_SHOWN)]
    content = PageContent(Offset(0), None)
    content.take(build_batch(many, codec=Codec.GZIP))
    kept = sum(each.size for each in content.records)
    assert KEPT_BYTES_MAX <= kept < KEPT_BYTES_MAX + 33_000
    assert content.position == len(content.records) < RECORDS_SHOWN, "the next page has the others"


def test_a_search_ends_after_so_many_decompressed_bytes_however_few_were_read() -> None:
    """Each of these batches has some kilobytes, and becomes eight megabytes."""
    batches = [
        build_batch([Record(Offset(at), Millis(0), b"k", b"0" * 8_000_000)], codec=Codec.GZIP) for at in range(8)
    ]
    content = PageContent(Offset(0), b"another")
    content.take(b"".join(batches))
    assert content.is_full
    assert content.position == -(-LOOKED_BYTES_MAX // 8_000_000) == 5


@pytest.mark.parametrize(
    ("record", "looked"),
    [
        (Record(Offset(0), Millis(0), b"k", None, (("h", b"0" * 8_000_000),)), 5),
        (Record(Offset(0), Millis(0), None, None), LOOKED_BYTES_MAX // 64),
    ],
    ids=["headers", "nothing at all"],
)
def test_a_search_also_ends_in_records_whose_bytes_are_not_in_keys_and_values(record: Record, looked: int) -> None:
    content = PageContent(Offset(0), b"another")
    count = 8 if record.headers else 600_000
    each = [record._replace(offset=Offset(at)) for at in range(count)]
    content.take(build_batch(each, codec=Codec.GZIP))
    assert content.is_full
    assert content.position == looked
