"""Which topics and partitions a query reads: `subscribe`, `subscribePattern` or `assign`, exactly one of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import re2

from tidelog.errors import InvalidConfig, UnknownTopicOrPartition
from tidelog.spark.options.option_values import json_object
from tidelog.types import INT32_MAX, PartitionIndex, TopicPartition

SELECTION_NAMES: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What a query reads; exactly one field is set."""

    topics: tuple[str, ...] | None = None
    """All their partitions."""
    pattern: str | None = None
    """All partitions of the topics whose whole name matches this regular expression of RE2, where a match takes time in
    proportion to the name, whatever the expression is."""
    assigned: tuple[TopicPartition, ...] | None = None
    """These partitions, in order."""

    def matches(self, name: str) -> bool:
        """Whether the pattern, if there is one, matches the name. The compiled one is cached by RE2's module."""
        return self.pattern is not None and re2.fullmatch(self.pattern, name, _rules()) is not None

    def __str__(self) -> str:
        if self.topics is not None:
            return f"subscribe={','.join(self.topics)}"
        if self.pattern is not None:
            return f"subscribePattern={self.pattern}"
        return f"assign={','.join(map(str, self.assigned or ()))}"


def ensure_present(selection: TopicSelection, partition_counts: Mapping[str, int]) -> None:
    """Check that there is each topic and partition that the options name. partition_counts: of each topic that exists.

    Raises UnknownTopicOrPartition, which names all that are missing."""
    assigned = selection.assigned or ()
    names = selection.topics or tuple(dict.fromkeys(key.topic for key in assigned))
    missing = [repr(name) for name in names if name not in partition_counts]
    missing += [
        f"{key} ({key.topic!r} has {partition_counts[key.topic]} partitions, numbered from 0)"
        for key in assigned
        if key.topic in partition_counts and key.partition >= partition_counts[key.topic]
    ]
    if missing:
        raise UnknownTopicOrPartition(
            f"the query is to read {', '.join(missing)}, which the cluster does not have: correct the names and "
            "numbers (`tidelog topic list`), or create them"
        )


def topic_selection(given: Mapping[str, str]) -> TopicSelection:
    """The selection. given: by canonical names. Raises InvalidConfig unless exactly one valid selection is given."""
    chosen = [name for name in SELECTION_NAMES if name in given]
    if len(chosen) != 1:
        raise InvalidConfig(
            f"set exactly one of the options {', '.join(SELECTION_NAMES)}; given: {', '.join(chosen) or 'none'}"
        )
    text = given[chosen[0]]
    match chosen[0]:
        case "subscribe":
            return TopicSelection(topics=_topics(text))
        case "subscribePattern":
            return TopicSelection(pattern=_pattern(text.strip()))
    return TopicSelection(assigned=_assigned(text))


def _topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise InvalidConfig("option 'subscribe' names no topic; give one or more, separated by commas")
    return names


def _pattern(text: str) -> str:
    if not text:
        raise InvalidConfig("option 'subscribePattern' is empty; give a regular expression such as orders-.*")
    if reason := pattern_error(text):
        raise InvalidConfig(
            f"option 'subscribePattern' is not a regular expression of RE2 ({reason}); backreferences and lookarounds "
            "are not supported"
        )
    return text


def pattern_error(text: str) -> str:
    """Why the text is not a regular expression of RE2; empty if it is one."""
    try:
        re2.compile(text, _rules())
    except re2.error as error:
        cause = error.args[0] if error.args else error
        return cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
    return ""


def _rules() -> Any:
    rules = re2.Options()
    rules.log_errors = False  # the error names the reason
    return rules


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    partitions: list[TopicPartition] = []
    for topic, numbers in json_object("assign", text, '{"topic": [0, 1]}').items():
        if not isinstance(numbers, list) or not all(
            type(number) is int and 0 <= number <= INT32_MAX for number in numbers
        ):
            raise InvalidConfig(
                f"option 'assign' must list partition numbers of topic {topic!r}, as {{\"topic\": [0, 1]}}"
            )
        partitions += [TopicPartition(topic, PartitionIndex(number)) for number in numbers]
    if not partitions:
        raise InvalidConfig("option 'assign' names no partition; write it as {\"topic\": [0, 1]}")
    return tuple(sorted(set(partitions)))
