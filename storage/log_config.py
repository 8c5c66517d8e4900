"""The settings of a log: Kafka's names, types, bounds and defaults.

Invariants: a LogConfig holds only values that this version implements; settings that contradict each other are rejected
together.
Out of scope: where topic settings are stored (the metadata log); the effect of the replication settings.
Source: Kafka's TopicConfig, LogConfig and ServerTopicConfigSynonyms (the node's keys). Tidelog's own: `message.format`,
`durability`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tidelog.errors import InvalidConfig
from tidelog.settings import (
    Setting,
    SettingKind,
    SettingType,
    choice,
    flag,
    millis,
    number,
    ratio,
    setting,
    settings_of,
    size,
    topic_setting,
)
from tidelog.types import INT32_MAX, INT64_MAX, Codec, Durability, TimestampType

DAY_MS: Final = 86_400_000
VALUE_LENGTH_MAX: Final = 255
"""Characters of the text of a topic's setting. The metadata log keeps the text as given, and a number may have any
number of leading zeros."""
_GZIP_DEFAULT_LEVEL: Final = -1
_LZ4_FAST_LEVEL: Final = 9
"""Kafka's default for lz4; its writer uses the fast mode at this level."""
_CODECS: Final = {"producer": None, "uncompressed": Codec.NONE} | {
    codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE
}
_TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
_BOTH: Final = frozenset({"compact", "delete"})
_AS_IN_ALL: Final = -2
"""Of local retention: as long as, or as much as, in both tiers."""


def _policies(value: object) -> frozenset[str]:
    policies = frozenset(word.strip() for word in str(value).split(","))
    if not policies <= _BOTH:
        raise ValueError(value)
    return policies


