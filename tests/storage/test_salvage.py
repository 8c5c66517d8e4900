"""Removing the lost records from a damaged log, on real files: a copy stays complete, and every readable record
stays."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from storage.directory.lost_records import remove_lost_records
from storage.dump.dump_events import BatchFound
from storage.dump.walk import dump
from storage.files.os_files import OsFiles
from storage.log.log import Log
from tests.fakes.log_start import delete_records
from tests.storage.watched_executor import Elsewhere
from tests.storage.workbench import SMALL, Bench, Deferred, batch
from tidelog.errors import DiskFull, TidelogError
from tidelog.records import iter_batches
from tidelog.types import LeaderEpoch, Offset

ROOMY = replace(SMALL, segment_bytes=1 << 20)
"""All in one segment."""
MANY = replace(SMALL, segment_bytes=8_000)
PER_BATCH = 300
BATCHES = 20


def bench_of(tmp_path: Path, config: object = ROOMY) -> Bench:
    """6,000 records, all fsynced, in batches of three hundred."""
    bench = Bench(config, files=OsFiles(), path=f"{tmp_path}/data")  # type: ignore[arg-type]
    for number in range(BATCHES):
        bench.lead(*(b"%d" % (number * PER_BATCH + each) for each in range(PER_BATCH)))
    bench.commit()
    assert bench.log.durable_offset == BATCHES * PER_BATCH
    return bench


def position_of(log: Log, offset: int) -> tuple[Path, int, int]:
    """The file of a batch, and the batch's first and last byte in it."""
    segment = next(each for each in reversed(log.segments) if each.base_offset <= offset)
    header = segment.find(Offset(offset))
    assert header is not None
    return Path(segment.path), header.position, header.end


def damaged(bench: Bench, offset: int, byte: int, value: bytes) -> None:
    """Change a byte of a batch while the process is stopped."""
    path, position, end = position_of(bench.log, offset)
    bench.directory.close()
    data = bytearray(path.read_bytes())
    at = (position if byte >= 0 else end) + byte
    assert data[at : at + len(value)] != value
    data[at : at + len(value)] = value
    path.write_bytes(data)
    bench.reopen()
    assert bench.log.damage is not None


def files_of(directory: str) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in Path(directory).iterdir() if each.suffix == ".log"}


def given_up(bench: Bench) -> str | TidelogError:
    """Remove the lost records. Returns the path of the copy, or the error."""
    reported: list[tuple[Log, str | TidelogError]] = []
    remove_lost_records(bench.directory, bench.log, lambda log, outcome: reported.append((log, outcome)))
    ((bench.log, outcome),) = reported
    return outcome


def offsets(bench: Bench) -> list[int]:
    return [record.offset for data in bench.contents() for each in iter_batches(data) for record in each.records()]


def but(first: int, count: int = PER_BATCH) -> list[int]:
    return [offset for offset in range(BATCHES * PER_BATCH) if not first <= offset < first + count]


HEADER = b"\x55" * 60
"""The batch's header is overwritten."""


@pytest.mark.parametrize("config", [ROOMY, MANY], ids=["one segment", "many segments"])
@pytest.mark.parametrize(
    ("offset", "byte", "value"),
    [(0, 0, HEADER), (0, -3, b"??"), (3_000, -3, b"??"), (3_000, 0, HEADER), (5_700, -3, b"??"), (5_700, 0, HEADER)],
)
def test_one_batch_is_removed_and_no_other(
    tmp_path: Path, config: object, offset: int, byte: int, value: bytes
) -> None:
    bench = bench_of(tmp_path, config)
    damaged(bench, offset, byte, value)
    before = files_of(bench.log.path)
    copy = given_up(bench)
    assert isinstance(copy, str)
    assert copy.endswith("-stray")
    assert files_of(copy) == before, "the copy is complete"
    assert bench.log.damage is None
    left = but(offset)
    assert offsets(bench) == left
    assert (bench.log.log_end_offset, bench.log.durable_offset) == (left[-1] + 1,) * 2
    bench.log.append(batch(b"on"), assign_offsets=True, leader_epoch=LeaderEpoch(1))
    bench.commit()
    assert files_of(copy) == before, "appends do not change the copy"
    for again in (bench.reopen, bench.restart_clean):
        if again == bench.reopen:
            bench.directory.close()
        again()
        assert bench.log.damage is None
        assert offsets(bench) == [*left, left[-1] + 1]


