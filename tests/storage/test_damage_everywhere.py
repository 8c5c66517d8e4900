"""Every byte of a small log directory is flipped, every file is removed or truncated in turn: the log opens with the
right data, or reports precisely what is lost (scenario 8, as far as one log shows it).

A reader receives what was written, or a batch that fails its checksum. (A wrong leader epoch harms no reader; recovery
and the scrub report it.) Missing records are in `Log.damage`. Records of aborted transactions are never returned. The
loss of a redundant file has no effect."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest

from storage.append_info import Origin
from storage.checkpoints.checkpoint_file import RECOVERY_POINT_CHECKPOINT
from storage.checkpoints.durable_offsets import DURABLE_MARKS
from storage.directory.log_directory import LogDirectory
from storage.files.file_system import read_file, write_file
from storage.log.log import Log
from testbed.fake_disk import FakeDisk
from tests.fakes.log_start import latest_epoch
from tests.storage.kafka_vectors import READ_COMMITTED, consume
from tests.storage.workbench import NOW, SMALL, TP, Bench, SetClock, batch
from tidelog.errors import CorruptLog, CorruptRecord
from tidelog.records import EndTxnMarker, RecordBatch, RecordBatchBuilder, control_batch, iter_batches
from tidelog.types import LeaderEpoch, Offset

CONFIG = replace(SMALL, segment_bytes=600, index_interval_bytes=100, segment_index_bytes=96)
DIRECTORY = "/data/orders-0"
READ_BYTES = 4096
"""Size of a read: more than one batch, so that the chain between batches is checked."""


@dataclass(frozen=True)
class Written:
    """A stopped log and its contents. batches: by first offset."""

    disk: FakeDisk
    batches: dict[int, bytes]
    end: int
    committed: frozenset[int]
    durable: bool
    """True if all of it had been reported as durable."""


def fill(bench: Bench) -> None:
    """Plain batches, idempotent ones, transactions that commit, abort and stay open, three epochs, several segments."""
    sequences: dict[int, int] = {}

    def send(producer: int, count: int, *, txn: bool) -> None:
        first = sequences.get(producer, 0)
        sequences[producer] = first + count
        builder = RecordBatchBuilder(producer_id=producer, producer_epoch=0, base_sequence=first, is_transactional=txn)
        for i in range(count):
            builder.append(key=b"k", value=b"%d of %d" % (i, producer), timestamp=NOW + first)
        append(builder.build())

    def end(producer: int, *, commit: bool) -> None:
        marker = EndTxnMarker(committed=commit, coordinator_epoch=0)
        append(control_batch(marker, timestamp=NOW, producer_id=producer, producer_epoch=0), Origin.COORDINATOR)

    def append(data: bytes, origin: Origin = Origin.CLIENT) -> None:
        bench.log.append(data, assign_offsets=True, leader_epoch=latest_epoch(bench.log), origin=origin)

    for epoch in (0, 2, 3):
        bench.log.begin_epoch(LeaderEpoch(epoch))
        append(batch(b"plain", b"plain too", timestamp=NOW + 10 * epoch))
        send(1, 2, txn=False)
        send(10 + epoch, 2, txn=True)
        send(20 + epoch, 1, txn=True)
        end(10 + epoch, commit=False)
        append(batch(b"between", timestamp=NOW + 10 * epoch + 1))
        end(20 + epoch, commit=True)
    send(30, 1, txn=True)
    append(batch(b"behind an open transaction"))


@cache
def written(state: str) -> Written:
    bench = Bench(CONFIG)
    fill(bench)
    log = bench.log
    if state != "torn":
        log.flush()
        bench.directory.write_checkpoints()
    log.advance_high_watermark(log.log_end_offset)
    batches = {int(found.base_offset): bytes(data) for data in bench.contents() for found in iter_batches(data)}
    committed = frozenset(consume(log, READ_COMMITTED).offsets)
    end = log.log_end_offset
    assert len(log.segments) > 2
    if state == "clean":
        bench.directory.close_clean()
    else:
        bench.disk.kill()
    if state == "torn":
        write_file(bench.disk, f"/data/{DURABLE_MARKS}", b"")
    return Written(bench.disk, batches, end, committed, durable=state != "torn")


def open_log(disk: FakeDisk) -> tuple[LogDirectory, Log]:
    directory = LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(1))
    return directory, directory.load_logs(lambda _tp, _id: CONFIG)[TP]


def judge(disk: FakeDisk, was: Written) -> None:
    """Check that the remaining records are right, and that the lost ones are reported."""
    directory, log = open_log(disk)
    read: set[int] = set()
    rotten: set[int] = set()
    for base, data in was.batches.items():
        offsets = range(base, RecordBatch(data).last_offset + 1)
        if not log.log_start_offset <= base < log.log_end_offset:
            continue
        try:
            found = bytes(log.read(Offset(base), READ_BYTES, up_to=log.log_end_offset).records)[: len(data)]
        except CorruptLog:
            assert log.damage is not None
            assert log.damage.at(Offset(base)) is not None
            continue
        try:
            RecordBatch(found).ensure_valid()
        except CorruptRecord:
            rotten.update(offsets)  # below the recovery point: a reader finds it
            continue
        if not was.durable and base == max(was.batches) and found[8:] == data[8:]:
            continue  # the last one, not durable yet: nothing shows where it belongs
        assert found[:12] + found[16:] == data[:12] + data[16:], f"offset {base} differs from what was written"
        read.update(offsets)
    lost = set(range(was.end)) - read - rotten
    reported = set() if log.damage is None else {offset for offset in lost if log.damage.at(Offset(offset)) is not None}
    if was.durable:
        assert lost == reported, f"lost and not reported: {sorted(lost - reported)}"
    else:
        assert not read or lost == set(range(max(read) + 1, was.end)), (
            "above the durable offset, the end may be truncated"
        )
    log.advance_high_watermark(log.log_end_offset)
    shown = set(consume(log, READ_COMMITTED).offsets)
    assert shown <= was.committed, f"returned although aborted or undecided: {sorted(shown - was.committed)}"
    if log.damage is None and not rotten and not lost:
        assert shown == was.committed
    directory.close()


def files(was: Written) -> Iterator[tuple[str, bytes]]:
    """Every file with data of the log, and its contents; index files without the zeros after their entries."""
    paths = [f"{DIRECTORY}/{name}" for name in was.disk.list(DIRECTORY) if name != "partition.metadata"]
    for path in [*paths, f"/data/{DURABLE_MARKS}"]:
        data = read_file(was.disk, path)
        if data is not None:
            yield path, data


STATES = ["clean", "killed", "torn"]


@pytest.mark.parametrize("state", STATES)
def test_an_undamaged_log_is_complete(state: str) -> None:
    was = written(state)
    disk = was.disk.twin()
    judge(disk, was)
    assert len(was.committed) > 10
    assert set(range(was.end)) - was.committed, "some transactions are aborted, some undecided"


each_kind_of_file = pytest.mark.parametrize(
    "kind", [".log", ".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint", DURABLE_MARKS]
)


@pytest.mark.parametrize("state", STATES)
@each_kind_of_file
def test_any_byte_may_be_corrupt(state: str, kind: str) -> None:
    """Each byte in one of the states: batches and entries repeat their fields, so that each state has them all."""
    flip_bytes(state, kind, STATES.index(state), len(STATES))


@pytest.mark.deep
@pytest.mark.parametrize("state", STATES)
@each_kind_of_file
def test_any_byte_may_be_corrupt_in_each_state(state: str, kind: str) -> None:
    flip_bytes(state, kind, 0, 1)


def flip_bytes(state: str, kind: str, first: int, step: int) -> None:
    """Each step-th byte of the files of a kind, in turn."""
    was = written(state)
    flipped = 0
    for path, data in files(was):
        if path.endswith(kind):
            end = len(data.rstrip(b"\\0")) + 1 if kind.endswith("index") else len(data)
            for position in range(first, end, step):
                disk = was.disk.twin()
                disk.flip_bit(path, position, (position * 5 + len(kind)) % 8)
                try:
                    judge(disk, was)
                except Exception as error:
                    raise AssertionError(f"{state}: byte {position} of {path}: {error}") from error
                flipped += 1
    assert flipped or (state, kind) == ("torn", DURABLE_MARKS)


def shorten(share: float) -> Callable[[FakeDisk, str, bytes], None]:
    return lambda disk, path, data: write_file(disk, path, data[: int(len(data) * share)])


HARMS: dict[str, Callable[[FakeDisk, str, bytes], None]] = {
    "lost": lambda disk, path, _: disk.remove(path),
    "emptied": shorten(0),
    "cut in half": shorten(0.5),
    "cut a little": lambda disk, path, data: write_file(disk, path, data[:-1]),
    "zeros": lambda disk, path, data: write_file(disk, path, bytes(len(data))),
    "zeros behind": lambda disk, path, data: write_file(disk, path, data + bytes(100)),
    "garbage": lambda disk, path, data: write_file(disk, path, random.Random(1).randbytes(len(data))),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("harm", HARMS)
def test_any_file_may_be_lost_or_overwritten(state: str, harm: str) -> None:
    was = written(state)
    for path, data in files(was):
        disk = was.disk.twin()
        HARMS[harm](disk, path, data)
        try:
            judge(disk, was)
        except Exception as error:
            raise AssertionError(f"{state}: {path} {harm}: {error}") from error


@pytest.mark.parametrize("state", STATES)
def test_any_file_may_be_truncated(state: str) -> None:
    """Truncated within each header and at every seventh byte elsewhere: an index at every entry, and within each."""
    was = written(state)
    for path, data in files(was):
        starts = [
            position for position in range(len(data)) if path.endswith(".log") and _begins_batch(was, data, position)
        ]
        lengths = {start + within for start in starts for within in (0, 1, 12, 17, 21, 60, 61)} | set(
            range(0, len(data), 7)
        )
        for length in sorted(length for length in lengths if length < len(data)):
            disk = was.disk.twin()
            write_file(disk, path, data[:length])
            try:
                judge(disk, was)
            except Exception as error:
                raise AssertionError(f"{state}: {path} ends at {length} of {len(data)} bytes: {error}") from error


def test_a_closed_segment_that_lost_its_markers_returns_no_aborted_records() -> None:
    """Truncated between two batches after a clean stop: the remaining batches do not show the abort, the index does."""
    was = written("clean")
    disk = was.disk.twin()
    data = read_file(disk, f"{DIRECTORY}/00000000000000000000.log")
    assert data is not None
    ends = [position for position in range(1, len(data)) if _begins_batch(was, data, position)]
    write_file(disk, f"{DIRECTORY}/00000000000000000000.log", data[: ends[3]])
    judge(disk, was)


def _begins_batch(was: Written, data: bytes, position: int) -> bool:
    base = int.from_bytes(data[position : position + 8])
    return was.batches.get(base, b"?") == data[position : position + len(was.batches.get(base, b"?"))]


@pytest.mark.parametrize("state", STATES)
def test_a_missing_recovery_point_only_costs_time(state: str) -> None:
    was = written(state)
    disk = was.disk.twin()
    if disk.size(f"/data/{RECOVERY_POINT_CHECKPOINT}") is not None:
        disk.remove(f"/data/{RECOVERY_POINT_CHECKPOINT}")
    judge(disk, was)