# Declared by itself: it sets two fields of LogConfig, `delete` and `compact`.
CLEANUP_POLICY: Final = Setting(
    "log.cleanup.policy",
    frozenset({"delete"}),
    SettingKind(
        "delete or compact or compact,delete",
        _policies,
        _policies,
        lambda policies: ",".join(sorted(policies)),
        type=SettingType.LIST,
    ),
    topic="cleanup.policy",
)
"""`delete`: segments are deleted by age and size; `compact`: the last record of each key is kept"""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic, as its logs use them. Sizes in bytes, times in milliseconds."""

    segment_bytes: int = topic_setting("segment.bytes", 1 << 30, size(14, INT32_MAX))
    """the largest size of a segment"""
    segment_ms: int = topic_setting("segment.ms", 7 * DAY_MS, millis(1), node="log.roll.ms")
    """a segment takes no more batches at this age"""
    segment_jitter_ms: int = topic_setting("segment.jitter.ms", 0, millis(0), node="log.roll.jitter.ms")
    """a random part of it is taken off the age"""
    segment_index_bytes: int = topic_setting(
        "segment.index.bytes", 10 << 20, size(12, INT32_MAX), node="log.index.size.max.bytes"
    )
    """the largest size of an index"""
    index_interval_bytes: int = topic_setting("index.interval.bytes", 4096, size(0, INT32_MAX))
    """record bytes between two index entries"""
    preallocate: bool = topic_setting("preallocate", False, flag())
    """allocate `segment.bytes` on the disk when a segment begins"""
    max_message_bytes: int = topic_setting("max.message.bytes", 1_048_588, size(0, INT32_MAX), node="message.max.bytes")
    """the largest batch, before and after a conversion"""
    flush_messages: int = topic_setting("flush.messages", INT64_MAX, number(1), node="log.flush.interval.messages")
    """for `durability=page-cache`: the append that leaves this many records unflushed waits for its flush before it is
    acknowledged or committed; 1: every append. `durability=fsync` flushes every record"""
    flush_ms: int = topic_setting("flush.ms", INT64_MAX, millis(0), node="log.flush.interval.ms")
    """for `durability=page-cache`: records are flushed at this age, to within `log.flush.scheduler.interval.ms`;
    acknowledgements do not wait for it"""
    magic: int = topic_setting("message.format", 2, choice({"v0": 0, "v1": 1, "v2": 2}))
    """Tidelog's own: the format that the leader writes"""
    codec: Codec | None = topic_setting("compression.type", None, choice(_CODECS), node="compression.type")
    """the codec that the leader writes; `producer`: as sent; `zstd` requires `message.format=v2`"""
    gzip_level: int = topic_setting(
        "compression.gzip.level",
        _GZIP_DEFAULT_LEVEL,
        number(1, 9, also=_GZIP_DEFAULT_LEVEL),
        node="compression.gzip.level",
    )
    """for batches that the leader compresses; -1: the default of gzip"""
    lz4_level: int = topic_setting(
        "compression.lz4.level", _LZ4_FAST_LEVEL, number(1, 17), node="compression.lz4.level"
    )
    """likewise; 9 is the fast mode, as in Kafka"""
    zstd_level: int = topic_setting("compression.zstd.level", 3, number(-131_072, 22), node="compression.zstd.level")
    """likewise"""
    timestamp_type: TimestampType = topic_setting(
        "message.timestamp.type", TimestampType.CREATE_TIME, choice(_TIMESTAMP_TYPES)
    )
    """set by the producer or by the leader"""
    timestamp_before_ms_max: int = topic_setting("message.timestamp.before.max.ms", INT64_MAX, millis(0))
    """how far a create time may be behind the leader's clock"""
    timestamp_after_ms_max: int = topic_setting("message.timestamp.after.max.ms", 3_600_000, millis(0))
    """how far a create time may be ahead of the leader's clock"""
    delete: bool = "delete" in CLEANUP_POLICY.default
    compact: bool = "compact" in CLEANUP_POLICY.default
    retention_ms: int = topic_setting("retention.ms", 7 * DAY_MS, millis(-1))
    """older segments are deleted; -1: no limit"""
    retention_bytes: int = topic_setting("retention.bytes", -1, size(-INT64_MAX - 1))
    """the oldest segments of a larger log are deleted; below 0: no limit"""
    remote_storage: bool = topic_setting("remote.storage.enable", False, flag())
    """closed segments are copied to the object store; not with compaction, and for topics only"""
    local_retention_ms: int = topic_setting("local.retention.ms", _AS_IN_ALL, millis(_AS_IN_ALL))
    """copied segments stay on the nodes until this age; -1: no limit; -2: as `retention.ms`"""
    local_retention_bytes: int = topic_setting("local.retention.bytes", _AS_IN_ALL, size(_AS_IN_ALL))
    """copied segments stay on the nodes up to this size; -1: no limit; -2: as `retention.bytes`"""
    min_cleanable_ratio: float = topic_setting(
        "min.cleanable.dirty.ratio", 0.5, ratio(), node="log.cleaner.min.cleanable.ratio"
    )
    """a log is compacted when this share of it is new since the last time"""
    min_compaction_lag_ms: int = topic_setting(
        "min.compaction.lag.ms", 0, millis(0), node="log.cleaner.min.compaction.lag.ms"
    )
    """younger records are not compacted"""
    max_compaction_lag_ms: int = topic_setting(
        "max.compaction.lag.ms", INT64_MAX, millis(1), node="log.cleaner.max.compaction.lag.ms"
    )
    """older records are compacted whatever the ratio"""
    delete_retention_ms: int = topic_setting(
        "delete.retention.ms", DAY_MS, millis(0), node="log.cleaner.delete.retention.ms"
    )
    """how long compaction keeps tombstones and transaction markers"""
    file_delete_delay_ms: int = topic_setting(
        "file.delete.delay.ms", 60_000, millis(0), node="log.segment.delete.delay.ms"
    )
    """how long the files of deleted segments and logs stay"""
    producer_id_expiration_ms: int = setting("producer.id.expiration.ms", DAY_MS, millis(1))
    """a producer is forgotten this long after its last append, or after the start of the node"""
    min_insync_replicas: int = topic_setting("min.insync.replicas", 1, number(1, INT32_MAX), node="min.insync.replicas")
    """in-sync replicas that `acks=all` requires, at most all replicas; fixed when the topic is created"""
    unclean_elections: bool = topic_setting(
        "unclean.leader.election.enable", False, flag(), node="unclean.leader.election.enable"
    )
    """a replica without all committed records may lead if no other is left; fixed as above"""
    durability: Durability = topic_setting(
        "durability", Durability.FSYNC, choice({each.value: each for each in Durability})
    )
    """Tidelog's own: replicas report records after they are flushed, or once they are written; fixed as above"""

    def __post_init__(self) -> None:
        if self.magic < 2 and self.codec is Codec.ZSTD:
            raise InvalidConfig(
                f"compression.type is zstd, which message.format v{self.magic} does not support: choose gzip, snappy "
                "or lz4, or message.format v2"
            )
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise InvalidConfig(
                f"min.compaction.lag.ms is {self.min_compaction_lag_ms}, more than max.compaction.lag.ms "
                f"({self.max_compaction_lag_ms}): lower the one or raise the other"
            )
        if self.remote_storage and (self.compact or not self.delete):
            raise InvalidConfig(
                "remote.storage.enable is true, which needs cleanup.policy=delete: compaction would have to rewrite "
                "objects; choose one of the two"
            )

    def ensure_local_within(self) -> None:
        """Raise InvalidConfig if a topic with a remote tier is to keep more on the nodes than in both tiers, as Kafka
        does. A topic that did fit stays in use where the defaults of a node become lower: they bound both."""
        if not self.remote_storage:
            return
        for name, local, all_tiers in (
            ("retention.ms", self.local_retention_ms, self.retention_ms),
            ("retention.bytes", self.local_retention_bytes, self.retention_bytes),
        ):
            if all_tiers >= 0 and (local == -1 or local > all_tiers):
                raise InvalidConfig(
                    f"local.{name} is {local}, more than {name} ({all_tiers}), which counts both tiers: lower the one "
                    "or raise the other"
                )

    @property
    def local_ms(self) -> int:
        """The age at which segments leave the nodes; below 0: no limit."""
        return _within(self.local_retention_ms, self.retention_ms)

    @property
    def local_bytes(self) -> int:
        """The size of a log from which on segments leave the nodes; below 0: no limit."""
        return _within(self.local_retention_bytes, self.retention_bytes)

    @property
    def roll_ms(self) -> int:
        """Maximum age (ms) of the first batch of the active segment when another batch is appended. For a compacted
        topic the limit is at most `max.compaction.lag.ms`, because the active segment is not cleaned (KIP-354)."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def compression_level(self) -> int | None:
        """The compression level for `codec`, None for the codec's own default."""
        match self.codec:
            case Codec.GZIP:
                return None if self.gzip_level == _GZIP_DEFAULT_LEVEL else self.gzip_level
            case Codec.LZ4:
                return None if self.lz4_level == _LZ4_FAST_LEVEL else self.lz4_level
            case Codec.ZSTD:
                return self.zstd_level
            case _:
                return None

    @classmethod
    def from_node(cls, configs: Mapping[str, str]) -> LogConfig:
        """The defaults of the node by the topics' keys, and its own settings of logs. Raises as `from_topic`."""
        parsed = _parsed(cls(), configs, _FIELDS)
        if parsed.remote_storage:
            raise InvalidConfig(
                "log.remote.storage.enable cannot be true: as in Kafka, each topic sets remote.storage.enable itself; "
                "internal topics have no remote tier"
            )
        return parsed

    @classmethod
    def from_topic(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """The settings of a topic over the defaults of the node.

        Raises InvalidConfig for an unknown key, a bad value, or settings that contradict each other.
        """
        return _parsed(defaults or cls(), configs, _TOPIC_FIELDS)

    def as_topic(self) -> dict[str, str]:
        """Every setting that a topic may have, as text by its key."""
        policies = frozenset(policy for policy in _BOTH if getattr(self, policy))
        shown = {key: each.kind.show(getattr(self, field)) for key, (field, each) in _TOPIC_FIELDS.items() if field}
        return shown | {"cleanup.policy": CLEANUP_POLICY.kind.show(policies)}


def _within(local: int, all_tiers: int) -> int:
    """What stays on the nodes; below 0: no limit."""
    is_more = all_tiers >= 0 and not 0 <= local <= all_tiers
    return all_tiers if local == _AS_IN_ALL or is_more else local


_FIELDS: Final[Mapping[str, tuple[str, Setting[Any]]]] = {
    **{each.topic or each.name: (field, each) for field, each in settings_of(LogConfig).items()},
    "cleanup.policy": ("", CLEANUP_POLICY),
}
_TOPIC_FIELDS: Final = {key: found for key, found in _FIELDS.items() if found[1].topic}
TOPIC_SETTINGS: Final[Mapping[str, Setting[Any]]] = {key: declared for key, (_, declared) in _TOPIC_FIELDS.items()}
"""Every setting that a topic may have, by the topic's key."""


def unknown_setting(key: str, known: Iterable[str] = TOPIC_SETTINGS) -> InvalidConfig:
    """The error for a setting that no topic has. known: those that exist."""
    return InvalidConfig(
        f'unknown topic setting "{key[:VALUE_LENGTH_MAX]}"; valid settings: {", ".join(sorted(known))}'
    )


def _parsed(config: LogConfig, configs: Mapping[str, str], known: Mapping[str, tuple[str, Setting[Any]]]) -> LogConfig:
    changes: dict[str, Any] = {}
    for key, text in configs.items():
        if key not in known:
            raise unknown_setting(key, known)
        if len(text) > VALUE_LENGTH_MAX:
            raise InvalidConfig(f"{key} has {len(text)} characters: at most {VALUE_LENGTH_MAX} are allowed")
        field, declared = known[key]
        value = declared.parse(text, key)
        changes |= {field: value} if field else {policy: policy in value for policy in _BOTH}
    return replace(config, **changes)
