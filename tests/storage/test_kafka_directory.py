"""Log directories written by Kafka open here unchanged and give the answers of Kafka's broker.

`cluster` (4.1, one node of three) and `old` (2.8, formats v0 to v2) were stopped cleanly, and the broker was queried
just before. `unclean` (4.1) was killed: Kafka's answers after its recovery are in test_kafka_recovery.py."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from storage.segment.epoch_cache import ensure_agreed
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, segment_path
from tests.fakes.log_start import latest_epoch
from tests.storage.kafka_vectors import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    ROOTS,
    batches,
    consume,
    largest_timestamp,
    log_of,
    offset_for_time,
    open_directory,
    producer_states,
    ranges,
    recorded,
    starts,
    unpack,
)
from tests.storage.workbench import epoch_end
from tidelog.errors import UnsupportedForMessageFormat
from tidelog.records import iter_batches

WHEN_WRITTEN = 1_700_000_000_000
"""No producer has expired by then: the broker had loaded none of them either."""
ASKED = [(archive, partition) for archive in ("cluster", "old") for partition in recorded(archive)["partitions"]]
each_asked = pytest.mark.parametrize(
    ("archive", "partition"),
    [(archive, name) for archive, name in ASKED if recorded(archive)["partitions"][name].get("beforeShutdown")],
)
OpenDirectory = Callable[[str], LogDirectory]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenDirectory]:
    found: list[LogDirectory] = []

    @cache
    def find(archive: str) -> LogDirectory:
        clock = starts()["unclean", "as-killed"].clock if archive == "unclean" else WHEN_WRITTEN
        found.append(open_directory(unpack(archive, tmp_path_factory.mktemp(archive)), archive, clock))
        return found[-1]

    yield find
    for opened in found:
        opened.close()


def asked(directory: OpenDirectory, archive: str, partition: str) -> tuple[Log, dict[str, Any]]:
    return log_of(directory(archive), partition), recorded(archive)["partitions"][partition]["beforeShutdown"]


def first_record_at(archive: str, partition: str, timestamp: int) -> list[int]:
    """Offset and timestamp of the first record that is not older, by reading all of them."""
    for segment in recorded(archive)["partitions"][partition]["segments"]:
        for batch in segment["batches"]:
            for record in batch["records"]:
                if record[1] >= timestamp:
                    return [record[0], record[1]]
    return [-1, -1]


# --- opening --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", ROOTS)
def test_a_follower_receives_the_epochs_of_the_batches(archive: str, directory: OpenDirectory) -> None:
    """It rejects a batch with any other epoch as damaged; no batch written by a broker may be rejected."""
    for log in directory(archive).logs.values():
        offset, batches_seen = log.log_start_offset, 0
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 16, up_to=log.log_end_offset)
            headers = [batch.header for batch in iter_batches(read.records)]
            ensure_agreed(headers, read.epochs)
            assert read.next_offset > offset
            offset, batches_seen = read.next_offset, batches_seen + len(headers)
        assert batches_seen > 0 or log.log_start_offset == log.log_end_offset


@pytest.mark.parametrize("archive", sorted(ROOTS))
def test_every_log_opens(directory: OpenDirectory, archive: str) -> None:
    opened = directory(archive)
    assert {str(tp) for tp in opened.logs} == set(recorded(archive)["partitions"])
    assert opened.identity.was_clean == (archive != "unclean")
    assert opened.damaged() == {}
    assert opened.identity.cluster_id == recorded(archive).get("clusterId", opened.identity.cluster_id)
    if archive != "unclean":
        assert [note for note in opened.notes if "__cluster_metadata" not in note] == [], (
            "Kafka has no checkpoint of it"
        )


@pytest.mark.parametrize("archive", sorted(ROOTS))
def test_every_batch_is_there(directory: OpenDirectory, archive: str) -> None:
    for tp, log in directory(archive).logs.items():
        wanted = [
            [
                [batch["baseOffset"], batch["lastOffset"], batch["position"], batch["size"], batch["crc"]]
                for batch in segment["batches"]
            ]
            for segment in recorded(archive)["partitions"][str(tp)]["segments"]
        ]
        assert [segment["batches"] for segment in batches(log)] == wanted


@pytest.mark.parametrize("archive", sorted(ROOTS))
def test_epochs_equal_those_of_the_file(directory: OpenDirectory, archive: str) -> None:
    for tp, log in directory(archive).logs.items():
        entries = [[entry.epoch, entry.start_offset] for entry in log.epochs.entries]
        assert entries == (recorded(archive)["partitions"][str(tp)]["leaderEpochs"] or [])


def test_a_zookeeper_based_directory_is_upgraded_once(tmp_path: Path) -> None:
    """It has no id, its logs have no topic ids, and those of v0 and v1 have no epoch file: none of that is damage. The
    second start finds the result of the first."""
    root = unpack("old", tmp_path)
    first = open_directory(root, "old", WHEN_WRITTEN)
    ids = {tp: log.topic_id for tp, log in first.logs.items()}
    identity = (first.directory_id, first.identity.node_id, first.identity.cluster_id)
    first.close_clean()
    second = open_directory(root, "old", WHEN_WRITTEN)
    assert second.identity.was_clean
    assert (second.notes, second.damaged()) == ([], {})
    assert {tp: log.topic_id for tp, log in second.logs.items()} == ids
    assert (second.directory_id, second.identity.node_id, second.identity.cluster_id) == identity
    assert (second.identity.node_id, second.identity.cluster_id) == (0, "gXd6PjvtQ4GCTu5KP7ko8w")
    second.close()


# --- answers --------------------------------------------------------------------------------------------------------


@each_asked
def test_offsets_equal_the_brokers_answers(directory: OpenDirectory, archive: str, partition: str) -> None:
    log, before = asked(directory, archive, partition)
    assert log.log_start_offset == before["logStartOffset"]
    assert log.high_watermark == log.log_end_offset == before["highWatermark"]
    assert log.last_stable_offset == before["lastStableOffset"]


@each_asked
def test_readers_receive_the_same_records_as_kafkas_consumers(
    directory: OpenDirectory, archive: str, partition: str
) -> None:
    log, before = asked(directory, archive, partition)
    for isolation, name in ((READ_UNCOMMITTED, "read_uncommitted"), (READ_COMMITTED, "read_committed")):
        seen = consume(log, isolation)
        assert (ranges(seen.offsets), seen.trouble) == (before["visible"][name], [])


@each_asked
def test_timestamps_are_found_where_the_broker_found_them(
    directory: OpenDirectory, archive: str, partition: str
) -> None:
    """Kafka searches only one segment, the first whose time index reaches the timestamp: if the cleaner has removed the
    record and left the index, it answers "none" and does not continue."""
    log, before = asked(directory, archive, partition)
    for timestamp, *found in before["offsetsForTimes"]:
        if isinstance(found[0], str):
            assert "UnsupportedForMessageFormat" in found[0]
            with pytest.raises(UnsupportedForMessageFormat):
                log.fetch_offset_by_timestamp(timestamp, up_to=log.high_watermark)
        elif found[0] == -1 and "compacted" in partition:
            assert offset_for_time(log, timestamp)[:2] == first_record_at(archive, partition, timestamp)
        else:
            assert offset_for_time(log, timestamp) == found
    if before["maxTimestamp"] is not None:  # 2.8 does not have this request
        assert largest_timestamp(log) == before["maxTimestamp"]


@each_asked
def test_producers_equal_those_that_the_broker_described(
    directory: OpenDirectory, archive: str, partition: str
) -> None:
    log, before = asked(directory, archive, partition)
    assert producer_states(log) == before["producerStates"]


@pytest.mark.parametrize(
    "partition",
    [
        name
        for name, said in recorded("cluster")["partitions"].items()
        if "offsetForLeaderEpoch" in (said.get("beforeShutdown") or {})
    ],
)
def test_epochs_end_where_the_broker_said(directory: OpenDirectory, partition: str) -> None:
    """The answer for an epoch that has not begun is the latest one, where Kafka answers that it has none."""
    log, before = asked(directory, "cluster", partition)
    for epoch, answered, end_offset, error in before["offsetForLeaderEpoch"]:
        found = epoch_end(log, epoch)
        wanted = (answered, end_offset) if answered >= 0 else (latest_epoch(log), log.log_end_offset)
        assert ((found.epoch, found.end_offset), error) == (wanted, 0)


# --- indexes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("archive", ["cluster", "old"])
def test_index_lookups_agree_with_the_entries(directory: OpenDirectory, archive: str) -> None:
    """2.8 followed another rule for its entries: position of an append's first batch, last offset of its last one."""
    asked_for = 0
    for tp, log in directory(archive).logs.items():
        for segment, said in zip(log.segments, recorded(archive)["partitions"][str(tp)]["segments"], strict=True):
            base, index, times = segment.base_offset, segment.index, segment.time_index
            offsets = [entry[0] for entry in said["index"]]
            for offset in {target + step for target in [base, *offsets] for step in (-1, 0, 1)}:
                at = bisect_right(offsets, offset)
                assert list(index.lookup(offset)) == (said["index"][at - 1] if at else [base, 0])
                asked_for += 1
            stamps = [entry[0] for entry in said["timeindex"]]
            for stamp in {target + step for target in stamps for step in (-1, 0, 1)}:
                at = bisect_right(stamps, stamp)
                assert list(times.lookup(stamp)) == (said["timeindex"][at - 1] if at else [-1, base])
                asked_for += 1
    assert asked_for > {"cluster": 3_500, "old": 1_400}[archive]


def test_rebuilt_indexes_have_kafkas_bytes(directory: OpenDirectory) -> None:
    """Vectors' README, index and time index rule; indexes of cleaned logs follow the cleaner's chunks instead."""
    compared = 0
    for log in directory("cluster").logs.values():
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
