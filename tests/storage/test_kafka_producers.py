"""Producers and transactions from the batches of Kafka's brokers: cluster and unclean of the vectors.

Kafka's batches are appended one by one to a Tidelog log, as a follower does. Logs that the cleaner or a moved log start
has changed are left out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from storage.directory.log_directory import LogDirectory
from storage.files.file_system import read_file
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tests.storage.kafka_producers import files_of, recorded_of
from tests.storage.workbench import NOW, TOPIC_ID, SetClock
from tidelog.records import iter_batches
from tidelog.records.producer_snapshot import decode_snapshot
from tidelog.types import LeaderEpoch, PartitionIndex, TopicPartition

CHANGED = ("compacted", "trimmed", "retained", "expired", "__cluster_metadata", "warm")
"""Topics whose segments differ from what was appended; the metadata log has no producers."""


def partitions(directory: str) -> list[str]:
    return [name for name in recorded_of(directory) if not name.startswith(CHANGED)]


def config_of(recorded: dict[str, Any]) -> LogConfig:
    settings = recorded["config"] or {}
    return LogConfig(
        segment_bytes=int(settings.get("internal.segment.bytes", settings.get("segment.bytes", 1 << 30))),
        segment_ms=int(settings.get("segment.ms", 604_800_000)),
        index_interval_bytes=int(settings.get("index.interval.bytes", 4096)),
        segment_index_bytes=int(settings.get("segment.index.bytes", 10 << 20)),
    )


def batches_of(directory: str, name: str) -> list[bytes]:
    found = []
    for segment in recorded_of(directory)[name]["segments"]:
        data = files_of(directory)[f"{name}/{segment['baseOffset']:020d}.log"]
        found += [data[batch["position"] : batch["position"] + batch["size"]] for batch in segment["batches"]]
    return found


def follow(directory: str, name: str) -> Log:
    """A Tidelog log with all batches of Kafka's log."""
    topic, _, partition = name.rpartition("-")
    disk, clock = FakeDisk(), SetClock(NOW)
    ours = LogDirectory("/data", files=disk, clock=clock, rng=random.Random(1))
    log = ours.create_log(
        TopicPartition(topic, PartitionIndex(int(partition))), TOPIC_ID, config_of(recorded_of(directory)[name])
    )
    for batch in batches_of(directory, name):
        log.append(batch, assign_offsets=False, leader_epoch=LeaderEpoch(0))
    log.advance_high_watermark(log.log_end_offset)
    return log


def ranges(offsets: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for offset in offsets:
        if found and found[-1][1] == offset - 1:
            found[-1][1] = offset
        else:
            found.append([offset, offset])
    return found


def visible(log: Log, isolation: FetchIsolation) -> list[list[int]]:
    """Ranges of the offsets of data records that Kafka's consumer would return."""
    found: list[int] = []
    offset = log.log_start_offset
    while True:
        read = log.fetch(offset, 3_000, isolation)
        if not len(read.records):
            return ranges(found)
        waiting, hidden = list(read.aborted), set()
        for batch in iter_batches(read.records):
            while waiting and waiting[0].first_offset <= batch.last_offset:
                hidden.add(waiting.pop(0).producer_id)
            if batch.is_control:
                hidden.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in hidden):
                found += [record.offset for record in batch.records() if record.offset >= offset]
        offset = read.next_offset


@pytest.mark.parametrize("directory", ["cluster", "unclean"])
def test_snapshots_and_transaction_indexes_equal_kafkas(directory: str) -> None:
    snapshots = indexes = 0
    for name in partitions(directory):
        log, recorded = follow(directory, name), recorded_of(directory)[name]
        assert [segment.base_offset for segment in log.segments] == [s["baseOffset"] for s in recorded["segments"]], (
            name
        )
        if directory == "cluster":
            log.close()
        for file in sorted(recorded["snapshots"]):
            ours = decode_snapshot(read_file(log.files, f"{log.path}/{file}") or b"", file)
            kafkas = decode_snapshot(files_of(directory)[f"{name}/{file}"], file)
            assert sorted(ours) == sorted(kafkas), f"{name}/{file}"
            snapshots += 1
        assert {n for n in log.files.list(log.path) if n.endswith(".snapshot")} == set(recorded["snapshots"]), name
        for segment in recorded["segments"]:
            index = f"{segment['baseOffset']:020d}.txnindex"
            kafkas_index = files_of(directory).get(f"{name}/{index}")
            assert read_file(log.files, f"{log.path}/{index}") == (kafkas_index or None), f"{name}/{index}"
            indexes += bool(kafkas_index)
    assert snapshots > 20 and indexes > 5


def _producer_id(state: dict[str, int]) -> int:
    return state["producerId"]


def test_the_producers_equal_those_of_the_running_broker() -> None:
    compared = 0
    for name in partitions("cluster"):
        before = recorded_of("cluster")[name].get("beforeShutdown")
        if not before:
            continue
        log = follow("cluster", name)
        states = [
            {
                "producerId": state.producer_id,
                "producerEpoch": state.epoch,
                "lastSequence": state.last_sequence,
                "lastTimestamp": state.last_timestamp,
                "coordinatorEpoch": state.coordinator_epoch,
                "currentTransactionStartOffset": state.transaction_start,
            }
            for state in log.producers.state.active_producers()
        ]
        theirs: list[dict[str, int]] = before["producerStates"]
        assert sorted(states, key=_producer_id) == sorted(theirs, key=_producer_id), name
        assert log.last_stable_offset == before["lastStableOffset"], name
        assert visible(log, FetchIsolation.HIGH_WATERMARK) == before["visible"]["read_uncommitted"], name
        assert visible(log, FetchIsolation.LAST_STABLE_OFFSET) == before["visible"]["read_committed"], name
        compared += 1
    assert compared == 28
