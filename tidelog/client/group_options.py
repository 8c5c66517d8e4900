"""The checked options of a consumer in a group."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
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
    """The options. Without topics and pattern the consumer is no member: it only commits and fetches offsets."""

    group_id: str
    topics: tuple[str, ...]
    """The subscription by name."""
    pattern: str
    """The subscription by pattern; empty if there is none."""
    instance_id: str | None
    assignor: str
    rack: str
    max_poll_interval_ms: int
    auto_commit: bool
    auto_commit_interval_ms: int
    reset: str | int
    """Where to start without a committed offset: "earliest", "latest", "none" (an error), or how many milliseconds
    ago."""
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
    of_members = {
        "instance_id": instance_id,
        "server_assignor": assignor,
        "on_assigned": on_assigned,
        "on_revoked": on_revoked,
        "on_lost": on_lost,
    }
    given = [name for name, value in of_members.items() if value is not None]
    if given and group is None:  # they would have no effect
        raise InvalidConfig(
            f'{given[0]}= is for members of a group: name it with group="...", and its topics with topics=, '
            "topic_pattern= or subscribe()"
        )
    if group is None:
        return None
    at_least(1, max_poll_interval_ms=max_poll_interval_ms, auto_commit_interval_ms=auto_commit_interval_ms)
    yes_or_no(auto_commit=auto_commit)
    _ensure_callable({"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost})
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


def with_subscription(
    options: GroupOptions,
    topics: object,
    pattern: object,
    on_assigned: PartitionsCallback | None,
    on_revoked: PartitionsCallback | None,
    on_lost: PartitionsCallback | None,
) -> GroupOptions:
    """Return the options with another subscription, and the callbacks that are given. Raises TypeError, InvalidConfig,
    InvalidTopic."""
    names = _topic_names(topics)
    regex = "" if pattern is None else _pattern(pattern)
    if bool(names) == bool(regex):
        raise InvalidConfig("subscribe to topics or to a topic_pattern, to one of them")
    callbacks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
    _ensure_callable(callbacks)
    given: dict[str, Any] = {name: each for name, each in callbacks.items() if each is not None}
    return replace(options, topics=names, pattern=regex, **given)


def _ensure_callable(callbacks: Mapping[str, object]) -> None:
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} must be a function or None, not {type(callback).__name__}: {callback!r}")


def group_id(value: object) -> str:
    """Check a group id. Raises TypeError, InvalidConfig."""
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
    match = _DURATION.fullmatch(value.upper())
    parts = {} if match is None else {unit: float(number) for unit, number in match.groupdict().items() if number}
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
    # Not compiled here: the coordinator does that (RE2, which the client does not need), and refuses a wrong pattern.
    return _not_empty("topic_pattern", pattern)


def _not_empty(name: str, value: object) -> str:
    checked = text(name, value)
    if not checked or len(checked.encode()) > GROUP_ID_BYTES_MAX:
        raise InvalidConfig(f"{name}={checked!r}: use 1 to {GROUP_ID_BYTES_MAX} bytes")
    return checked
