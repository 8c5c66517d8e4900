"""Tables of a real cluster in a real Iceberg catalog: jobs that are killed, replaced and continued.

`make test-deep` fetches the jar of Iceberg and names it in TIDELOG_ICEBERG_JAR.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.table import StaticTable

from node.process.local_cluster import LocalCluster
from tests.spark.iceberg_files import metadata_file, metadata_of, rows_of
from tests.spark.job_runs import NO_RETENTION, produce, records_of, run, start
from tidelog import sync
from tidelog.jobs.iceberg_table import IcebergTable
from tidelog.types import PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAR = os.environ.get("TIDELOG_ICEBERG_JAR", "")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.deep,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not JAR, reason="TIDELOG_ICEBERG_JAR names no jar of Iceberg; make test-deep fetches it"),
]

BASE_MS = 1_714_564_800_123
KILLS = 4
SEED = 34


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("table"), nodes=1, settings=NO_RETENTION) as cluster:
        cluster.wait_healthy(120)
        yield cluster


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The warehouse of a catalog."""
    return tmp_path_factory.mktemp("lake")


def catalog(lake: Path) -> list[str]:
    settings = ("=org.apache.iceberg.spark.SparkCatalog", ".type=hadoop", f".warehouse={lake}")
    return [part for each in settings for part in ("--conf", f"spark.sql.catalog.lake{each}")]


def keep(cluster: LocalCluster, lake: Path, topic: str, *arguments: str) -> tuple[int, Any]:
    return run("table", cluster, topic, "--to", f"lake.shop.{topic}", "--once", *catalog(lake), *arguments)


def topic_of(cluster: LocalCluster, topic: str, count: int, partitions: int = 2) -> None:
    cluster.create_topic(topic, partitions, 1, retention_ms="-1")
    produce(cluster, topic, range(count), partitions=partitions, base_ms=BASE_MS)


def ensure_each_once(cluster: LocalCluster, table: Path, topic: str) -> None:
    expected = [(each.partition, each.offset, each.key, each.value) for each in records_of(cluster, topic)]
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows_of(table)] == expected


