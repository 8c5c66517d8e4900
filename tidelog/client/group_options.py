"""Options of a consumer in a group, checked."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeAlias

from tidelog.client.options import at_least, text, topic_name, yes_or_no
from tidelog.errors import InvalidConfig
from tidelog.types import TopicPartition

GROUP_ID_BYTES_MAX: Final = 255
"""Kafka has no limit; a longer id would not fit into the names of metrics and files of tools."""

PartitionsCallback: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""Called with partitions, sorted. It may be a coroutine function: it is awaited."""

Reset: TypeAlias = str | timedelta

_DURATION: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """How a consumer takes part in a group. topics, pattern: the subscription; neither: the consumer is no member and
    only commits and fetches offsets. reset: "earliest", "latest" or "none", or how far back in time (milliseconds)."""

    group_id: str
    topics: tuple[str, ...]
    pattern: str
    instance_id: str | None
    assignor: str
    rack: str
    max_poll_interval_ms: int
    auto_commit: bool
    auto_commit_interval_ms: int
    reset: str | int
    on_assigned: PartitionsCallback | None
    on_revoked: PartitionsCallback | None
    on_lost: PartitionsCallback | None

    @property
    def is_subscription(self) -> bool:
        """Whether the consumer is a member."""
        return bool(self.topics or self.pattern)


def group_options(
    group: object,
    *,
    topics: object,
    pattern: object,
    instance_id: object,
    assignor: object,
    rack: str,
    max_poll_interval_ms: int,
    auto_commit: bool,
    auto_commit_interval_ms: int,
    reset: Reset,
    on_assigned: PartitionsCallback | None,
    on_revoked: PartitionsCallback | None,
    on_lost: PartitionsCallback | None,
) -> GroupOptions | None:
    """Return the checked options; None without a group. Raises TypeError, InvalidConfig, InvalidTopic."""
    names = _topic_names(topics)
    regex = "" if pattern is None else _pattern(pattern)
    if names and regex:
        raise InvalidConfig("a consumer subscribes to topics= or to topic_pattern=, not to both")
    if group is None and (names or regex):
        raise InvalidConfig('topics= and topic_pattern= share partitions in a group: name it with group="..."')
    given = {
        "instance_id": instance_id,
        "server_assignor": assignor,
        "on_assigned": on_assigned,
        "on_revoked": on_revoked,
        "on_lost": on_lost,
    }
    useless = [name for name, value in given.items() if value is not None]
    if useless and not (names or regex):
        raise InvalidConfig(f"{useless[0]}= is for members of a group: pass group= and topics= (or topic_pattern=) too")
    if group is None:
        return None
    at_least(1, max_poll_interval_ms=max_poll_interval_ms, auto_commit_interval_ms=auto_commit_interval_ms)
    yes_or_no(auto_commit=auto_commit)
    for name, callback in (("on_assigned", on_assigned), ("on_revoked", on_revoked), ("on_lost", on_lost)):
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} must be a function or None, not {type(callback).__name__}: {callback!r}")
    return GroupOptions(
        group_id(group),
        names,
        regex,
        None if instance_id is None else _not_empty("instance_id", instance_id),
        "" if assignor is None else _not_empty("server_assignor", assignor),
        rack,
        max_poll_interval_ms,
        auto_commit,
        auto_commit_interval_ms,
        reset_of(reset),
        on_assigned,
        on_revoked,
        on_lost,
    )


def group_id(value: object) -> str:
    """Return a group id. Raises TypeError, InvalidConfig."""
    return _not_empty("group", value)


def reset_of(value: Any) -> str | int:
    """Return "earliest", "latest", "none", or a duration in milliseconds: from a timedelta, or from Kafka's
    "by_duration:PT1H" (KIP-1106). Raises InvalidConfig."""
    if value in ("earliest", "latest", "none"):
        return str(value)
    if isinstance(value, timedelta) and value >= timedelta(0):
        return value // timedelta(milliseconds=1)
    if isinstance(value, str) and value.startswith("by_duration:"):
        return duration_ms(value.removeprefix("by_duration:"))
    raise InvalidConfig(
        f'auto_offset_reset={value!r}: use "earliest", "latest", "none", a timedelta, or for one hour '
        '"by_duration:PT1H"'
    )


def duration_ms(value: str) -> int:
    """Return an ISO 8601 duration of days and smaller units, such as P1DT2H, in milliseconds. Raises InvalidConfig."""
    found = _DURATION.fullmatch(value.upper())
    parts = {} if found is None else {unit: float(number) for unit, number in found.groupdict().items() if number}
    if not parts:
        raise InvalidConfig(f"the duration {value!r} is not ISO 8601: write for example PT30M, PT1H or P7D")
    try:
        return timedelta(**parts) // timedelta(milliseconds=1)
    except OverflowError:
        raise InvalidConfig(f"the duration {value!r} is too long: use at most 999999999 days") from None


def _topic_names(topics: object) -> tuple[str, ...]:
    if topics is None:
        return ()
    if isinstance(topics, str) or not isinstance(topics, Iterable):
        raise TypeError(f"topics must be a list of names, not {type(topics).__name__}: {topics!r}")
    names = tuple(dict.fromkeys(topic_name(name) for name in topics))
    if not names:
        raise InvalidConfig("topics=[] subscribes to nothing: name a topic, or leave topics= out and call assign")
    return names


def _pattern(pattern: object) -> str:
    """The coordinator compiles the pattern (RE2), and refuses one that is wrong."""
    return _not_empty("topic_pattern", pattern)


def _not_empty(name: str, value: object) -> str:
    found = text(name, value)
    if not found or len(found.encode()) > GROUP_ID_BYTES_MAX:
        raise InvalidConfig(f"{name}={found!r}: use 1 to {GROUP_ID_BYTES_MAX} bytes")
    return found
