"""The profile of topics of a real cluster whose figures are known, and what jobs say when they cannot run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from node.process.local_cluster import LocalCluster
from tests.spark.job_runs import NO_RETENTION, run
from tidelog import sync
from tidelog.cli import main
from tidelog.jobs import archive, job_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]

BASE_MS = 1_714_564_800_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("profile"), nodes=1, settings=NO_RETENTION) as cluster:
        cluster.wait_healthy(120)
        yield cluster


def test_the_figures_are_those_of_the_records(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    """Partition 0: a record a second, half of them of one key, every tenth a minute late, after an aborted transaction
    of 5 records. Partition 1: ten records without keys. Partition 2 is empty."""
    cluster.create_topic("known", 3, 1)
    with (
        sync.Producer(cluster.bootstrap, transactional_id="aborted") as producer,
        pytest.raises(ZeroDivisionError),
        producer.transaction() as transaction,
    ):
        transaction.enqueue_many("known", [b"never"] * 5, partition=0)
        transaction.flush()
        raise ZeroDivisionError
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many(
            "known",
            [b"x" * 100] * 1000,
            keys=[b"hot" if number % 2 else b"key %d" % number for number in range(1000)],
            partition=0,
            timestamp=[BASE_MS + number * 1000 - (60_000 if number % 10 == 9 else 0) for number in range(1000)],
        )
        producer.send_many("known", [b"y" * 10] * 10, partition=1, headers=[[("name", b"12")]] * 10, timestamp=BASE_MS)
    page = tmp_path / "page.html"
    code, report = run("profile", cluster, "known", "--html", str(page))
    (topic,) = report["topics"]
    first, second, third = topic["partitions"]
    assert code == 0
    assert [each["records"] for each in (topic, first, second, third)] == [1010, 1000, 10, 0]
    assert (first["logEndOffset"], first["gaps"]["absentOffsets"], first["gaps"]["holes"]) == (1006, 6, 0)
    assert first["valueBytes"] == 100_000 and first["keyBytes"] == 500 * 3 + sum(
        len(f"key {n}") for n in range(0, 1000, 2)
    )
    assert (first["keys"]["distinct"], first["keys"]["shareOfTop1"]) == (501, 0.5)
    assert first["keys"]["top"][0] == {"key": "hot", "records": 500}
    assert (first["delay"]["lateRecords"], first["delay"]["ms"]["max"]) == (100, 59_000)
    assert first["interArrivalMs"]["p50"] == pytest.approx(1000, rel=0.01)
    assert first["interArrivalMs"]["max"] == 61_000
    assert first["sizeBytes"]["p50"] == pytest.approx(104, rel=0.05)
    assert (second["nullKeys"], second["keys"]["distinct"], second["keys"]["top"]) == (
        10,
        0,
        [{"key": None, "records": 10}],
    )
    assert (second["headerBytes"], second["sizeBytes"]["max"], second["recordsPerSecond"]) == (60, 16, None)
    assert topic["partitionSkew"] == pytest.approx(1000 / 1010 * 3)
    assert first["compressionRatio"]["zstd"] > first["compressionRatio"]["lz4"] / 2 > 1
    assert page.read_text().count("data:image/png;base64,") == 1

    code, report = run("profile", cluster, "known", "--last", "100")
    assert [each["records"] for each in report["topics"][0]["partitions"]] == [100, 10, 0]


def test_what_cannot_be_profiled_is_named(
    spark: SparkSession, cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("empty", 1, 1)
    assert run("profile", cluster, "empty")[1]["topics"][0]["records"] == 0
    assert run("profile", cluster, "absent") == (1, None)
    assert "topic 'absent' does not exist" in capsys.readouterr().err
    assert run("profile", cluster) == (2, None)


def test_shuffles_have_as_many_partitions_as_the_session_has_cores(spark: SparkSession) -> None:
    """Unless the user has chosen a number. A session that is there already is left as it was."""
    key, other = "spark.sql.shuffle.partitions", "spark.sql.adaptive.coalescePartitions.enabled"
    chosen = spark.conf.get(key)

    def within(conf: list[tuple[str, str]], settings: dict[str, str]) -> tuple[str | None, str | None]:
        arguments: Any = Namespace(conf=conf, master=None)
        with job_session.spark_session(arguments, "test", settings) as session:
            return session.conf.get(key), session.conf.get(other)

    assert within([], {}) == (chosen, "true")
    spark.conf.unset(key)
    try:
        assert within([], job_session.FIXED_TASKS) == (str(spark.sparkContext.defaultParallelism), "false")
        assert within([(key, "7")], {}) == ("7", "true")
        assert (spark.conf.get(key), spark.conf.get(other)) == ("200", "true")
    finally:
        spark.conf.set(key, str(chosen))


def test_the_command_and_the_program_take_the_same_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "archive", "--help"]) == 0
    helped = capsys.readouterr().out
    assert archive.main(["--help"]) == 0
    assert {line.split()[0] for line in helped.splitlines() if line.startswith("  --")} <= set(
        capsys.readouterr().out.split()
    )
    assert main(["job", "archive", "--to", "x", "--nonsense"]) == 2
    assert "--nonsense" in capsys.readouterr().err


def test_jobs_say_what_spark_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    assert archive.main(["t", "--to", "x"]) == 1
    assert "JAVA_HOME is /nonexistent, which has no bin/java" in capsys.readouterr().err
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert archive.main(["t", "--to", "x"]) == 1
    assert "needs Java 17, and there is no java in PATH" in capsys.readouterr().err
    monkeypatch.setattr(job_session, "find_spec", lambda name: None)
    assert archive.main(["t", "--to", "x"]) == 1
    assert "pip install 'tidelog[jobs]'" in capsys.readouterr().err
