"""The test suite itself: its workers are busy until the end, and what each test takes is recorded."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import durations
from tests.balance import Balance, Kind, Unit, markers_in, unit_of, units_of
from tests.durations import REST, SHARED, Durations, Entry, Run

ROOT = Path(__file__).resolve().parent.parent


def a_file(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text("import pytest\n" + text, encoding="utf-8")
    return str(path)


def test_a_unit_is_a_file_with_processes_or_one_pure_test(tmp_path: Path) -> None:
    cluster = a_file(tmp_path, "cluster.py", "pytestmark = pytest.mark.integration\ndef test_a(): ...\n")
    spark = a_file(tmp_path, "spark.py", "pytestmark = [pytest.mark.integration, pytest.mark.spark]\n")
    mixed = a_file(tmp_path, "mixed.py", "@pytest.mark.alone\ndef test_a(): ...\ndef test_b(): ...\n")
    assert unit_of(f"{cluster}::test_a[1]") == (cluster, Kind.PROCESSES)
    assert unit_of(f"{spark}::test_a") == unit_of(f"{mixed}::test_a") == ("one at a time", Kind.ONE_AT_A_TIME)
    assert unit_of(f"{mixed}::test_b[x::y]") == (f"{mixed}::test_b[x::y]", Kind.PURE)
    assert markers_in(mixed).of("test_a") == {"alone"}
    assert markers_in(mixed).of("test_b") == set()


def finished(balance: Balance, units: list[Unit], workers: int) -> list[float]:
    """When each worker is finished, if each takes the next unit at the end of its last one."""
    seconds = {unit.name: unit.seconds for unit in units}
    ends = [0.0] * workers
    while True:
        worker = min(range(workers), key=ends.__getitem__)
        name = balance.next_of(is_first=worker == 0)
        if name is None:
            return ends
        ends[worker] += seconds[name]


@pytest.mark.parametrize(("processes", "pure"), [(5, 400), (20, 100), (0, 300)])
def test_both_workers_are_busy_until_the_end(processes: int, pure: int) -> None:
    units = [
        Unit("one at a time", Kind.ONE_AT_A_TIME, 80.0),
        *(Unit(f"file {number}", Kind.PROCESSES, 4.0 + number) for number in range(processes)),
        *(Unit(f"test {number}", Kind.PURE, 1.0) for number in range(pure)),
    ]
    total = sum(unit.seconds for unit in units)
    first, second = finished(Balance(sorted(units, key=lambda unit: -unit.seconds)), units, workers=2)
    longest_at_the_end = max((unit.seconds for unit in units if unit.kind is Kind.PROCESSES), default=1.0)
    assert abs(first - second) <= longest_at_the_end
    assert max(first, second) <= total / 2 + longest_at_the_end


def test_spark_stays_on_the_first_worker_and_every_unit_is_run_once() -> None:
    balance = Balance([Unit("one at a time", Kind.ONE_AT_A_TIME, 9.0), Unit("file", Kind.PROCESSES, 1.0)])
    assert balance.next_of(is_first=False) == "file"
    assert balance.next_of(is_first=False) is None
    assert balance.next_of(is_first=True) == "one at a time"
    assert balance.next_of(is_first=True) is None


def test_long_pure_tests_come_first_and_short_ones_keep_their_order(tmp_path: Path) -> None:
    pure = a_file(tmp_path, "pure.py", "")
    seconds = {f"{pure}::c": 0.2, f"{pure}::long": 3.0, f"{pure}::a": 0.9, f"{pure}::longer": 5.0}
    names = [unit.name.removeprefix(f"{pure}::") for unit in units_of(seconds, seconds.__getitem__)]
    assert names == ["longer", "long", "c", "a"]


def report(nodeid: str, when: str, seconds: float, *, shared: float = 0.0, marks: str = "") -> pytest.TestReport:
    keywords = dict.fromkeys(marks.split(), True)
    made = pytest.TestReport(nodeid, ("", 0, ""), keywords, "passed", None, when, duration=seconds)  # type: ignore[arg-type]
    if shared:
        made.user_properties.append((SHARED, shared))
    return made


def test_what_tests_share_counts_for_the_file_and_short_tests_are_one_sum() -> None:
    run = Run()
    for each in (
        report("a.py::first", "setup", 9.0, shared=8.0),
        report("a.py::first", "call", 2.0, shared=8.0),  # properties are in each report of a test
        report("a.py::second", "call", 0.25),
        report("a.py::third", "call", 0.25),
        report("a.py::far", "call", 20.0, marks="deep"),
    ):
        run.add(each)
    found = run.durations()
    assert found.tiers["test"] == {"a.py": {"first": Entry(3.0, 1), SHARED: Entry(8.0, 0), REST: Entry(0.5, 2)}}
    assert found.tiers["deep"] == {"a.py": {"far": Entry(20.0, 1)}}
    lines = list(run.summary())
    assert lines[0] == "the 4 slowest of 4 tests: 75% of 32 s"
    assert lines[1].split() == ["20.0", "s", "63.5%", "a.py::far"]
    assert lines[-1] == "this process: 32 s"


def test_a_test_without_a_record_is_expected_to_take_what_its_neighbours_take() -> None:
    known = Durations()
    known.tiers["test"] = {"a.py": {"long": Entry(6.0, 1), REST: Entry(1.0, 4)}, "b.py": {"x": Entry(3.0, 1)}}
    assert known.of("a.py::long") == 6.0
    assert known.of("a.py::new") == 0.25
    assert known.of("c.py::new") == pytest.approx(10 / 6)
    assert Durations().of("a.py::new") == 0.0


def test_a_record_is_renewed_by_file_and_read_back(tmp_path: Path) -> None:
    old, run = Durations(), Durations()
    old.tiers["test"] = {name: {REST: Entry(1.0, 1)} for name in ("kept.py", "gone.py", "run.py")}
    run.tiers["test"] = {"run.py": {"test_x": Entry(2.04, 1)}}
    path = tmp_path / "durations.json"
    old.renewed(run, {"kept.py", "run.py"}).write(path)
    assert durations.read(path).tiers["test"] == {
        "kept.py": {REST: Entry(1.0, 1)},
        "run.py": {"test_x": Entry(2.0, 1)},
    }


def seconds_of(tier: durations.Tier, kinds: Iterable[Kind]) -> float:
    entries = durations.read().entries(tier)
    return sum(entry.seconds for file, name, entry in entries if unit_of(f"{file}::{name}")[1] in kinds)


@pytest.mark.parametrize("tier", ["test", "deep"])
def test_the_recorded_tests_fit_the_budget_of_their_tier(tier: durations.Tier) -> None:
    """The workers share the sum; what does not run beside other processes has one of them."""
    assert seconds_of(tier, Kind) / durations.WORKERS[tier] <= durations.BUDGETS[tier]
    assert seconds_of(tier, [Kind.ONE_AT_A_TIME]) <= durations.BUDGETS[tier]


def undocumented() -> Iterator[str]:
    for file, name, entry in durations.read().tests_above(durations.LONG_S):
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                and node.name == name.split("[")[0].split("::")[0]
                and not ast.get_docstring(node)
            ):
                yield f"{file}::{name} takes {entry.seconds:.0f} s: why?"


def test_a_long_test_says_why_in_its_docstring() -> None:
    assert sorted(undocumented()) == []


def test_the_budgets_are_those_of_the_document() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    first, deep = durations.BUDGETS["test"] // 60, durations.BUDGETS["deep"] // 60
    assert f"`make test` at most {first} minutes, `make test-deep` at most {deep}" in " ".join(text.split())


CRASHING = """
import os
import pytest

