"""The suite `tiering`: the part that needs no nodes, and how the lateness of an event loop is read from two samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import suite_tiering, tiering_manifests, tiering_replacement
from bench.figure import Figure, Run


def test_many_remote_segments_are_measured_from_the_record_to_the_lookup(tmp_path: Path) -> None:
    """The suite itself asserts that the leader believes each segment and finds the last one by its time."""
    found = list(tiering_manifests.figures(Run(tmp_path, quick=True, say=lambda _: None)))
    by_name = {figure.figure.partition(": ")[2]: figure for figure in found}
    assert len(by_name) == len(found)
    assert all(figure.value > 0 for figure in found if figure.unit != "us")
    assert by_name["bytes of the pages"].value * 1e6 > 100 * 1_000, "a message has the segments"
    assert by_name["memory of the coordinator"].value > by_name["bytes of the pages"].value / 10


def test_the_parts_are_chosen_and_a_replaced_log_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[Run] = []

    def measured(run: Run) -> Iterator[Figure]:
        chosen.append(run)
        yield Figure("a node is back", 1.0, "s")

    monkeypatch.setattr(tiering_replacement, "figures", measured)
    assert command.main(["tiering", "--only", "replacement", "--gigabytes", "20"]) == 0
    assert [(run.only, run.gigabytes) for run in chosen] == [(("replacement",), 20.0)]


def test_the_lateness_of_a_turn_is_that_of_its_own_measurements() -> None:
    before = {0.001: 50.0, 0.1: 60.0, float("inf"): 60.0}
    now = {0.001: 149.0, 0.1: 160.0, float("inf"): 160.0}
    assert suite_tiering._p99(now, before) == 0.001
    assert suite_tiering._p99({**now, 0.001: 100.0}, before) == 0.1
    assert suite_tiering._p99({**before, float("inf"): 90.0}, before) == 0.1, "later than all that is told apart"
