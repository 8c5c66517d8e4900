"""Expiry of producers: by the time since their last append, whatever the timestamps of their records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.log.log import Log
from storage.log_config import LogConfig
from tests.storage.producer_batches import append, from_producer
from tests.storage.workbench import NOW, Bench
from tidelog.types import Offset

DAY = 86_400_000


def test_idle_producers_expire_whatever_their_timestamps() -> None:
    """Time counts from the append on the leader's clock: timestamps may be in the past or in the future."""
    bench = Bench(LogConfig(producer_id_expiration_ms=60_000))
    append(bench, from_producer(1, 0, at=NOW - 2 * DAY))
    append(bench, from_producer(2, 0, at=NOW + 2_000_000))
    bench.clock.now += 59_999
    append(bench, from_producer(2, 1, at=NOW - 2 * DAY))
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 0
    bench.clock.now += 1
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 1
    assert [state.producer_id for state in bench.log.producers.state.active_producers()] == [2]
    bench.clock.now += 59_999
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 1
    assert append(bench, from_producer(2, 55)).last_offset == 3, "an expired producer may begin with any sequence"


@pytest.mark.parametrize("again", [Bench.restart_clean, Bench.kill, Bench.crash])
def test_producers_of_old_records_are_known_after_a_restart(again: Callable[[Bench], Log]) -> None:
    """A backfill two days old, over several segments, some with snapshots: appended batches are duplicates after any
    kind of stop. From the start on each producer has its full expiration time again, because a snapshot does not
    contain the append time."""
    bench = Bench()
    sent = [from_producer(1 + i % 3, i // 3, at=NOW - 2 * DAY + i, size=50) for i in range(40)]
    results = [append(bench, data) for data in sent]
    bench.commit()
    assert len(bench.log.segments) > 2
    bench.clock.now += 3_600_000
    again(bench)
    for data, first in zip(sent[-3:], results[-3:], strict=True):
        resent = append(bench, data)
        assert (resent.duplicate, resent.first_offset) == (True, first.first_offset)
    assert append(bench, from_producer(2, 13, at=NOW - 2 * DAY)).last_offset == 40
    bench.clock.now += DAY - 1
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 0
    bench.clock.now += 1
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 3
    assert bench.log.producers.state.active_producers() == ()


def test_producers_of_old_records_are_known_after_a_truncation() -> None:
    """On a follower that is truncated, fetches again, and then leads. Of one producer only a snapshot below the
    truncation remains."""
    bench = Bench()
    early = from_producer(9, 0, at=NOW - 2 * DAY)
    append(bench, early)
    sent = [from_producer(1, i, at=NOW - 2 * DAY + i, size=50) for i in range(40)]
    for data in sent:
        append(bench, data)
    batches = bench.contents()
    bench.commit()
    bench.log.truncate_to(Offset(31))
    assert append(bench, early).duplicate
    assert append(bench, sent[29]).duplicate
    bench.follow(*batches[31:36])
    assert [append(bench, data).duplicate for data in sent[30:36]] == [True] * 5 + [False]
