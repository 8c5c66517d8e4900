"""Spark writes to a real cluster: columns, options, refusals, repeated jobs, and nodes that die in mid-query."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row
from pyspark.sql.types import StructType

from node.process.local_cluster import LocalCluster
from tests.spark.job_runs import NO_RETENTION, records_of
from tests.spark.sink_runs import committed
from tidelog import sync
from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.spark import TidelogDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]

MOMENT = datetime(2024, 5, 1, 12, 0, 0, 123_000, UTC)
HEADER = "array<struct<key:string,value:binary>>"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"broker.session.timeout.ms": 2000, **NO_RETENTION}
    with LocalCluster(tmp_path_factory.mktemp("sink"), settings=settings) as cluster:
        cluster.wait_healthy()
        yield cluster


def write(frame: DataFrame, cluster: LocalCluster, mode: str = "append", **options: str) -> None:
    (
        frame.write.format("tidelog")
        .mode(mode)
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(**{name.replace("_", "."): value for name, value in options.items()})
        .save()
    )


def test_a_thread_that_makes_the_session_its_own_writes(spark: SparkSession, cluster: LocalCluster) -> None:
    """Spark looks for Python sources in the active session of the thread (docs/spark.md)."""
    cluster.create_topic("threads")
    frame = spark.sql("select 'v' value")

    def in_a_new_thread() -> None:
        spark.createDataFrame([], "x int")
        write(frame, cluster, topic="threads")

    with ThreadPoolExecutor(1) as threads:
        threads.submit(in_a_new_thread).result()
    assert [record.value for record in records_of(cluster, "threads")] == [b"v"]


def test_all_columns_of_a_frame_are_written(spark: SparkSession, cluster: LocalCluster) -> None:
    cluster.create_topic("all", 3)
    schema = f"key string, value string, headers {HEADER}, timestamp timestamp, partition int"
    rows: list[Any] = [
        ("k", "v", [Row(key="h", value=bytearray(b"1")), Row(key="empty", value=None)], MOMENT, 2),
        (None, None, None, None, 1),
        ("", "", [], MOMENT + timedelta(seconds=1), 0),
        ("unplaced", "x", None, None, None),
    ]
    before = time.time() * 1000
    write(spark.createDataFrame(rows, schema), cluster, topic="all")
    found = {record.value: record for record in records_of(cluster, "all")}
    assert len(found) == 4
    first = found[b"v"]
    assert (first.key, first.headers, first.partition) == (b"k", (("h", b"1"), ("empty", None)), 2)
    assert first.timestamp == MOMENT.timestamp() * 1000
    assert (found[None].key, found[None].headers, found[None].partition) == (None, (), 1)
    now = found[None].timestamp
    assert now is not None and before - 1 <= now <= time.time() * 1000
    assert (found[b""].key, found[b""].partition) == (b"", 0)
    with sync.Producer(cluster.bootstrap) as producer:
        same = producer.send("all", value=None, key=b"unplaced")
    assert found[b"x"].partition == same.partition, "the partition of a key is Kafka's"


def test_the_topic_is_a_column_or_an_option_which_wins(spark: SparkSession, cluster: LocalCluster) -> None:
    for topic in ("east", "west", "all-of-them"):
        cluster.create_topic(topic, 2)
    frame = spark.range(0, 100, 1, 4).selectExpr("cast(id as string) value", "if(id % 3 = 0, 'east', 'west') topic")
    write(frame, cluster)
    numbers = Counter(str(number) for number in range(100))
    thirds = Counter(str(number) for number in range(0, 100, 3))
    assert committed(cluster, "east") == thirds
    assert committed(cluster, "west") == numbers - thirds
    write(frame, cluster, topic="all-of-them")
    assert committed(cluster, "all-of-them") == numbers
    with pytest.raises(Exception, match=r"InvalidRecord: 1 of 1 rows have no topic"):
        write(spark.sql("select 'v' value, cast(null as string) topic"), cluster)
    with pytest.raises(Exception, match="no-such-topic"):
        write(spark.sql("select 'v' value"), cluster, topic="no-such-topic")


def test_rows_of_a_topic_can_be_written_to_another_one(spark: SparkSession, cluster: LocalCluster) -> None:
    """The columns of the source are columns of the sink; offsets and types of timestamps are not copied."""
    for topic in ("original", "copy"):
        cluster.create_topic(topic, 2)
    with sync.Producer(cluster.bootstrap) as producer:
        producer.send_many(
            "original", [b"%d" % each for each in range(50)], headers=[[("h", b"%d" % each)] for each in range(50)]
        )
    frame = (
        spark.read.format("tidelog")
        .option("tidelog.bootstrap.servers", cluster.bootstrap)
        .options(subscribe="original", includeHeaders="true")
        .load()
    )
    write(frame, cluster, topic="copy", tidelog_compression_type="zstd")
    contents = [
        sorted((each.partition, each.value, each.headers, each.timestamp) for each in records_of(cluster, topic))
        for topic in ("original", "copy")
    ]
    assert contents[0] == contents[1]


def test_large_records(spark: SparkSession, cluster: LocalCluster) -> None:
    cluster.create_topic("large", 1, max_message_bytes=str(4 << 20))
    frame = spark.range(0, 6, 1, 2).selectExpr("repeat(cast(id as string), 1 << 20) value")
    with pytest.raises(Exception, match=r"RecordTooLarge"):
        write(frame, cluster, topic="large")
    write(frame, cluster, topic="large", tidelog_max_request_size=str(2 << 20))
    assert [
        record.value[:1] for record in records_of(cluster, "large") if record.value and len(record.value) == 1 << 20
    ]
    assert len(records_of(cluster, "large")) == 6


def test_without_exactly_once_there_are_no_transactions(spark: SparkSession, cluster: LocalCluster) -> None:
    cluster.create_topic("simple", 2)
    with sync.Admin(cluster.bootstrap) as admin:
        before = admin.list_transactions()
        write(
            spark.range(0, 1000, 1, 3).selectExpr("cast(id as string) value"),
            cluster,
            topic="simple",
            exactlyOnce="false",
        )
        assert admin.list_transactions() == before
    assert committed(cluster, "simple") == Counter(str(number) for number in range(1000))
    with pytest.raises(Exception, match="RecordTooLarge"):
        frame = spark.sql("select repeat('x', 2000000) value")
        write(frame, cluster, topic="simple", exactlyOnce="false", tidelog_max_request_size="4000000")


def test_a_job_with_a_sink_id_may_be_repeated(spark: SparkSession, cluster: LocalCluster) -> None:
    cluster.create_topic("jobs", 2)
    frame = spark.range(0, 90, 1, 3).selectExpr("cast(id as string) value")
    for _ in range(2):
        write(frame, cluster, topic="jobs", tidelog_sink_id="job-7")
    assert committed(cluster, "jobs") == Counter(str(number) for number in range(90))
    with pytest.raises(Exception, match="DifferentRetry"):
        write(frame.limit(50), cluster, topic="jobs", tidelog_sink_id="job-7")
    write(frame, cluster, topic="jobs")
    assert committed(cluster, "jobs").total() == 180, "without an id each write is one of its own"


def test_a_function_of_foreach_batch_writes_each_batch_once(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """One sink id for all batches; the last batch, which Spark has not noted as complete, is repeated."""
    cluster.create_topic("enriched", 2)
    frame = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=40, numPartitions=2).load()

    def save(rows: DataFrame, batch_id: int) -> None:
        values = rows.selectExpr("cast(value as string) value")
        write(values, cluster, topic="enriched", tidelog_sink_id="enrich", tidelog_sink_batch=str(batch_id))

    for last in (1, 3):
        query = frame.writeStream.foreachBatch(save).option("checkpointLocation", str(tmp_path)).start()
        wait_for_batch(query, last)
        query.stop()
        noted = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (noted, noted.with_name(f".{noted.name}.crc")):
            path.unlink(missing_ok=True)
    assert is_exact(cluster, "enriched") >= 4
    with sync.Admin(cluster.bootstrap) as admin:
        ids = {each.transactional_id for each in admin.list_transactions() if "enrich" in each.transactional_id}
    assert ids == {"enrich-task-0", "enrich-task-1"}


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        ("v string", {"topic": "t"}, r"no column 'value'|unknown column 'v'"),
        ("value string, values string", {"topic": "t"}, r"unknown column 'values'.*did you mean 'value'"),
        ("value string, nonsense string", {"topic": "t"}, r"unknown column 'nonsense'.*valid columns: key"),
        ("value int", {"topic": "t"}, r"column 'value' has type int.*binary or string"),
        ("value string, key long", {"topic": "t"}, r"column 'key' has type bigint"),
        ("value string, partition long", {"topic": "t"}, r"column 'partition' has type bigint.*writes int"),
        ("value string, timestamp long", {"topic": "t"}, r"column 'timestamp' has type bigint"),
        ("value string, timestamp timestamp_ntz", {"topic": "t"}, r"column 'timestamp' has type timestamp_ntz"),
        ("value string, headers map<string,string>", {"topic": "t"}, r"column 'headers' has type map"),
        ("value string, topic int", {}, r"column 'topic' has type int"),
        ("value string", {}, r"no topic given: set the option 'topic'"),
        ("value string", {"topic": "a/b"}, r"option 'topic': the topic name 'a/b'"),
        ("value string", {"topic": "t", "subscribe": "t"}, r"no option 'subscribe': it belongs to the source"),
        ("value string", {"topics": "t"}, r"did you mean 'topic'"),
        ("value string", {"topic": "t", "kafka.acks": "1"}, r"no option 'kafka.acks'"),
        ("value string", {"topic": "t", "exactlyOnce": "no"}, r"option 'exactlyOnce' is 'no'"),
        ("value string", {"topic": "t", "exactlyOnce": "false", "tidelog.sink.id": "a"}, r"has no effect"),
        ("value string", {"topic": "t", "tidelog.sink.id": "a b"}, r"option 'tidelog.sink.id' is 'a b'"),
        ("value string", {"topic": "t", "kafka.compression.type": "brotli"}, r"option 'tidelog.compression.type'"),
        ("value string", {"topic": "t", "kafka.linger.ms": "-1"}, r"option 'tidelog.linger.ms' is '-1'"),
    ],
)
@pytest.mark.usefixtures("spark")  # which parses the schema
def test_what_is_wrong_is_refused_before_a_task_runs(schema: str, options: dict[str, str], said: str) -> None:
    source = TidelogDataSource({"tidelog.bootstrap.servers": "localhost:1", **options})
    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType)
    for make in (source.writer, source.streamWriter):
        with pytest.raises(InvalidConfig, match=said):
            make(columns, overwrite=False)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("'v' value, 9 partition", r"UnknownTopicOrPartition.*9"),
        ("'v' value, -1 partition", r"UnknownTopicOrPartition.*partition -1 does not exist"),
        ("'v' value, timestamp'1969-12-31 23:00:00' timestamp", r"InvalidTimestamp.*before 1970"),
        (
            f"'v' value, cast(array(struct(cast(null as string), binary('x'))) as {HEADER}) headers",
            r"header has no key",
        ),
    ],
)
def test_a_row_that_no_record_can_be_made_of_fails_the_write(
    spark: SparkSession, cluster: LocalCluster, columns: str, said: str
) -> None:
    if "rows" not in {topic.name for topic in cluster.metadata(0).topics}:
        cluster.create_topic("rows", 2)
    good = spark.sql("select 'good' value").repartition(1)
    with pytest.raises(Exception, match=said):
        write(good.unionByName(spark.sql(f"select {columns}"), allowMissingColumns=True), cluster, topic="rows")
    assert "v" not in committed(cluster, "rows")


def test_a_log_is_only_appended_to(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    frame = spark.sql("select 'v' value")
    with pytest.raises(Exception, match=r'use mode\("append"\)'):
        write(frame, cluster, "overwrite", topic="t")
    source = TidelogDataSource({"tidelog.bootstrap.servers": "localhost:1", "topic": "t"})
    with pytest.raises(InvalidRequest, match=r'use outputMode\("append"\)'):
        source.streamWriter(frame.schema, overwrite=True)


# --- streams ------------------------------------------------------------------------------------------------------


def a_stream(
    spark: SparkSession, cluster: LocalCluster, home: Path, topic: str, *, batches: int, **options: str
) -> Any:
    """Start a query that writes batches of 40 rows with 3 tasks: the numbers from 0 on."""
    frame = (
        spark.readStream.format("rate-micro-batch")
        .options(rowsPerBatch=40, numPartitions=2)
        .load()
        .selectExpr("cast(value as string) value")
        .repartition(3)
    )
    query = (
        frame.writeStream.format("tidelog")
        .option("tidelog.bootstrap.servers", cluster.bootstrap)
        .option("checkpointLocation", str(home))
        .options(topic=topic, **options)
        .trigger(processingTime="0 seconds")
        .start()
    )
    wait_for_batch(query, batches)
    return query


def wait_for_batch(query: Any, batch: int) -> None:
    """Wait until this batch is complete. Raises the error of the query."""
    deadline = time.monotonic() + 300  # of a query that hangs: on a busy machine a batch takes many seconds
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        if query.exception() is not None:
            raise query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        query.awaitTermination(0.1)


def is_exact(cluster: LocalCluster, topic: str) -> int:
    """Check that the topic has whole batches of 40 numbers from 0 on, each once, and at most a part of the next one:
    each task commits its own rows, and the query may be stopped between two of them. Returns how many are whole."""
    found = committed(cluster, topic)
    assert set(found.values()) == {1}
    numbers = {int(value) for value in found}
    whole = next(number for number in count() if number not in numbers) // 40
    assert max(numbers) < (whole + 1) * 40
    return whole


def test_a_stream_continues_after_restarts_and_its_groups_say_where(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """It takes long: two queries start, one after the other."""
    cluster.create_topic("stream", 2)
    for last in (1, 3):
        query = a_stream(spark, cluster, tmp_path, "stream", batches=last)
        query.stop()
    written = is_exact(cluster, "stream")
    assert written >= 4
    with sync.Admin(cluster.bootstrap) as admin:
        (record,) = admin.list_group_offsets(f"spark-sink-{query.id}-driver").values()
    assert isinstance(record, CommittedOffset)
    note = json.loads(record.metadata)
    assert note | {"run": ""} == {"v": 1, "run": "", "tasks": 3, "rows": 40, "state": "complete"}
    assert written - 1 <= record.offset <= written


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_the_leader_and_the_coordinators_may_die_in_mid_query(
    spark: SparkSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Each node is killed once while batches are written, and comes back before the next one: three sessions of two
    seconds that run out, and thirteen batches of a Spark query; 50 s on idle cores, much more on a busy machine."""
    cluster.create_topic("faults", 3, min_insync_replicas="2")
    query = a_stream(spark, cluster, tmp_path, "faults", batches=1)
    for node in range(3):
        at = query.lastProgress["batchId"]
        cluster.kill(node)
        wait_for_batch(query, at + 3)
        cluster.start_node(node)
        cluster.wait_healthy(300)
        wait_for_batch(query, query.lastProgress["batchId"] + 1)
    query.stop()
    assert is_exact(cluster, "faults") >= 13


def test_a_stream_without_exactly_once(spark: SparkSession, cluster: LocalCluster, tmp_path: Path) -> None:
    cluster.create_topic("at-least-once", 2)
    a_stream(spark, cluster, tmp_path, "at-least-once", batches=2, exactlyOnce="false").stop()
    found = committed(cluster, "at-least-once")
    assert set(found) >= {str(number) for number in range(120)}
