"""The limit of known producers: above it the oldest ones of all logs are removed, as if they had expired."""

from __future__ import annotations

from dataclasses import replace

from storage.log.log import Log
from storage.log_config import LogConfig
from tests.storage.test_maintenance import CONFIG, World
from tests.storage.workbench import NOW
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.types import LeaderEpoch, Millis, ProducerId


def batch_of(producer: int, *, sequence: int = 0, timestamp: int = NOW, transactional: bool = False) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=ProducerId(producer), producer_epoch=0, base_sequence=sequence, is_transactional=transactional
    )
    builder.append(key=b"k", value=b"v", timestamp=Millis(timestamp))
    return builder.build()


def append(log: Log, data: bytes) -> None:
    log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0))


def known(log: Log) -> set[int]:
    return {int(state.producer_id) for state in log.active_producers()}


def test_the_oldest_producers_of_all_logs_are_removed() -> None:
    world = World(config=replace(CONFIG, producers_max=32))
    one, other = world.make("one", LogConfig()), world.make("other", LogConfig())
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
