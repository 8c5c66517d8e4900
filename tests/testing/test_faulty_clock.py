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
