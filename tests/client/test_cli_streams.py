"""The `tidelog` command in a pipe, with closed streams, in terminals of other encodings, and interrupted at its start.

Each command is a process of its own, since its descriptors are what is tested. The processes of a test run at once.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tidelog import sync
from tidelog.cli import main
from tidelog.records import build_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, Millis, Offset, PartitionIndex, TopicPartition

BIG = TopicPartition("big", PartitionIndex(0))
BATCHES = 40
RECORDS = 500
UMLAUT = "grüppe"

ENTRY = "import sys; from tidelog.cli import main; sys.exit(main())"
"""What the installed script does."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[MemoryCluster]:
    """A topic of more than a pipe holds, and groups whose ids no ASCII terminal has."""
    with cluster_in_a_thread() as made:
        partition = made.create("big").partitions[0]
        for number in range(BATCHES):
            first = number * RECORDS
            records = [
                Record(Offset(index), Millis(first + index), None, f"{first + index} é".encode() + b"." * 60)
                for index in range(RECORDS)
            ]
            partition.append(build_batch(records, Codec.NONE, base_offset=0))
        with sync.Admin(made.bootstrap) as admin:
            for group in (UMLAUT, "group 日本"):
                admin.alter_group_offsets(group, {BIG: 7})
        yield made


def start(
    cluster: MemoryCluster, *arguments: str | bytes, out: int | IO[bytes] = subprocess.PIPE, **others: Any
) -> subprocess.Popen[bytes]:
    environment: Mapping[str, str] = others.pop("environment", {})
    return subprocess.Popen(
        [sys.executable, "-c", ENTRY, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=others.pop("err", subprocess.PIPE),
        env={**os.environ, "TIDELOG_BOOTSTRAP": cluster.bootstrap, **environment},
        **others,
    )


def end(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Exit code, output and messages."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out or b"", (err or b"").decode()


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that its reader has closed."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def test_a_reader_that_closes_the_pipe_has_what_it_wanted(cluster: MemoryCluster, tmp_path: Path) -> None:
    """`tidelog consume big | head -1`: exit code 0, no traceback, and a group commits only what was printed."""
    (tmp_path / "log").mkdir()
    for number in range(20_000):
        (tmp_path / "log" / f"file-{number}").touch()
    commands = [
        start(cluster, *words)
        for words in (
            ("consume", "big", "--json"),
            ("consume", "big", "--group", "piped"),
            ("group", "lag", UMLAUT, "--watch", "--interval", "0.1", "--json"),
            ("log", "dump", str(tmp_path / "log")),
        )
    ]
    for process in commands:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        code, _, said = end(process)
        assert code == 0, process.args
        assert "Traceback" not in said
        assert "Exception" not in said
    assert all(each.offset == 0 for each in cluster.groups.groups["piped"].offsets.values()), "the pipe held the rest"
    code, records, _ = end(start(cluster, "consume", "big", "--group", "whole", "-n", "3"))
    assert (code, len(records.splitlines())) == (0, 3)
    assert [each.offset for each in cluster.groups.groups["whole"].offsets.values()] == [3]


def test_a_pipe_without_a_reader_ends_no_command_with_an_error(cluster: MemoryCluster, unread: int) -> None:
    """Nobody reads from the beginning. The exit code of a command that checks something still says what it found."""
    expected = {
        ("--help",): 0,
        ("topic", "describe", "big"): 0,
        ("group", "describe", UMLAUT, "missing", "--json"): 1,
        ("job", "archive", "--help"): 0,
    }
    commands = {words: start(cluster, *words, out=unread) for words in expected}
    probe = ENTRY.replace("cli import main", "cli.node_process import probe as main")
    asking = [sys.executable, "-c", probe, "--help"]
    commands["probe",] = subprocess.Popen(asking, stdout=unread, stderr=subprocess.PIPE)
    ended = {words: end(process) for words, process in commands.items()}
    assert {words: code for words, (code, _, _) in ended.items()} == {**expected, ("probe",): 0}
    for _, _, said in ended.values():
        assert "Traceback" not in said
        assert "Exception" not in said


def test_closed_and_broken_standard_error_ends_no_command(cluster: MemoryCluster, unread: int) -> None:
    """Messages are for people: where nobody reads them, the command does its work, and its exit code says how."""
    script = 'exec "$0" -c "$1" group list --json 2>&-'
    closed = subprocess.Popen(
        ["/bin/sh", "-c", script, sys.executable, ENTRY],
        stdout=subprocess.PIPE,
        env={**os.environ, "TIDELOG_BOOTSTRAP": cluster.bootstrap},
    )
    broken = start(cluster, "group", "describe", UMLAUT, "missing", "--json", err=unread)
    (listed, groups, _), (failed, described, _) = end(closed), end(broken)
    assert (listed, failed) == (0, 1)
    assert UMLAUT in [each["group_id"] for each in json.loads(groups)]
    assert len(json.loads(described)) == 2


def test_output_that_cannot_be_written_is_one_sentence(cluster: MemoryCluster) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with Path("/dev/full").open("wb") as full:
        code, _, said = end(start(cluster, "consume", "big", "-n", "3", out=full))
    assert (code, said) == (1, "tidelog: No space left on device: standard output\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_without_the_characters_of_an_id_gets_their_escapes(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """JSON stays JSON and means the same; tables stay aligned."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", cluster.bootstrap)

    def run(*words: str) -> tuple[int, bytes, str]:
        out, err = io.BytesIO(), io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
        monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(err, encoding=encoding))
        return main(list(words)), out.getvalue(), err.getvalue().decode(encoding)

    code, records, said = run("consume", "big", "-n", "2", "--json")
    assert (code, said) == (0, "")
    assert [json.loads(line)["value"][:3] for line in records.splitlines()] == ["0 é", "1 é"]
    code, groups, _ = run("group", "list", "--json")
    assert code == 0
    assert {each["group_id"] for each in json.loads(groups)} >= {UMLAUT, "group 日本"}
    assert (records + groups).isascii()
    code, table, _ = run("group", "list")
    assert code == 0
    assert rb"group \u65e5\u672c" in table
    assert len({len(line) for line in table.splitlines()[1:]}) == 1, "the columns are aligned"
    code, lag, _ = run("group", "lag", "group 日本")
    assert code == 0
    assert rb"group \u65e5\u672c: 19993 records behind" in lag
    code, _, said = run("group", "describe", "\udcff")
    assert code == 1
    assert "cannot be encoded as UTF-8: it has bytes or characters that are no text" in said
    assert "surrogate" not in said, "no words of Python"
    assert run("--help")[0] == 0


def test_the_locale_of_a_process_decides_what_its_terminal_takes(cluster: MemoryCluster) -> None:
    """Python writes UTF-8 in the locale C, unless it is told not to."""
    for locale in ({"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}):
        code, out, said = end(start(cluster, "consume", "big", "-n", "2", "--json", environment=locale))
        assert (code, said) == (0, "")
        assert out.isascii()


def test_an_interrupt_while_the_command_imports_prints_nothing(cluster: MemoryCluster, tmp_path: Path) -> None:
    """Method: the first module that the command imports is replaced by one that waits, and says so."""
    for entry, module in (
        (ENTRY, "click"),
        (ENTRY.replace("main()", "main(['topic', 'list'])"), "google"),
        (ENTRY.replace("cli ", "cli.node_process "), "grpc"),
    ):
        waiting = "import sys, time\nsys.stdout.write('importing\\n')\nsys.stdout.flush()\ntime.sleep(60)\n"
        folder = tmp_path / module
        folder.mkdir()
        (folder / f"{module}.py").write_text(waiting)
        (folder / f"{module}").mkdir()
        (folder / f"{module}" / "__init__.py").write_text(waiting)
        with subprocess.Popen(
            [sys.executable, "-c", entry],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"importing\n"
            process.send_signal(signal.SIGINT)
            assert end(process) == (130, b"", "")
