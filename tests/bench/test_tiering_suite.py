"""The suite `tiering`: the part that needs no nodes, what of the others can be told without nodes, and how figures are
made of what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Self

import pytest

from bench import __main__ as command
from bench import spark_rounds, suite_tiering, tiering_manifests, tiering_replacement, tiering_spark
from bench.cluster_contest import Contest, Lane
from bench.cluster_load import Throughput
from bench.figure import Figure, Run
from bench.loads.job import Job
from bench.spark_rounds import Taken
from bench.systems.system import PeerMissing, SystemFailed
from tests.bench.fake_system import FakeClients, FakeSystem


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


def test_a_figure_is_that_of_the_round_with_the_median_ratio() -> None:
    """Other programs took half of the machine in the last round: its rates are lower, and its ratio counts as any."""

    def measured(*rates: float) -> list[Throughput]:
        return [Throughput(0, rate, 0, 0) for rate in rates]

    rates = {suite_tiering.PLAIN: measured(40, 40, 20), suite_tiering.TIERED: measured(20, 36, 19)}
    assert suite_tiering._median_round(rates, lambda found: found.megabytes_per_second) == (36, 40)


# --- spark ---


class FakeCluster:
    def create_topic(self, name: str, partitions: int, replicas: int, **configs: str) -> None:
        assert configs["remote_storage_enable"] == "true"


class FakeNodes(FakeSystem):
    bootstrap = "a:1"
    pids: tuple[int, ...] = ()

    def __init__(self, directory: Path, *, tiered: bool) -> None:
        super().__init__("Tidelog")
        assert tiered
        self.cluster = FakeCluster()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """The jobs of Spark: the store gives 3 rows in the time in which the nodes give 1 and Parquet 6."""
    jobs: list[Job] = []
    copied = iter(range(0, 10**12, 10**10))

    class Clients(FakeClients):
        def do(self, kind: str, job: Job, seconds: float = 0.0) -> dict[str, object]:
            jobs.append(job)
            return {}

    def measure(contest: Contest, lane: Lane, job: Job) -> Taken:
        jobs.append(job)
        speed = 6 if job.connector == "parquet" else 3 if job.options else 1
        return Taken(job.rows, job.rows / speed, 1.0)

    monkeypatch.setattr(spark_rounds, "measured", measure)
    monkeypatch.setattr(tiering_spark, "find_java", lambda: "java")
    monkeypatch.setattr(tiering_spark, "Tidelog", FakeNodes)
    monkeypatch.setattr(tiering_spark, "pool", lambda system, others: nullcontext(Clients()))
    monkeypatch.setattr(tiering_spark, "wait_copied", lambda cluster: None)
    monkeypatch.setattr(tiering_spark, "copied_bytes", lambda cluster: float(next(copied)))
    return jobs


def test_spark_reads_the_same_rows_from_the_store_from_the_nodes_and_from_parquet(
    asked: list[Job], tmp_path: Path
) -> None:
    found = {each.figure: each for each in tiering_spark.figures(Run(tmp_path, quick=True, say=lambda _: None))}
    for size in ("100 B", "1 KiB"):
        for columns in ("all columns", "value only"):
            name = f"Spark reads {size} from the store, {columns}"
            assert (found[f"{name} / the nodes"].ratio, found[f"{name} / the nodes"].target) == (3.0, 2.0)
            assert (found[f"{name} / Parquet"].ratio, found[f"{name} / Parquet"].target) == (0.5, None)
    assert [job.do for job in asked[:3]] == ["start", "fill", "save_parquet"], "the files are written once"
    reads = [job for job in asked if job.do == "read" and job.value_bytes == 100 and job.columns == "all"]
    assert [(job.connector, dict(job.options)) for job in reads] == [
        ("tidelog", {"remoteStorage": "on"}),
        ("tidelog", {}),
        ("parquet", {"path": str(tmp_path / "history-100.parquet")}),
        ("prebuilt", {}),
    ]
    assert len({(job.topic, job.rows, job.partitions) for job in reads}) == 1


def test_what_is_not_in_the_store_is_not_measured(
    asked: list[Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tiering_spark, "copied_bytes", lambda cluster: 0.0)
    with pytest.raises(SystemFailed, match="only 0 MB of 20 MB are in the store"):
        list(tiering_spark.figures(Run(tmp_path, quick=True, say=lambda _: None)))
    assert [job.do for job in asked] == ["start", "fill"]


def test_without_java_the_part_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> str:
        raise PeerMissing("no Java 17")

    said: list[str] = []
    monkeypatch.setattr(tiering_spark, "find_java", missing)
    assert list(tiering_spark.figures(Run(tmp_path, say=said.append))) == []
    assert said == ["the part spark is left out: no Java 17"]
