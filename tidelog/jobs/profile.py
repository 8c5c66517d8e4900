"""`tidelog job profile`: the contents of a topic: records, bytes, keys, sizes, rates, holes, delays and compression.

Spark reads the same offsets three times: for the bounds of the ranges, with all columns, and the keys alone. The ends
are fixed when the job begins.
Not here: what a task does (range_profile.py), figures (profile_figures.py), the page (profile_page.py).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from tidelog.cli.declared import Argument, Option
from tidelog.errors import InvalidConfig
from tidelog.jobs.job_arguments import whole_number
from tidelog.jobs.job_frame import Job, RemoteStorage, SparkJobArguments, print_report, run_as_program, spark_options
from tidelog.jobs.job_session import ensure_spark, map_arrow, spark_session
from tidelog.jobs.profile_figures import TOP_KEYS, KeyCounts, PartitionProfile, TopicProfile, topic_profile
from tidelog.jobs.profile_page import ensure_plots, profile_page, time_text
from tidelog.jobs.range_profile import PARTIAL, RangeBounds, RangeProfile, bounds_pass, predecessors_of, profile_pass
from tidelog.standard_streams import say
from tidelog.sync import Admin
from tidelog.tiering.store_option import REMOTE_STORAGE
from tidelog.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DESCRIPTION: Final = """\
Describe topics: records, bytes, key skew, sizes, inter-arrival times, compression, holes and late records, of each
partition and of each topic.

  tidelog job profile orders payments --html profile.html
  tidelog job profile orders --last 1000000 --json
"""
MOMENTS: Final = 200
"""About how many points a plot over time has."""
WHEN_INTERRUPTED: Final = "nothing is kept; the same command begins again"


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """What is read of a partition: `start` to `end` - 1."""

    log_start: int
    """The first offset of the log."""
    start: int
    end: int


Spans = dict[TopicPartition, OffsetSpan]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileArguments(SparkJobArguments):
    """The arguments of the job."""

    topics: Annotated[list[str], Argument(metavar="TOPIC")]
    last: Annotated[int | None, whole_number("--last", "Only the last N offsets of each partition.", least=1)] = None
    remote_storage: RemoteStorage = "off"
    html: Annotated[Path | None, Option(metavar="FILE", help="Write tables and plots to this page.")] = None


def _work(arguments: ProfileArguments) -> int:
    if arguments.html is not None:
        ensure_plots()
        _ensure_writable(arguments.html)
    ensure_spark()
    connection = arguments.connection
    options = {**spark_options(connection), REMOTE_STORAGE: arguments.remote_storage}
    topics = list(dict.fromkeys(arguments.topics))
    with Admin(connection.bootstrap, **connection.of_client) as admin:
        places = [
            TopicPartition(topic, each.partition) for topic in topics for each in admin.describe_topic(topic).partitions
        ]
        starts = admin.list_offsets(places, "earliest")
        ends = admin.list_offsets(places, "latest", isolation="read_committed")
    spans: Spans = {}
    for place in places:
        start = starts[place] if arguments.last is None else max(starts[place], ends[place] - arguments.last)
        spans[place] = OffsetSpan(starts[place], start, ends[place])
    with spark_session(arguments, "profile") as spark:
        profiles = Profiler(spark, options, spans, quiet=arguments.quiet).profile(topics)
    _report(arguments, profiles)
    if arguments.html is not None:
        arguments.html.write_text(profile_page(profiles, f"Profile of {', '.join(topics)}"), encoding="utf-8")
        say(f"tables and plots: {arguments.html}")
    return 0


def _ensure_writable(page: Path) -> None:
    """Raises InvalidConfig if the page could not be written when the job is done."""
    if page.is_dir():
        raise InvalidConfig(f"--html {page} is a directory: name a file in it")
    if not page.parent.is_dir():
        raise InvalidConfig(f"--html {page}: there is no directory {page.parent}: create it, or name another file")
    if not os.access(page if page.exists() else page.parent, os.W_OK):
        raise InvalidConfig(f"--html {page} cannot be written: permission denied; allow it, or name another file")


class Profiler:
    """Profiles topics with Spark."""

    def __init__(self, spark: SparkSession, options: dict[str, str], spans: Spans, *, quiet: bool) -> None:
        """options: of the connection."""
        self._spark, self._spans, self._quiet = spark, spans, quiet
        self._options = {**options, "includeHeaders": "true", "includeTimestampMs": "true"}

    def profile(self, topics: Sequence[str]) -> list[TopicProfile]:
        """The profile of each topic, in this order. Raises what Spark raises."""
        self._say("finding the bounds of the ranges")
        columns = "topic string, partition int, offset bigint, timestampMs bigint"
        bounds = [RangeBounds(*row) for row in self._pass(self._frame(topics, columns), bounds_pass)]
        profiles = []
        for topic in topics:
            own = [each for each in bounds if each.topic == topic]
            first = min((each.time_min for each in own if each.time_min is not None), default=0)
            span_ms = max((each.time_max for each in own if each.time_max is not None), default=first) - first
            unit_ms = max(1, span_ms // MOMENTS)
            self._say(f"reading {sum(s.end - s.start for p, s in self._spans.items() if p.topic == topic)} of {topic}")
            found = {
                place: PartitionProfile(topic, place.partition, span.log_start, span.end, span.start)
                for place, span in self._spans.items()
                if place.topic == topic
            }
            passed = self._pass(self._frame([topic]), profile_pass(predecessors_of(own), unit_ms))
            for name, partition, document in passed:
                found[TopicPartition(name, partition)].found.merge(RangeProfile.from_json(document))
            self._say(f"counting the keys of {topic}")
            by_partition, whole = self._keys(topic)
            for place, each in found.items():
                each.keys = by_partition.get(place.partition, KeyCounts())
            profiles.append(topic_profile([found[place] for place in sorted(found)], whole, unit_ms))
        return profiles

    def _frame(self, topics: Sequence[str], schema: str | None = None) -> DataFrame:
        """The records of topics. schema: only these columns."""
        spans = {place: span for place, span in self._spans.items() if place.topic in topics}
        options = {
            **self._options,
            "subscribe": ",".join(topics),
            "startingOffsets": _offsets_text({place: span.start for place, span in spans.items()}),
            "endingOffsets": _offsets_text({place: span.end for place, span in spans.items()}),
        }
        reader = self._spark.read.format("tidelog").options(**options)
        return (reader.schema(schema) if schema else reader).load()

    @staticmethod
    def _pass(frame: DataFrame, task: Any) -> list[Any]:
        """Run a function in the task of each range, and collect the results."""
        return [json.loads(row.found) for row in map_arrow(frame, task, PARTIAL).collect()]

    def _keys(self, topic: str) -> tuple[dict[int, KeyCounts], KeyCounts]:
        """The keys of each partition, and of the topic."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        counts = (
            self._frame([topic], "partition int, key binary")
            .groupBy("partition", "key")
            .agg(f.count("*").alias("records"))
            .persist()
        )
        try:
            frames = (
                counts,
                counts.groupBy("key").agg(f.sum("records").alias("records")).withColumn("partition", f.lit(-1)),
            )
            found: dict[int, KeyCounts] = {}
            for frame in frames:
                order = Window.partitionBy("partition").orderBy(f.desc("records"), "key")
                top = frame.withColumn("rank", f.row_number().over(order)).where(f.col("rank") <= TOP_KEYS)
                ranked: dict[int, list[tuple[bytes | None, int]]] = {}
                for row in top.orderBy("partition", "rank").collect():
                    key = None if row.key is None else bytes(row.key)
                    ranked.setdefault(row.partition, []).append((key, row.records))
                for row in frame.groupBy("partition").agg(f.count("key").alias("distinct")).collect():
                    found[row.partition] = KeyCounts(row.distinct, tuple(ranked[row.partition]))
        finally:
            counts.unpersist()
        whole = found.pop(-1, KeyCounts())
        return found, whole

    def _say(self, text: str) -> None:
        if not self._quiet:
            say(text)


