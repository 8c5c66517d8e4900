"""For every file that Kafka wrote, the dump agrees with Kafka's DumpLogSegments and record classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from storage.dump.dump_events import (
    AbortedFound,
    BatchFound,
    DumpFinding,
    EpochFound,
    Event,
    LogSummed,
    OffsetEntryFound,
    OffsetFound,
    ProducerFound,
    RecordFound,
    TimeEntryFound,
)
from tests.storage.dumped import command, damage, events, of
from tests.storage.kafka_vectors import ROOTS, recorded, starts, unpack
from tests.storage.kafka_vectors import damage as edit


@pytest.fixture(scope="module", params=list(ROOTS))
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A log directory written by Kafka, and the output of Kafka's tools."""
    return unpack(request.param, tmp_path_factory.mktemp(request.param)), recorded(request.param)


@pytest.fixture(scope="module")
def dumped(kafka: tuple[Path, dict[str, Any]]) -> list[Event]:
    return events(kafka[0], records=True)


def test_an_undamaged_directory_has_no_finding(dumped: list[Event]) -> None:
    assert damage(dumped) == []


def test_every_batch_and_record_equals_kafkas_reading(kafka: tuple[Path, dict[str, Any]], dumped: list[Event]) -> None:
    root, said = kafka
    batches: dict[str, list[dict[str, Any]]] = {}
    for event in dumped:
        if isinstance(event, BatchFound):
            batches.setdefault(event.path, []).append(as_kafka_tells(event))
        elif isinstance(event, RecordFound):
            batches[event.path][-1]["records"].append(record_as_kafka_tells(event))
    compared = 0
    for partition, log in said["partitions"].items():
        for segment in log["segments"]:
            path = f"{root}/{partition}/{segment['baseOffset']:020d}.log"
            assert batches.pop(path, []) == segment["batches"], path
            compared += len(segment["batches"])
        for name, wanted in (log.get("raftSnapshots") or {}).items():
            assert batches.pop(f"{root}/{partition}/{name}") == wanted, name
    assert list(batches) in ([], [f"{root}/bootstrap.checkpoint"]), "Kafka's tools did not read that one"
    assert compared > 400


def as_kafka_tells(batch: BatchFound) -> dict[str, Any]:
    found: dict[str, Any] = {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "position": batch.position,
        "size": batch.size,
        "magic": batch.magic,
        "crc": batch.crc,
        "codec": batch.codec,
        "isvalid": batch.crc_ok,
        "timestampType": batch.timestamp_type,
        "maxTimestamp": batch.max_timestamp,
        "records": [],
    }
    if batch.magic == 2:
        found |= {
            "count": batch.count,
            "producerId": batch.producer_id,
            "producerEpoch": batch.producer_epoch,
            "baseSequence": batch.base_sequence,
            "lastSequence": batch.last_sequence,
            "partitionLeaderEpoch": batch.leader_epoch,
            "isTransactional": batch.is_transactional,
            "isControl": batch.is_control,
            "deleteHorizonMs": batch.delete_horizon_ms,
        }
    return found


def record_as_kafka_tells(record: RecordFound) -> list[Any]:
    headers = [[name, in_hex(value)] for name, value in record.headers]
    found = [record.offset, record.timestamp, record.sequence, in_hex(record.key), in_hex(record.value), headers]
    return found + [extra for extra in (record.control, record.coordinator_epoch) if extra is not None]


def in_hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def test_every_index_entry_equals_kafkas_reading(kafka: tuple[Path, dict[str, Any]], dumped: list[Event]) -> None:
    root, said = kafka
    found: dict[str, list[list[int]]] = {}
    for event in dumped:
        if isinstance(event, OffsetEntryFound):
            found.setdefault(event.path, []).append([event.offset, event.position])
        elif isinstance(event, TimeEntryFound):
            found.setdefault(event.path, []).append([event.timestamp, event.offset])
        elif isinstance(event, AbortedFound):
            fields = [event.version, event.producer_id, event.first_offset, event.last_offset]
            found.setdefault(event.path, []).append([*fields, event.last_stable_offset])
    for partition, log in said["partitions"].items():
        for segment in log["segments"]:
            for suffix in ("index", "timeindex", "txnindex"):
                path = f"{root}/{partition}/{segment['baseOffset']:020d}.{suffix}"
                assert found.pop(path, []) == segment.get(suffix, []), path
    assert found == {}


