"""Parsers of arguments that several commands and jobs share."""

from __future__ import annotations

from datetime import UTC, datetime

from tidelog.types import PartitionIndex, TopicPartition


class WrongUsage(Exception):
    """An option or argument is missing, contradicts another one, or cannot be parsed: exit code 2. No request was
    sent."""


def partition_of(name: str) -> TopicPartition:
    """The partition TOPIC-N. Raises WrongUsage."""
    topic, dash, index = name.rpartition("-")
    if not dash or not topic or not index.isdecimal():
        raise WrongUsage(f"{name!r} is not a partition: write TOPIC-NUMBER, for example orders-0")
    return TopicPartition(topic, PartitionIndex(int(index)))


def time_of(text: str) -> datetime | None:
    """A date or time of ISO 8601, in UTC unless it has an offset; None if the text is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
