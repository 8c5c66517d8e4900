"""Archives of a real cluster: written by a query that is killed and resumed, verified, moved and restored."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from node.process.local_cluster import LocalCluster
from tests.spark.job_runs import NO_RETENTION, produce, records_of, run, start
from tidelog import sync
from tidelog.errors import InvalidTimestamp
from tidelog.jobs import archive as archive_job
from tidelog.jobs import audit as audit_job
from tidelog.jobs import restore as restore_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.timeout(900)]

BASE_MS = 1_714_564_800_123  # 2024-05-01, 12:00:00.123 UTC
COUNT = 3_000
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("archive"), nodes=1, settings=NO_RETENTION) as cluster:
        cluster.wait_healthy(120)
        cluster.create_topic("orders", PARTITIONS, 1, retention_ms="-1")
        produce(cluster, "orders", range(COUNT), partitions=PARTITIONS, base_ms=BASE_MS)
        yield cluster


@pytest.fixture(scope="module")
def archive(cluster: LocalCluster, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of `orders`, made by jobs whose query is stopped in the midst of its batches and one that ends. The
    directory that contains it has the name of a partition."""
    target = tmp_path_factory.mktemp("archives") / "topic=orders" / "orders archive"
    arguments = ("archive", cluster, "orders", "--to", str(target), "--offsets-per-batch", "400")
    with ThreadPoolExecutor(1) as pool:
        for batches in (1, 3):
            job = pool.submit(run, *arguments)
            cluster.wait_until(
                lambda: job.done() or batches_in(target) >= batches,  # noqa: B023 - called in this round
                within_s=400,
                what=f"{batches} batches are written",
            )
            for query in spark.streams.active:
                query.stop()
            assert job.result()[0] == 0
            assert 0 < rows_in(spark, target) < COUNT, "it was not stopped in mid-run"
    leftover = next(target.rglob("*.parquet"))
    shutil.copy(leftover, leftover.with_name("part-99999-of-an-attempt-that-failed.zstd.parquet"))
    assert run(*arguments)[0] == 0
    return target


def test_the_rows_are_those_of_a_consumer_each_once(spark: SparkSession, cluster: LocalCluster, archive: Path) -> None:
    """Goal: nothing is lost or twice there after a kill. Method: compare Spark's rows with a plain consumer's."""
    rows = spark.read.parquet(str(archive)).orderBy("topic", "partition", "offset").collect()
    found = [
        (
            row.topic,
            row.partition,
            row.offset,
            round(row.timestamp.timestamp() * 1000),
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            tuple((each.key, each.value and bytes(each.value)) for each in row.headers or ()),
        )
        for row in rows
    ]
    assert found == [tuple(each)[:7] for each in records_of(cluster, "orders")]
    assert {row.timestampType for row in rows} == {0}
    days = {row.date: row.timestamp.date() for row in rows}
    assert len(days) == 13
    assert all(day == of_timestamp for day, of_timestamp in days.items())
    assert (archive / "topic=orders" / "date=2024-05-01").is_dir()


