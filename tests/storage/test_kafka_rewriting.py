"""Tidelog's writer, given the batches of segments that Kafka wrote, writes the same files, byte for byte.

All logs of `cluster` and `unclean` except compacted ones, whose segments the cleaner wrote. `cluster` was stopped
cleanly; `unclean` was killed, so its open segments have indexes (and one log file) at their full, preallocated size.
Snapshots may have their producers in another order: Kafka's is that of a hash map."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log.log import Log
from tests.fakes.log_start import delete_records, latest_epoch
from tests.storage.kafka_vectors import config_of, partition_of, recorded, recorded_snapshot, snapshot, unpack
from tests.storage.workbench import TOPIC_ID, SetClock
from tidelog.records import iter_batches, stamp
from tidelog.types import LeaderEpoch, Offset

NOW = 1_795_300_000_000
"""After the youngest batch: no timestamp is in the future."""
COMPACTED = ("compacted", "__consumer_offsets", "__transaction_state")
WRITTEN = [
    (archive, name)
    for archive in ("cluster", "unclean")
    for name in recorded(archive)["partitions"]
    if not name.startswith(COMPACTED)
]
LED = ("codec-", "single-", "segments", "default-interval", "index-full", "by-time", "times", "idempotent", "zipped")
"""Topics whose batches a broker stores unchanged."""
Unpacked = Callable[[str], Path]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Unpacked:
    return cache(lambda archive: unpack(archive, tmp_path_factory.mktemp(archive)))


def batches_of(directory: Path, said: dict[str, Any]) -> Iterator[bytes]:
    """Every batch of a log, in order."""
    for segment in said["segments"]:
        data = (directory / f"{segment['baseOffset']:020d}.log").read_bytes()
        for batch in segment["batches"]:
            yield data[batch["position"] : batch["position"] + batch["size"]]


class Rewriting:
    """A Tidelog log that receives Kafka's batches one after the other."""

    def __init__(self, archive: str, name: str, root: Path) -> None:
        self.said = recorded(archive)["partitions"][name]
        self.root = root
        self.directory = LogDirectory(str(root), files=OsFiles(), clock=SetClock(NOW), rng=random.Random(1))
        tp = partition_of(name)
        config = replace(config_of(archive)(tp, TOPIC_ID), compact=False)
        self.log: Log = self.directory.create_log(tp, TOPIC_ID, config)
        first = self.said["segments"][0]["baseOffset"]
        if first:
            self.log.truncate_fully_and_start_at(Offset(first))

    def begin_epochs(self) -> None:
        """The epoch entries of its leader up to this log end."""
        for epoch, start in self.said["leaderEpochs"]:
            if start == self.log.log_end_offset:
                self.log.begin_epoch(LeaderEpoch(epoch))

    def follow(self, batch: bytes) -> None:
        """Append as a follower."""
        self.begin_epochs()
        self.log.append(batch, assign_offsets=False, leader_epoch=latest_epoch(self.log))

    def lead(self, batch: bytes) -> None:
        """Append as a leader."""
        self.begin_epochs()
        sent = bytearray(batch)
        stamp(sent, 0, base_offset=0, leader_epoch=-1)
        self.log.append(sent, assign_offsets=True, leader_epoch=latest_epoch(self.log))

    def stop(self, *, clean: bool) -> Path:
        """Move the log start to Kafka's, and close the log, or leave it as a kill would. Returns its directory."""
        self.begin_epochs()
        log = self.log
        log.advance_high_watermark(log.log_end_offset)
        start = self.said["leaderEpochs"][0][1]
        if start > log.log_start_offset:
            delete_records(log, Offset(start))
        if clean:
            self.directory.close_clean()
        else:
            for index in (log.active.index, log.active.time_index):
                if index.held is not None:  # Kafka creates both files with the segment
                    index.make_writable()
            log.flush()
            self.directory.close()
        return Path(log.path)


def assert_same(directory: Path, archive: str, name: str) -> None:
    """Check that every file of the log equals Kafka's, and that there are no others except those of Tidelog alone."""
    said = recorded(archive)
    prefix = f"{name}/"
    wanted = {path.removeprefix(prefix): facts for path, facts in said["files"].items() if path.startswith(prefix)}
    files = {
        file: facts["sha256"]
        for file, facts in wanted.items()
        if file.endswith((".log", "index", "leader-epoch-checkpoint")) and (facts["size"] or ".txnindex" not in file)
    }
    found = {
        path.name: path for path in directory.iterdir() if path.name.endswith((".log", "index", "epoch-checkpoint"))
    }
    assert {file: hashlib.sha256(path.read_bytes()).hexdigest() for file, path in found.items()} == files
    snapshots = said["partitions"][name]["snapshots"]
    first = said["partitions"][name]["segments"][0]["baseOffset"]  # that one belongs to a segment that is gone
    for file, producers in [item for item in snapshots.items() if int(item[0][:20]) > first]:
        ours = {entry["producerId"]: entry for entry in snapshot(directory / file)}
        theirs = {entry["producerId"]: entry for entry in recorded_snapshot(producers)}
        assert {key: {field: ours[key][field] for field in entry} for key, entry in theirs.items()} == theirs


@pytest.mark.parametrize(("archive", "name"), WRITTEN)
@pytest.mark.usefixtures("indexes_in_files")
def test_a_follower_writes_kafkas_files(tmp_path: Path, unpacked: Unpacked, archive: str, name: str) -> None:
    rewriting = Rewriting(archive, name, tmp_path)
    for batch in batches_of(unpacked(archive) / name, rewriting.said):
        rewriting.follow(batch)
    if (archive, name) == ("unclean", "plain-0"):
        rewriting.log.active.become_inactive()  # the kill happened in a roll, between the old segment and the new one
    assert_same(rewriting.stop(clean=archive == "cluster"), archive, name)


@pytest.mark.parametrize(("archive", "name"), [case for case in WRITTEN if case[1].startswith(LED)])
@pytest.mark.usefixtures("indexes_in_files")
def test_a_leader_writes_kafkas_files(tmp_path: Path, unpacked: Unpacked, archive: str, name: str) -> None:
    """From the batches as the producer sent them: without offset and epoch."""
    rewriting = Rewriting(archive, name, tmp_path)
    for batch in batches_of(unpacked(archive) / name, rewriting.said):
        rewriting.lead(batch)
    assert_same(rewriting.stop(clean=archive == "cluster"), archive, name)


def test_the_logs_contain_every_kind_of_batch(unpacked: Unpacked) -> None:
    """The tests above prove only as much as their logs contain."""
    kinds = set()
    for archive, name in WRITTEN:
        for data in batches_of(unpacked(archive) / name, recorded(archive)["partitions"][name]):
            for batch in iter_batches(data):
                kinds |= {batch.codec.name, batch.timestamp_type.name}
                kinds |= {"control"} if batch.is_control else {"transactional"} if batch.is_transactional else set()
    assert kinds == {
        "NONE",
        "GZIP",
        "SNAPPY",
        "LZ4",
        "ZSTD",
        "CREATE_TIME",
        "LOG_APPEND_TIME",
        "control",
        "transactional",
    }
