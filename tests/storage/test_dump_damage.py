"""The dump explains what is wrong with a directory, file by file, and changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.checkpoints.checkpoint_file import encode_topic_id
from storage.directory.log_directory import LogDirectory
from storage.dump.dump_events import (
    AgreementFound,
    BatchFound,
    DumpFinding,
    Event,
    LogSummed,
    MarkFound,
    OffsetEntryFound,
    PropertyFound,
    Severity,
    TimeEntryFound,
)
from storage.dump.log_file import Read, read_log
from storage.dump.small_files import dump_small
from storage.dump.text import bytes_text, size_text, time_text
from storage.dump.walk import dump
from storage.files.os_files import OsFiles
from storage.segment.agreed_indexes import AGREEMENT_FILE, read_agreements
from testbed.fake_disk import FakeDisk
from tests.storage.dumped import command, damage, events, of
from tests.storage.kafka_vectors import unpack
from tests.storage.producer_batches import eventful
from tests.storage.workbench import SMALL, TOPIC_ID, Bench, stamped
from tidelog.types import NodeId

DUMP = (sys.executable, "-m", "tidelog.cli", "log", "dump")


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("cluster", tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def root(pristine: Path, tmp_path: Path) -> Path:
    """Two logs written by Kafka, with the checkpoints of their log directory, to be damaged."""
    root = tmp_path / "node1"
    for name in ("txn-0", "segments-0", "epochs-0", "compacted-0"):
        shutil.copytree(pristine / name, root / name)
    for file in pristine.iterdir():
        if file.is_file():
            shutil.copy2(file, root / file.name)
    return root


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A Tidelog log directory with a log of several segments."""
    bench = Bench(SMALL, files=OsFiles(), path=str(tmp_path / "data"))
    for number in range(60):
        bench.lead(b"value %d" % number * 5, timestamp=1_700_000_000_000 + number)
    bench.log.flush()
    return bench


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def flip(path: Path, position: int) -> None:
    overwrite(path, position, bytes([path.read_bytes()[position] ^ 0x40]))


def only(found: list[DumpFinding]) -> DumpFinding:
    assert len(found) == 1, found
    return found[0]


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_flipped_byte_is_reported_with_its_batch_and_later_batches_are_read(root: Path) -> None:
    log = root / "segments-0/00000000000000000026.log"
    batches = of(BatchFound, events(log))
    flip(log, batches[2].position + 70)
    found = events(log)
    reported = only(damage(found))
    assert (reported.path, reported.position) == (str(log), batches[2].position)
    assert (reported.first_offset, reported.last_offset) == (batches[2].base_offset, batches[2].last_offset)
    assert "checksum" in reported.cause
    assert [batch.crc_ok for batch in of(BatchFound, found)] == [index != 2 for index in range(len(batches))]


def test_after_an_impossible_length_the_next_whole_batch_is_found(root: Path) -> None:
    log = root / "segments-0/00000000000000000026.log"
    batches = of(BatchFound, events(log))
    overwrite(log, batches[1].position + 8, b"\x7f\xff\xff\xff")
    found = events(log)
    reported = only(damage(found))
    assert (reported.position, reported.first_offset) == (batches[1].position, batches[1].base_offset)
    assert f"{batches[1].size} bytes are no batch" in reported.cause
    assert "batches continue after them" in reported.cause
    assert [batch.position for batch in of(BatchFound, found)] == [
        batch.position for index, batch in enumerate(batches) if index != 1
    ]


def test_an_unknown_magic_is_reported(root: Path) -> None:
    log = root / "segments-0/00000000000000000026.log"
    overwrite(log, 16, b"\x09")
    assert "magic 9" in damage(events(log))[0].cause


def test_a_changed_epoch_is_reported_by_the_cache_although_the_checksum_is_correct(root: Path) -> None:
    directory = root / "epochs-0"
    log = sorted(directory.glob("*.log"))[1]
    batch = of(BatchFound, events(log))[0]
    overwrite(log, 12, (0).to_bytes(4))
    reported = damage(events(directory))
    assert batch.leader_epoch
    assert reported
    assert reported[0].path == str(log)
    assert "epoch 0" in reported[0].cause


def test_a_decreasing_offset_is_reported(root: Path) -> None:
    log = root / "segments-0/00000000000000000026.log"
    batches = of(BatchFound, events(log))
    overwrite(log, batches[2].position, (26).to_bytes(8))
    assert any("begins at offset 26" in reported.cause for reported in damage(events(log)))


