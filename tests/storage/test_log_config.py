"""A topic's settings: Kafka's names and defaults; what is not done yet is refused by name."""

from __future__ import annotations

import pytest

from storage.config import LogConfig
from tidelog.errors import InvalidConfig, UnsupportedVersion
from tidelog.types import Durability, TimestampType


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig.from_topic({})
    assert (config.segment_bytes, config.segment_ms, config.segment_index_bytes) == (1 << 30, 7 * 86_400_000, 10 << 20)
    assert (config.index_interval_bytes, config.max_message_bytes) == (4096, 1_048_588)
    assert (config.flush_messages, config.flush_ms) == (2**63 - 1, 2**63 - 1)
    assert (config.min_insync_replicas, config.durability) == (1, Durability.FSYNC)
    assert config.timestamp_type is TimestampType.CREATE_TIME


def test_a_topic_overrides_the_nodes_defaults() -> None:
    defaults = LogConfig.from_topic({"segment.bytes": "5000", "flush.ms": "10"})
    config = LogConfig.from_topic(
        {"segment.bytes": "7000", "message.timestamp.type": "LogAppendTime", "durability": "page-cache"}, defaults
    )
    assert (config.segment_bytes, config.flush_ms) == (7000, 10)
    assert (config.timestamp_type, config.durability) == (TimestampType.LOG_APPEND_TIME, Durability.PAGE_CACHE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("segment.byte", "1"),
        ("segment.bytes", "13"),
        ("segment.bytes", "2147483648"),
        ("segment.bytes", "many"),
        ("segment.index.bytes", "11"),
        ("min.insync.replicas", "0"),
        ("durability", "sometimes"),
        ("message.timestamp.type", "createtime"),
        ("cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("message.format", "v3"),
    ],
)
def test_bad_values_name_key_value_and_what_is_allowed(key: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        LogConfig.from_topic({key: value})
    assert key in caught.value.message
    if key in ("durability", "cleanup.policy", "segment.bytes"):
        assert value in caught.value.message
        assert "must be" in caught.value.message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cleanup.policy", "compact"),
        ("message.format", "v1"),
        ("compression.type", "zstd"),
        ("unclean.leader.election.enable", "true"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1"),
        ("preallocate", "true"),
        ("message.timestamp.before.max.ms", "5"),
    ],
)
def test_what_is_not_done_yet_is_refused(key: str, value: str) -> None:
    with pytest.raises(UnsupportedVersion, match="not supported by this version yet"):
        LogConfig.from_topic({key: value})


def test_saying_what_is_done_anyway_is_fine() -> None:
    assert (
        LogConfig.from_topic({"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"})
        == LogConfig()
    )