pytestmark = pytest.mark.integration

@pytest.mark.parametrize("number", range(4))
def test_a(number):
    assert number != 2, "a failure"
    if number == 1:
        os._exit(3)
"""
SCHEDULED = """
from pathlib import Path
import tests.balance

tests.balance.ROOT = Path(__file__).parent

def pytest_xdist_make_scheduler(config, log):
    return tests.balance.BalancedScheduling(config, log)
"""


def test_what_a_crashed_worker_left_is_run_once_and_the_run_ends(tmp_path: Path) -> None:
    """Units that the crashed worker had finished come back too: with nothing to run in them, a worker would wait."""
    (tmp_path / "conftest.py").write_text(SCHEDULED, encoding="utf-8")
    (tmp_path / "test_crash.py").write_text(CRASHING, encoding="utf-8")
    for name in ("test_before_1.py", "test_before_2.py"):
        (tmp_path / name).write_text(CRASHING.replace("os._exit(3)", "...").replace("2", "7"), encoding="utf-8")
    for number in range(4):
        (tmp_path / f"test_other_{number}.py").write_text("def test_b(): ...\n", encoding="utf-8")
    flags = ["-n2", "--dist=loadscope", "-p", "no:cacheprovider", "-rA", "--rootdir", str(tmp_path)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *flags, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "2 failed, 14 passed" in run.stdout, run.stdout
    assert "crashed while running 'test_crash.py::test_a[1]'" in run.stdout
