"""Files left by a stop in the middle of a cleaning or a deletion, and the result of opening the log.

Covers the applicable cases of Kafka's LogLoaderTest and LogCleanerTest.testRecoveryAfterCrash: each mixture of
`.cleaned`, `.swap` and `.deleted` files, and a stop within the repair itself."""

from __future__ import annotations

import random

import pytest

from storage.files.file_system import write_file
from storage.recovery.interrupted import finish_interrupted
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.storage.workbench import stamped

DIRECTORY = "/data/t-0"
KINDS = (".log", ".index", ".timeindex")


def base(offset: int) -> str:
    return f"{offset:020d}"


def directory(**files: bytes) -> FakeDisk:
    """A directory with these files; `s0_log_swap` is the .log.swap of the segment at offset 0."""
    disk = FakeDisk()
    disk.make_directory(DIRECTORY)
    for name, data in files.items():
        offset, *kinds = name[1:].split("_")
        write_file(disk, f"{DIRECTORY}/{base(int(offset))}.{'.'.join(kinds)}", data)
    disk.sync_directory("/data")
    disk.sync_directory("/")
    return disk


def found(disk: FakeDisk) -> dict[str, bytes]:
    names = {}
    for name in disk.list(DIRECTORY):
        file = disk.open(f"{DIRECTORY}/{name}")
        digits, _, kind = name.partition(".")
        names[f"s{int(digits)}_{kind.replace('.', '_')}"] = file.pread(file.size(), 0)
    return names


OLD = {
    "s0_log": stamped(0),
    "s0_index": b"",
    "s1_log": stamped(1),
    "s1_index": b"",
    "s2_log": stamped(2),
    "s2_index": b"",
}
NEW = stamped(1, b"new")


def test_a_directory_without_such_files_is_unchanged() -> None:
    disk = directory(**OLD)
    calls = disk.calls
    assert finish_interrupted(disk, DIRECTORY) == []
    assert disk.calls == calls + 1, "the names are listed once"
    assert found(disk) == OLD


def test_an_unfinished_cleaned_segment_is_removed() -> None:
    disk = directory(**OLD, s0_log_cleaned=NEW, s0_index_cleaned=b"", s0_txnindex_cleaned=b"")
    assert len(finish_interrupted(disk, DIRECTORY)) == 1
    assert found(disk) == OLD


def test_an_incomplete_cleaned_segment_is_removed_with_its_first_swaps() -> None:
    """The indexes are renamed before the .log: without the .log.swap the segment is incomplete."""
    disk = directory(**OLD, s0_log_cleaned=NEW, s0_index_swap=b"........", s0_timeindex_swap=b"")
    finish_interrupted(disk, DIRECTORY)
    assert found(disk) == OLD


def test_a_complete_cleaned_segment_replaces_all_its_sources() -> None:
    disk = directory(**OLD, s0_log_swap=NEW, s0_index_swap=b"........")
    assert len(finish_interrupted(disk, DIRECTORY)) == 1
    assert found(disk) == {"s0_log": NEW, "s0_index": b"........", "s2_log": stamped(2), "s2_index": b""}


def test_renamed_files_do_not_return() -> None:
    disk = directory(s0_log_swap=NEW, s1_log_deleted=stamped(1), s0_log_deleted=stamped(0), s2_log=stamped(2))
    finish_interrupted(disk, DIRECTORY)
    assert found(disk) == {"s0_log": NEW, "s2_log": stamped(2)}


def test_an_empty_cleaned_segment_replaces_the_one_of_its_name() -> None:
    disk = directory(**OLD, s0_log_swap=b"", s0_index_swap=b"")
    finish_interrupted(disk, DIRECTORY)
    assert found(disk) == {**OLD, "s0_log": b"", "s0_index": b""}


def test_an_index_without_its_log_is_removed() -> None:
    """It may belong to a .log that has its final name, or to one that is gone: a missing index is rebuilt."""
    disk = directory(**OLD, s1_index_swap=b"........")
    finish_interrupted(disk, DIRECTORY)
    assert found(disk) == OLD


def test_half_of_a_split_segment_is_removed() -> None:
    """KAFKA-6264: an older Kafka splits a segment into two, the second of which becomes .swap first."""
    disk = directory(s0_log=stamped(0) + stamped(1), s0_log_cleaned=stamped(0), s1_log_swap=stamped(1))
    finish_interrupted(disk, DIRECTORY)
    assert found(disk) == {"s0_log": stamped(0) + stamped(1)}


def test_both_halves_of_a_split_segment_replace_it() -> None:
    disk = directory(s0_log=stamped(0) + stamped(1), s0_log_swap=stamped(0), s1_log_swap=stamped(1))
    finish_interrupted(disk, DIRECTORY)
    assert found(disk) == {"s0_log": stamped(0), "s1_log": stamped(1)}


def test_other_files_stay() -> None:
    disk = directory(**OLD, s0_snapshot=b"x", s0_snapshot_deleted=b"x", s1_log_stray=b"x", s0_log_swap=NEW)
    write_file(disk, f"{DIRECTORY}/leader-epoch-checkpoint", b"x")
    write_file(disk, f"{DIRECTORY}/00000000000000000000-0000000001.checkpoint.deleted", b"x")
    finish_interrupted(disk, DIRECTORY)
    names = disk.list(DIRECTORY)
    assert "leader-epoch-checkpoint" in names
    assert f"{base(1)}.log.stray" in names
    assert f"{base(0)}.snapshot" in names
    assert f"{base(0)}.snapshot.deleted" not in names
    assert "00000000000000000000-0000000001.checkpoint.deleted" in names, "a file of the metadata log"


def test_a_swap_with_an_unreadable_end_replaces_the_offsets_that_it_contains() -> None:
    disk = directory(**OLD, s0_log_swap=stamped(0) + b"?" * 70)
    finish_interrupted(disk, DIRECTORY)
    assert "s1_log" in found(disk)
    assert "s0_log_swap" not in found(disk)


MIXTURES = {
    "swap": {**OLD, "s0_log_swap": NEW, "s0_index_swap": b"........", "s0_timeindex_swap": b""},
    "half renamed": {"s0_log_deleted": b"", "s1_log": stamped(1), "s0_log_swap": NEW, "s2_log": stamped(2)},
    "cleaned": {**OLD, "s0_log_cleaned": NEW, "s0_index_swap": b"........"},
    "split": {"s0_log": stamped(0) + stamped(1), "s0_log_cleaned": stamped(0), "s1_log_swap": stamped(1)},
}


@pytest.mark.parametrize("mixture", MIXTURES)
def test_a_repair_interrupted_at_any_point_is_completed_later(mixture: str) -> None:
    whole = directory(**MIXTURES[mixture])
    finish_interrupted(whole, DIRECTORY)
    expected = {name: data for name, data in found(whole).items() if name.endswith("_log")}
    crashes = 0
    for seed in range(4):
        call = 0
        while True:
            call += 1
            disk = directory(**MIXTURES[mixture])
            disk.crash_at_call(disk.calls + call)
            try:
                finish_interrupted(disk, DIRECTORY)
                break
            except SimulatedCrash:
                crashes += 1
                disk.crash(random.Random(seed * 1000 + call))
                finish_interrupted(disk, DIRECTORY)
                left = found(disk)
                assert {name: data for name, data in left.items() if name.endswith("_log")} == expected
                assert not [name for name in left if name.endswith(("_swap", "_cleaned", "_deleted"))]
    assert crashes > 10
