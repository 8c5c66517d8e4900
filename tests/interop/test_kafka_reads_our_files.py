"""Kafka's DumpLogSegments reads every file that we write, complains of none, and says what our own dump says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.as_kafka_prints import holes, kafkas_lines, named, our_lines
from tests.interop.kafka_tools import Dumped, dump_log_segments
from tests.interop.our_logs import World, open_world, write_all
from tests.storage.dumped import damage, events
from tests.storage.workbench import NOW

pytestmark = pytest.mark.interop

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def read_by_kafka(directory: Path, suffixes: tuple[str, ...] = SUFFIXES, *, but: str | None = None) -> Dumped:
    """What Kafka's tool says of all files of all partition directories, but of one perhaps."""
    files = [path for path in directory.glob("*-0/*") if path.suffix in suffixes and path.parent.name != but]
    paths = sorted(str(path.relative_to(directory)) for path in files)
    assert len(paths) > 60
    return dump_log_segments(directory, paths, "--deep-iteration", "--print-data-log")


def partitions(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*-0"))


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All kinds of logs, after a clean stop."""
    path = tmp_path_factory.mktemp("closed") / "data"
    world = open_world(path, now=NOW)
    write_all(world)
    world.directory.close_clean()
    return path


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, World]:
    """All kinds of logs, as they lie while a node runs, or when it is killed."""
    path = tmp_path_factory.mktemp("left") / "data"
    world = open_world(path, now=NOW, seed=2)
    write_all(world)
    return path, world


def compare(directory: Path, kafka: Dumped) -> int:
    """Line by line: batches, records, entries of indexes, producers; a complaint would be a line too many. Returns how
    many lines were compared."""
    compared = 0
    expected: list[str] = []
    for partition in partitions(directory):
        ours = our_lines(directory, partition)
        for path, lines in kafka.files.items():
            if path.startswith(f"{partition}/"):
                theirs = kafkas_lines(lines)
                if path.endswith(".snapshot"):
                    theirs = sorted(line.rstrip() for line in theirs)  # their order means nothing
                assert theirs == named(ours.get(path, [])), path
                compared += len(lines)
        expected += holes(directory, partition)
    assert sorted(kafka.complaints) == sorted(expected)
    return compared


def test_kafkas_tools_agree_on_a_closed_directory(closed: Path) -> None:
    kafka = read_by_kafka(closed)
    assert compare(closed, kafka) > 3000
    assert {Path(path).suffix for path in kafka.files} == set(SUFFIXES), "a kind of file was not there"
    for partition in partitions(closed):
        assert set(our_lines(closed, partition)) <= set(kafka.files), "files that Kafka was not asked about"
    assert damage(events(closed)) == []


def test_of_a_directory_in_use_kafka_reads_every_batch(left: tuple[Path, World]) -> None:
    """The indexes of active segments are longer than what is in them, as Kafka's are; and on the zeros behind the
    batches of a preallocated one its tool stops with an error, on its own as well (vectors' README)."""
    directory, world = left
    kafka = read_by_kafka(directory, (".log", ".snapshot", ".txnindex"), but="preallocated-0")
    assert compare(directory, kafka) > 2000
    assert damage(events(directory)) == []
    assert world.directory.damaged() == {}


def test_kafka_finds_every_index_sane(closed: Path) -> None:
    """The check of a starting broker, and the one of each entry against the log."""
    indexes = sorted(str(path.relative_to(closed)) for path in closed.glob("*-0/*index") if path.stat().st_size)
    assert len(indexes) > 60
    sane = dump_log_segments(closed, indexes, "--index-sanity-check")
    for path, lines in sane.files.items():
        if not path.endswith(".txnindex"):
            assert lines == [f"{path} passed sanity check."]
    verified = dump_log_segments(closed, indexes, "--verify-index-only")
    assert sane.complaints == verified.complaints == []
