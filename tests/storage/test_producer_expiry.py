"""When a log forgets its producers: by the time since their last append, whatever their records say of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.config import LogConfig
from storage.log.log import Log
from tests.storage.test_log_producers import append, from_producer
from tests.storage.workbench import NOW, Bench
from tidelog.types import Offset

DAY = 86_400_000


def test_idle_producers_are_forgotten_in_time_however_old_their_records_are() -> None:
    """Time counts from the append on the leader's clock: the records may be of the past, or of the future."""
    bench = Bench(LogConfig(producer_id_expiration_ms=60_000))
    append(bench, from_producer(1, 0, at=NOW - 2 * DAY))
    append(bench, from_producer(2, 0, at=NOW + 2_000_000))
    bench.clock.now += 59_999
    append(bench, from_producer(2, 1, at=NOW - 2 * DAY))
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 0
    bench.clock.now += 1
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 1
    assert [state.producer_id for state in bench.log.active_producers()] == [2]
    bench.clock.now += 59_999
    assert bench.log.producers.state.expire(bench.clock.wall_ms()) == 1
    assert append(bench, from_producer(2, 55)).last_offset == 3, "a producer that was forgotten may begin anywhere"


@pytest.mark.parametrize("again", [Bench.restart_clean, Bench.kill, Bench.crash])
def test_producers_of_old_records_are_known_after_a_restart(again: Callable[[Bench], Log]) -> None:
    """A backfill two days old, over several segments, some with snapshots: what was appended is a duplicate, whatever
    the stop was. From the start on each producer has its whole time again, since a snapshot does not say when its last
    batch was appended; after that it is forgotten."""
    bench = Bench()
    sent = [from_producer(1 + i % 3, i // 3, at=NOW - 2 * DAY + i, size=50) for i in range(40)]
    results = [append(bench, data) for data in sent]
    bench.commit()
    assert bench.log.segment_count > 2
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
    assert bench.log.active_producers() == ()


def test_producers_of_old_records_are_known_after_a_cut() -> None:
    """On a follower, which is cut and fetches again, and then leads. Of one producer only a snapshot below the cut
    tells."""
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
