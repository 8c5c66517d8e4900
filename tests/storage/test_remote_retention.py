"""Retention over both tiers: which remote segments expire, and where the log then starts."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.remote_retention import remote_expiry
from storage.log_config import LogConfig
from tidelog.errors import InvalidConfig
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.types import LeaderEpoch, Millis, NodeId, Offset, PartitionIndex, TopicId

NOW = Millis(1_000_000)
FOREVER = LogConfig(retention_ms=-1, retention_bytes=-1)


def remote(start: int, end: int, *, size: int = 100, youngest: int = NOW, copied: int = NOW) -> RemoteSegment:
    return RemoteSegment(
        RemoteSegmentId(UUID(int=start)),
        TopicId(UUID(int=1)),
        PartitionIndex(0),
        Offset(start),
        Offset(end),
        (),
        Millis(youngest),
        size,
        LeaderEpoch(0),
        NodeId(1),
        Millis(copied),
        RemoteSegmentState.COPY_SEGMENT_FINISHED,
    )


THREE = [remote(0, 10), remote(10, 20), remote(20, 30)]


def ends(
    segments: list[RemoteSegment], config: LogConfig, *, log_start: int = 0, local: int = 0, limit: int = 99
) -> list[int]:
    found = remote_expiry(
        segments,
        config,
        now=NOW,
        log_start=Offset(log_start),
        size=sum(each.log_size for each in segments) + local,
        limit=Offset(limit),
    )
    assert found.log_start == max([log_start, *(each.end_offset for each in found.expired)])
    return [each.end_offset for each in found.expired]


def test_without_limits_everything_stays() -> None:
    assert ends(THREE, FOREVER) == []


def test_by_size_both_tiers_count() -> None:
    config = replace(FOREVER, retention_bytes=250)
    assert ends(THREE, config) == []  # 200 would remain
    assert ends(THREE, config, local=50) == [10]
    assert ends(THREE, config, local=250) == [10, 20, 30]


def test_by_age_a_young_record_keeps_all_behind_it() -> None:
    config = replace(FOREVER, retention_ms=100)
    old, young = NOW - 101, NOW - 100
    assert ends(
        [remote(0, 10, youngest=old), remote(10, 20, youngest=young), remote(20, 30, youngest=old)], config
    ) == [10]


def test_without_timestamps_the_age_counts_from_the_copy() -> None:
    config = replace(FOREVER, retention_ms=100)
    segments = [remote(0, 10, youngest=-1, copied=NOW - 101), remote(10, 20, youngest=-1, copied=NOW - 99)]
    assert ends(segments, config) == [10]


def test_deleted_records_take_their_segments_along() -> None:
    assert ends(THREE, FOREVER, log_start=25) == [10, 20]


def test_nothing_above_the_limit_is_deleted() -> None:
    assert ends(THREE, replace(FOREVER, retention_bytes=0), limit=25) == [10, 20]


@settings(max_examples=60)
@given(st.data())
def test_what_remains_has_no_gap_and_is_large_enough(data: st.DataObject) -> None:
    """Any segments, overlapping as those of two leaders do, against a plain restatement of the rules."""
    offsets = sorted(data.draw(st.lists(st.integers(0, 60), min_size=1, max_size=6, unique=True)))
    segments = [
        remote(
            start,
            start + data.draw(st.integers(1, 20)),
            size=data.draw(st.integers(1, 50)),
            youngest=data.draw(st.integers(NOW - 200, NOW)),
        )
        for start in offsets
    ]
    config = LogConfig(
        retention_ms=data.draw(st.sampled_from([-1, 50, 150])), retention_bytes=data.draw(st.sampled_from([-1, 0, 60]))
    )
    log_start, local = data.draw(st.integers(0, 60)), data.draw(st.integers(0, 50))
    limit = data.draw(st.integers(0, 90))
    count = len(ends(segments, config, log_start=log_start, local=local, limit=limit))
    remaining = sum(each.log_size for each in segments[count:]) + local
    start = log_start
    for number, each in enumerate(segments[:count]):
        left = sum(later.log_size for later in segments[number + 1 :]) + local
        old = 0 <= config.retention_ms < NOW - each.max_timestamp
        assert each.end_offset <= limit
        assert each.end_offset <= start or old or 0 <= config.retention_bytes <= left
        start = max(start, each.end_offset)
    if count < len(segments) and segments[count].end_offset <= limit:
        stays = segments[count]
        assert stays.end_offset > start
        assert not 0 <= config.retention_ms < NOW - stays.max_timestamp
        assert not 0 <= config.retention_bytes <= remaining - stays.log_size


# --- settings -----------------------------------------------------------------------------------------------------


def test_local_retention_is_that_of_both_tiers_unless_it_is_set() -> None:
    config = LogConfig(remote_storage=True, retention_ms=500, retention_bytes=1000)
    assert (config.local_ms, config.local_bytes) == (500, 1000)
    config = replace(config, local_retention_ms=100, local_retention_bytes=200)
    assert (config.local_ms, config.local_bytes) == (100, 200)
    assert replace(FOREVER, local_retention_bytes=-1).local_bytes == -1


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"local_retention_ms": 501, "retention_ms": 500}, "local.retention.ms is 501, more than retention.ms"),
        ({"local_retention_ms": -1, "retention_ms": 500}, "local.retention.ms is -1, more than retention.ms"),
        ({"local_retention_bytes": 5, "retention_bytes": 4}, "local.retention.bytes is 5, more than retention.bytes"),
        ({"compact": True}, "needs cleanup.policy=delete"),
        ({"compact": True, "delete": False}, "needs cleanup.policy=delete"),
    ],
)
def test_kafkas_rules_for_tiered_topics(config: dict[str, int], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        LogConfig(remote_storage=True, **config).ensure_local_within()  # type: ignore[arg-type]
    LogConfig(**config).ensure_local_within()  # type: ignore[arg-type]


def test_lower_defaults_of_a_node_bound_what_stays_there() -> None:
    """A topic that does not set retention.ms fits no more, and would be offline after a restart with other defaults."""
    topic = {"remote.storage.enable": "true", "local.retention.ms": "500", "local.retention.bytes": "-1"}
    config = LogConfig.from_topic(topic, LogConfig(retention_ms=300, retention_bytes=200))
    assert (config.local_ms, config.local_bytes) == (300, 200)
    config = LogConfig.from_topic(topic, LogConfig(retention_ms=-1, retention_bytes=-1))
    assert (config.local_ms, config.local_bytes) == (500, -1)


@pytest.mark.parametrize(
    "configs", [{"remote.storage.enable": "true"}, {"local.retention.ms": "5"}, {"local.retention.bytes": "5"}]
)
def test_a_topic_sets_what_stays_on_the_nodes(configs: dict[str, str]) -> None:
    assert LogConfig.from_topic(configs) != LogConfig()


def test_no_node_gives_all_topics_a_remote_tier() -> None:
    with pytest.raises(InvalidConfig, match=r"each topic sets remote\.storage\.enable itself"):
        LogConfig.from_node({"remote.storage.enable": "true"})
