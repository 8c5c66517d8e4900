"""What the demo leaves behind: a report that says the truth, and a chart."""

import json
from pathlib import Path
from uuid import UUID

import pytest

from examples.demo.analysis import Result
from examples.demo.check import Findings
from examples.demo.meter import Failover, InSync, Meter
from examples.demo.report import Run, write
from examples.demo.story import DemoFailed, Mark, Plan, Story, in_sync, node_to_kill
from tidelog import TopicDescription
from tidelog.client.admin import PartitionDescription
from tidelog.types import LeaderEpoch, NodeId, PartitionEpoch, PartitionIndex, TopicId

RECORDS = 400
RIGHT = Findings(RECORDS, RECORDS, 0, 0, 0, 0, 0, 0)


def run(findings: Findings, *, failed: int = 0) -> Run:
    """Forty seconds, ten records each: node 2 is killed after 10 s, comes back after 25 s."""
    meter = Meter()
    for second in range(1, 41):
        meter.sent += 10
        for partition in range(10):
            meter.acknowledge(partition % 6, due=second - 0.02, at=second - 0.01)
        meter.in_sync = InSync(2, 12, 18) if 10 < second < 30 else InSync(3, 18, 18)
        meter.sample(second)
    failover = Failover([1, 4], 10.0)
    for partition, at in ((1, 12.0), (4, 12.5)):
        failover.acknowledge(partition, 11.0, at)
    moments = {"load": 0.5, "killed": 10.0, "recovered": 12.5, "restarted": 25.0, "healed": 30.0, "stopped": 40.0}
    story = Story(
        marks=[Mark(name, at, f"{name}!") for name, at in moments.items()],
        killed_node=2,
        killed_partitions=(1, 4),
        failover=failover,
        sent=RECORDS,
        keys=7,
        value_bytes=12_345,
        failed=failed,
        failure="it broke" if failed else None,
    )
    analysis = [Result("Cores", ("core", ">busy %"), (("core-0", "12.0"),))]
    return Run("a file", Plan(), story, meter, findings, analysis, planted_loss=False, seconds=55.0)


@pytest.mark.spark  # the report names the version of Java
def test_the_report_contains_events_and_findings(tmp_path: Path) -> None:
    write(run(RIGHT), tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"] == "passed"
    assert report["counts"]["duplicates"] == 0
    assert report["failover"]["seconds"] == 2.5
    assert report["failover"]["seconds_by_partition"] == {"1": 2.0, "4": 2.5}
    assert report["failover"]["heal_seconds"] == 5
    assert report["latency_ms"]["before_the_kill"]["p50_ms"] == pytest.approx(10, rel=1e-3)
    assert report["machine"]["cores"] > 0
    assert {"tidelog", "python", "java", "pyspark", "grpcio"} <= report["versions"].keys()
    assert len(report["timeline"]) == 40
    assert [mark["name"] for mark in report["marks"]][1] == "killed"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (run(Findings(RECORDS, RECORDS - 1, 1, 0, 0, 0, 0, 0)), "1 acknowledged records are missing"),
        (run(Findings(RECORDS, RECORDS, 0, 0, 0, 3, 0, 0)), "3 records are out of order"),
        (run(Findings(RECORDS, RECORDS + 2, 0, 0, 2, 0, 0, 0)), "2 copies of records were written"),
        (run(Findings(RECORDS - 1, RECORDS - 1, 0, 0, 0, 0, 0, 0), failed=1), "1 records failed, the first with: it"),
        (run(Findings(RECORDS - 1, RECORDS, 0, 0, 0, 0, 0, 0)), "400 records were sent, 399 are in the ledger"),
    ],
)
def test_whatever_is_wrong_makes_the_run_fail(wrong: Run, named: str) -> None:
    assert any(named in fault for fault in wrong.faults)


def test_the_chart_is_a_picture(tmp_path: Path) -> None:
    from examples.demo import chart

    finished = run(RIGHT)
    chart.draw(finished.story, finished.meter.timeline, tmp_path / "failover.png")
    assert (tmp_path / "failover.png").read_bytes().startswith(b"\x89PNG")


def topic(*leaders: int, isr: tuple[int, ...] = (0, 1, 2)) -> TopicDescription:
    def partition(index: int, leader: int) -> PartitionDescription:
        nodes, insync = tuple(map(NodeId, (0, 1, 2))), tuple(map(NodeId, isr))
        return PartitionDescription(
            PartitionIndex(index), NodeId(leader), LeaderEpoch(0), PartitionEpoch(0), nodes, insync, (), ()
        )

    partitions = tuple(partition(index, leader) for index, leader in enumerate(leaders))
    return TopicDescription("demo", TopicId(UUID(int=1)), partitions, {})


def test_the_node_that_leads_most_is_killed_of_several_one_that_is_not_the_controller() -> None:
    assert node_to_kill(topic(0, 0, 0, 2, 1, 2), controller=0) == (0, (0, 1, 2))
    assert node_to_kill(topic(0, 1, 2, 0, 1, 2), controller=0) == (1, (1, 4))
    assert node_to_kill(topic(0, 1, 2, 0, 1, 2), controller=2) == (0, (0, 3))
    with pytest.raises(DemoFailed, match="nothing to kill"):
        node_to_kill(topic(-1, -1), controller=0)


def test_in_sync_sizes_of_a_topic() -> None:
    assert in_sync(topic(0, 1)) == InSync(smallest=3, total=6, full=6)
    assert in_sync(topic(0, 1, isr=(0, 2))) == InSync(smallest=2, total=4, full=6)