def _offsets_text(offsets: dict[TopicPartition, int]) -> str:
    """The value of an option of the source."""
    found: dict[str, dict[str, int]] = {}
    for place, offset in offsets.items():
        found.setdefault(place.topic, {})[str(place.partition)] = offset
    return json.dumps(found)


def _report(arguments: ProfileArguments, profiles: Sequence[TopicProfile]) -> None:
    document = {
        "job": "profile",
        "html": arguments.html,
        "topics": [
            {
                **each.whole.to_json(),
                "partitionSkew": each.skew,
                "partitions": [one.to_json() for one in each.partitions],
            }
            for each in profiles
        ],
    }
    lines = []
    for topic in profiles:
        lines += _lines(topic.whole)
        lines.append(f"  largest partition: {topic.skew:.2f} of the mean of {len(topic.partitions)}")
        lines += [
            f"  partition {each.partition}: {each.found.records:,} records, {each.bytes:,} bytes, "
            f"top key {each.keys.share_of_top(each.found.records, 1):.1%}, late {each.found.delays.count:,}, "
            f"absent offsets {each.absent_offsets:,}"
            for each in topic.partitions
        ]
    print_report(document, lines, as_json=arguments.as_json)


def _lines(whole: PartitionProfile) -> list[str]:
    found, keys = whole.found, whole.keys
    ratios = ", ".join(f"{codec} {ratio:.2f}" for codec, ratio in whole.compression().items() if codec != "none")
    top, top_ten = (keys.share_of_top(found.records, count) for count in (1, TOP_KEYS))
    rate = "" if whole.per_second is None else f" ({whole.per_second:,.2f} records/s)"
    return [
        f"{whole.topic}: {found.records:,} records, {whole.bytes:,} bytes",
        f"  times: {time_text(found.time_min)} to {time_text(found.time_max)} UTC{rate}"
        + (f", none in {found.null_times:,} records" if found.null_times else ""),
        f"  bytes: p50 {found.sizes.percentile(50):,}, p99 {found.sizes.percentile(99):,}, max {found.sizes.max:,}",
        f"  between records: p50 {found.gaps.percentile(50):,} ms, p99 {found.gaps.percentile(99):,} ms",
        f"  late: {found.delays.count:,} records, p99 {found.delays.percentile(99):,} ms, max {found.delays.max:,} ms",
        f"  keys: {keys.distinct:,}, top key {top:.1%}, top {TOP_KEYS} {top_ten:.1%}, null {found.null_keys:,}",
        f"  offsets without a record: {whole.absent_offsets:,} in {found.hole_count:,} holes",
        f"  compression ratio: {ratios}",
    ]


JOB: Final = Job("profile", DESCRIPTION, ProfileArguments, _work, WHEN_INTERRUPTED)
main: Final = JOB.main


if __name__ == "__main__":
    sys.exit(run_as_program(main, __file__))
