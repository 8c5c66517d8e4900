"""The limit of known producers: above it the oldest ones of the topics that have the most are removed, as if they had
expired."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from storage.log.log import Log
from storage.log_config import LogConfig
from tests.storage.test_maintenance import CONFIG, World
from tests.storage.workbench import NOW
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.types import LeaderEpoch, Millis, PartitionIndex, ProducerId, TopicId, TopicPartition


def batch_of(producer: int, *, sequence: int = 0, timestamp: int = NOW, transactional: bool = False) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=ProducerId(producer), producer_epoch=0, base_sequence=sequence, is_transactional=transactional
    )
    builder.append(key=b"k", value=b"v", timestamp=Millis(timestamp))
    return builder.build()


def append(log: Log, data: bytes) -> None:
    log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0))


def partition_of(world: World, topic: str, index: int) -> Log:
    return world.directory.create_log(
        TopicPartition(topic, PartitionIndex(index)), TopicId(UUID(bytes=topic.rjust(16).encode())), LogConfig()
    )


def known(log: Log) -> set[int]:
    return {int(state.producer_id) for state in log.active_producers()}


def test_the_oldest_producers_of_all_logs_of_a_topic_are_removed() -> None:
    world = World(config=replace(CONFIG, producers_max=32))
    one, other = partition_of(world, "orders", 0), partition_of(world, "orders", 1)
    append(one, batch_of(1_000, timestamp=NOW - 1_000, transactional=True))
    for i in range(40):
        world.clock.now += 1
        append(one if i % 2 else other, batch_of(i, timestamp=NOW - i))
    world.wait(1_000)
    counted, forgotten = world.owner.producers[-1]
    assert counted == len(known(one)) + len(known(other)) <= 32
    assert forgotten == 41 - counted
    assert 1_000 in known(one), "a transaction is open"
    assert known(one) | known(other) == {1_000, *range(40 - counted + 1, 40)}
    append(other, batch_of(38, sequence=1, timestamp=NOW + 41))
    append(other, batch_of(0, sequence=7, timestamp=NOW + 42))
    assert {0, 38} <= known(other), "a removed producer may begin with any sequence, like an expired one"


def test_after_a_restart_the_producers_with_the_oldest_records_are_removed() -> None:
    """The append times are unknown after a restart: all are equal."""
    world = World(config=replace(CONFIG, producers_max=32))
    log = world.make("one", LogConfig())
    for i in range(40):
        append(log, batch_of(i, timestamp=NOW + i))
    world.wait(1_000)
    assert known(log) == set(range(40 - world.owner.producers[-1][0], 40))


def test_below_the_limit_no_producer_is_removed() -> None:
    world = World(config=replace(CONFIG, producers_max=32))
    log = world.make("one", LogConfig())
    for i in range(32):
        append(log, batch_of(i))
    world.wait(5_000)
    assert world.owner.producers[-1] == (32, 0)
    assert known(log) == set(range(32))


def test_a_flood_of_producer_ids_in_one_topic_removes_no_producer_of_another() -> None:
    """Who may write to one topic made the node forget the idle producers of all others: a batch that such a producer
    sent again was appended twice."""
    world = World(config=replace(CONFIG, producers_max=32))
    quiet, flooded = world.make("quiet", LogConfig()), world.make("flooded", LogConfig())
    for i in range(12):
        append(quiet, batch_of(i))
    for i in range(1_000, 1_100):
        world.clock.now += 1
        append(flooded, batch_of(i, timestamp=NOW + 1_000_000))
    world.wait(1_000)
    counted, forgotten = world.owner.producers[-1]
    assert counted <= 32 and counted + forgotten == 112
    assert known(quiet) == set(range(12))
    assert known(flooded) == set(range(1_100 - len(known(flooded)), 1_100)), "in the topic, the oldest are removed"
    append(quiet, batch_of(3))
    assert quiet.log_end_offset == 12, "the batch that is sent again is a duplicate"


def test_the_partitions_of_a_topic_share_its_part_of_the_limit() -> None:
    """Otherwise a topic with many partitions would take the parts of others."""
    world = World(config=replace(CONFIG, producers_max=32))
    quiet = world.make("quiet", LogConfig())
    for i in range(12):
        append(quiet, batch_of(i))
    flooded = [partition_of(world, "flooded", i) for i in range(10)]
    for i in range(1_000, 1_060):
        append(flooded[i % 10], batch_of(i))
    world.wait(1_000)
    assert known(quiet) == set(range(12))
    assert sum(len(known(log)) for log in flooded) <= 20


def test_the_limit_holds_also_where_a_topic_has_many_open_transactions() -> None:
    """Their producers cannot be removed, so that others make room for them."""
    world = World(config=replace(CONFIG, producers_max=32))
    idle, busy = world.make("idle", LogConfig()), world.make("busy", LogConfig())
    for i in range(12):
        append(idle, batch_of(i))
    for i in range(100, 125):
        append(busy, batch_of(i, transactional=True))
    world.wait(1_000)
    assert world.owner.producers[-1][0] <= 32
    assert known(busy) == set(range(100, 125))
