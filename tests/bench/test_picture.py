"""The picture of a run: one bar for each system, with date and machine."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

from bench import picture
from bench.picture import PANELS, draw, groups


def figure(name: str, value: float, unit: str, baseline: float | None = None) -> dict[str, object]:
    return {"figure": name, "value": value, "unit": unit, "baseline": baseline}


PRODUCE = "produce 100 B, page cache, keyed, 300 partitions, warm, 1 client"
RUN = {
    "date": "2026-01-31",
    "machine": "a processor <64 bit>, 2 cores",
    "others": 0.04,
    "versions": {"Tidelog": "0.1", "Kafka": "4.1.0"},
    "figures": [
        figure(f"{PRODUCE} / Kafka, librdkafka, page cache", 200_000.0, "records/s", 100_000.0),
        figure(f"{PRODUCE} / Kafka, aiokafka, page cache", 200_000.0, "records/s", 20_000.0),
        figure("one record at a time, page cache, p50, alone", 0.9, "ms"),
        figure("one record at a time, page cache, p50, alone: its limit", 0.9, "ms"),
        figure(
            "processor of the nodes per batch, page cache, 300 partitions, warm: growth / 6 partitions", 9.0, "us", 9.0
        ),
        figure("memory of an idle node, no partitions / Kafka, librdkafka, page cache", 50.0, "MiB", 400.0),
        figure("memory of an idle node, 300 partitions: its limit", 50.0, "MiB"),
        figure("consume 100 B", 1.0, "records/s"),
    ],
}


def test_a_figure_is_one_group_with_all_its_peers() -> None:
    (group,) = groups(PANELS[0], RUN["figures"])  # type: ignore[arg-type]
    assert group.label == "keyed, 300 partitions, warm, 1 client"
    assert group.values == {"Tidelog": 200_000, "Kafka, librdkafka": 100_000, "Kafka, aiokafka": 20_000}


def test_a_figure_without_a_peer_has_one_bar() -> None:
    (group,) = groups(PANELS[1], RUN["figures"])  # type: ignore[arg-type]
    assert group.values == {"Tidelog": 0.9}


def test_the_picture_is_svg_with_a_bar_for_each_value_and_says_where_and_when() -> None:
    drawn = draw(RUN)
    shapes = list(ET.fromstring(drawn).iter())
    bars = [shape for shape in shapes if shape.tag.endswith("rect") and shape.get("height") == "10"]
    assert len(bars) == 3 + 1 + 2
    widths = [float(bar.get("width", "")) for bar in bars[:3]]
    assert widths[0] == 2 * widths[1] == 10 * widths[2]
    texts = [shape.text for shape in shapes if shape.text and shape.text.strip()]
    assert "2026-01-31, a processor <64 bit>, 2 cores" in texts
    assert "Tidelog 0.1, Kafka 4.1.0; three nodes, three replicas, acks=all, from the page cache" in texts


def test_a_machine_that_was_used_by_others_is_named_so() -> None:
    assert "2 cores; other programs took 1.3 cores meanwhile<" in draw({**RUN, "others": 1.26})


def test_the_command_reads_a_run_and_writes_the_picture(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    assert picture.main([str(tmp_path / "run.json"), str(tmp_path / "images" / "run.svg")]) == 0
    assert (tmp_path / "images" / "run.svg").read_text() == draw(RUN)