def test_verification_names_what_is_missing_and_what_does_not_count(
    cluster: LocalCluster, archive: Path, tmp_path: Path
) -> None:
    code, report = run("archive", None, "--to", str(archive), "--verify")
    assert (code, report["good"], report["records"], report["missing"]) == (0, True, COUNT, [])
    assert any("an-attempt-that-failed" in name for name in report["uncommitted"])
    assert [each["records"] for each in report["partitions"]] == [COUNT // 3] * 3
    code, listed = run("archive", None, "--to", str(archive), "--files")
    assert code == 0 and len(listed["files"]) == report["files"]
    assert not any("an-attempt-that-failed" in name for name in listed["files"])
    assert all(Path(name.removeprefix("file:")).is_file() for name in listed["files"])

    moved = tmp_path / "topic=a" / "date=b" / "moved [1] {a,b}*?"
    shutil.copytree(archive, moved)
    assert run("archive", None, "--to", str(moved), "--verify")[1]["records"] == COUNT
    counted = {name.rpartition("topic=orders/")[2] for name in listed["files"]}
    (moved / "notes.txt").write_text("a foreign file")
    assert "notes.txt" in run("archive", None, "--to", str(moved), "--verify")[1]["uncommitted"]
    victim = moved / "topic=orders" / min(counted)
    victim.unlink()
    code, report = run("archive", None, "--to", str(moved), "--verify")
    assert (code, report["good"], report["missing"]) == (1, False, [f"topic=orders/{min(counted)}"])
    assert run("archive", None, "--to", str(moved), "--files") == (1, None), "a list with a file that is missing"


def test_a_restored_topic_equals_the_original(
    cluster: LocalCluster, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything but offsets is kept, and the order; a second run writes nothing again, and says so."""
    cluster.create_topic("restored", PARTITIONS + 1, 1, retention_ms="-1")
    archive = shutil.copytree(archive, tmp_path / "[a]" / "topic=x")
    arguments = ("orders", "--from", str(archive), "--to-topic", "restored", "--offsets-per-step", "600")
    for _ in range(2):
        code, report = run("restore", cluster, *arguments)
        assert (code, report["topics"][0]["records"], report["topics"][0]["warnings"]) == (0, COUNT, [])
        assert in_order(cluster, "restored") == in_order(cluster, "orders")
    restored = report["topics"][0]
    assert restored["complete_before"] == restored["steps"] == 2
    assert restore_job.main([*arguments, "--bootstrap", cluster.bootstrap]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith(
        "in 3 partitions from " + str(archive) + ": it was complete already, and nothing was written\n"
    )
    assert "orders: step 2 of 2 was complete already" in printed.err


@pytest.mark.deep
def test_an_archive_with_a_missing_or_damaged_file_is_not_restored(
    cluster: LocalCluster, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the file. Nothing of the archive is in the target: the whole step is one transaction."""
    cluster.create_topic("damaged", PARTITIONS, 1, retention_ms="-1")
    moved = tmp_path / "moved"
    shutil.copytree(archive, moved)
    listed = run("archive", None, "--to", str(moved), "--files")[1]["files"]
    victim = Path(listed[0].removeprefix("file:"))
    data = victim.read_bytes()
    victim.write_bytes(bytes(len(data)))
    arguments = ("orders", "--from", str(moved), "--to-topic", "damaged")
    assert run("restore", cluster, *arguments) == (1, None)
    assert victim.name in capsys.readouterr().err
    victim.unlink()
    assert run("restore", cluster, *arguments) == (1, None)
    said = capsys.readouterr().err
    assert f"lacks 1 of {len(listed)} files, for example topic=orders/" in said and "restore them from a copy" in said
    assert in_order(cluster, "damaged") == []
    victim.write_bytes(data)
    assert run("restore", cluster, *arguments)[0] == 0
    assert in_order(cluster, "damaged") == in_order(cluster, "orders")


@pytest.mark.parametrize(
    "what",
    [
        "a flipped bit",
        pytest.param("4 bytes", marks=pytest.mark.deep),
        pytest.param("4 bytes beside Hadoop's checksums", marks=pytest.mark.deep),
        pytest.param("a short file", marks=pytest.mark.deep),
    ],
)
def test_damaged_values_are_found_and_not_restored(
    cluster: LocalCluster, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    """The bytes of a file of the archive are altered amid the pages of its values. `--verify` names the file and counts
    the records of the others, a restore writes nothing."""
    moved = tmp_path / "moved"
    shutil.copytree(archive, moved)
    names = run("archive", None, "--to", str(moved), "--files")[1]["files"]
    victim = Path(names[1].removeprefix("file:"))
    rows = pq.ParquetFile(victim).metadata.num_rows
    data = bytearray(victim.read_bytes())
    size = len(data)
    at = place_of_values(victim)
    if what == "a flipped bit":
        data[at] ^= 1
    elif what == "a short file":
        del data[500:]
    else:
        data[at : at + 4] = bytes(byte ^ 0xFF for byte in data[at : at + 4])
    if "Hadoop" not in what:
        for each in moved.rglob("*.crc"):
            each.unlink()
    victim.write_bytes(data)

    code, report = run("archive", None, "--to", str(moved), "--verify")
    assert (code, report["good"], report["missing"], report["files"]) == (1, False, [], len(names))
    assert [each["file"] for each in report["damaged"]] == [str(victim.relative_to(moved))]
    assert report["records"] == COUNT - rows
    cause = report["damaged"][0]["cause"]
    assert {
        "a flipped bit": "checksum verification failed",
        "4 bytes": "checksum verification failed",
        "4 bytes beside Hadoop's checksums": "Checksum error",
        "a short file": f"it has 500 bytes instead of {size}",
    }[what] in cause
    assert archive_job.main(["--to", str(moved), "--verify"]) == 1
    assert f"  DAMAGED: {victim.relative_to(moved)}: {cause}\n" in capsys.readouterr().out

    target = "altered-" + what.replace(" ", "-").replace("'", "")
    cluster.create_topic(target, PARTITIONS, 1, retention_ms="-1")
    assert run("restore", cluster, "orders", "--from", str(moved), "--to-topic", target) == (1, None)
    said = capsys.readouterr().err
    assert victim.name in said and cause in said and said.count("\n") == 1
    assert in_order(cluster, target) == []


def place_of_values(file: Path) -> int:
    """An offset in the midst of the largest page of values in an uncompressed or compressed column `value`."""
    group = pq.ParquetFile(file).metadata.row_group(0)
    column = next(
        group.column(index) for index in range(group.num_columns) if group.column(index).path_in_schema == "value"
    )
    start = column.dictionary_page_offset or column.data_page_offset
    return int(start + column.total_compressed_size // 2)


@pytest.mark.deep
def test_jobs_with_a_damaged_archive_print_a_sentence_and_nothing_of_spark(
    cluster: LocalCluster, archive: Path, tmp_path: Path
) -> None:
    """As programs of their own, with the log of Spark that users have."""
    cluster.create_topic("from-damage", PARTITIONS, 1, retention_ms="-1")
    moved = tmp_path / "moved"
    shutil.copytree(archive, moved)
    victim = Path(run("archive", None, "--to", str(moved), "--files")[1]["files"][0].removeprefix("file:"))
    victim.write_bytes(bytes(victim.stat().st_size))
    verify = start("archive", cluster, "--to", str(moved), "--verify")
    out, err = verify.communicate(timeout=400)
    assert (verify.returncode, json.loads(out)["good"]) == (1, False), err
    assert "Exception" not in err and " ERROR " not in err
    restore = start("restore", cluster, "orders", "--from", str(moved), "--to-topic", "from-damage")
    out, err = restore.communicate(timeout=400)
    assert (restore.returncode, out) == (1, "")
    assert victim.name in err and "nothing of this step was written" in err
    assert "Exception:" not in err and " ERROR " not in err and "Traceback" not in err


@pytest.mark.deep
def test_an_interrupt_while_spark_starts_is_a_sentence(cluster: LocalCluster, tmp_path: Path) -> None:
    """Ctrl-C reaches the job and the JVM that it has just started."""
    target = tmp_path / "never"
    process = start("archive", cluster, "orders", "--to", str(target))
    try:
        cluster.wait_until(lambda: has_child(process.pid), within_s=400, what="the job has started a JVM")
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, ""), err
    assert "the job ends as soon as Spark has started" in err
    assert "tidelog job archive: interrupted: batches that were complete are in the archive" in err
    assert "Traceback" not in err and "py4j" not in err
    assert not target.exists()


def has_child(pid: int) -> bool:
    """Whether the process has started another one."""
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())


@pytest.mark.deep
def test_of_two_archives_with_one_target_one_ends_in_a_sentence(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """And the other one, or one that is started again where both ended, continues: each record is in the archive
    once."""
    cluster.create_topic("contested", 1, 1, retention_ms="-1")
    target = tmp_path / "contested"
    arguments = ("archive", cluster, "contested", "--to", str(target), "--continuous", "--trigger", "100 milliseconds")
    jobs = [start(*arguments)]
    try:
        produce(cluster, "contested", range(10), partitions=1, base_ms=BASE_MS)
        cluster.wait_until(lambda: batches_in(target) > 0, within_s=400, what="a batch is written")
        jobs.append(start(*arguments))
        number = 10
        while all(job.poll() is None for job in jobs):
            produce(cluster, "contested", range(number, number + 1), partitions=1, base_ms=BASE_MS)
            number += 1
        cluster.wait_until(
            lambda: all(job.poll() is not None for job in jobs) or rows_in(spark, target) >= number,
            within_s=400,
            what="the other one has the rest, or has ended as well",
        )
        ended = [job for job in jobs if job.poll() is not None]
        for job in ended:
            out, err = job.communicate(timeout=400)
            assert (job.returncode, out) == (1, ""), err
            assert f"tidelog job archive: another archive job writes to {target}, and a target takes one at a" in err
            assert "Traceback" not in err and " ERROR " not in err
        for job in jobs:
            if job not in ended:
                job.send_signal(signal.SIGTERM)
                job.communicate(timeout=400)
                assert job.returncode == 0
    finally:
        for job in jobs:
            job.kill()
    assert run("archive", cluster, "contested", "--to", str(target))[0] == 0
    assert run("archive", None, "--to", str(target), "--verify")[1]["records"] == number


def test_arguments_that_cannot_be_right_are_told_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "events.json")
    assert archive_job.main(["orders", "--to", str(tmp_path / "t"), "--schema", nowhere]) == 1
    assert f"--schema {nowhere}: there is no file" in capsys.readouterr().err
    assert archive_job.main(["orders", "--to", str(tmp_path / "t"), "--trigger", "1 second"]) == 2
    assert "--trigger belongs to --continuous" in capsys.readouterr().err


@pytest.mark.deep
def test_an_archive_is_ended_by_a_signal_in_a_sentence_and_continues(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Spark's log of what its tasks suffer at the end is not printed. The target has a foreign file."""
    target = tmp_path / "ended"
    target.mkdir()
    (target / "notes.txt").write_text("a foreign file")
    arguments = ("archive", cluster, "orders", "--to", str(target), "--offsets-per-batch", "100")
    process = start(*arguments)
    try:
        cluster.wait_until(
            lambda: batches_in(target) >= 2 or process.poll() is not None, within_s=400, what="2 batches are written"
        )
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    assert (process.returncode, out) == (143, ""), err
    assert "tidelog job archive: ended by SIGTERM: batches that were complete are in the archive" in err
    assert " ERROR " not in err and "Exception" not in err
    assert 0 < rows_in(spark, target) < COUNT
    assert run(*arguments)[0] == 0
    assert rows_in(spark, target) == COUNT


@pytest.mark.deep
def test_a_continuous_archive_ends_well_when_a_signal_ends_the_jvm_too(cluster: LocalCluster, tmp_path: Path) -> None:
    """As systemd ends a service: each process of it receives SIGTERM. No error of the bridge to the JVM is printed."""
    target = tmp_path / "service"
    process = start("archive", cluster, "orders", "--to", str(target), "--continuous", "--trigger", "100 milliseconds")
    try:
        cluster.wait_until(
            lambda: batches_in(target) > 0 or process.poll() is not None, within_s=400, what="a batch is written"
        )
        os.killpg(process.pid, signal.SIGTERM)
        out, err = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode == 0, err
    report = json.loads(out)
    assert report["stopped"] and report["records"] in (0, COUNT), "what the JVM has not told yet is not in the report"
    assert "Traceback" not in err and "py4j" not in err
    assert run("archive", None, "--to", str(target), "--verify")[1]["records"] == COUNT


def test_a_part_is_restored(cluster: LocalCluster, archive: Path) -> None:
    cluster.create_topic("part", PARTITIONS, 1)
    bounds = ("--start-time", "2024-05-02", "--end-time", "2024-05-05T06:00:00+00:00", "--partition", "1")
    code, report = run("restore", cluster, "orders", "--from", str(archive), "--to-topic", "part", *bounds)
    assert code == 0
    wanted = [each for each in in_order(cluster, "orders") if 1_714_608_000_000 <= each[1] < 1_714_888_800_000]
    assert in_order(cluster, "part") == [each for each in wanted if each[0] == 1]
    assert any("retention.ms" in warning for warning in report["topics"][0]["warnings"])


@pytest.mark.deep
def test_what_cannot_be_restored_is_refused(
    cluster: LocalCluster, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.create_topic("small", 1, 1)
    cluster.create_topic("restamped", PARTITIONS, 1, message_timestamp_type="LogAppendTime")
    source = ("--from", str(archive))
    for arguments, said in (
        (("orders", *source, "--to-topic", "small"), "has 1 partitions, and the archive has records of partition 2"),
        (("orders", *source, "--to-topic", "restamped"), "LogAppendTime"),
        (("orders", *source, "--to-topic", "nowhere"), "nowhere"),
        (("unknown", *source, "--to-topic", "small"), "no records of topic 'unknown'; it has those of 'orders'"),
        (("orders", *source, "--start-offset", "999999"), "are within the bounds given"),
        (("orders", "--from", str(tmp_path), "--to-topic", "small"), "is no archive"),
    ):
        assert run("restore", cluster, *arguments) == (1, None)
        assert said in capsys.readouterr().err
    process = start("restore", cluster, "unknown", *source)  # to a topic of the same name, which there is not either
    out, err = process.communicate(timeout=400)
    assert (process.returncode, out) == (1, "")
    assert "no records of topic 'unknown'; it has those of 'orders'" in err
    assert err.count("\n") == 1, "before Spark starts"


def test_values_are_parsed_and_malformed_ones_kept_aside(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.create_topic("events", 1, 1)
    good: list[bytes | None] = [b'{"level": "warn", "status": 404}', b'{"status": 7, "more": true}', None]
    bad: list[bytes | None] = [
        *(b"no json", b'{"status": "not a number"}', b'{"level": "\xff"}', b"", b"[1]"),
        *(b'{"status":1} garbage', b'{"status":1}{"status":2}', b'{"status":1}\0', b"{'status':1}", b'{"status":NaN}'),
        *(b'{"level":1}', b'{"status":"1"}', b'{"price":1.239}', b'{"status":1,"status":1}', b'{"double":1e400}'),
    ]
    all_types = (
        '{"level":"\xc3\xa4", "price":1.20, "double":0.1, "day":"0001-01-01", "at":"2024-05-01T12:00:00.123456+02:00", '
        '"local":"2024-05-01 12:00:00", "bytes":"AP8=", "many":[{"deep":[true,null]}], "map":{"":9223372036854775807}}'
    ).encode("latin-1")
    good.append(all_types)
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many("events", good + bad, timestamp=BASE_MS)
    schema = tmp_path / "events.ddl"
    schema.write_text(
        "level STRING, status INT, price DECIMAL(10,2), double DOUBLE, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
        "bytes BINARY, many ARRAY<STRUCT<deep: ARRAY<BOOLEAN>>>, map MAP<STRING, BIGINT>"
    )
    target = str(tmp_path / "parsed")
    code, report = run("archive", cluster, "events", "--to", target, "--schema", str(schema))
    assert (code, report["records"]) == (0, len(good + bad))
    rows = spark.read.parquet(target).orderBy("offset").collect()
    assert [row.malformed for row in rows] == ["false"] * len(good) + ["true"] * len(bad), "of paths: Spark reads text"
    parsed = [
        row.data and {name: each for name, each in row.data.asDict(recursive=True).items() if each is not None}
        for row in rows
    ]
    assert parsed[:3] == [{"level": "warn", "status": 404}, {"status": 7}, None]
    assert parsed[3] == {
        "level": "ä",
        "price": Decimal("1.20"),
        "double": 0.1,
        "day": date(1, 1, 1),
        "at": datetime(2024, 5, 1, 10, 0, 0, 123456, UTC).astimezone().replace(tzinfo=None),
        "local": datetime.fromisoformat("2024-05-01T12:00:00"),
        "bytes": b"\0\xff",
        "many": [{"deep": [True, None]}],
        "map": {"": 2**63 - 1},
    }
    assert [row.value and bytes(row.value) for row in rows[: len(good)]] == [None, good[1], None, None], (
        "a parsed value is kept as bytes where it has more fields than the schema"
    )
    assert [bytes(row.value) for row in rows[len(good) :]] == bad
    assert [row.data for row in rows[len(good) :]] == [None] * len(bad)
    assert run("restore", cluster, "events", "--from", target) == (1, None)
    assert run("archive", cluster, "events", "--to", target) == (1, None), "another schema"
    kept = str(tmp_path / "kept")
    assert run("archive", cluster, "events", "--to", kept, "--schema", "level STRING", "--keep-values")[0] == 0
    cluster.create_topic("events-2", 1, 1)
    assert run("restore", cluster, "events", "--from", kept, "--to-topic", "events-2")[0] == 0
    assert [each[3] for each in in_order(cluster, "events-2")] == good + bad


@pytest.mark.deep
def test_a_continuous_archive_survives_a_kill_and_ends_when_asked(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """A process of its own is killed. Another one continues, takes in a topic that is created later, and ends with a
    report and exit code 0 at SIGTERM."""
    cluster.create_topic("live-1", 1, 1)
    produce(cluster, "live-1", range(10), partitions=1, base_ms=BASE_MS)
    target = tmp_path / "live"
    arguments = ("--pattern", "live-.*", "--to", str(target), "--continuous", "--trigger", "100 milliseconds")
    process = start("archive", cluster, *arguments)
    try:
        cluster.wait_until(
            lambda: batches_in(target) > 0 or process.poll() is not None,
            within_s=400,
            what="a batch is written",
        )
        assert process.poll() is None, process.communicate()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    cluster.create_topic("live-2", 1, 1)
    produce(cluster, "live-2", range(20), partitions=1, base_ms=BASE_MS)

    def ask() -> None:
        try:
            cluster.wait_until(lambda: rows_in(spark, target) == 30, within_s=400, what="all rows are in the archive")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask)
        code, report = run("archive", cluster, *arguments)
        asked.result()
    assert (code, report["stopped"]) == (0, True)
    assert report["position"] == {"live-1": {"0": 10}, "live-2": {"0": 20}}
    assert run("archive", None, "--to", str(target), "--verify")[1]["records"] == 30


TIMES = (-1, 0, BASE_MS, 253_402_214_400_000, 1_795_843_134_110_000, 1_795_843_134_110_000_000, 2**62, 2**63 - 2)
"""In ms; -1: none. The later ones are those of producers that write micro- or nanoseconds; 253_402_214_400_000 is
9999-12-31."""
ODD_TOPICS = ("1..e-3_" + "b" * 242, "v0")
"""The longest name, which begins like a number, and a topic whose format has no times."""


@pytest.mark.deep
def test_every_time_that_a_log_takes_passes_through_all_jobs(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: no record ends a query or a job, and each comes back equal. Method: a topic with an odd name and all kinds
    of times, and one without any. Takes long because it runs seven jobs on Spark."""
    first, without = ODD_TOPICS
    for topic in ("early", first):
        cluster.create_topic(topic, 1, 1, retention_ms="-1", message_timestamp_after_max_ms=str(2**63 - 1))
    cluster.create_topic(without, 1, 1, retention_ms="-1", message_format="v0")
    cluster.create_topic("recent", 1, 1, message_timestamp_before_max_ms="60000")
    with sync.Producer(cluster.bootstrap) as producer:
        for topic, number in ((first, len(TIMES)), (without, 2)):
            producer.send_many(topic, [b"v"] * number, timestamp=TIMES[:number])
        for topic, time in (("recent", BASE_MS), ("recent", TIMES[5]), ("orders", TIMES[5])):
            with pytest.raises(InvalidTimestamp):
                producer.send(topic, b"refused by the settings of the topic, or by their defaults", timestamp=time)

    def frame(**options: str) -> DataFrame:
        given = {"tidelog.bootstrap.servers": cluster.bootstrap, "subscribe": first, **options}
        return spark.read.format("tidelog").options(**given).load()

    assert [row.timestamp and row.timestamp.timestamp() for row in frame().orderBy("offset").collect()] == [
        None,
        0,
        BASE_MS / 1000,
        *[None] * 5,
    ]
    assert [row.timestampMs for row in frame(includeTimestampMs="true").orderBy("offset").collect()] == list(TIMES)

    target = tmp_path / "odd"
    assert run("archive", cluster, *ODD_TOPICS, "--to", str(target))[1]["records"] == len(TIMES) + 2
    assert run("archive", None, "--to", str(target), "--verify")[1]["records"] == len(TIMES) + 2
    assert len(list(target.glob(f"topic={first}/date=*"))) == 3, "the directory of no date, and of two"
    for topic in ODD_TOPICS:
        copy = f"copy-of-{topic[:9]}"
        cluster.create_topic(copy, 1, 1, retention_ms="-1", message_timestamp_after_max_ms=str(2**63 - 1))
        assert run("restore", cluster, topic, "--from", str(target), "--to-topic", copy)[0] == 0
        assert in_order(cluster, copy) == in_order(cluster, topic)
    arguments = (first, "--from", str(target), "--to-topic", "early", "--start-time", "0", "--end-time", str(2**62))
    assert run("restore", cluster, *arguments)[0] == 0
    assert [each.timestamp for each in records_of(cluster, "early")] == list(TIMES[1:6])
    capsys.readouterr()
    assert run("restore", cluster, first, "--from", str(target), "--to-topic", "orders") == (1, None)
    assert "refuses the time of some records" in (said := capsys.readouterr().err)
    assert "its message.timestamp.after.max.ms is 3600000" in said

    page = tmp_path / "page.html"
    code, report = run("profile", cluster, first, without, "--html", str(page))
    assert code == 0
    found = [(each["records"], each["nullTimestamps"], each["timestampMax"]) for each in report["topics"]]
    assert found == [(len(TIMES), 1, TIMES[-1]), (2, 2, None)]
    assert f"{TIMES[-1]} ms" in page.read_text()
    assert audit_job.main([first, without, "--bootstrap", cluster.bootstrap, "--json", "--quiet"]) == 0


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_format_that_spark_lacks_is_named(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    target = ("--to", str(tmp_path / "table"), "--state", str(tmp_path / "state"))
    assert run("archive", cluster, "orders", *target, "--format", name) == (1, None)
    assert f"no package for {name}: start Spark with" in capsys.readouterr().err


def in_order(cluster: LocalCluster, topic: str) -> list[Any]:
    """What an application wrote of each record, partition by partition in their order."""
    return [(each[1], *each[3:7]) for each in records_of(cluster, topic)]


def rows_in(spark: SparkSession, target: Path) -> int:
    """Those that count at this moment."""
    return spark.read.parquet(str(target)).count() if batches_in(target) else 0


def batches_in(target: Path) -> int:
    return len(list(target.glob("_spark_metadata/[0-9]*")))
