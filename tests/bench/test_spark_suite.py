"""The suite `spark` without Spark: systems take turns, warm-up is not counted, targets stand beside their baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench import spark_rounds, suite_spark
from bench.cluster_contest import QUICK, Contest, Lane
from bench.figure import Figure, Run
from bench.loads import prebuilt_arrow
from bench.loads.job import Job
from bench.loads.prebuilt_arrow import ROWS_PER_BATCH, PrebuiltReader, batch_of
from bench.spark_parts import PARTS
from bench.spark_rounds import Rounds, Taken, rates, rounds
from bench.systems.kafka_connector import KafkaWithConnector
from bench.systems.system import PeerMissing, SystemFailed
from tests.bench.fake_system import FakeClients, FakeSystem


def contest_of(*names: str) -> Contest:
    lanes: list[Any] = [Lane(FakeSystem(name), FakeClients()) for name in names]  # type: ignore[arg-type]
    return Contest(Run(Path(), say=lambda _: None), QUICK, lanes)


def jobs_of(lane: Lane) -> Mapping[str, Job]:
    return {lane.system.name: Job("read", "", lane.system.name)}


# --- rounds ---


def test_rounds_take_turns_and_the_warm_up_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"Tidelog": iter([9.0, 1.0, 3.0, 2.0]), "Kafka": iter([9.0, 4.0, 4.0, 5.0])}
    order: list[str] = []

    def measure(contest: Contest, lane: Lane, job: Job) -> Taken:
        order.append(job.topic)
        return Taken(rows=12, seconds=next(seconds[job.topic]), cpu_us=1.0)

    monkeypatch.setattr(spark_rounds, "measured", measure)
    found = rounds(contest_of("Tidelog", "Kafka"), jobs_of, 4, warm_up=1, repeats=3)
    assert {name: each.rate for name, each in found.items()} == {"Tidelog": 6.0, "Kafka": 3.0}  # medians
    assert found["Tidelog"].cpu_us == pytest.approx(1.0)
    assert order == ["Tidelog", "Kafka", "Kafka", "Tidelog"] * 2


def test_a_connector_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(contest: Contest, lane: Lane, job: Job) -> Taken:
        if job.topic == "Kafka":
            raise SystemFailed("no class")
        return Taken(1, 1.0, 1.0)

    monkeypatch.setattr(spark_rounds, "measured", measure)
    found = rounds(contest_of("Tidelog", "Kafka"), jobs_of, 4, warm_up=0, repeats=2)
    assert list(found) == ["Tidelog"]
    assert [figure.figure for figure in rates("read", "Tidelog", found, {"Kafka": 2.0})] == ["read", "read: processor"]


def test_only_the_connector_has_the_target() -> None:
    found = {
        name: Rounds([Taken(rows=rate, seconds=1.0, cpu_us=1e6 / rate)])
        for name, rate in {"Tidelog": 300, "prebuilt Arrow": 400, "Kafka": 100}.items()
    }
    shown = {figure.figure: figure for figure in rates("read", "Tidelog", found, {"Kafka": 2.0})}
    assert shown["read / prebuilt Arrow"].ratio == 0.75
    assert shown["read / prebuilt Arrow"].target is None
    assert shown["read / Kafka"].met
    assert shown["read: processor / Kafka"].ratio == pytest.approx(1 / 3)
    assert [figure.figure for figure in rates("read", "Tidelog", found, {}, baselines=["Kafka"])] == [
        "read / Kafka",
        "read: processor / Kafka",
    ]


# --- the suite ---


def test_every_part_yields_its_figures_with_their_targets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: each target of the suite is printed. Method: clients answer at once, the connector is 2.5 times slower."""

    class Answers(FakeClients):
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def do(self, kind: str, job: Job) -> dict[str, Any]:
            if job.do == "small_batches":
                return {"small_ms": [50.0, 90.0, 60.0], "empty_ms": [5.0], "steps_ms": {"addBatch": 40}}
            return {"rows": job.rows, "seconds": job.rows / 1e6 * self.factor}

    class FakeSparkSystem(FakeSystem):
        bootstrap = "a:1"
        pids: tuple[int, ...] = ()

    def measure(contest: Contest, lane: Lane, job: Job) -> Taken:
        answer = lane.clients.do("spark", job)
        asked.add((lane.system.name, job.do, job.connector))
        return Taken(answer["rows"], answer["seconds"], 1.0)

    def lanes(run: Run, stack: object) -> Iterator[Lane]:
        for name, factor in {"Tidelog": 1.0, "Kafka": 2.5}.items():
            yield Lane(FakeSparkSystem(name), Answers(factor))  # type: ignore[arg-type]

    asked: set[tuple[str, str, str]] = set()
    monkeypatch.setattr(spark_rounds, "measured", measure)
    monkeypatch.setattr(suite_spark, "_lanes", lanes)
    monkeypatch.setattr(suite_spark, "find_java", lambda: "java")
    monkeypatch.setattr("bench.cluster_contest.settle", lambda system, seconds: None)
    found = {figure.figure: figure for figure in suite_spark.figures(Run(tmp_path, quick=True, say=lambda _: None))}
    targets = {name: figure.target for name, figure in found.items() if figure.target is not None}
    assert targets == {
        "read 100 B, all columns / Kafka": 2.0,
        "read 100 B, value only / Kafka": 3.0,
        "read 1 KiB, all columns / Kafka": 3.0,
        "read 1 KiB, value only / Kafka": 3.0,
        "stream 100 B in micro-batches of 50,000 rows / Tidelog, batch": 0.8,
        "micro-batch of 20 rows, median": 200.0,
        "trigger that finds nothing, median": 200.0,
        "write 100 B, exactly once / Kafka's sink": 2.0,
        "write 100 B, exactlyOnce=false / Kafka's sink": 2.0,
        "write 1 KiB, exactly once / Kafka's sink": 2.0,
        "write 1 KiB, exactlyOnce=false / Kafka's sink": 2.0,
        "read 100 B, 100,000 rows / 100,000": 1.2,
        "read 100 B, 100,000 rows / 100,000, processor": 1.2,
        "read 100 B, 200,000 rows / 100,000": 1.2,
        "read 100 B, 200,000 rows / 100,000, processor": 1.2,
    }
    assert asked == {
        ("Tidelog", "read", "prebuilt"),
        *((name, do, name.lower()) for name in ("Tidelog", "Kafka") for do in ("read", "stream", "write")),
    }
    assert found["read 100 B, all columns / Kafka"].met
    assert not found["read 1 KiB, all columns / Kafka"].met
    assert found["read 100 B, count / prebuilt Arrow"].ratio == 1.0
    assert found["micro-batch of 20 rows, longest"].value == 90.0
    assert found["read 100 B, 4 partitions / 1"].ratio == 1.0