@pytest.mark.timeout(3600)
def test_each_offset_is_in_the_table_once_whenever_the_job_is_killed(cluster: LocalCluster, lake: Path) -> None:
    """Some minutes: a job with many small batches is killed with its JVM at random moments, four times, each with a
    Spark of its own; transactions, one of them aborted, leave holes. Nothing but the table is left of each run."""
    topic_of(cluster, "killed", 300)
    with sync.Producer(cluster.bootstrap, transactional_id="holes") as producer:
        with producer.transaction() as transaction:
            transaction.send("killed", b"committed", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send("killed", b"aborted", partition=0)
            transaction.flush()
            raise ZeroDivisionError
    table, rng = lake / "shop" / "killed", random.Random(SEED)
    places = ("killed", "--to", "lake.shop.killed", "--conf", f"spark.jars={JAR}", *catalog(lake))
    for kill in range(KILLS):
        before = commits_of(table)
        job = start("table", cluster, *places, "--offsets-per-batch", "20", "--trigger", "100 milliseconds")
        try:
            cluster.wait_until(
                lambda: job.poll() is not None or commits_of(table) > before + kill % 2,  # noqa: B023
                within_s=800,
                what="batches are committed",
            )
            with suppress(subprocess.TimeoutExpired):
                pytest.fail(f"the job ended: {job.communicate(timeout=rng.random())}")
        finally:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
    last = start("table", cluster, *places, "--once")
    report, said = last.communicate(timeout=800)
    assert last.returncode == 0 and json.loads(report)["records"] > 0, said
    ensure_each_once(cluster, table, "killed")


def commits_of(table: Path) -> int:
    return len(list((table / "metadata").glob("snap-*.avro")))


def test_a_commit_with_an_unknown_outcome_is_found_in_the_table(
    cluster: LocalCluster, spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seconds to a minute, as all below: real Spark. The job ends right after the commit, and right before it: the next
    run reads from the table which one it was."""
    topic_of(cluster, "unknown", 40)
    commit: Any = IcebergTable.commit

    def ends_behind(self: IcebergTable, *what: Any) -> None:
        commit(self, *what)
        raise OSError("the job ends here")

    def ends_before(self: IcebergTable, *what: Any) -> None:
        raise OSError("the job ends here")

    for fault, rows in ((ends_before, 0), (ends_behind, 20), (ends_before, 20)):
        with monkeypatch.context() as patch:
            patch.setattr(IcebergTable, "commit", fault)
            assert keep(cluster, lake, "unknown", "--offsets-per-batch", "20")[0] == 1
        assert len(rows_of(lake / "shop" / "unknown")) == rows
    assert keep(cluster, lake, "unknown")[1]["records"] == 20
    assert keep(cluster, lake, "unknown")[1]["records"] == 0
    ensure_each_once(cluster, lake / "shop" / "unknown", "unknown")


def test_a_job_that_was_replaced_while_it_wrote_commits_nothing(
    cluster: LocalCluster, spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """The second job keeps the table from beginning to end between the first one's files and its commit."""
    topic_of(cluster, "shared", 60)
    write: Any = IcebergTable.write
    reports = []

    def write_and_wait(self: IcebergTable, *what: Any) -> Any:
        written = write(self, *what)
        monkeypatch.setattr(IcebergTable, "write", write)
        reports.append(keep(cluster, lake, "shared"))
        return written

    monkeypatch.setattr(IcebergTable, "write", write_and_wait)
    code, _ = keep(cluster, lake, "shared", "--offsets-per-batch", "30")
    assert code == 1 and "another program writes to table lake.shop.shared" in capfd.readouterr().err
    assert reports[0][0] == 0 and reports[0][1]["records"] == 60
    ensure_each_once(cluster, lake / "shop" / "shared", "shared")


def test_a_schema_grows_and_what_does_not_fit_is_kept(
    cluster: LocalCluster, spark: SparkSession, lake: Path, capfd: Any
) -> None:
    """A field at each depth, and wider types; another change is refused by name. Files have no ids of fields: the
    name mapping must have those of the schema, by which others read. A table of more than 100 columns has no figures of
    the last ones, and rows in quarantine are counted nevertheless."""
    cluster.create_topic("orders", 1, 1, retention_ms="-1")
    assert keep(cluster, lake, "orders", "--schema", "id INT, ID INT")[0] == 1
    assert "value.id and value.ID" in capfd.readouterr().err and not (lake / "shop" / "orders").exists()
    many = ", ".join(f"column{number} INT" for number in range(100))
    first = [b'{"id": 1, "who": {"name": "a"}}', b'{"id": 2, "more": 1}', b"\xff", None, b'{"id": "x"}']
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many("orders", first)
    code, report = keep(
        cluster, lake, "orders", "--schema", f"{many}, id INT, price DECIMAL(9,2), who STRUCT<name: STRING>"
    )
    assert code == 0 and (report["records"], report["quarantined"]) == (5, 3)
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many("orders", [b'{"id": 5000000000, "who": {"name": "b", "tags": ["x"]}, "n": {"a": 1}}'])
    wider = f"{many}, id BIGINT, price DECIMAL(12,2), who STRUCT<name: STRING, tags: ARRAY<STRING>>, n MAP<STRING, INT>"
    assert keep(cluster, lake, "orders", "--schema", wider)[1]["quarantined"] == 0
    assert keep(cluster, lake, "orders", "--schema", "id INT, price DECIMAL(12,2)")[0] == 1
    assert "value.id is long, and does not become int" in capfd.readouterr().err
    table = lake / "shop" / "orders"
    rows = rows_of(table)
    assert [(row["value"] and row["value"]["id"]) for row in rows] == [1, 2, None, None, None, 5_000_000_000]
    kept = [row["quarantine"] and row["quarantine"]["value"] for row in rows]
    assert kept == [None, first[1], first[2], None, first[4], None]
    assert mapped_ids(json.loads(metadata_of(table)["properties"]["schema.name-mapping.default"])) == field_ids(table)
    read = StaticTable.from_metadata(str(metadata_file(table))).scan().to_arrow().to_pylist()
    read.sort(key=lambda row: int(row["offset"]))
    assert [(row["value"] and row["value"]["id"]) for row in read] == [1, 2, None, None, None, 5_000_000_000]
    assert read[5]["value"]["who"] == {"name": "b", "tags": ["x"]} and read[0]["value"]["who"]["tags"] is None


def mapped_ids(mapping: list[Any], path: str = "") -> dict[str, int]:
    """The id of each path in a name mapping."""
    found = {}
    for each in mapping:
        (name,) = each["names"]
        found[path + name] = each["field-id"]
        found |= mapped_ids(each.get("fields", []), f"{path}{name}.")
    return found


def field_ids(table: Path) -> dict[str, int]:
    """The id of each path in the schema of a table."""
    metadata = metadata_of(table)
    (schema,) = (each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    return _ids_in(schema, "")


def _ids_in(kind: Any, path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    if not isinstance(kind, dict):
        return found
    inner = [(each["name"], each["id"], each["type"]) for each in kind.get("fields", [])]
    inner += [(name, kind[f"{name}-id"], kind[name]) for name in ("element", "key", "value") if f"{name}-id" in kind]
    for name, number, each in inner:
        found |= {path + name: number, **_ids_in(each, f"{path}{name}.")}
    return found


def test_lost_records_and_another_topic_are_told(
    cluster: LocalCluster, spark: SparkSession, lake: Path, capfd: Any
) -> None:
    """Retention overtakes the table: an error, then a count. The topic is created again: an error, always."""
    topic_of(cluster, "lost", 20, partitions=1)
    assert keep(cluster, lake, "lost")[1]["records"] == 20
    produce(cluster, "lost", range(10), partitions=1, base_ms=BASE_MS)
    with sync.Admin(cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition("lost", PartitionIndex(0)): 25})
    assert keep(cluster, lake, "lost")[0] == 1
    said = capfd.readouterr().err
    assert "table lake.shop.lost cannot continue" in said and "--accept-loss continues without them" in said
    _, report = keep(cluster, lake, "lost", "--accept-loss")
    assert (report["records"], report["skipped"]) == (5, 5)
    assert [row["offset"] for row in rows_of(lake / "shop" / "lost")] == [*range(20), *range(25, 30)]
    with sync.Admin(cluster.bootstrap) as admin:
        admin.delete_topic("lost")
    topic_of(cluster, "lost", 40, partitions=1)
    for arguments in ((), ("--accept-loss",)):
        assert keep(cluster, lake, "lost", *arguments)[0] == 1
        assert "keep the topic that is there now in another table" in capfd.readouterr().err
    assert len(rows_of(lake / "shop" / "lost")) == 25
