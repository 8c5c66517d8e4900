"""Configuration of the logs of a topic: Kafka's names, types, bounds and defaults.

Invariants: a LogConfig holds only settings that this version implements. A known key with a value that is not
implemented is rejected by name, never ignored. Settings that contradict each other are rejected together.
Not here: the source of configurations (the metadata log), the use of replication settings.
Source: Kafka's TopicConfig and LogConfig; `message.format` is Tidelog's own (design section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from tidelog.errors import InvalidConfig
from tidelog.types import Codec, Durability, TimestampType

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_LZ4_FAST_LEVEL: Final = 9
"""Kafka's default level for lz4. Kafka's writer uses the fast mode at this level."""
_GZIP_DEFAULT_LEVEL: Final = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic that its logs use. Sizes in bytes, times in milliseconds."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    preallocate: bool = False
    max_message_bytes: int = 1_048_588
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    magic: int = 2
    """`message.format`: the format that a leader writes; 0, 1 or 2."""
    codec: Codec | None = None
    """`compression.type`: the codec that a leader writes. None for "producer": batches keep the producer's codec."""
    gzip_level: int = _GZIP_DEFAULT_LEVEL
    lz4_level: int = _LZ4_FAST_LEVEL
    zstd_level: int = 3
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_ms_max: int = INT64_MAX
    timestamp_after_ms_max: int = 3_600_000
    delete: bool = True
    """True if `cleanup.policy` contains delete: retention by time and size."""
    compact: bool = False
    """True if `cleanup.policy` contains compact."""
    retention_ms: int = 604_800_000
    """-1 for no limit."""
    retention_bytes: int = -1
    """Below 0 for no limit."""
    min_cleanable_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000
    """A setting of the node, not of the topic."""
    min_insync_replicas: int = 1
    unclean_elections: bool = False
    durability: Durability = Durability.FSYNC

    def __post_init__(self) -> None:
        if self.segment_index_bytes < 12:
            raise InvalidConfig(
                f"segment.index.bytes is {self.segment_index_bytes}, less than one index entry of 12 bytes: set it "
                "to 12 or more"
            )
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
        """The node's defaults for topic settings, and the node's own log settings. Raises as `from_topic`."""
        return _parsed(cls(), configs, {**_TOPIC_SETTINGS, **_NODE_SETTINGS})

    @classmethod
    def from_topic(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """The configuration of a topic: its own settings over the node's defaults.

        Raises InvalidConfig for an unknown key, a bad value (the message names both and the valid values) or
        contradicting settings, UnsupportedVersion for a value that this version does not implement.
        """
        return _parsed(defaults or cls(), configs, _TOPIC_SETTINGS)

    def as_topic(self) -> dict[str, str]:
        """All topic settings by name, as text."""
        return {key: setting.show(self) for key, setting in _TOPIC_SETTINGS.items()}


class _Setting(NamedTuple):
    """Parser and printer of one setting. `parse` returns the fields that the setting changes."""

    parse: Callable[[str, str], Mapping[str, object]]
    show: Callable[[LogConfig], str]


def _parsed(config: LogConfig, configs: Mapping[str, str], known: Mapping[str, _Setting]) -> LogConfig:
    changes: dict[str, object] = {}
    for key, value in configs.items():
        setting = known.get(key)
        if setting is None:
            raise InvalidConfig(f"unknown topic setting {key}; valid settings: {', '.join(sorted(known))}")
        changes.update(setting.parse(key, value))
    return replace(config, **changes)  # type: ignore[arg-type]  # each parser gives its field's type


def _number(field: str, low: int, high: int) -> _Setting:
    def parse(key: str, value: str) -> Mapping[str, object]:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise InvalidConfig(f"{key} is {value!r}: it must be a whole number from {low} to {high}")
        return {field: number}

    return _Setting(parse, lambda config: str(getattr(config, field)))


def _level(field: str, low: int, high: int, *, also: int) -> _Setting:
    """A whole number in a range, or the value `also` for the codec's own default."""
    within = _number(field, low, high)

    def parse(key: str, value: str) -> Mapping[str, object]:
        return {field: also} if value == str(also) else within.parse(key, value)

    return _Setting(parse, within.show)


def _ratio(field: str) -> _Setting:
    def parse(key: str, value: str) -> Mapping[str, object]:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1:
            raise InvalidConfig(f"{key} is {value!r}: it must be a number from 0 to 1")
        return {field: number}

    return _Setting(parse, lambda config: str(getattr(config, field)))


def _choice(field: str, values: Mapping[str, object]) -> _Setting:
    """One of a fixed set of words, each with its value."""
    words = {value: word for word, value in values.items()}

    def parse(key: str, value: str) -> Mapping[str, object]:
        if value not in values:
            raise InvalidConfig(f"{key} is {value!r}: it must be {' or '.join(values)}")
        return {field: values[value]}

    return _Setting(parse, lambda config: words[getattr(config, field)])


def _cleanup_policy() -> _Setting:
    def parse(key: str, value: str) -> Mapping[str, object]:
        policies = {word.strip() for word in value.split(",")}
        if not policies <= {"delete", "compact"}:
            raise InvalidConfig(f"{key} is {value!r}: it must be delete, compact, or compact,delete")
        return {"delete": "delete" in policies, "compact": "compact" in policies}

    def show(config: LogConfig) -> str:
        return ",".join(word for word, on in (("compact", config.compact), ("delete", config.delete)) if on)

    return _Setting(parse, show)


_BOOLEANS: Final = {"true": True, "false": False}
_CODECS: Final = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_TIMESTAMP_TYPES: Final = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}

