"""Spark reads a topic with a remote tier: history from the store, the tail from the nodes; batch and streaming."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tests.integration.tiered_cluster import START_S, create_tiered_topic, first_on_disk, tiering_settings
from tests.spark.iceberg_files import rows_of
from tests.spark.job_runs import run
from tests.spark.stream_runs import OFTEN, StreamRun, consumed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.deep]

TOPIC = "orders"
NEEDS_ICEBERG = pytest.mark.skipif(
    not os.environ.get("TIDELOG_ICEBERG_JAR"),
    reason="TIDELOG_ICEBERG_JAR names no jar of Iceberg; make test-deep fetches it",
)
RECORDS = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("history")
    settings = {
        **tiering_settings(f"file://{folder}/store"),
        **OFTEN,
    }
    with LocalCluster(folder / "nodes", settings=settings) as cluster:
        create_tiered_topic(cluster, TOPIC, 2, segment_bytes=20_000)
        asyncio.run(produce(cluster))
        cluster.wait_until(
            lambda: all(first_on_disk(cluster.nodes[0], TOPIC, index) > RECORDS // 3 for index in range(2)),
            within_s=START_S,
            what="copied segments leave the nodes",
        )
        yield cluster


async def produce(cluster: LocalCluster) -> None:
    """Records outside of transactions, of committed ones and of aborted ones, over several segments each."""
    async with (
        tidelog.Producer(cluster.bootstrap) as plain,
        tidelog.Producer(cluster.bootstrap, transactional_id="kept") as kept,
        tidelog.Producer(cluster.bootstrap, transactional_id="aborted") as aborted,
    ):
        for first in range(0, RECORDS, 100):
            with suppress(KeyError):
                async with aborted.transaction():
                    async with kept.transaction():
                        for number in range(first, first + 100):
                            producer = (plain, aborted, kept)[number % 3]
                            await producer.enqueue(TOPIC, b"%d " % number + b"x" * 500, partition=number % 2)
                            await producer.flush()
                    raise KeyError


def frame_of(spark: SparkSession, cluster: LocalCluster, **options: str) -> DataFrame:
    asked = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC, "remoteStorage": "on", **options}
    return spark.read.format("tidelog").options(**asked).load()


def numbers(rows: list[bytes | bytearray | None]) -> list[int]:
    return sorted(int(bytes(value or b"").partition(b" ")[0]) for value in rows)


KEPT = [number for number in range(RECORDS) if number % 3 != 1]


def test_a_frame_has_each_committed_record_once(spark: SparkSession, cluster: LocalCluster) -> None:
    """Takes some 20 s: three nodes and Spark. Shown: history from the store and the tail from the nodes are the rows
    that a consumer gets, also in many small tasks; aborted transactions are left out wherever they end; a store that
    the executors do not reach is named, with what to do."""
    rows = frame_of(spark, cluster).select("topic", "partition", "offset", "value").collect()
    found = sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in rows)
    assert found == consumed(cluster, (TOPIC, 0), (TOPIC, 1))
    assert numbers([value for *_, value in found]) == KEPT
    small = frame_of(spark, cluster, maxRecordsPerPartition="37").select("value")
    assert numbers([row.value for row in small.collect()]) == KEPT
    with pytest.raises(Exception, match=r'ObjectStoreRefused.*set "remoteStorage" to "off"'):
        frame_of(spark, cluster, remoteStorage=f"file://{cluster.directory}/not-mounted").count()


def test_a_stream_reads_years_of_history_and_goes_on(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Takes some 20 s: a query with availableNow, in micro-batches that end anywhere in segments, and again after new
    records. Shown: each committed record once."""
    run = StreamRun(
        spark, cluster, tmp_path / "checkpoint", subscribe=TOPIC, remoteStorage="on", maxOffsetsPerTrigger="150"
    )
    run.run()
    assert len(run.batches) > 3
    assert numbers([value for *_, value in run.rows]) == KEPT
    before = len(run.rows)

    async def go_on() -> None:
        async with tidelog.Producer(cluster.bootstrap) as producer:
            for number in range(RECORDS, RECORDS + 30):
                await producer.send(TOPIC, b"%d " % number, partition=number % 2)

    asyncio.run(go_on())
    run.run()
    assert len(run.rows) == before + 30
    assert run.rows == consumed(cluster, (TOPIC, 0), (TOPIC, 1))


