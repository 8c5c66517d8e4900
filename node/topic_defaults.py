"""What a topic gets that its creator does not say, and who creates one. Source: Kafka's settings of the same names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.settings import flag, given_fields, number, setting
from tidelog.types import INT32_MAX
from tidelog.values import dataclass

REPLICAS: Final = 3
"""With three replicas, acknowledged records outlive the loss of a node, and of another one meanwhile if all of them
were in sync."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults of new topics."""

    creates_missing: bool = setting("auto.create.topics.enable", False, flag())
    """a client of Kafka's protocol that asks for a topic that does not exist creates it, if it may. Kafka's default is
    true: there, a misspelt name is a topic"""
    partitions: int = setting("num.partitions", 1, number(1, INT32_MAX))
    """partitions of a topic whose creator names no number (-1)"""
    replication_factor: int = setting("default.replication.factor", 1, number(1, INT32_MAX))
    """replicas of a topic whose creator names no number (-1). If it is not set: 3, or the number of nodes in
    `controller.quorum.bootstrap.servers` if that is lower. Kafka's default is 1"""

    @classmethod
    def given(cls, values: Mapping[str, object], nodes: int) -> TopicDefaults:
        """The defaults by the values of a node's keys. nodes: the number of the first nodes of the cluster. It is the
        same at every node, and counts nodes that are only starting."""
        return cls(**{"replication_factor": min(REPLICAS, nodes), **given_fields(cls, values)})
