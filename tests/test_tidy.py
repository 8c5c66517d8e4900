"""Rules that a linter does not know: what a tracked file may contain, how long it may grow, how it is named."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 80
FILE_LINES_MAX = 700
PRODUCT = ("tidelog/", "storage/", "replication/", "node/")

MACHINE_PATHS = re.compile(r"(^|[^A-Za-z0-9_.])/(work|root|farm)/[A-Za-z.]")
REGISTRIES = re.compile(r"https?://[a-z0-9.-]*(pypi|npmjs|maven|crates)[a-z0-9.-]*")
UNFINISHED = re.compile(r"\b(TO(?:DO)|FIX(?:ME)|XX(?:X)|HA(?:CK))\b")  # in pieces: this file does not find itself


@cache
def tracked() -> tuple[Path, ...]:
    """Text files that git knows; without a git checkout (an unpacked archive) there is nothing to hold."""
    listing = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    names = [name for name in listing.stdout.decode().split("\0") if name]
    paths = [ROOT / name for name in names if not name.startswith("tests/vectors/")]
    return tuple(path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:8192])


def hand_written_python() -> list[Path]:
    generated = [ROOT / name for name in ("tidelog/protocol/v1", "tidelog/protocol/kafka/messages")]
    return [path for path in tracked() if path.suffix == ".py" and not any(map(path.is_relative_to, generated))]


def lines_that(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_path_of_a_certain_machine_is_tracked() -> None:
    assert lines_that(MACHINE_PATHS) == []


def test_no_registry_host_is_tracked() -> None:
    assert lines_that(REGISTRIES) == []


def test_nothing_is_left_unfinished() -> None:
    assert lines_that(UNFINISHED) == []


def test_functions_stay_short() -> None:
    long = []
    for path in hand_written_python():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines")
    assert long == []


def test_files_stay_small() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in hand_written_python()}
    assert [f"{path.relative_to(ROOT)} has {size} lines" for path, size in sizes.items() if size > FILE_LINES_MAX] == []


def test_test_files_have_names_of_their_own() -> None:
    """Tests are imported by path: reports could distinguish two files of one name only by their directory."""
    names: dict[str, list[str]] = {}
    for path in tracked():
        if path.name.startswith("test_") and path.suffix == ".py":
            names.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    assert [paths for paths in names.values() if len(paths) > 1] == []


def test_product_files_and_classes_have_names_of_their_own() -> None:
    """A name leads to one file and one class. The synchronous clients, and
    the cluster of `tidelog.testing`, have the names of those they wrap."""
    files: dict[str, list[str]] = {}
    classes: dict[str, list[str]] = {}
    for path in hand_written_python():
        place = str(path.relative_to(ROOT))
        if not place.startswith(PRODUCT):
            continue
        if not path.name.startswith("__"):
            files.setdefault(path.name, []).append(place)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(place)
    assert [places for places in files.values() if len(places) > 1] == []
    twice = {name for name, places in classes.items() if len(places) > 1}
    assert twice == {"Producer", "Consumer", "Admin", "LocalCluster"}
