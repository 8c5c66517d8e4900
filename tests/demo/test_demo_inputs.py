"""What the demo is fed: this machine as it is, or the lines of any file, again and again."""

import gzip
import json
import os
from itertools import islice
from pathlib import Path

import pytest

from examples.demo.inputs import FILE_KEYS, LINE_BYTES_MAX, file_lines, telemetry, title


def test_telemetry_tells_of_each_core_and_of_this_very_process() -> None:
    measured = {}
    for item in telemetry():
        if item.key in measured:
            break  # the second round
        measured[item.key] = json.loads(item.value)
    assert sum(value["kind"] == "core" for value in measured.values()) == os.cpu_count()
    mine = measured[f"process-{os.getpid()}"]
    assert mine["rss_bytes"] > 1 << 20
    assert mine["busy_seconds"] > 0


def test_an_interpreter_is_named_by_its_program() -> None:
    assert title("python", ["/usr/bin/python", "-m", "node", "--password", "x"]) == "python -m node"
    assert title("python", ["python", "/opt/tool.py", "secret"]) == "python tool.py"
    assert title("sshd", ["sshd", "-D"]) == "sshd"
    assert title("kworker", []) == "kworker"


def test_processor_time_only_grows() -> None:
    cores = [json.loads(item.value) for item in islice(telemetry(), 2_000) if item.key == "core-0"]
    busy = [core["busy_seconds"] for core in cores]
    assert len(busy) > 1
    assert busy == sorted(busy)


def test_lines_of_plain_and_packed_files_are_the_same(tmp_path: Path) -> None:
    text = b"first\nsecond\r\n\nlast without an end"
    plain, packed = tmp_path / "plain" / "a.log", tmp_path / "packed" / "a.log"
    for path in (plain, packed):
        path.parent.mkdir()
    plain.write_bytes(text)
    packed.write_bytes(gzip.compress(text))
    assert list(islice(file_lines(plain), 4)) == list(islice(file_lines(packed), 4))
    assert [item.value for item in islice(file_lines(plain), 4)] == [
        b"first",
        b"second",
        b"",
        b"last without an end",
    ]


def test_a_file_that_ends_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "short.log"
    path.write_bytes(b"a\nb\n")
    assert [item.value for item in islice(file_lines(path), 5)] == [b"a", b"b", b"a", b"b", b"a"]


def test_lines_are_spread_over_keys(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    path.write_bytes(b"x\n" * 1_000)
    assert len({item.key for item in islice(file_lines(path), 1_000)}) == FILE_KEYS


def test_a_line_too_long_for_a_record_becomes_several(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\xff" * (LINE_BYTES_MAX + 1))
    assert [len(item.value) for item in islice(file_lines(path), 2)] == [LINE_BYTES_MAX, 1]


def test_a_file_without_lines_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.touch()
    with pytest.raises(ValueError, match=r"empty\.log has no lines"):
        next(file_lines(path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"gone\.log cannot be read \(No such file"),
        (gzip.compress(b"a line\n" * 9000)[:-9], r"gone\.log is damaged gzip \(Compressed file ended"),
        (b"\x1f\x8bsomething else", r"gone\.log is damaged gzip \(Unknown compression"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "gone.log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=said):
        list(islice(file_lines(path), 9001))
