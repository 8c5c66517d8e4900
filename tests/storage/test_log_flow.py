"""The rates of a log: a mean over some minutes, also just after a start."""

from __future__ import annotations

from storage.log.log_flow import WINDOW_MS, LogFlow
from tidelog.types import Millis


def written(flow: LogFlow, begin: int, end: int, per_second: int) -> int:
    """Let time pass with this many bytes per second, with a sample every ten seconds. Returns the end."""
    for at in range(begin + 10_000, end + 1, 10_000):
        flow.bytes_in += 10 * per_second
        flow.bytes_out += 20 * per_second
        flow.sample(Millis(at))
    return end


def rates(flow: LogFlow) -> tuple[int, int]:
    return round(flow.in_rate), round(flow.out_rate)


def test_a_log_that_was_just_opened_has_the_rate_since_then() -> None:
    """Else a node that has started again would seem to be idle, and would get more to do."""
    flow = LogFlow()
    flow.sample(Millis(5_000))
    assert rates(flow) == (0, 0)
    at = written(flow, 5_000, 25_000, 1_000)
    assert rates(flow) == (1_000, 2_000)
    written(flow, at, 45_000, 2_000)
    assert rates(flow) == (1_500, 3_000)


def test_what_was_long_ago_counts_for_little() -> None:
    flow = LogFlow()
    flow.sample(Millis(0))
    at = written(flow, 0, 10 * WINDOW_MS, 1_000)
    assert rates(flow) == (1_000, 2_000)
    at = written(flow, at, at + 10_000, 100_000)
    assert rates(flow)[0] < 5_000, "a burst of ten seconds"
    at = written(flow, at, at + 10 * WINDOW_MS, 1_000)
    at = written(flow, at, at + WINDOW_MS, 0)
    assert 350 < flow.in_rate < 380
    written(flow, at, at + 10 * WINDOW_MS, 0)
    assert rates(flow) == (0, 0)


def test_two_samples_at_one_moment_change_nothing() -> None:
    flow = LogFlow()
    for at in (0, 0, 10_000):
        flow.sample(Millis(at))
    flow.bytes_in = 500
    flow.sample(Millis(10_000))
    assert rates(flow) == (0, 0)
