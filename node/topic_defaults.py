"""What a topic gets that its creator does not say, and who creates one. Source: Kafka's settings of the same names."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.settings import flag, number, setting
from tidelog.types import INT32_MAX


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults of new topics."""

    creates_missing: bool = setting("auto.create.topics.enable", False, flag())
    """a client of Kafka's protocol that asks for a topic that does not exist creates it, if it may. Kafka's default is
    true: there, a misspelt name is a topic"""
    partitions: int = setting("num.partitions", 1, number(1, INT32_MAX))
    """partitions of a topic whose creator names no number (-1)"""
    replication_factor: int = setting("default.replication.factor", 1, number(1, INT32_MAX))
    """replicas of a topic whose creator names no number (-1)"""