def test_a_lost_segment_is_reported_with_its_offsets(root: Path) -> None:
    directory = root / "segments-0"
    first, lost, behind = (int(log.name[:20]) for log in sorted(directory.glob("*.log"))[3:6])
    for file in directory.glob(f"{lost:020d}.*"):
        file.unlink()
    reported = only(damage(events(directory)))
    assert (reported.first_offset, reported.last_offset) == (lost, behind - 1)
    assert "a segment is lost" in reported.cause
    assert first < lost


def test_a_hole_of_compaction_is_no_finding(root: Path) -> None:
    assert damage(events(root / "compacted-0")) == []


def test_a_log_that_lost_durable_records_is_damaged_and_a_torn_tail_is_not(bench: Bench) -> None:
    """The same truncation, once below the recovery point and once above it."""
    log = Path(bench.segment_path)
    end = bench.log.log_end_offset
    bench.directory.close_clean()
    directory = log.parent
    whole = log.read_bytes()
    log.write_bytes(whole[:-10])
    reported = damage(events(directory))
    assert any("everything after them is lost" in finding.cause for finding in reported)
    assert any(finding.last_offset == end - 1 and "was durable" in finding.cause for finding in reported)

    log.write_bytes(whole + whole[:30])
    found = events(directory)
    assert damage(found) == []
    assert any("torn" in finding.cause for finding in of(DumpFinding, found))
    log.write_bytes(whole + bytes(8192))
    found = events(directory)
    assert damage(found) == []
    assert any("8192 bytes of zeros" in finding.cause for finding in of(DumpFinding, found))


# --- indexes and state ----------------------------------------------------------------------------------------------


def test_an_index_entry_inside_a_batch_is_reported_with_its_byte(root: Path) -> None:
    index = root / "segments-0/00000000000000000026.index"
    entries = of(OffsetEntryFound, events(index))
    assert len(entries) == 2
    overwrite(index, 8 + 4, (entries[1].position + 1).to_bytes(4))
    for named in (index, index.parent):
        reported = only(damage(events(named)))
        assert (reported.path, reported.position, reported.first_offset) == (str(index), 8, entries[1].offset)
        assert "no batch begins there" in reported.cause


def test_a_wrong_time_index_is_reported(root: Path) -> None:
    index = root / "segments-0/00000000000000000026.timeindex"
    entries = of(TimeEntryFound, events(index))
    overwrite(index, 0, (entries[0].timestamp + 1).to_bytes(8))
    reported = only(damage(events(index.parent)))
    assert f"the largest timestamp up to there is {entries[0].timestamp}" in reported.cause


def test_an_index_truncated_within_an_entry_is_reported(root: Path) -> None:
    index = root / "segments-0/00000000000000000026.index"
    index.write_bytes(index.read_bytes()[:-3])
    assert "no whole number of entries" in only(damage(events(index.parent))).cause


def test_a_missing_index_is_no_damage_but_a_missing_transaction_index_is(root: Path) -> None:
    """Without the .txnindex, Kafka returns aborted records; the other two only cost time."""
    (root / "segments-0/00000000000000000026.index").unlink()
    found = events(root / "segments-0")
    assert damage(found) == []
    assert any(finding.path.endswith("26.index") for finding in of(DumpFinding, found))

    (root / "txn-0/00000000000000000016.txnindex").unlink()
    reported = only(damage(events(root / "txn-0")))
    assert (reported.first_offset, reported.last_offset) == (30, 34)
    assert "aborted" in reported.cause


def test_a_transaction_index_without_a_matching_marker_is_reported(root: Path) -> None:
    index = root / "txn-0/00000000000000000016.txnindex"
    overwrite(index, 18, (33).to_bytes(8))
    reported = damage(events(index.parent))
    assert any("there is no abort marker" in finding.cause for finding in reported)


def test_an_unreadable_snapshot_checkpoint_and_id_are_reported(root: Path) -> None:
    flip(root / "txn-0/00000000000000000016.snapshot", 20)
    (root / "epochs-0/leader-epoch-checkpoint").write_text("0\n7\n0 0\n")
    (root / "segments-0/partition.metadata").write_text("version: 0\n")
    (root / "replication-offset-checkpoint").write_bytes(b"\0\0\0")
    reported = {Path(finding.path).name: finding.cause for finding in damage(events(root))}
    assert "checksum" in reported["00000000000000000016.snapshot"]
    assert "its line count is wrong" in reported["leader-epoch-checkpoint"]
    assert "topic id" in reported["partition.metadata"]
    assert "checkpoint" in reported["replication-offset-checkpoint"]