def test_snapshots_epochs_and_checkpoints_equal_kafkas_reading(
    kafka: tuple[Path, dict[str, Any]], dumped: list[Event]
) -> None:
    root, said = kafka
    producers: dict[str, list[dict[str, Any]]] = {}
    for producer in of(ProducerFound, dumped):
        producers.setdefault(producer.path, []).append(producer_as_kafka_tells(producer))
    epochs: dict[str, list[list[int]]] = {}
    for entry in of(EpochFound, dumped):
        epochs.setdefault(entry.path, []).append([entry.epoch, entry.start_offset])
    for partition, log in said["partitions"].items():
        for name, wanted in (log["snapshots"] or {}).items():
            wanted = sorted(wanted, key=lambda producer: producer["producerId"])
            assert producers.pop(f"{root}/{partition}/{name}", []) == wanted, (partition, name)
        assert epochs.get(f"{root}/{partition}/leader-epoch-checkpoint", []) == (log["leaderEpochs"] or [])
    assert producers == {}
    for name, lines in said["checkpoints"].items():
        found = [[line.topic, line.partition, line.offset] for line in of(OffsetFound, dumped) if name in line.path]
        assert sorted(found) == sorted(lines), name


def producer_as_kafka_tells(producer: ProducerFound) -> dict[str, Any]:
    found: dict[str, Any] = {
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "currentTxnFirstOffset": producer.current_txn_first_offset,
        "lastTimestamp": producer.timestamp,
    }
    if producer.last_offset is not None:
        found |= {
            "firstSequence": producer.first_sequence,
            "lastSequence": producer.last_sequence,
            "lastOffset": producer.last_offset,
            "offsetDelta": producer.offset_delta,
            "timestamp": producer.timestamp,
        }
    return found


def test_the_sums_equal_the_brokers_answers(kafka: tuple[Path, dict[str, Any]], dumped: list[Event]) -> None:
    sums = {Path(log.path).name: log for log in of(LogSummed, dumped)}
    asked = 0
    for partition, log in kafka[1]["partitions"].items():
        assert sums[partition].segments == len(log["segments"])
        before = log.get("beforeShutdown")
        if before:
            found = sums[partition]
            assert (found.log_start_offset, found.log_end_offset) == (before["logStartOffset"], before["highWatermark"])
            asked += 1
    assert asked > 20 or "killed" in str(kafka[0])


def test_the_command_prints_text_and_json(kafka: tuple[Path, dict[str, Any]]) -> None:
    """Every line of `--json` is an object with a type, the last one is the summary; both forms have the same counts."""
    code, text = command("--findings", kafka[0])
    assert code == 0
    assert "No damage found" in text
    code, lines = command("--json", "--records", kafka[0])
    objects = [json.loads(line) for line in lines.splitlines()]
    assert code == 0
    assert objects[-1]["type"] == "summary"
    assert objects[-1]["damage"] == 0
    batches = [found for found in objects if found["type"] == "batch"]
    assert sum(found["count"] or 0 for found in batches) == sum(found["type"] == "record" for found in objects)
    assert len(batches) >= sum(
        len(segment["batches"]) for log in kafka[1]["partitions"].values() for segment in log["segments"]
    )


UNSEEN = {
    "snapshots-deleted": "they are derived, and may be missing",
    "zeros-cut-off": "there is nothing behind the batches any more",
    "active-segment-lost": "nothing in it was known to be durable",
    "log-emptied": "nothing in it was known to be durable",
}
"""Planned damages without a visible effect."""


@pytest.fixture(scope="module")
def undamaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, set[tuple[str, str]]]]:
    """The findings in the undamaged directories."""
    root = tmp_path_factory.mktemp("undamaged")
    return {archive: found_in(unpack(archive, root)) for archive in ("unclean", "old")}


@pytest.mark.parametrize(("archive", "name"), list(starts()), ids=str)
def test_every_planned_damage_is_reported_for_its_log_only(
    archive: str, name: str, undamaged: dict[str, dict[str, set[tuple[str, str]]]], tmp_path: Path
) -> None:
    """The directories on which Kafka's own recovery was tried. Damage below the recovery point is damage; above it, it
    is a torn write, and a note."""
    start = starts()[archive, name]
    before = undamaged[archive]
    root = unpack(archive, tmp_path)
    edit(root, start.all_edits())
    after = found_in(root)
    for partition, case in start.partitions.items():
        if not case["edits"] or case["case"] in UNSEEN:
            assert len(after[partition]) <= len(before[partition]), (partition, case["case"])
        else:
            new = after[partition] - before[partition]
            assert new, (partition, case["case"])
        if case["case"] == "before-recovery-point-byte-flipped":
            assert any(severity == "damage" and "checksum" in cause for severity, cause in after[partition])


def found_in(root: Path) -> dict[str, set[tuple[str, str]]]:
    """Severity and cause of all findings by partition, except files that wait to be deleted."""
    found = events(root)
    recorded_of: dict[str, set[tuple[str, str]]] = {Path(log.path).name: set() for log in of(LogSummed, found)}
    for finding in of(DumpFinding, found):
        partition = next((name for name in recorded_of if f"/{name}/" in f"{finding.path}/"), None)
        if partition is not None and ".deleted" not in finding.cause:
            recorded_of[partition].add((finding.severity.value, finding.cause.replace(str(root), "")))
    return recorded_of