_TOPIC_SETTINGS: Final[Mapping[str, _Setting]] = {
    "segment.bytes": _number("segment_bytes", 14, INT32_MAX),
    "segment.ms": _number("segment_ms", 1, INT64_MAX),
    "segment.jitter.ms": _number("segment_jitter_ms", 0, INT64_MAX),
    "segment.index.bytes": _number("segment_index_bytes", 12, INT32_MAX),
    "index.interval.bytes": _number("index_interval_bytes", 0, INT32_MAX),
    "preallocate": _choice("preallocate", _BOOLEANS),
    "max.message.bytes": _number("max_message_bytes", 0, INT32_MAX),
    "flush.messages": _number("flush_messages", 1, INT64_MAX),
    "flush.ms": _number("flush_ms", 0, INT64_MAX),
    "message.format": _choice("magic", {"v0": 0, "v1": 1, "v2": 2}),
    "compression.type": _choice("codec", _CODECS),
    "compression.gzip.level": _level("gzip_level", 1, 9, also=_GZIP_DEFAULT_LEVEL),
    "compression.lz4.level": _number("lz4_level", 1, 17),
    "compression.zstd.level": _number("zstd_level", -131_072, 22),
    "message.timestamp.type": _choice("timestamp_type", _TIMESTAMP_TYPES),
    "message.timestamp.before.max.ms": _number("timestamp_before_ms_max", 0, INT64_MAX),
    "message.timestamp.after.max.ms": _number("timestamp_after_ms_max", 0, INT64_MAX),
    "cleanup.policy": _cleanup_policy(),
    "retention.ms": _number("retention_ms", -1, INT64_MAX),
    "retention.bytes": _number("retention_bytes", -INT64_MAX - 1, INT64_MAX),
    "min.cleanable.dirty.ratio": _ratio("min_cleanable_ratio"),
    "min.compaction.lag.ms": _number("min_compaction_lag_ms", 0, INT64_MAX),
    "max.compaction.lag.ms": _number("max_compaction_lag_ms", 1, INT64_MAX),
    "delete.retention.ms": _number("delete_retention_ms", 0, INT64_MAX),
    "file.delete.delay.ms": _number("file_delete_delay_ms", 0, INT64_MAX),
    "min.insync.replicas": _number("min_insync_replicas", 1, INT32_MAX),
    "durability": _choice("durability", {durability.value: durability for durability in Durability}),
    "unclean.leader.election.enable": _choice("unclean_elections", _BOOLEANS),
}
_NODE_SETTINGS: Final[Mapping[str, _Setting]] = {
    "producer.id.expiration.ms": _number("producer_id_expiration_ms", 1, INT64_MAX),
}
