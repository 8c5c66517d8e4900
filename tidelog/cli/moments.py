"""Times on the command line: ISO 8601, epoch seconds and milliseconds, how long ago, and durations."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from tidelog.cli.argument_values import time_of
from tidelog.client.offset_lookup import time_at

SECONDS_MAX: Final = 100_000_000_000
"""Smaller numbers are seconds since 1970 (until the year 5138), larger ones milliseconds (from 1973 on)."""

HELP: Final = "2026-01-31T12:00:00Z, seconds or milliseconds since 1970, or -1h30m ago (ms, s, m, h, d, w)"

_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO: Final = re.compile(r"-((?:\d+(?:ms|[smhdw]))+)", re.ASCII)
_DURATION: Final = re.compile(r"(?:\d+(?:ms|[smhdw]))+", re.ASCII)
_TERM: Final = re.compile(r"(\d+)(ms|[smhdw])", re.ASCII)


def moment_of(text: str, now_ms: int) -> datetime | None:
    """The time that a text names, in UTC unless it has an offset; None if it names none. now_ms: since 1970."""
    if ago := _AGO.fullmatch(text):
        return _at(now_ms - (duration_ms_of(ago[1]) or 0))
    if re.fullmatch(r"\d+", text, re.ASCII):
        number = int(text)
        return _at(number * 1_000 if number < SECONDS_MAX else number)
    if re.fullmatch(r"\d+\.\d{1,9}", text, re.ASCII):
        whole, _, fraction = text.partition(".")
        return _at(int(whole) * 1_000 + int(fraction[:3].ljust(3, "0")))
    return time_of(text)


def duration_ms_of(text: str) -> int | None:
    """The milliseconds that a duration as `1d12h` names; None if it names none."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(int(number) * _UNITS_MS[unit] for number, unit in _TERM.findall(text))


def _at(milliseconds: int) -> datetime | None:
    """None before 1970 or after the year 9999."""
    try:
        return time_at(milliseconds) if milliseconds >= 0 else time_at(0)
    except OverflowError:
        return None
