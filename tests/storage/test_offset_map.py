"""The map of compaction: keys to offsets in memory of a fixed size. Covers the applicable cases of Kafka's
OffsetMapTest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.compaction.offset_map import BUCKET_BYTES, OffsetMap

KEYS = st.binary(max_size=8)


@given(st.lists(st.tuples(KEYS, st.integers(1, 1000)), max_size=200))
def test_it_equals_a_dictionary(steps: list[tuple[bytes, int]]) -> None:
    offsets, model, offset = OffsetMap(8 * BUCKET_BYTES), {}, 0
    for key, step in steps:
        offset += step
        assert offsets.put(key, offset)
        model[key] = offset
    assert offsets.entries == len(model)
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.get(b"an absent key") == -1


def test_a_full_map_accepts_known_keys_only() -> None:
    offsets = OffsetMap(BUCKET_BYTES)
    taken = 0
    while offsets.put(b"%d" % taken, taken):
        taken += 1
    assert offsets.is_full
    assert offsets.entries == taken == offsets.entries_max == 28
    assert not offsets.put(b"new", 99)
    assert offsets.get(b"new") == -1
    assert offsets.put(b"3", 100)
    assert offsets.get(b"3") == 100


def test_full_buckets_use_the_next_bucket() -> None:
    """At nine tenths, some of many buckets are full."""
    offsets = OffsetMap(100 * BUCKET_BYTES)
    count = offsets.entries_max
    for number in range(count):
        assert offsets.put(b"key %d" % number, number)
    assert max(offsets._counts) == 32
    assert [offsets.get(b"key %d" % number) for number in range(count)] == list(range(count))
    assert [offsets.get(b"other %d" % number) for number in range(count)] == [-1] * count


def test_memory_is_limited_and_no_more_than_needed() -> None:
    assert OffsetMap(10 << 20).memory_bytes <= 10 << 20
    assert OffsetMap.for_records(1000, 10 << 20).memory_bytes < 40_000
    assert OffsetMap.for_records(1000, 10 << 20).entries_max >= 1000
    assert OffsetMap.for_records(10**12, 1 << 20).memory_bytes <= 1 << 20
    with pytest.raises(ValueError, match="smaller than one bucket"):
        OffsetMap(BUCKET_BYTES - 1)
