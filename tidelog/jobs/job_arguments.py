"""Values of the jobs' options. A wrong one is refused while the command line is parsed: before Spark starts and before
a node is asked, under the name of the option."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from tidelog.client.offset_lookup import since_1970_ms
from tidelog.types import INT64_MAX

_TERM: Final = r"\d+(\s+(microsecond|millisecond|minute|hour|day|week)|(\.\d{1,9})?\s+second)s?"
"""Of Spark's intervals: white space before the unit, a fraction only of seconds, down to nanoseconds."""
_INTERVAL: Final = re.compile(rf"(interval\s+)?{_TERM}(\s+{_TERM})*", re.IGNORECASE | re.ASCII)


class WrongArguments(Exception):
    """Arguments that exclude each other, or that lack another one: exit code 2. Nothing was done."""


def whole_number(least: int, most: int = INT64_MAX) -> Callable[[str], int]:
    """The type of an option: a whole number from `least` to `most`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: use a whole number from {least} to {most}")
        return number

    return parse


def moment(text: str) -> int:
    """Milliseconds since 1970: a number, or a date or time of ISO 8601, which is in UTC unless it says otherwise."""
    if text.lstrip("-").isdigit():
        return whole_number(-INT64_MAX)(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: write 2024-05-01T12:00:00 or milliseconds") from None
    return since_1970_ms(found if found.tzinfo else found.replace(tzinfo=UTC))


def start_place(text: str) -> str:
    """Where an archive begins: earliest, latest, or milliseconds since 1970."""
    if text in ("earliest", "latest") or (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        return text
    raise argparse.ArgumentTypeError(f"{text!r}: use earliest, latest or milliseconds since 1970")


def interval(text: str) -> str:
    """A duration as Spark writes it: numbers with units."""
    if not _INTERVAL.fullmatch(text.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 10 seconds, 500 milliseconds or 1 minute")
    return text.strip()


def name_pattern(text: str) -> str:
    """A regular expression of RE2, if its module is there; a job without it cannot start Spark either."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty: give a regular expression such as orders-.*")
    try:
        import re2
    except ImportError:
        return text
    rules: Any = re2.Options()
    rules.log_errors = False
    try:
        re2.compile(text.strip(), rules)
    except re2.error as error:
        cause = error.args[0] if error.args else error
        reason = cause.decode(errors="replace") if isinstance(cause, bytes) else cause
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a regular expression of RE2 ({reason}); it has no backreferences and lookarounds"
        ) from error
    return text


def spark_setting(text: str) -> tuple[str, str]:
    """A setting of Spark: its name and value."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: write it as NAME=VALUE, for example spark.executor.memory=2g")
    return name.strip(), value.strip()


def ensure_order(first: str, start: int | None, last: str, end: int | None) -> None:
    """Raises WrongArguments if nothing lies between two bounds. first, last: the names of their options."""
    if start is not None and end is not None and start >= end:
        raise WrongArguments(f"nothing lies from {first} {start} to before {last} {end}: {last} must be above {first}")
