"""Keys go where Kafka's producers put them; records without a key fill one batch after another."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as oracle

from tests.client.memory_cluster import memory_cluster
from tests.client.producer_session import POLICY
from tidelog.client.key_hash import key_hash_of
from tidelog.client.partitioner import Partitioner, _partition_for_key, murmur2, partition_for_key
from tidelog.client.producer import Producer
from tidelog.client.producer_core import ProducerCore
from tidelog.client.route import Route
from tidelog.client.routing import NO_PARTITION
from tidelog.errors import UnknownTopicOrPartition
from tidelog.types import Millis


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
def test_a_key_has_the_partition_that_kafka_chooses(key: bytes, partitions: int) -> None:
    expected = (oracle(key) & 0x7FFFFFFF) % partitions
    assert partition_for_key(key, partitions) == _partition_for_key(key, partitions) == expected


@pytest.mark.parametrize(
    ("key", "checksum"),
    [(b"", 0), (b"123456789", 0xCBF43926), (b"The quick brown fox jumps over the lazy dog", 0x414FA339)],
)
def test_with_crc32_a_key_has_the_partition_that_librdkafka_chooses(key: bytes, checksum: int) -> None:
    """The check values of CRC-32, which librdkafka takes modulo the number of partitions."""
    hashed = key_hash_of("crc32")
    for partitions in (1, 6, 300):
        assert hashed.of_key(key, partitions) == checksum % partitions
        assert list(hashed.of_keys([None, key], partitions)) == [NO_PARTITION, checksum % partitions]


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


class Unkeyed:
    """The records without a key of a topic with many partitions; 1,000 bytes fill a batch."""

    def __init__(self, partitions: int) -> None:
        rng = random.Random(7)
        self.core = ProducerCore(POLICY, rng)
        queues = [self.core.queue("orders", partition) for partition in range(partitions)]
        chosen = Partitioner(partitions, batch_bytes=1000, rng=rng)
        self.route = Route(queues, chosen, 1000, 1000, 1000, idempotent=False, seal=self.core.seal)

    def put(self, size: int = 100) -> int:
        """Queue a record as the producer does, and return its partition."""
        queue = self.route.without_key(size)
        batch = queue.batches[-1] if queue.batches else None
        if batch is None or batch.sealed or batch.size + size > 1000:
            batch = self.core.open_batch(queue, Millis(0))
        batch.size += size
        return queue.topic_partition.partition

    def batches(self) -> list[tuple[int, bool]]:
        """The size of each batch, and whether it is full."""
        return [(batch.size, batch.full) for queue in self.route.queues for batch in queue.batches]


@pytest.mark.parametrize("partitions", [2, 6, 300])
def test_no_batch_is_left_half_full_whatever_the_number_of_partitions(partitions: int) -> None:
    unkeyed, sizes = Unkeyed(partitions), random.Random(1)
    for _ in range(200):
        unkeyed.put(sizes.randint(50, 150))
        assert sum(not full for _, full in unkeyed.batches()) == 1, "all but the batch that takes records are full"
    assert min(size for size, full in unkeyed.batches() if full) > 850


def test_a_batch_that_lingered_does_not_leave_the_rest_of_the_partition_half_full() -> None:
    """A part of the bytes leaves early; the batch behind it is left when it is full or sent, not before."""
    unkeyed = Unkeyed(300)
    first = unkeyed.put()
    for _ in range(3):
        assert unkeyed.put() == first
    unkeyed.route.queues[first].batches.clear()  # it lingered and was sent
    assert [unkeyed.put() for _ in range(10)] == [first] * 10, "a whole batch behind it"
    assert unkeyed.put() != first
    assert unkeyed.batches().count((1000, True)) == 1


def by_length(key: bytes | None, partitions: int) -> int | None:
    return None if key is None else len(key) % partitions


async def test_a_function_of_the_program_chooses_partitions() -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders", 3)
        async with Producer(cluster.bootstrap, partitioner=by_length) as producer:
            sent = [await producer.send("orders", b"v", key=bytes(length)) for length in range(6)]
            assert [each.partition for each in sent] == [0, 1, 2, 0, 1, 2]
            many = await (await producer.enqueue_many("orders", [b"v"] * 4, keys=[b"1", b"22", None, b""]))
            chosen = [each.partition for each in many.results()]
            assert [*chosen[:2], chosen[3]] == [1, 2, 0]
            assert (await producer.send("orders", b"v", key=b"1", partition=2)).partition == 2


async def test_a_function_of_the_program_also_spreads_records_without_keys() -> None:
    turns = iter(range(100))
    async with memory_cluster() as cluster:
        cluster.create("orders", 3)
        async with Producer(cluster.bootstrap, partitioner=lambda _, partitions: next(turns) % partitions) as producer:
            sent = [await producer.send("orders", b"v") for _ in range(3)]
            assert sorted(each.partition for each in sent) == [0, 1, 2]
            many = await (await producer.enqueue_many("orders", [b"v"] * 6))
            assert sorted(each.partition for each in many.results()) == [0, 0, 1, 1, 2, 2]


async def test_a_function_that_names_no_partition_is_refused() -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (3, UnknownTopicOrPartition, "the partitioner returned partition 3 for key b'k': it must be 0 to 2, or None"),
        (-1, UnknownTopicOrPartition, "returned partition -1"),
        ("0", TypeError, "the partition that the partitioner returned must be a whole number"),
    ]
    async with memory_cluster() as cluster:
        cluster.create("orders", 3)
        for index, error, says in wrong:
            async with Producer(cluster.bootstrap, partitioner=lambda *_, index=index: index) as producer:
                with pytest.raises(error, match=says):
                    await producer.send("orders", b"v", key=b"k")
                with pytest.raises(error, match=says):
                    await producer.enqueue_many("orders", [b"v"], keys=[b"k"])
                assert (await producer.send("orders", b"v", partition=1)).partition == 1
