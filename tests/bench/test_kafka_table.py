"""The table of a run in a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import kafka_table
from bench.figure import Better, Figure
from bench.kafka_table import BEGIN, END, render, replaced

FIGURES = (
    Figure("consume 1 KiB, aiokafka / Kafka", 50_000.0, "records/s", baseline=40_000.0, target=1.0),
    Figure("memory / Kafka", 200.0, "MiB", baseline=400.0, target=0.25, better=Better.LESS),
    Figure("batches, 300 partitions: growth / 6 partitions", 9.0, "us", baseline=9.0, target=1.2, better=Better.LESS),
    Figure("consume 1 KiB, librdkafka through the listener / ours", 100.0, "records/s", baseline=400.0),
)
RUN = {
    "date": "2026-01-31",
    "machine": "a processor, 2 cores",
    "others": 0.04,
    "versions": {"Tidelog": "0.1", "Kafka": "4.1.0"},
    "figures": [json.loads(each.to_json()) for each in FIGURES],
}


def test_each_row_says_whether_the_target_is_met() -> None:
    lines = render(RUN).splitlines()
    assert "| consume 1 KiB, aiokafka | records/s | 50,000 | 40,000 | 1.25 | 1, met |" in lines
    assert "| memory | MiB | 200 | 400 | 0.50 | 0.25, **missed** |" in lines
    assert "1 of 2 targets are met" in lines[0]


def test_what_has_no_target_stands_in_a_table_of_its_own_and_growth_in_none() -> None:
    lines = render(RUN).splitlines()
    assert lines[-1] == "| consume 1 KiB | records/s | 100 | 400 | 0.25 |"
    assert "growth" not in "\n".join(lines)


def test_the_table_replaces_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    run, page = tmp_path / "run.json", tmp_path / "page.md"
    run.write_text(json.dumps(RUN))
    page.write_text(f"above\n\n{BEGIN}\nformer\n\n{END}\n\nbelow\n")
    for _ in range(2):
        assert kafka_table.main([str(run), str(page)]) == 0
    assert page.read_text() == f"above\n\n{BEGIN}\n{render(RUN)}\n\n{END}\n\nbelow\n"


def test_a_page_without_markers_is_not_written() -> None:
    with pytest.raises(ValueError, match="add both"):
        replaced("a page", "a table")
