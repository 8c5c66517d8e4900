"""Partitions as arguments of commands: TOPIC-N."""

from __future__ import annotations

from tidelog.cli.wrong_usage import WrongUsage
from tidelog.types import PartitionIndex, TopicPartition


def partition_of(name: str) -> TopicPartition:
    """Return the partition. Raises WrongUsage."""
    topic, dash, index = name.rpartition("-")
    if not dash or not topic or not index.isdecimal():
        raise WrongUsage(f"{name!r} is not a partition: write TOPIC-NUMBER, for example orders-0")
    return TopicPartition(topic, PartitionIndex(int(index)))
