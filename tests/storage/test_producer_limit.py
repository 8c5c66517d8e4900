"""The limit of known producers: above it some of the topics that have the most are removed, as if they had expired: the
longest idle ones that have nothing to send again, then the newest ones."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from storage.directory.maintenance import SENT_AGAIN_MS
from storage.log.log import Log
from storage.log_config import LogConfig
from tests.storage.maintenance_world import CONFIG, World
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
    return {int(state.producer_id) for state in log.producers.state.active_producers()}


def test_the_longest_idle_producers_of_all_logs_of_a_topic_are_removed() -> None:
    world = World(config=replace(CONFIG, producers_max=32))
    one, other = partition_of(world, "orders", 0), partition_of(world, "orders", 1)
    append(one, batch_of(1_000, timestamp=NOW - 1_000, transactional=True))
    for i in range(40):
        world.clock.now += 1
        append(one if i % 2 else other, batch_of(i, timestamp=NOW - i))
    world.clock.now += SENT_AGAIN_MS
    world.wait(1_000)
    counted, forgotten = world.owner.producers[-1]
    assert counted == len(known(one)) + len(known(other)) <= 32
    assert forgotten == 41 - counted
    assert 1_000 in known(one), "a transaction is open"
    assert known(one) | known(other) == {1_000, *range(40 - counted + 1, 40)}
    append(other, batch_of(38, sequence=1, timestamp=NOW + 41))
    append(other, batch_of(0, sequence=7, timestamp=NOW + 42))
    assert {0, 38} <= known(other), "a removed producer may begin with any sequence, like an expired one"


def test_after_a_restart_the_producers_that_appended_last_are_removed() -> None:
    """The append times are unknown after a restart, all are equal. What the records claim does not count."""
    world = World(config=replace(CONFIG, producers_max=32))
    log = world.make("one", LogConfig())
    for i in range(40):
        append(log, batch_of(i, timestamp=NOW + i))
    world.wait(1_000)
    assert known(log) == set(range(world.owner.producers[-1][0]))


@pytest.mark.parametrize("partition", [0, 1], ids=["in its partition", "in another partition"])
def test_a_flood_of_producer_ids_pushes_out_itself(partition: int) -> None:
    """Who may write to a topic made the node forget the idle producers of others there: a batch that such a producer
    sent again was appended twice."""
    world = World(config=replace(CONFIG, producers_max=32))
    partitions = [partition_of(world, "orders", index) for index in range(2)]
    quiet, flooded = partitions[0], partitions[partition]
    for i in range(12):
        append(quiet, batch_of(i))
    world.wait(SENT_AGAIN_MS - 60_000)
    append(quiet, batch_of(3, sequence=1))
    world.wait(59_000)
    for i in range(1_000, 1_100):
        world.clock.now += 1
        append(flooded, batch_of(i, timestamp=NOW + 1_000_000))
        append(flooded, batch_of(i, sequence=1))
    append(quiet, batch_of(5, sequence=1))
    world.wait(500)
    counted, forgotten = world.owner.producers[-1]
    assert counted <= 32 and counted + forgotten == 112
    assert known(quiet) >= set(range(12))
    end = quiet.log_end_offset
    append(quiet, batch_of(7))
    assert quiet.log_end_offset == end, "the batch that is sent again is a duplicate"

    for i in range(2_000, 2_100):  # the others have been idle for so long that they send nothing again
        world.clock.now += 10
        append(flooded, batch_of(i))
    world.wait(1_000)
    assert known(quiet) & set(range(12)) == {3, 5}, "these are active"


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
    assert known(flooded) == set(range(1_000, 1_000 + len(known(flooded)))), "in the topic, the newest are removed"
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
