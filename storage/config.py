"""What a topic's configuration means for its logs: Kafka's names, types, bounds and defaults.

Kept true: a LogConfig holds only what this version does; a known key with a value that it does not do yet is refused by
name, never ignored. Left to others: where configurations come from (the metadata log), replication settings' use.
Source: Kafka's TopicConfig and LogConfig. Retention and compaction come later: until then nothing is ever deleted, and
`retention.ms` and `retention.bytes` take -1 only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.types import Durability, TimestampType

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One topic's settings, as its logs use them. Sizes in bytes, times in milliseconds."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_after_ms_max: int = 3_600_000
    min_insync_replicas: int = 1
    durability: Durability = Durability.FSYNC

    def __post_init__(self) -> None:
        if self.segment_index_bytes < 12:
            raise InvalidConfig(
                f"segment.index.bytes is {self.segment_index_bytes}, less than one index entry of 12 bytes: set it "
                "to 12 or more"
            )

    @classmethod
    def from_topic(cls, configs: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """The configuration of a topic: its own settings over the node's defaults.

        Raises InvalidConfig for an unknown key or a bad value (naming both and what is allowed), UnsupportedVersion for
        what this version does not do.
        """
        changes: dict[str, object] = {}
        for key, value in configs.items():
            setting = _SETTINGS.get(key)
            if setting is None:
                raise InvalidConfig(f"{key} is no topic configuration; known are {', '.join(sorted(_SETTINGS))}")
            field, parse = setting
            parsed = parse(key, value)
            if field:
                changes[field] = parsed
        return replace(defaults or cls(), **changes)  # type: ignore[arg-type]  # each parser gives its field's type


def _number(low: int, high: int) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise InvalidConfig(f"{key} is {value!r}: it must be a whole number from {low} to {high}")
        return number

    return parse


def _timestamp_type(key: str, value: str) -> TimestampType:
    try:
        return {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}[value]
    except KeyError:
        raise InvalidConfig(f"{key} is {value!r}: it must be CreateTime or LogAppendTime") from None


def _durability(key: str, value: str) -> Durability:
    try:
        return Durability(value)
    except ValueError:
        raise InvalidConfig(
            f"{key} is {value!r}: it must be {' or '.join(durability.value for durability in Durability)}"
        ) from None


def _only(done: frozenset[str], known: frozenset[str] | None = None) -> Callable[[str, str], None]:
    """A setting of which this version does only some values. known: the values that Kafka has; None for any number."""

    def parse(key: str, value: str) -> None:
        if value in done:
            return
        allowed = " or ".join(sorted(done))
        if known is not None and value not in known:
            raise InvalidConfig(f"{key} is {value!r}: it must be {allowed}")
        raise UnsupportedVersion(
            f"{key}={value} is not supported by this version yet: leave it out, or set it to {allowed}"
        )

    return parse


_CODECS: Final = frozenset({"producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"})
_BOOLEANS: Final = frozenset({"true", "false"})

_SETTINGS: Final[Mapping[str, tuple[str, Callable[[str, str], object]]]] = {
    "segment.bytes": ("segment_bytes", _number(14, INT32_MAX)),
    "segment.ms": ("segment_ms", _number(1, INT64_MAX)),
    "segment.jitter.ms": ("segment_jitter_ms", _number(0, INT64_MAX)),
    "segment.index.bytes": ("segment_index_bytes", _number(12, INT32_MAX)),
    "index.interval.bytes": ("index_interval_bytes", _number(0, INT32_MAX)),
    "max.message.bytes": ("max_message_bytes", _number(0, INT32_MAX)),
    "flush.messages": ("flush_messages", _number(1, INT64_MAX)),
    "flush.ms": ("flush_ms", _number(0, INT64_MAX)),
    "message.timestamp.type": ("timestamp_type", _timestamp_type),
    "message.timestamp.after.max.ms": ("timestamp_after_ms_max", _number(0, INT64_MAX)),
    "min.insync.replicas": ("min_insync_replicas", _number(1, INT32_MAX)),
    "durability": ("durability", _durability),
    "message.timestamp.before.max.ms": ("", _only(frozenset({str(INT64_MAX)}))),
    "cleanup.policy": (
        "",
        _only(frozenset({"delete"}), frozenset({"delete", "compact", "compact,delete", "delete,compact"})),
    ),
    "compression.type": ("", _only(frozenset({"producer"}), _CODECS)),
    "message.format": ("", _only(frozenset({"v2"}), frozenset({"v0", "v1", "v2"}))),
    "retention.ms": ("", _only(frozenset({"-1"}))),
    "retention.bytes": ("", _only(frozenset({"-1"}))),
    "preallocate": ("", _only(frozenset({"false"}), _BOOLEANS)),
    "unclean.leader.election.enable": ("", _only(frozenset({"false"}), _BOOLEANS)),
}