def test_each_stream_has_a_checkpoint_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: no round continues the query of the one before, which would read nothing."""
    seen: list[str] = []

    def measure(contest: Contest, lane: Lane, job: Job) -> Taken:
        seen.extend([job.options["checkpointLocation"]] if job.do == "stream" else [])
        return Taken(1, 1.0, 1.0)

    contest = contest_of("Tidelog", "Kafka")
    for lane in contest.lanes:
        lane.system.bootstrap = "a:1"  # type: ignore[misc]
    monkeypatch.setattr(spark_rounds, "measured", measure)
    monkeypatch.setattr(suite_spark, "_topics", lambda *arguments: _Nothing())
    assert list(suite_spark._stream_rates(contest, suite_spark._FULL, rows=10, batch_rows=2))
    assert len(seen) == len(set(seen)) == 2 * (suite_spark._FULL.warm_up + suite_spark._FULL.repeats)


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def test_a_run_in_which_tidelog_failed_ends_with_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failing(contest: Contest, effort: object) -> Iterator[Figure]:
        yield Figure("read", 1.0, "rows/s")
        raise SystemFailed("no answer")

    monkeypatch.setattr(suite_spark, "_lanes", lambda run, stack: iter([]))
    monkeypatch.setattr(suite_spark, "find_java", lambda: "java")
    monkeypatch.setattr(suite_spark, "_batch", failing)
    with pytest.raises(SystemFailed, match="1 measurements of Tidelog failed, the first: no answer"):
        list(suite_spark.figures(Run(tmp_path, only=("batch",), say=lambda _: None)))


def test_without_java_the_suite_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert list(suite_spark.figures(Run(tmp_path, say=said.append))) == []
    assert said == ["the suite is left out: no Java 17; Debian: apt install openjdk-17-jre-headless"]


def test_large_topics_are_filled_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    class Counts(FakeClients):
        def do(self, kind: str, job: Job) -> dict[str, Any]:
            told.append(job.rows)
            return {}

    system: Any = FakeSystem("Tidelog")
    system.bootstrap = "a:1"
    lane = Lane(system, Counts())  # type: ignore[arg-type]
    suite_spark._fill(lane, "rows", 4, 100, 25_000_000)
    suite_spark._fill(lane, "rows", 4, 100, 0)
    assert told == [10_000_000, 10_000_000, 5_000_000]


def test_parts_are_those_of_the_option() -> None:
    assert PARTS == ("batch", "streaming", "sink", "growth")


def test_a_missing_connector_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PeerMissing, match="make bench SUITE=spark PEER=kafka"):
        KafkaWithConnector(tmp_path / "kafka", environment=tmp_path / "none")


# --- prebuilt Arrow ---


def test_prebuilt_batches_have_the_columns_of_the_query() -> None:
    columns = [each.split()[0] for each in prebuilt_arrow.COLUMNS.split(", ")]
    whole = batch_of(columns, value_bytes=100)
    assert whole.schema.names == columns
    assert {len(value or b"") for value in whole["value"].to_pylist()} == {100}
    assert batch_of(["partition"], value_bytes=100).schema == pa.schema({"partition": pa.int32()})


def test_prebuilt_tasks_share_the_rows() -> None:
    reader = PrebuiltReader(["offset"], rows=3 * ROWS_PER_BATCH + 7, partitions=2, value_bytes=1)
    rows = [sum(batch.num_rows for batch in reader.read(task)) for task in reader.partitions()]
    assert sum(rows) == 3 * ROWS_PER_BATCH + 7
    assert max(rows) - min(rows) <= 1