def test_the_agreements_of_transaction_indexes_are_read() -> None:
    bench = Bench()
    eventful(bench)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    bench.log.aborted_transactions(bench.log.log_start_offset, bench.log.log_end_offset)
    bench.directory.close_clean()
    path = f"{bench.log.path}/{AGREEMENT_FILE}"
    agreements = read_agreements(bench.disk, bench.log.path)
    assert agreements
    found = list(dump_small(bench.disk, path))
    assert of(AgreementFound, found) == [AgreementFound(path, base, *each) for base, each in sorted(agreements.items())]
    assert of(DumpFinding, found) == []
    bench.disk.flip_bit(path, 5)
    [finding] = of(DumpFinding, list(dump_small(bench.disk, path)))
    assert "checksum" in finding.cause


def test_the_files_of_tidelog_alone_are_reported(bench: Bench) -> None:
    bench.directory.adopt("tide", NodeId(3))
    bench.directory.write_registration(7)
    durable_offset = bench.log.durable_offset
    bench.directory.close_clean()
    found = events(bench.path)
    assert of(MarkFound, found) == [
        MarkFound(f"{bench.path}/held-offset-marks", encode_topic_id(TOPIC_ID), 0, durable_offset)
    ]
    reported = {(Path(found.path).name, found.name): found.value for found in of(PropertyFound, found)}
    assert reported["registration", "registration"] == "7"
    assert reported["meta.properties", "cluster.id"] == "tide"
    assert reported["meta.properties", "node.id"] == "3"
    assert reported[".kafka_cleanshutdown", "brokerEpoch"] == "7"


def test_a_missing_log_is_reported_by_its_mark(bench: Bench) -> None:
    durable_offset = bench.log.durable_offset
    bench.directory.close_clean()
    shutil.rmtree(bench.log.path)
    reported = only(damage(events(bench.path)))
    assert (reported.first_offset, reported.last_offset) == (0, durable_offset - 1)
    assert encode_topic_id(TOPIC_ID) in reported.cause


def test_every_file_of_a_small_log_can_be_truncated_anywhere_and_the_dump_completes(bench: Bench) -> None:
    """No truncation and no flipped byte leads to anything but findings."""
    bench.directory.close_clean()
    directory = Path(bench.log.path)
    rng = random.Random(5)
    for file in sorted(directory.iterdir())[-8:]:
        whole = file.read_bytes()
        for position in rng.sample(range(len(whole)), min(len(whole), 25)):
            file.write_bytes(whole[:position])
            assert of(LogSummed, events(directory))
            file.write_bytes(
                whole[:position] + bytes([whole[position] ^ 1 << rng.randrange(8)]) + whole[position + 1 :]
            )
            found = events(directory, records=True)
            if file.suffix == ".log":
                assert of(DumpFinding, found), (file, position)
        file.write_bytes(whole)


@given(st.binary(max_size=400))
def test_any_bytes_can_be_dumped(data: bytes) -> None:
    disk = FakeDisk()
    disk.make_directory("/x")
    file = disk.open("/x/00000000000000000000.log", create=True)
    file.pwritev([data], 0)
    covered = 0
    for step in read_log(file, file.path, len(data), records=True):
        covered += step.batch.size if isinstance(step, Read) else step.end - step.position
    assert covered == len(data)


# --- read-only ------------------------------------------------------------------------------------------------------