JOBS = ("archive", "profile", pytest.param("table", marks=NEEDS_ICEBERG), "audit")


@pytest.mark.parametrize("job", JOBS)
def test_a_job_takes_history_from_the_store(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seconds to a minute each: real Spark. With `--remote-storage`, each committed record is in the job's result once,
    also the first ones, which are only in the store. With a copy of the store in which the first object is missing, the
    job ends with its name and the next step: it has not read these records through the nodes."""
    code, report = run(job, cluster, TOPIC, "--remote-storage", "on", *places(job, tmp_path))
    assert code == 0, report
    expected = consumed(cluster, (TOPIC, 0), (TOPIC, 1))
    assert len(expected) >= len(KEPT)
    match job:
        case "archive":
            rows = spark.read.parquet(str(tmp_path / "archive")).collect()
            found = sorted((row.topic, row.partition, row.offset, bytes(row.value)) for row in rows)
            assert found == expected
        case "table":
            table = rows_of(tmp_path / "lake" / "shop" / TOPIC)
            assert [(TOPIC, row["partition"], row["offset"], row["value"]) for row in table] == expected
        case "profile":
            (topic,) = report["topics"]
            assert topic["records"] == len(expected)
        case _:
            assert report["partitions"] == run(job, cluster, TOPIC)[1]["partitions"]

    copy = tmp_path / "copy"
    shutil.copytree(cluster.directory.parent / "store", copy)
    first = min(copy.glob("*/0/*.segment"))
    first.unlink()
    capsys.readouterr()
    code, report = run(job, cluster, TOPIC, "--remote-storage", f"file://{copy}", *places(job, tmp_path / "other"))
    assert code == 1
    said = json.dumps(report) if job == "audit" else capsys.readouterr().err
    assert first.name in said
    assert "restore the object, or delete the records up to the end of its segment" in said


def places(job: str, folder: Path) -> list[str]:
    """The arguments that say where the result goes."""
    if job == "archive":
        return ["--to", str(folder / "archive")]
    if job == "table":
        settings = ("=org.apache.iceberg.spark.SparkCatalog", ".type=hadoop", f".warehouse={folder / 'lake'}")
        conf = [part for each in settings for part in ("--conf", f"spark.sql.catalog.lake{each}")]
        return ["--to", f"lake.shop.{TOPIC}", "--once", *conf]
    return []


def test_a_segment_that_is_deleted_after_the_plan_is_told(spark: SparkSession, cluster: LocalCluster) -> None:
    """Last: it deletes records. A frame is planned at its first action, and fails at the second one; loaded again, it
    has what is left."""
    frame = frame_of(spark, cluster).select("partition", "offset", "value")
    first = frame.where("partition = 0").limit(1).count()
    assert first == 1

    async def delete() -> int:
        async with tidelog.Admin(cluster.bootstrap) as admin:
            await admin.delete_records({(TOPIC, 0): RECORDS // 4})
            return len(await admin.list_topics())

    assert asyncio.run(delete())
    store = cluster.directory.parent / "store"
    cluster.wait_until(
        lambda: not any(f"/{0:020d}-" in str(file) for file in store.glob("*/0/*.segment")),
        within_s=60,
        what="the objects of deleted segments leave the store",
    )
    with pytest.raises(Exception, match=r"RemoteObjectMissing.*load the frame again"):
        frame.count()
    again = frame_of(spark, cluster).where("partition = 0").select("offset").collect()
    assert min(row.offset for row in again) >= RECORDS // 4
