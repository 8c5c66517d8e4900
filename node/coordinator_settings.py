"""The node's settings of group and transaction coordinators, by Kafka's names.

Not here: what the state machines do with them (replication/coordination/groups/group_config.py,
replication/coordination/transactions/transaction_config.py), the creation of the internal topics (node/coordinators/).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from replication.coordination.groups.group_config import KNOWN_ASSIGNORS, GroupConfig
from replication.coordination.transactions.transaction_config import TransactionConfig
from storage.settings import InvalidValue, flag, given_fields, millis, number, setting, size, texts
from tidelog.errors import InvalidConfig
from tidelog.types import INT32_MAX, Millis

_DEFAULTS: Final = GroupConfig()
_TRANSACTIONS: Final = TransactionConfig()
_SEGMENT_BYTES: Final = 104_857_600


def _assignors_of(items: list[str]) -> tuple[str, ...]:
    unknown = [item for item in items if item not in KNOWN_ASSIGNORS]
    if unknown or len(set(items)) < len(items):
        raise InvalidValue(f"list each of {', '.join(KNOWN_ASSIGNORS)} at most once")
    return tuple(items)


@dataclass(frozen=True, slots=True)
class GroupSettings(GroupConfig):
    """Settings of group coordinators, and of their topic `__consumer_offsets`. Raises InvalidConfig if they contradict
    each other."""

    consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms", _DEFAULTS.consumer_session_timeout_ms, millis(1, INT32_MAX)
    )
    """a member that sends no heartbeat for this long is removed from its group"""
    consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms", _DEFAULTS.consumer_min_session_timeout_ms, millis(1, INT32_MAX)
    )
    """lower limit of `group.consumer.session.timeout.ms`"""
    consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms", _DEFAULTS.consumer_max_session_timeout_ms, millis(1, INT32_MAX)
    )
    """upper limit of it"""
    consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms", _DEFAULTS.consumer_heartbeat_interval_ms, millis(1, INT32_MAX)
    )
    """interval of the heartbeats of members"""
    consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms", _DEFAULTS.consumer_min_heartbeat_interval_ms, millis(1, INT32_MAX)
    )
    """lower limit of `group.consumer.heartbeat.interval.ms`"""
    consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms", _DEFAULTS.consumer_max_heartbeat_interval_ms, millis(1, INT32_MAX)
    )
    """upper limit of it"""
    consumer_max_size: int = setting("group.consumer.max.size", _DEFAULTS.consumer_max_size, number(1, INT32_MAX))
    """members of a group of the consumer protocol; further ones are refused with `GROUP_MAX_SIZE_REACHED`"""
    consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors", _DEFAULTS.consumer_assignors, texts("assignors", _assignors_of, ",".join)
    )
    """the assignors that members may choose; the first is used for groups that choose none"""
    consumer_assignment_interval_max_ms: int = setting(
        "group.consumer.assignment.interval.max.ms",
        _DEFAULTS.consumer_assignment_interval_max_ms,
        millis(1, INT32_MAX),
    )
    """Tidelog's own: the longest pause between two assignments of a large group; 1 ms for each 10 members"""
    max_size: int = setting("group.max.size", _DEFAULTS.max_size, number(1, INT32_MAX))
    """members of a group of the classic protocol"""
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes", _DEFAULTS.offset_metadata_max_bytes, size(0, 1 << 20)
    )
    """the longest metadata of a committed offset"""
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes", _DEFAULTS.offsets_retention_minutes, number(1, INT32_MAX, unit="min")
    )
    """offsets of a group without members, or of a topic that no member subscribes to, are deleted at this age"""
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms", _DEFAULTS.offsets_retention_check_interval_ms, millis(1)
    )
    """interval of looking for such offsets"""
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

    transaction_max_timeout_ms: Millis = setting(
        "transaction.max.timeout.ms", _TRANSACTIONS.transaction_max_timeout_ms, millis(1, INT32_MAX)
    )
    """the largest transaction timeout of a producer; a larger one is refused with `INVALID_TRANSACTION_TIMEOUT`"""
    transactional_id_expiration_ms: Millis = setting(
        "transactional.id.expiration.ms", _TRANSACTIONS.transactional_id_expiration_ms, millis(1)
    )
    """a transactional id without an open transaction is forgotten when nothing changed it for this long"""
    abort_timed_out_interval_ms: Millis = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _TRANSACTIONS.abort_timed_out_interval_ms,
        millis(1),
    )
    """interval of aborting transactions whose timeout has passed"""
    remove_expired_interval_ms: Millis = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _TRANSACTIONS.remove_expired_interval_ms,
        millis(1),
    )
    """interval of forgetting expired transactional ids"""
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
    """the leader of a partition has the coordinator confirm a transaction before its first batch (KIP-890)"""


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