def fingerprint(root: Path) -> dict[str, tuple[str, int, int]]:
    """Contents, modification times and modes of all files and directories."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted(root.rglob("*"))
    }


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    """Remove all write permissions. Root may write anyway, so the fingerprint is the proof."""
    paths = [root, *root.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    for path in reversed(paths):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(modes[path])


def test_nothing_is_changed_and_no_write_permission_is_needed(root: Path) -> None:
    flip(root / "segments-0/00000000000000000026.log", 100)
    with read_only(root):
        before = fingerprint(root)
        code, _ = command("--records", root)
        assert code == 1
        assert fingerprint(root) == before


def test_the_log_of_a_program_is_not_a_segment(tmp_path: Path) -> None:
    """`tidelog up` writes node.log into the directory of each node."""
    (tmp_path / "node.log").write_text("node 0: started\n")
    events = list(dump(OsFiles(), str(tmp_path), records=False))
    assert [event for event in events if isinstance(event, DumpFinding)] == []


def test_the_directory_of_a_running_node_can_be_dumped(bench: Bench) -> None:
    """The node holds the lock, has its indexes mapped, and continues to append."""
    bench.lead(b"unflushed")
    before = fingerprint(Path(bench.path))
    found = events(bench.path)
    assert damage(found) == []
    assert fingerprint(Path(bench.path)) == before
    summed = only_log(found)
    assert (summed.log_end_offset, summed.batches) == (bench.log.log_end_offset, 61)
    bench.lead(b"another")
    bench.directory.close_clean()
    assert damage(events(bench.path)) == []


def test_files_that_disappear_during_a_dump_are_skipped(root: Path) -> None:
    """Retention removes a segment and a snapshot after the directory was listed; a checkpoint that is being written is
    no damage."""
    (root / "recovery-point-offset-checkpoint.tmp").write_text("0\n9")
    seen = dump(OsFiles(), str(root), records=False)
    found = [next(seen)]
    while not found[-1].path.endswith("segments-0/00000000000000000000.log"):
        found.append(next(seen))
    for name in ("00000000000000000042.log", "00000000000000000042.index", "00000000000000000064.snapshot"):
        (root / "segments-0" / name).unlink()
    found += seen
    assert damage(found) == []
    assert {"txn-0", "segments-0"} < {Path(log.path).name for log in of(LogSummed, found)}


def only_log(found: list[Event]) -> LogSummed:
    return of(LogSummed, found)[0]


def test_a_big_file_is_streamed(tmp_path: Path) -> None:
    """The first batch is reported before the last is read: a log larger than memory can be dumped."""
    log = tmp_path / "00000000000000000000.log"
    with log.open("wb") as file:
        file.write(stamped(0))
        file.truncate(1 << 40)
    seen = dump(OsFiles(), str(log), records=False)
    assert any(isinstance(event, BatchFound) for event in (next(seen), next(seen)))


# --- the command ----------------------------------------------------------------------------------------------------


def test_the_exit_code_shows_whether_there_is_damage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(root / "segments-0")[0] == 0
    flip(root / "segments-0/00000000000000000026.log", 100)
    code, text = command(root / "segments-0")
    assert code == 1
    assert "! DAMAGE:" in text
    assert "What to do: " in " ".join(text.split()), "it may be wrapped"
    assert "WRONG" in text
    assert text.rstrip().splitlines()[-1].startswith("DAMAGED: 1 finding of damage")
    assert command(root / "nowhere")[0] == 2
    assert "no such file or directory" in capsys.readouterr().err
    assert command("--records", "--findings", root)[0] == 2
    assert "choose one" in capsys.readouterr().err


def test_a_finding_in_json_has_all_facts_of_the_sentence(root: Path) -> None:
    flip(root / "segments-0/00000000000000000026.log", 100)
    code, text = command("--json", "--findings", root / "segments-0")
    finding, log, summary = (json.loads(line) for line in text.splitlines())
    assert code == 1
    assert finding["type"] == "finding"
    assert finding["severity"] == Severity.DAMAGE.value
    assert finding["path"].endswith("26.log")
    assert finding["first_offset"] == 26
    assert finding["cause"]
    assert finding["next_step"]
    assert log["records"] is None, "the number of lost records is unknown"
    assert summary == {"type": "summary", "damage": 1, "notes": 0}


def test_the_command_stops_quietly_when_its_reader_closes_the_pipe(root: Path) -> None:
    with subprocess.Popen(
        [*DUMP, "--records", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == 0


def test_names_in_damaged_files_and_narrow_terminals_do_not_disturb_the_text(root: Path) -> None:
    """A topic of sequences for terminals, and a terminal that has no dash."""
    (root / "replication-offset-checkpoint").write_text("0\n1\n\x1b[31morders 0 5\n")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    out = subprocess.run([*DUMP, str(root)], stdout=subprocess.PIPE, env=environment, check=False).stdout
    assert rb"'\x1b[31morders'" in out
    assert all(line.isascii() and line.decode().isprintable() for line in out.splitlines())


def test_sizes_times_and_bytes_are_readable() -> None:
    assert size_text(10) == "10 bytes"
    assert size_text(1536) == "1.5 KiB (1,536 bytes)"
    assert size_text(5 << 30) == "5.0 GiB (5,368,709,120 bytes)"
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert time_text(-1) == time_text(2**63 - 1) == ""
    assert bytes_text(b"a\x1b[2Jb") == repr("a\x1b[2Jb"), "no record can control the terminal"
    assert bytes_text(None) == "null"
    assert bytes_text(b"\xff" * 100).endswith("… (100 bytes)")


def test_an_opened_copy_of_a_directory_matches_its_dump(root: Path) -> None:
    """The dump before, the log after opening: the same log ends."""
    said = {Path(log.path).name: log for log in of(LogSummed, events(root))}
    directory = LogDirectory(str(root), files=OsFiles(), clock=Bench().clock, rng=random.Random(1))
    for tp, log in directory.load_logs(lambda _tp, _id: SMALL).items():
        assert (said[str(tp)].log_start_offset, said[str(tp)].log_end_offset) == (
            log.log_start_offset,
            log.log_end_offset,
        )
    directory.close()
