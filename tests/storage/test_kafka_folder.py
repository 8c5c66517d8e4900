"""A data folder that Kafka 4.1 wrote opens here as it is, and our indexes over its segments are the same bytes.

tests/vectors/cluster: a whole `log.dirs` folder after a clean shutdown, and what its broker answered before.
"""

from __future__ import annotations

import json
import lzma
import random
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storage.config import LogConfig
from storage.data_folder import DataFolder
from storage.log import Log
from storage.os_files import OsFiles
from storage.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from tests.storage.workbench import SetClock
from tidelog.types import TopicPartition

VECTORS = Path(__file__).parent.parent / "vectors"


@cache
def partitions() -> dict[str, Any]:
    with lzma.open(VECTORS / "cluster.json.xz") as file:
        found: dict[str, Any] = json.load(file)["partitions"]
    return found


def config_of(tp: TopicPartition, _: object) -> LogConfig:
    """What of a Kafka topic's settings concerns its indexes and segments."""
    told = partitions()[str(tp)]["config"] or {}
    return LogConfig(
        segment_bytes=int(told.get("internal.segment.bytes", 1 << 30)),
        segment_ms=int(told.get("segment.ms", 604_800_000)),
        index_interval_bytes=int(told.get("index.interval.bytes", 4096)),
        segment_index_bytes=int(told.get("segment.index.bytes", 10 << 20)),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    root = tmp_path_factory.mktemp("kafka")
    with tarfile.open(VECTORS / "cluster.tar.xz") as archive:
        archive.extractall(root, filter="data")
    opened = DataFolder.open(str(root / "node1"), files=OsFiles(), clock=SetClock(), rng=random.Random(1))
    opened.load_logs(config_of)
    return opened


def logs(folder: DataFolder) -> list[tuple[Log, dict[str, Any]]]:
    return [(log, partitions()[str(tp)]) for tp, log in sorted(folder.logs.items())]


def test_every_log_opens_after_the_clean_stop(folder: DataFolder) -> None:
    assert folder.was_clean
    assert (folder.cluster_id, folder.node_id) == ("u2n9nW-xE8Z4OMkj66OjEg", 1)
    assert {str(tp) for tp in folder.logs} == set(partitions())
    assert folder.damaged() == {}
    assert [note for note in folder.notes if "__cluster_metadata" not in note] == [], "Kafka keeps no checkpoint of it"


def test_offsets_and_epochs_are_what_the_broker_said(folder: DataFolder) -> None:
    for log, told in logs(folder):
        assert [[entry.epoch, entry.start_offset] for entry in log.epoch_entries()] == told["leaderEpochs"]
        before = told.get("beforeShutdown")
        if before:
            assert log.log_start_offset == before["logStartOffset"]
            assert log.high_watermark == log.log_end_offset == before["highWatermark"]


def test_every_batch_is_read(folder: DataFolder) -> None:
    for log, told in logs(folder):
        wanted = [batch for segment in told["segments"] for batch in segment["batches"]]
        wanted = [(batch["size"]) for batch in wanted if batch["lastOffset"] >= log.log_start_offset]
        offset, sizes = log.log_start_offset, []
        while offset < log.log_end_offset:
            read = log.read(offset, 1, up_to=log.log_end_offset)
            if not len(read.records):
                break
            sizes.append(len(read.records))
            offset = read.next_offset
        assert sizes == wanted


def test_times_are_found_where_the_broker_found_them(folder: DataFolder) -> None:
    asked = 0
    for log, told in logs(folder):
        before = told.get("beforeShutdown")
        if not before or log.topic_partition.topic == "compacted-gone":
            continue  # there the broker says "none" for a record that is in the log
        for timestamp, offset, found_at, epoch in before["offsetsForTimes"]:
            found = log.offset_for_timestamp(timestamp, up_to=log.high_watermark)
            assert ([-1, -1, None] if found is None else list(found)) == [offset, found_at, epoch]
            asked += 1
        largest = log.largest_timestamp(up_to=log.high_watermark)
        assert ([-1, -1, None] if largest is None else list(largest)) == before["maxTimestamp"]
    assert asked > 300


def test_rebuilt_indexes_are_kafkas_bytes(folder: DataFolder) -> None:
    """Vectors' README, index and time index rule; cleaned logs follow the cleaner's chunks instead."""
    compared = 0
    for log, _ in logs(folder):
        if log.topic_partition.topic.startswith(("__", "compacted")):
            continue
        for segment in log.segments:
            paths = [Path(segment_path(log.path, segment.base_offset, s)) for s in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
            before = [path.read_bytes() for path in paths]
            segment.rebuild_indexes()
            segment.become_inactive()
            assert [path.read_bytes() for path in paths] == before
            compared += 1
    assert compared > 100
