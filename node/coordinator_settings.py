"""The node's settings of group and transaction coordinators, by Kafka's names.

Not here: those of the state machines (replication/coordination/groups/group_config.py,
replication/coordination/transactions/transaction_config.py), the creation of the internal topics (node/coordinators/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from replication.coordination.groups.group_config import GroupConfig
from replication.coordination.transactions.transaction_config import TransactionConfig
from tidelog.errors import InvalidConfig
from tidelog.settings import flag, given_fields, millis, number, setting, size
from tidelog.types import INT32_MAX, Millis
from tidelog.values import dataclass

_SEGMENT_BYTES: Final = 104_857_600


@dataclass(frozen=True, slots=True)
class GroupSettings(GroupConfig):
    """Settings of group coordinators, and of their topic `__consumer_offsets`. Raises InvalidConfig if they contradict
    each other."""

    partitions: int = setting("offsets.topic.num.partitions", 50, number(1, 10_000))
    """partitions of `__consumer_offsets` when it is created; the number cannot be changed afterwards"""
    replication_factor: int = setting("offsets.topic.replication.factor", -1, number(1, 32_767, also=-1))
    """replicas of `__consumer_offsets` when it is created; -1: three, or as many as the cluster has nodes (Kafka: 3)"""
    segment_bytes: int = setting("offsets.topic.segment.bytes", _SEGMENT_BYTES, size(16 << 20, INT32_MAX))
    """segment size of `__consumer_offsets` when it is created"""
    commit_timeout_ms: Millis = setting("offsets.commit.timeout.ms", 5_000, millis(1, 600_000))
    """a coordinator's change that the in-sync replicas have not confirmed for this long is answered with
    `COORDINATOR_NOT_AVAILABLE`"""


@dataclass(frozen=True, slots=True)
class TransactionSettings(TransactionConfig):
    """Settings of transaction coordinators, and of their topic `__transaction_state`."""

    partitions: int = setting("transaction.state.log.num.partitions", 50, number(1, 10_000))
    """partitions of `__transaction_state` when it is created; the number cannot be changed afterwards"""
    replication_factor: int = setting("transaction.state.log.replication.factor", -1, number(1, 32_767, also=-1))
    """replicas of `__transaction_state` when it is created; -1: three, or as many as the cluster has nodes (Kafka:
    3)"""
    min_isr: int = setting("transaction.state.log.min.isr", 2, number(1, INT32_MAX))
    """`min.insync.replicas` of `__transaction_state` when it is created, at most all replicas"""
    segment_bytes: int = setting("transaction.state.log.segment.bytes", _SEGMENT_BYTES, size(16 << 20, INT32_MAX))
    """segment size of `__transaction_state` when it is created"""
    verification: bool = setting("transaction.partition.verification.enable", True, flag())
    """the leader of a partition has the coordinator confirm a transaction of version 1 before its first batch
    (KIP-890); with version 2 it always does"""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """Settings of coordinators."""

    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)

    @classmethod
    def given(cls, values: Mapping[str, Any], source: str) -> CoordinatorSettings:
        """The settings with these values by the node's keys. source: for errors. Raises InvalidConfig."""
        try:
            groups = GroupSettings(**given_fields(GroupSettings, values))
        except InvalidConfig as error:
            raise InvalidConfig(f"{source}: {error.message}") from None
        return cls(groups, TransactionSettings(**given_fields(TransactionSettings, values)))
