"""The offset that one process gives to the wall clock of another."""

from __future__ import annotations

from pathlib import Path

from testbed.faulty_clock import FaultyClock, write_offset
from tidelog.clock import MachineClock

HOUR_MS = 3_600_000
SLACK_MS = 60_000
"""A busy machine may take long between two calls."""


def test_the_wall_clock_jumps_and_monotonic_time_does_not(tmp_path: Path) -> None:
    right, wrong = MachineClock(), FaultyClock(str(tmp_path / "clock-offset"))
    assert abs(wrong.wall_ms() - right.wall_ms()) < SLACK_MS
    for ahead_ms in (HOUR_MS, -HOUR_MS):
        write_offset(tmp_path / "clock-offset", ahead_ms)
        assert abs(wrong.wall_ms() - right.wall_ms() - ahead_ms) < SLACK_MS
        assert abs(wrong.monotonic_ms() - right.monotonic_ms()) < SLACK_MS
    write_offset(tmp_path / "clock-offset", 0)
    assert abs(wrong.wall_ms() - right.wall_ms()) < SLACK_MS


def test_a_clock_that_drifts_is_further_wrong_at_each_look(tmp_path: Path) -> None:
    right, wrong = MachineClock(), FaultyClock(str(tmp_path / "clock-offset"))
    write_offset(tmp_path / "clock-offset", 0, drift=-HOUR_MS)
    begun = wrong.wall_ms()
    later = right.monotonic_ms() + 1
    while right.monotonic_ms() < later:
        pass
    assert wrong.wall_ms() < begun - HOUR_MS + SLACK_MS
