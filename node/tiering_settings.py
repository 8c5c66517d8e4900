"""The node's settings of the remote tier, by Kafka's names where it has one.

Not here: what a topic sets (storage/log_config.py), opening the store (tidelog/tiering/obstore_store.py).
"""

from __future__ import annotations

from tidelog.settings import millis, number, setting, size, text
from tidelog.types import INT32_MAX, INT64_MAX, Millis
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class TieringConfig:
    """Settings of the remote tier, and of its topic `__remote_log_metadata`."""

    url: str = setting("remote.log.storage.url", "", text())
    """the object store of the remote tier, the same one on every node (tiering.md, Stores); empty: none, and no topic
    can have `remote.storage.enable`"""
    copy_rate: int = setting("remote.log.manager.copy.max.bytes.per.second", 64 << 20, size(64 << 10, 1 << 40))
    """the node copies no more than this to the object store, in bytes a second (Kafka: no limit)"""
    cache_bytes: int = setting("remote.log.cache.max.bytes", 64 << 20, size(1 << 20, 1 << 40))
    """memory for what was read from the object store, in addition to `memory.max.bytes`"""
    fetch_wait_ms: Millis = setting("remote.fetch.max.wait.ms", 500, millis(1, INT32_MAX))
    """a fetch waits no longer for the object store: then it is answered without records of the remote tier, and the
    next one finds what was read meanwhile"""
    partitions: int = setting("remote.log.metadata.topic.num.partitions", 50, number(1, 10_000))
    """partitions of `__remote_log_metadata` when it is created; the number cannot be changed afterwards"""
    replication_factor: int = setting("remote.log.metadata.topic.replication.factor", -1, number(1, 32_767, also=-1))
    """replicas of `__remote_log_metadata` when it is created; -1: three, or as many as the cluster has nodes (Kafka:
    3)"""
    min_isr: int = setting("remote.log.metadata.topic.min.isr", 2, number(1, INT32_MAX))
    """`min.insync.replicas` of `__remote_log_metadata` when it is created, at most all replicas"""
    # Each sweep lists the whole store: at shorter intervals, above all at 0, it would do nothing else.
    sweep_ms: int = setting(
        "remote.log.orphan.sweep.interval.ms", 86_400_000, number(60_000, INT64_MAX, unit="ms", also=-1)
    )
    """how often objects without a segment are looked for, within this time and half of it (tiering.md, Orphans): the
    whole store is listed each time; -1: never"""
    orphan_age_ms: int = setting("remote.log.orphan.min.age.ms", 86_400_000, millis(0, INT64_MAX))
    """only objects that were written longer ago are looked at, by the clocks of the store and the node"""
    unreferenced_ms: int = setting("remote.log.unreferenced.retention.ms", 604_800_000, millis(0, INT64_MAX))
    """how long a leader keeps remote segments of a lost leader epoch, unless `retention.ms` of the topic has expired
    them (tiering.md, Lost epochs; Kafka: not at all)"""

    def __bool__(self) -> bool:
        return bool(self.url)
