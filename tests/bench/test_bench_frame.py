"""The bench contract: seven keys a line, ratios to a baseline of the same run, targets reported and never asserted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import __main__ as command
from bench import machine, report, suite_security, suites
from bench.figure import Better, Figure, Run


def two_figures(run: Run) -> Iterator[Figure]:
    (run.scratch / "file").write_bytes(b"a suite may write here")
    yield Figure("append", value=90.0, unit="MB/s", baseline=100.0, target=0.45)
    yield Figure("failover", value=4.0, unit="s", target=3.0, better=Better.LESS)


@pytest.fixture(autouse=True)
def only_two_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "load", lambda name: {name: two_figures})


def test_json_is_one_object_a_line_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["any", "--json"]) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {
        "figure": "append",
        "value": 90.0,
        "unit": "MB/s",
        "baseline": 100.0,
        "ratio": 0.9,
        "target": 0.45,
        "met": True,
    }
    assert second["baseline"] is None
    assert second["ratio"] is None
    assert second["met"] is False


def test_a_missed_target_is_reported_and_not_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["any"]) == 0
    shown = capsys.readouterr().out
    assert "at least 0.45x" in shown
    assert "at most 3 s" in shown


def test_plot_saves_one_chart_a_suite(tmp_path: Path) -> None:
    assert command.main(["any", "--json", "--plot", str(tmp_path)]) == 0
    assert (tmp_path / "any.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_target_nothing_is_met_or_missed() -> None:
    assert Figure("idle", value=12.0, unit="MiB").met is None


def test_figures_of_different_units_share_no_axis() -> None:
    figures = [Figure("a", 1.0, "s", better=Better.LESS), Figure("b", 2.0, "MiB"), Figure("c", 3.0, "s", baseline=1.0)]
    assert list(report.grouped(figures)) == ["s (less is better)", "MiB", "times the baseline"]


def test_a_ratio_to_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="has no meaning"):
        Figure("append", value=1.0, unit="MB/s", baseline=0.0)


@pytest.mark.parametrize(("switch", "shared"), [("1\n", " shared by process"), ("0\n", " shared by thread")])
def test_a_machine_is_named_with_how_processes_share_it(tmp_path: Path, switch: str, shared: str) -> None:
    (tmp_path / "switch").write_text(switch)
    assert machine.how_shared(tmp_path / "switch") == shared
    assert machine.how_shared(tmp_path / "absent") == ""


def test_an_unknown_suite_is_rejected_with_the_list_of_suites(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(LookupError, match="unknown suite 'nothing'; valid suites: all"):
        suites.load("nothing")


def test_the_parts_of_the_suite_security_follow_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "security_tls" in suite_security.parts()
    modules = {f"bench.{part}": SimpleNamespace(figures=two_figures) for part in ("security_a", "security_b")}
    monkeypatch.setattr(suite_security, "parts", lambda: ["security_a", "security_b"])
    monkeypatch.setattr("importlib.import_module", modules.__getitem__)
    found = [figure.figure for figure in suite_security.figures(Run(tmp_path))]
    assert len(found) == 4
