"""Values of the jobs' options. A wrong one is refused while the command line is parsed, before Spark starts and before
any request is sent; the error names the option."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from tidelog.cli.argument_values import WrongUsage, time_of
from tidelog.cli.declared import Option
from tidelog.client.offset_lookup import since_1970_ms
from tidelog.errors import InvalidConfig
from tidelog.tiering.store_option import remote_storage
from tidelog.types import INT64_MAX

_TERM: Final = r"\d+(\s+(microsecond|millisecond|minute|hour|day|week)|(\.\d{1,9})?\s+second)s?"
"""Of Spark's intervals: white space before the unit, a fraction only of seconds, down to nanoseconds."""
_INTERVAL: Final = re.compile(rf"(interval\s+)?{_TERM}(\s+{_TERM})*", re.IGNORECASE | re.ASCII)


_PARTS: Final = re.compile(r"([\d.]+)\s+([a-z]+?)s?\b", re.IGNORECASE | re.ASCII)
_UNITS_MS: Final = {
    "microsecond": 0.001,
    "millisecond": 1.0,
    "second": 1_000.0,
    "minute": 60_000.0,
    "hour": 3_600_000.0,
    "day": 86_400_000.0,
    "week": 604_800_000.0,
}


class SparkSetting(NamedTuple):
    """A setting of Spark."""

    name: str
    value: str


def whole_number(option: str, text: str = "", *, least: int = 0, most: int = INT64_MAX) -> Any:
    """An option whose value is a whole number from `least` to `most`. text: its help."""

    def parse(given: str) -> int:
        try:
            number = int(given)
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise WrongUsage(f"{option}: {given!r}: use a whole number from {least} to {most}")
        return number

    return Option(option, parser=parse, metavar="N", help=text)


def one_of(option: str, words: Collection[str], text: str = "") -> Any:
    """An option whose value is one of these words."""

    def parse(given: str) -> str:
        if given not in words:
            raise WrongUsage(f"{option}: invalid choice: {given!r} (choose from {', '.join(words)})")
        return given

    return Option(option, parser=parse, metavar="|".join(words), help=text)


def moment(option: str, text: str) -> Any:
    """An option whose value is a time: milliseconds since 1970, or a date or time of ISO 8601, in UTC unless it says
    otherwise."""

    def parse(given: str) -> int:
        if given.lstrip("-").isdigit():
            return int(milliseconds(given))
        time = time_of(given)
        if time is None:
            raise WrongUsage(f"{option}: {given!r} is no time: write 2024-05-01T12:00:00 or milliseconds")
        return since_1970_ms(time)

    milliseconds = whole_number(option, least=-INT64_MAX).parser
    return Option(option, parser=parse, metavar="TIME", help=text)


def start_place(text: str) -> str:
    """Where an archive begins: earliest, latest, or milliseconds since 1970."""
    if text in ("earliest", "latest") or (text.isascii() and text.isdigit() and int(text) <= INT64_MAX):
        return text
    raise WrongUsage(f"--start: {text!r}: use earliest, latest or milliseconds since 1970")


def store_place(text: str) -> str:
    """From where history is read: off, on, or the URL of an object store."""
    try:
        remote_storage(text)
    except InvalidConfig as error:
        raise WrongUsage(f"--remote-storage: {error.message}") from error
    return text.strip()


def interval(text: str) -> str:
    """An interval in Spark's form: numbers with units."""
    if not _INTERVAL.fullmatch(text.strip()):
        raise WrongUsage(f"--trigger: {text!r} is no duration: write 10 seconds, 500 milliseconds or 1 minute")
    return text.strip()


def interval_ms(text: str) -> int:
    """The milliseconds of an interval."""
    return int(sum(float(number) * _UNITS_MS[unit.lower()] for number, unit in _PARTS.findall(text)))


def name_pattern(text: str) -> str:
    """A regular expression of RE2."""
    if not text.strip():
        raise WrongUsage("--pattern: it is empty: give a regular expression such as orders-.*")
    try:
        from tidelog.spark.options.topic_selection import pattern_error
    except ImportError:
        return text  # RE2 is not installed, and neither is Spark: the job's own error about that is the better one
    if reason := pattern_error(text.strip()):
        raise WrongUsage(
            f"--pattern: {text!r} is not a regular expression of RE2 ({reason}); it has no backreferences and "
            "lookarounds"
        )
    return text


def spark_setting(text: str) -> SparkSetting:
    """A setting of Spark: its name and value."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise WrongUsage(f"--conf: {text!r}: write it as NAME=VALUE, for example spark.executor.memory=2g")
    return SparkSetting(name.strip(), value.strip())


def ensure_order(first: str, start: int | None, last: str, end: int | None) -> None:
    """Raises WrongUsage if nothing lies between two bounds. first, last: the names of their options."""
    if start is not None and end is not None and start >= end:
        raise WrongUsage(f"nothing lies from {first} {start} to before {last} {end}: {last} must be above {first}")
