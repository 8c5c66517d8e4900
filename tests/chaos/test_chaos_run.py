"""A short form of `make chaos`, so that it works when it is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.faults.table import chosen
from tests.chaos.play import Result, play, save
from tests.chaos.process_nodes import ProcessNodes
from tests.chaos.report import Heading, write_report
from tests.chaos.schedule import plan

SEED = 3
SECONDS = 45
FAULTS = ["kill", "pause", "isolate-one-way", "slow-disk", "flip-bit", "clock"]


@pytest.mark.integration
@pytest.mark.deep
def test_some_faults_under_load_lose_nothing(tmp_path: Path) -> None:
    """Above 10 s: 45 s of faults on three real nodes, one or two at once, with the whole workload; then every group and
    the pipeline read to the end, and all histories are judged."""
    rounds = plan(SEED, SECONDS, 3, chosen(FAULTS, ProcessNodes.cannot))
    said: list[str] = []
    nodes = ProcessNodes(tmp_path / "nodes", 3)
    try:
        result = play(nodes, rounds, SECONDS, SEED, tmp_path, said.append)
    finally:
        nodes.close()
    save(result, rounds, tmp_path)
    write_report(tmp_path / "report.html", Heading(SEED, 3, "process"), result)
    assert result.played.failure is None
    assert result.findings == []
    assert len(result.played.bands) == sum(len(each.bands) for each in rounds) >= 3
    assert len(said) == len(result.played.bands)
    assert_everybody_was_at_work(result)


def assert_everybody_was_at_work(result: Result) -> None:
    evidence = result.evidence
    producers = {"tidelog-producer-0", "tidelog-producer-1", "kafka-producer", "keeper"}
    assert producers <= {each.worker for each in evidence.acked}
    groups = {"tidelog-readers", "classic-readers", "consumer-readers", "watchers"}
    assert groups <= {each.group for each in evidence.commits}
    assert {"committed", "aborted"} <= {each.outcome for each in evidence.transactions}
    assert {"created", "deleted"} <= {each.state for each in evidence.topics}
    assert evidence.succeeded["moves"]
    assert all(records for (topic, _), records in evidence.stored.items() if topic != "copies")
    kept = sum(len(records) for (topic, _), records in evidence.stored.items() if topic == "latest")
    assert kept < sum(each.topic == "latest" for each in evidence.acked), "nothing was compacted"
