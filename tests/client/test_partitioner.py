"""Keys go where Kafka's producers put them; records without a key fill one batch after another."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as oracle

from tidelog.client import partitioner as module
from tidelog.client.partitioner import Partitioner, murmur2, partition_for_key


# From Kafka's own UtilsTest: the hash as a signed integer.
@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_are_those_of_kafka(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_hashes_equal_an_independent_implementation(key: bytes) -> None:
    assert murmur2(key) == oracle(key)


@given(st.binary(max_size=40), st.integers(1, 5000))
def test_a_key_has_one_partition_cached_or_not(key: bytes, partitions: int) -> None:
    chosen = Partitioner(partitions, batch_bytes=100, rng=random.Random(1))
    first = chosen.for_key(key)
    assert first == chosen.for_key(key) == partition_for_key(key, partitions) == (oracle(key) & 0x7FFFFFFF) % partitions


def test_remembered_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_REMEMBERED_MAX", 8)
    chosen = Partitioner(7, batch_bytes=100, rng=random.Random(1))
    for number in range(100):
        key = str(number).encode()
        assert chosen.for_key(key) == partition_for_key(key, 7)
        assert len(chosen._by_key) <= 8


def place(chosen: Partitioner, size: int, queued: list[int], led: list[bool]) -> int:
    if not chosen.stays(size):
        chosen.draw(size, queued.__getitem__, led.__getitem__)
    return chosen.sticky


def test_records_without_a_key_stay_until_a_batch_is_full_then_move() -> None:
    chosen = Partitioner(4, batch_bytes=1000, rng=random.Random(7))
    places = [place(chosen, 100, [0] * 4, [True] * 4) for _ in range(400)]
    runs = [places[start : start + 10] for start in range(0, 400, 10)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(one[0] != other[0] for one, other in pairwise(runs))
    assert set(places) == {0, 1, 2, 3}


def test_partitions_without_a_leader_are_left_out_while_any_has_one() -> None:
    chosen = Partitioner(4, batch_bytes=10, rng=random.Random(7))
    assert {place(chosen, 10, [0] * 4, [False, True, False, True]) for _ in range(50)} == {1, 3}
    assert {place(chosen, 10, [0] * 4, [False] * 4) for _ in range(80)} == {0, 1, 2, 3}


def test_shorter_queues_get_more_records() -> None:
    chosen = Partitioner(3, batch_bytes=10, rng=random.Random(7))
    places = [place(chosen, 10, [5000, 0, 5000], [True] * 3) for _ in range(300)]
    assert places.count(1) > 115 > max(places.count(0), places.count(2))


def test_a_record_larger_than_a_batch_gets_a_partition() -> None:
    chosen = Partitioner(1, batch_bytes=10, rng=random.Random(7))
    assert [place(chosen, 5000, [0], [True]) for _ in range(3)] == [0, 0, 0]
