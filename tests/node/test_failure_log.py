"""What a node logs of work that fails again and again, as while its object store is away for an hour."""

from __future__ import annotations

import logging

import pytest

from node.runtime.failure_log import CAUSES_MAX, QUIET_MS, FailureLog
from tests.client.jumping_clock import WaitsNotAtAll
from tidelog.errors import TidelogError
from tidelog.tiering.remote_errors import STORE_ERRORS, ObjectStoreFull, ObjectStoreUnavailable, RemoteObjectMissing

AWAY, FULL, GONE = (
    ObjectStoreUnavailable("it is away"),
    ObjectStoreFull("it is full"),
    RemoteObjectMissing("it is gone"),
)
THINGS = 1_000


class Bench:
    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        self._caplog, self.clock = caplog, WaitsNotAtAll()
        self.log = FailureLog(logging.getLogger("node.tiering"), self.clock, common=STORE_ERRORS)

    def fail(self, error: TidelogError, thing: int = 0) -> None:
        self.log.failed(error, f"orders-{thing}", lambda: f"orders-{thing}: {error.message}")

    def lines(self) -> list[str]:
        """Since the last call."""
        found = self._caplog.messages[:]
        self._caplog.clear()
        return found


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    return Bench(caplog)


async def test_a_store_that_is_away_for_an_hour_takes_a_line_a_minute_whatever_has_failed(bench: Bench) -> None:
    for _ in range(60):
        for thing in range(THINGS):
            bench.fail(AWAY, thing)
        await bench.clock.sleep_ms(60_000)
    lines = bench.lines()
    assert len(lines) == 60
    assert lines[:2] == [
        "orders-0: it is away",
        "orders-0: it is away (for 60 s, with 999 more failures since the last line)",
    ]
    bench.log.succeeded("the store takes copies again")
    bench.log.succeeded("the store takes copies again")
    assert bench.lines() == ["the store takes copies again, after 3600 s"]


async def test_another_cause_has_a_line_at_once(bench: Bench) -> None:
    bench.fail(AWAY)
    bench.fail(FULL, 1)
    bench.fail(GONE, 2)
    bench.fail(GONE, 3)
    bench.fail(GONE, 3)
    assert bench.lines() == [
        "orders-0: it is away",
        "orders-1: it is full",
        "orders-2: it is gone",
        "orders-3: it is gone",
    ], "the store has one cause, and of objects each its own"
    bench.log.succeeded("the store takes copies again")
    assert bench.lines() == ["the store takes copies again, after 0 s"]
    bench.fail(GONE, 2)
    assert bench.lines() == [], "that the store answers does not bring back an object"


async def test_thousands_of_damaged_objects_do_not_fill_the_log(bench: Bench) -> None:
    for _ in range(2):
        for thing in range(THINGS):
            bench.fail(GONE, thing)
    assert len(bench.lines()) == CAUSES_MAX + 1
    await bench.clock.sleep_ms(QUIET_MS)
    bench.fail(GONE, THINGS)
    assert bench.lines() == [f"orders-{THINGS}: it is gone"], "those before are forgotten"


async def test_a_store_that_fails_and_answers_in_turns_takes_two_lines_a_minute(bench: Bench) -> None:
    for _ in range(60):
        bench.fail(AWAY)
        bench.log.succeeded("the store answers again")
        await bench.clock.sleep_ms(1_000)
    assert bench.lines() == ["orders-0: it is away", "the store answers again, after 0 s"]


async def test_a_failure_long_after_another_begins_again(bench: Bench) -> None:
    bench.fail(AWAY)
    await bench.clock.sleep_ms(3_600_000)
    bench.fail(AWAY)
    assert bench.lines() == ["orders-0: it is away"] * 2
