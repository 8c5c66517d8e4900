"""Topic settings: Kafka's names and defaults; unsupported values are rejected by name."""

from __future__ import annotations

import pytest

from storage.log_config import LogConfig
from tidelog.errors import InvalidConfig
from tidelog.types import Durability, TimestampType


def test_the_defaults_equal_kafkas() -> None:
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
        ("cleanup.policy", ""),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("max.compaction.lag.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.ms", "5_0000"),  # which int() reads
        ("retention.ms", "\u0665\u0660"),
        ("preallocate", "True"),
    ],
)
def test_errors_name_key_value_and_valid_values(key: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        LogConfig.from_topic({key: value})
    assert key in caught.value.message
    if key in ("durability", "cleanup.policy", "segment.bytes"):
        assert value in caught.value.message
        assert "must be" in caught.value.message


def test_retention_and_compaction_have_kafkas_names_and_defaults() -> None:
    config = LogConfig.from_topic({})
    assert (config.delete, config.compact) == (True, False)
    assert (config.retention_ms, config.retention_bytes) == (7 * 86_400_000, -1)
    assert (config.min_cleanable_ratio, config.delete_retention_ms) == (0.5, 86_400_000)
    assert (config.min_compaction_lag_ms, config.max_compaction_lag_ms) == (0, 2**63 - 1)
    assert config.file_delete_delay_ms == 60_000
    config = LogConfig.from_topic({"cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.01"})
    assert (config.delete, config.compact, config.min_cleanable_ratio) == (True, True, 0.01)
    assert not LogConfig.from_topic({"cleanup.policy": "compact"}).delete


@pytest.mark.parametrize(
    ("configs", "level"),
    [
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, 9),
        ({"compression.type": "lz4"}, None),  # Kafka's default of 9 stands for the fast mode
        ({"compression.type": "lz4", "compression.lz4.level": "12"}, 12),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, -5),
        ({"compression.gzip.level": "9"}, None),
    ],
)
def test_a_level_applies_to_its_codec_alone(configs: dict[str, str], level: int | None) -> None:
    assert LogConfig.from_topic(configs).compression_level == level


@pytest.mark.parametrize(
    "configs",
    [
        {"message.format": "v1", "compression.type": "zstd"},
        {"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    ],
)
def test_contradicting_settings_are_rejected_together(configs: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        LogConfig.from_topic(configs)
    assert all(key in caught.value.message for key in configs)
    (key, value), *rest = configs.items()
    with pytest.raises(InvalidConfig):
        LogConfig.from_topic({key: value}, LogConfig.from_topic(dict(rest)))


def test_a_node_setting_is_rejected_for_a_topic() -> None:
    assert LogConfig.from_node({"producer.id.expiration.ms": "5"}).producer_id_expiration_ms == 5
    with pytest.raises(
        InvalidConfig, match=r'unknown topic setting "producer\.id\..*"; valid settings: cleanup\.policy'
    ):
        LogConfig.from_topic({"producer.id.expiration.ms": "5"})


def test_a_configuration_shown_and_parsed_again_is_the_same() -> None:
    config = LogConfig.from_topic(
        {"cleanup.policy": "compact,delete", "compression.type": "lz4", "message.format": "v0", "preallocate": "true"}
    )
    assert LogConfig.from_topic(config.as_topic()) == config
    assert config.as_topic()["cleanup.policy"] == "compact,delete"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "0" * 300 + "1"),
        ("retention.ms", " " * 300 + "1"),
        ("cleanup.policy", ",".join(["delete"] * 100)),
        ("min.cleanable.dirty.ratio", "0.5" + "0" * 300),
        ("k" * 1_000_000, "1"),
    ],
    ids=["zeros", "blanks", "words", "digits", "key"],
)
def test_a_setting_of_any_length_is_rejected_with_a_short_error(key: str, value: str) -> None:
    """Each value is a correct one; the metadata log would keep it as it was written."""
    with pytest.raises(InvalidConfig) as caught:
        LogConfig.from_topic({key: value})
    assert len(caught.value.message) < 3_000
