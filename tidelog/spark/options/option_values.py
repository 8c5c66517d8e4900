"""The values of options: from the strings that Spark passes to numbers, booleans, durations and JSON objects.

Pure. Each function raises InvalidConfig with the option, its value and the valid values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from tidelog.errors import InvalidConfig
from tidelog.types import INT32_MAX, INT64_MAX, PartitionIndex, TopicPartition

MOMENT_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: later times are no dates in Python or in Spark."""

_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
"""Milliseconds of each unit of Spark's time strings; a number without a unit is in milliseconds."""
_DURATION: Final = re.compile(r"([0-9]+)\s*([a-z]*)")


def boolean(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    """True or false."""
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be true or false")
    return text == "true"


def positive(given: Mapping[str, str], name: str, *, most: int = INT64_MAX) -> int | None:
    """A whole number above 0, at most `most`; None if the option is not given."""
    text = given.get(name)
    if text is None:
        return None
    number = whole(text)
    if not number or number > most:
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be a whole number above 0, at most {most}")
    return number


def whole(text: str) -> int | None:
    """A number of ASCII digits, as requests can carry it; None if the text is something else."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(INT64_MAX))):
        return None
    return number if (number := int(digits)) <= INT64_MAX else None


def moment_ms(given: Mapping[str, str], name: str) -> int | None:
    """A time in milliseconds since 1970; None if the option is not given."""
    text = given.get(name)
    if text is None:
        return None
    moment = whole(text)
    if moment is None or moment > MOMENT_MS_MAX:
        raise InvalidConfig(
            f"option {name!r} is {text!r}; it must be milliseconds since 1970 (UTC), at most {MOMENT_MS_MAX}"
        )
    return moment


def duration_ms(given: Mapping[str, str], name: str, *, default: int) -> int:
    """A duration in milliseconds, from a time string of Spark: a whole number and ms, s, m (min), h or d."""
    text = given.get(name)
    if text is None:
        return default
    match = _DURATION.fullmatch(text.strip().lower())
    number = whole(match[1]) if match else None
    unit = _UNITS_MS.get(match[2]) if match else None
    if not number or unit is None or number * unit > INT64_MAX:
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be a duration above 0 such as 500ms, 30s, 15m or 2h")
    return number * unit


def choice(given: Mapping[str, str], name: str, *, default: str, among: tuple[str, ...]) -> str:
    """One of the words `among`, whatever its case."""
    text = given.get(name, default).strip()
    found = next((word for word in among if word.lower() == text.lower()), None)
    if found is None:
        raise InvalidConfig(f"option {name!r} is {text!r}; it must be {' or '.join(among)}")
    return found


def stripped(given: Mapping[str, str], name: str) -> str:
    """The text without spaces around it; empty if the option is not given."""
    return given.get(name, "").strip()


def json_object(name: str, text: str, example: str) -> dict[str, Any]:
    """A JSON object. example: a valid value, for the error. A name that occurs twice is refused."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as cause:
        raise InvalidConfig(f"option {name!r} is not valid JSON ({cause}); write it as {example}") from cause
    if not isinstance(value, dict):
        raise InvalidConfig(f"option {name!r} must be a JSON object, as {example}")
    return value


def per_partition(name: str, text: str, *, lowest: int, highest: int = INT64_MAX) -> dict[TopicPartition, int]:
    """A number for each partition: `{"topic": {"0": 23, "1": -2}}`. lowest, highest: the valid numbers."""
    example = '{"topic": {"0": 23, "1": -2}}' if lowest < 0 else '{"topic": {"0": 1700000000000}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in json_object(name, text, example).items():
        if not isinstance(numbers, dict):
            raise InvalidConfig(f"option {name!r} must give a number for each partition of {topic!r}, as {example}")
        for partition, number in numbers.items():
            index = whole(partition)
            if index is None or index > INT32_MAX or type(number) is not int or not lowest <= number <= highest:
                raise InvalidConfig(
                    f"option {name!r}: invalid value {number!r} of partition {partition!r} of {topic!r}; write it as "
                    f"{example}"
                )
            found[TopicPartition(topic, PartitionIndex(index))] = number
    return found


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name occurs twice")
    return value