def test_the_dump_tool_reads_the_copy(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    damaged(bench, 0, 0, HEADER)
    copy = given_up(bench)
    assert isinstance(copy, str)
    found = [event for event in dump(OsFiles(), copy, records=False) if isinstance(event, BatchFound)]
    assert found[-1].last_offset == BATCHES * PER_BATCH - 1


def test_the_loss_is_reported_before_and_nothing_is_written(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    damaged(bench, 3_000, 0, HEADER)
    names, before = sorted(Path(bench.directory.path).iterdir()), files_of(bench.log.path)
    salvage = bench.directory.salvage(bench.log)
    salvage.search()
    assert (salvage.end, [str(lost) for lost in salvage.lost]) == (6_000, ["3000..3299"])
    assert (sorted(Path(bench.directory.path).iterdir()), files_of(bench.log.path)) == (names, before)


def test_a_lost_tail_is_reported_too(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    path, position, _ = position_of(bench.log, 5_700)
    bench.directory.close()
    path.write_bytes(path.read_bytes()[:position])
    bench.reopen()
    salvage = bench.directory.salvage(bench.log)
    salvage.search()
    assert (salvage.end, [str(lost) for lost in salvage.lost]) == (5_700, ["5700..5999"])
    given_up(bench)
    assert (bench.log.damage, bench.log.log_end_offset) == (None, 5_700)


def test_sound_closed_segments_share_their_space_with_the_copy(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, MANY)
    damaged(bench, 3_000, -3, b"??")
    copy = given_up(bench)
    sound = Path(bench.log.segments[0].path)
    assert sound.samefile(f"{copy}/{sound.name}")
    active = Path(bench.log.active.path)
    assert not active.samefile(f"{copy}/{active.name}"), "it is appended to"


def test_a_full_disk_removes_no_record() -> None:
    bench = Bench(SMALL)
    for number in range(60):
        bench.lead(b"value %d" % number)
    bench.commit()
    bench.disk.flip_bit(bench.log.active.path, bench.log.active.size - 2)
    bench.kill()
    logs = [f"{bench.log.path}/{name}" for name in bench.disk.list(bench.log.path) if name.endswith(".log")]
    before = [bench.disk.size(path) for path in logs]
    bench.disk.capacity = bench.disk.used
    assert isinstance(given_up(bench), DiskFull)
    assert bench.log.damage is not None
    assert [bench.disk.size(path) for path in logs] == before
    assert not [name for name in bench.disk.list("/data") if name.endswith("-stray")], "no partial copy is left"
    bench.disk.capacity = None
    assert isinstance(given_up(bench), str)
    assert bench.log.damage is None


@pytest.mark.parametrize("seed", range(4))
def test_power_may_fail_at_any_call(seed: int) -> None:
    """The log is as damaged as before, or repaired; the copy, or the log itself, has all previous records."""

    def story(crash_at: int | None) -> tuple[Bench, int]:
        bench = Bench(SMALL, seed=seed)
        for number in range(40):
            bench.lead(b"value %d" % number)
        bench.commit()
        segment = bench.log.segments[1]
        bench.disk.flip_bit(segment.path, segment.size - 2)
        bench.kill()
        assert bench.log.damage is not None
        begun = bench.disk.calls
        if crash_at is not None:
            bench.disk.crash_at_call(begun + crash_at)
        return bench, begun

    whole, begun = story(None)
    given_up(whole)
    calls = whole.disk.calls - begun
    wanted = whole.contents()
    assert 20 < calls < 500
    for number in range(1 + seed, calls, 4):
        bench, _ = story(number)
        with pytest.raises(BaseException, match="in "):
            given_up(bench)
        bench.crash()
        bench.directory.rng = random.Random(number)
        if bench.log.damage is not None:
            assert isinstance(given_up(bench), str)
        assert bench.contents() == wanted, f"power failed at call {number}"


def test_the_owners_thread_does_not_wait() -> None:
    """Reading and copying run on the executor; the log is closed meanwhile, and no clean stop is recorded."""
    executor = Deferred()
    bench = Bench(SMALL, executor=executor)
    reported: list[Log] = []
    remove_lost_records(bench.directory, bench.log, lambda log, _outcome: reported.append(log))
    executor.waiting.pop()  # the process ends before it is done
    assert (reported, bench.log.closed, bench.directory.logs) == ([], True, {})
    bench.directory.close_clean()
    assert not bench.open_directory().identity.was_clean


def test_the_batch_that_contains_the_log_start_stays(tmp_path: Path) -> None:
    """The epochs of deleted records are removed, so the epoch file has no entry for the batch's base offset."""
    bench = Bench(MANY, files=OsFiles(), path=f"{tmp_path}/data")
    for number in range(BATCHES):
        if number == BATCHES // 2:
            bench.commit()
            bench.log.advance_high_watermark(bench.log.log_end_offset)
            delete_records(bench.log, Offset(450))
            bench.directory.write_checkpoints()  # no later start reads the batches below
        bench.lead(*(b"%d" % (number * PER_BATCH + each) for each in range(PER_BATCH)))
    bench.commit()
    damaged(bench, 5_700, 0, HEADER)
    assert bench.log.epochs.entries[0].start_offset == bench.log.log_start_offset == 450
    assert isinstance(given_up(bench), str)
    assert [offset for offset in offsets(bench) if offset >= 450] == [*range(450, 5_700)]


def test_segments_that_are_being_removed_are_renamed_before_anything_is_read(tmp_path: Path) -> None:
    """Another thread renames their files: a file that disappeared meanwhile was taken for a disk failure."""
    bench = bench_of(tmp_path, MANY)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    damaged(bench, 5_700, 0, HEADER)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    delete_records(bench.log, Offset(2_000))
    bench.directory.executor = renaming = Deferred()
    bench.directory.drop_before(bench.log, Offset(2_000))
    assert bench.log.front.leaving is not None
    reported: list[Log] = []
    remove_lost_records(bench.directory, bench.log, lambda log, _outcome: reported.append(log))
    assert reported == []
    renaming.run_all()
    (log,) = reported
    assert bench.directory.offline is None
    assert all(Path(segment.path).exists() for segment in log.segments)


def test_the_owners_thread_waits_for_no_disk_while_a_log_is_repaired() -> None:
    """The owner's thread loaded the log again, which reads all rewritten segments."""
    executor = Elsewhere()
    bench = Bench(SMALL, executor=executor)
    for number in range(60):
        bench.lead(b"value %d" % number)
    bench.commit()
    executor.run_all()
    bench.disk.flip_bit(bench.log.active.path, bench.log.active.size - 2)
    bench.kill()
    executor.run_all()
    assert bench.log.damage is not None
    reported: list[str | TidelogError] = []
    owners: list[str] = []
    bench.disk.on_call = lambda operation: None if executor.at_work else owners.append(operation)
    remove_lost_records(bench.directory, bench.log, lambda _, outcome: reported.append(outcome))
    executor.run_all()
    bench.disk.on_call = None
    assert isinstance(reported[0], str)
    assert set(owners) <= {"write"}, "the durable-offset mark, into the page cache"
