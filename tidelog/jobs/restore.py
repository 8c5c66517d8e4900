"""`tidelog job restore`: the records of an archive back into a topic.

Keys, values, headers, timestamps, partitions and the order within each partition are kept; offsets are new. A partition
is written by one task, sorted by offset, in steps of so many offsets, each in a transaction. The identity of a step is
derived from the archive, the target and the step, so a repeated run writes only what is missing (docs/spark.md, sink).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, Final

from tidelog.cli.argument_values import WrongUsage
from tidelog.cli.declared import Argument, Option
from tidelog.clock import MachineClock
from tidelog.cluster_connection import ClusterConnection
from tidelog.errors import InvalidConfig
from tidelog.jobs.archive_files import archive_frame
from tidelog.jobs.archive_layout import Manifest
from tidelog.jobs.archive_verifier import ArchiveJobArguments, ensure_local_archive, is_of_file, require_manifest
from tidelog.jobs.hadoop_files import local_path
from tidelog.jobs.job_arguments import ensure_order, moment, one_of, whole_number
from tidelog.jobs.job_frame import Job, print_report, run_as_program, sentence_of, spark_options
from tidelog.jobs.job_session import FIXED_TASKS, SPARK_LOG, ensure_spark, silence, spark_session
from tidelog.standard_streams import say
from tidelog.sync import Admin
from tidelog.types import INT32_MAX, INT64_MAX, NO_TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tidelog.client.admin import TopicDescription

DESCRIPTION: Final = """\
Write the records of an archive into a topic: keys, values, headers, timestamps, partitions and the order within each.
The same command again writes only what is missing.

  tidelog job restore --from /data/archive orders --to-topic orders-restored
  tidelog job restore --from /data/archive orders --start-time 2024-05-01 --end-time 2024-05-02
"""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
OFFSETS_PER_STEP: Final = 2_000_000
"""A step of a partition is one transaction, which must end within the nodes' transaction.max.timeout.ms (15 min)."""
IDENTITY_CHARACTERS: Final = 24
TOPIC_DIRECTORY: Final = "topic="
"""How the name of a directory with the files of a topic begins."""
TOPICS_NAMED: Final = 20
"""How many topics of an archive an error names."""
WHEN_INTERRUPTED: Final = (
    "steps that were complete are in the target; the same command writes what is missing, and nothing twice"
)


@dataclass(slots=True)
class RestoredTopic:
    """What was restored from one topic."""

    topic: str
    target: str
    records: int = 0
    """Number of records of the archive within the requested bounds."""
    steps: int = 0
    complete_before: int = 0
    """Steps that an earlier run had written: nothing of them was written again."""
    partitions: dict[int, int] = field(default_factory=dict)
    """Records by partition."""
    warnings: list[str] = field(default_factory=list)
    """About the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreArguments(ArchiveJobArguments):
    """The arguments of the job."""

    topics: Annotated[list[str], Argument(metavar="TOPIC", help="As they are called in the archive.")]
    source: Annotated[str, Option("--from", metavar="TARGET", help="The archive.")]
    to_topic: Annotated[
        str | None, Option(metavar="TOPIC", help="Write into this topic; default: the one of the same name.")
    ] = None
    start_time: Annotated[int | None, moment("--start-time", "Records from this time on: ISO 8601 or ms.")] = None
    end_time: Annotated[int | None, moment("--end-time", "Records before this time.")] = None
    partition: Annotated[list[int], whole_number("--partition", "Only this one; can be repeated.", most=INT32_MAX)] = (
        field(default_factory=list)
    )
    start_offset: Annotated[
        int | None, whole_number("--start-offset", "Records of the archive from this offset on.")
    ] = None
    end_offset: Annotated[int | None, whole_number("--end-offset", "Records before this offset.")] = None
    offsets_per_step: Annotated[int, whole_number("--offsets-per-step", least=1)] = OFFSETS_PER_STEP
    compression: Annotated[str, one_of("--compression", CODECS, "Of batches.")] = "none"


def _work(arguments: RestoreArguments) -> int:
    if arguments.to_topic and len(arguments.topics) > 1:
        raise WrongUsage("--to-topic is for one topic: run the job once for each, or leave it out")
    ensure_order("--start-offset", arguments.start_offset, "--end-offset", arguments.end_offset)
    ensure_order("--start-time", arguments.start_time, "--end-time", arguments.end_time)
    ensure_local_archive(arguments, "--from", arguments.source)
    topics = list(dict.fromkeys(arguments.topics))
    _ensure_archived(arguments, topics)
    ensure_spark()
    connection = arguments.connection
    spark_options(connection)  # those that tasks cannot use are refused before Spark starts
    with _admin(connection) as admin:
        cluster_id = admin.describe_cluster().cluster_id
        targets = {topic: admin.describe_topic(arguments.to_topic or topic) for topic in topics}
    with spark_session(arguments, "restore", FIXED_TASKS) as spark:
        manifest = require_manifest(spark, arguments, arguments.source)
        if not manifest.keeps_values:
            raise InvalidConfig(
                f"the archive {arguments.source} has parsed values only, not their bytes: records cannot be restored "
                "from it. Archive with --keep-values, or without --schema"
            )
        silence(spark, SPARK_LOG)
        done = []
        try:
            for topic, target in targets.items():
                restorer = TopicRestorer(spark, arguments, manifest, connection, f"{cluster_id}/{target.topic_id}")
                done.append(restorer.restore(topic, target))
        except Exception as error:
            if not is_of_file(error):
                raise
            raise InvalidConfig(
                f"the archive {arguments.source} is damaged: {sentence_of(error)}; nothing of this step was written. "
                "`tidelog job archive --verify` names all damaged files: restore them from a copy"
            ) from error
    return _report(arguments, done)


class TopicRestorer:
    """Restores one topic."""

    def __init__(
        self,
        spark: SparkSession,
        arguments: RestoreArguments,
        manifest: Manifest,
        connection: ClusterConnection,
        target_id: str,
    ) -> None:
        """target_id: cluster id and topic id of the target."""
        self._spark, self._arguments, self._manifest = spark, arguments, manifest
        self._connection, self._target_id = connection, target_id

    def restore(self, topic: str, target: TopicDescription) -> RestoredTopic:
        """Write the records. Raises InvalidConfig if there are none, or the target cannot keep them as they are."""
        from pyspark.sql import functions as f

        arguments = self._arguments
        archived = archive_frame(self._spark, arguments.source, self._manifest, topics=[topic])
        rows = archived.where(self._condition())
        timed = f.when(f.col("timestampMs") != NO_TIMESTAMP, f.col("timestampMs"))
        found = (
            rows.groupBy("partition")
            .agg(f.count("*"), f.min("offset"), f.max("offset"), f.min(timed), f.max(timed))
            .collect()
        )
        counts = {int(row[0]): int(row[1]) for row in sorted(found)}
        if not counts:
            raise self._nothing_of(topic, has_others=not archived.isEmpty())
        times = [int(time) for row in found for time in row[4:] if time is not None]
        result = RestoredTopic(
            topic, target.name, partitions=counts, warnings=_ensure_target(topic, target, counts, times)
        )
        if not arguments.quiet:
            for warning in result.warnings:
                say(f"warning: {warning}")
        step = arguments.offsets_per_step
        first, last = min(int(row[2]) for row in found) // step, max(int(row[3]) for row in found) // step
        for number in range(first, last + 1):
            within = rows.where(f.col("offset").between(number * step, (number + 1) * step - 1))
            was_complete = self._is_complete(self._step_id(topic, number))
            self._write(within, topic, target.name, number, max(counts) + 1)
            result.steps += 1
            result.complete_before += was_complete
            if not arguments.quiet:
                done = "was complete already" if was_complete else "is complete"
                say(f"{topic}: step {result.steps} of {last - first + 1} {done}")
        result.records = sum(counts.values())
        return result

    def _nothing_of(self, topic: str, *, has_others: bool) -> InvalidConfig:
        """The error for a topic without records to restore. has_others: the archive has records of it, which the
        bounds exclude."""
        source = self._arguments.source
        if has_others:
            return InvalidConfig(
                f"no records of topic {topic!r} in the archive {source} are within the bounds given: `tidelog job "
                f"archive --to {source} --verify` prints its partitions and offsets"
            )
        found = archive_frame(self._spark, source, self._manifest).select("topic").distinct().orderBy("topic").collect()
        return _lacks(source, topic, [str(row.topic) for row in found])

    def _is_complete(self, step_id: str) -> bool:
        """Whether an earlier run has written all of a step."""
        from tidelog.spark.sink.batch_progress import driver_group, last_committed, record_of

        group = driver_group(step_id)
        with _admin(self._connection) as admin:
            record = record_of(last_committed(admin.list_group_offsets(group)), group)
        return record is not None and record.is_complete

    def _write(self, rows: DataFrame, topic: str, target: str, number: int, partitions: int) -> None:
        """Write a step."""
        (
            # Each sink partition is one partition of the topic, sorted: a repetition must divide the rows alike, else
            # the sink refuses it as another batch.
            rows.select("key", "value", "headers", "timestampMs", "partition", "offset")
            .repartitionById(partitions, "partition")
            .sortWithinPartitions("offset")
            .write.format("tidelog")
            .mode("append")
            .options(**spark_options(self._connection))
            .option("topic", target)
            .option("tidelog.compression.type", self._arguments.compression)
            .option("tidelog.sink.id", self._step_id(topic, number))
            .save()
        )

    def _step_id(self, topic: str, number: int) -> str:
        """The identity of a step: the same records from the same archive to the same topic have the same."""
        given = self._arguments
        bounds = (given.start_time, given.end_time, given.start_offset, given.end_offset, sorted(given.partition))
        # All that decides which rows a step has and where they go: two commands must not share the identity of a step.
        parts = (self._manifest.archive_id, self._target_id, topic, given.offsets_per_step, bounds)
        return f"tidelog-restore-{sha256(repr(parts).encode()).hexdigest()[:IDENTITY_CHARACTERS]}-{number}"

    def _condition(self) -> Column:
        """The rows that the arguments ask for."""
        from pyspark.sql import functions as f

        given, condition = self._arguments, f.lit(True)  # noqa: FBT003 - a constant column
        if given.start_time is not None or given.end_time is not None:
            # -1 stands for no time: compared as one it would lie before every end.
            condition &= f.col("timestampMs") != NO_TIMESTAMP
        if given.start_time is not None:
            condition &= f.col("timestampMs") >= given.start_time
        if given.end_time is not None:
            condition &= f.col("timestampMs") < given.end_time
        if given.start_offset is not None:
            condition &= f.col("offset") >= given.start_offset
        if given.end_offset is not None:
            condition &= f.col("offset") < given.end_offset
        if given.partition:
            condition &= f.col("partition").isin(given.partition)
        return condition


def _ensure_archived(arguments: RestoreArguments, topics: list[str]) -> None:
    """Raises InvalidConfig for a topic that a local archive with directories of topics has not: before Spark starts,
    and before the target of the same name is looked for."""
    path = local_path(arguments.source, arguments.conf)
    found = (
        []
        if path is None
        else sorted(each.name.removeprefix(TOPIC_DIRECTORY) for each in path.glob(f"{TOPIC_DIRECTORY}*"))
    )
    for topic in topics:
        if found and topic not in found:
            raise _lacks(arguments.source, topic, found)


def _lacks(source: str, topic: str, found: list[str]) -> InvalidConfig:
    """The error for a topic that the archive has not. found: those that it has."""
    names = ", ".join(map(repr, found[:TOPICS_NAMED])) + ", …" * (len(found) > TOPICS_NAMED)
    return InvalidConfig(
        f"the archive {source} has no records of topic {topic!r}; "
        + (f"it has those of {names}" if found else "it has no records at all")
    )


def _ensure_target(topic: str, target: TopicDescription, counts: dict[int, int], times: list[int]) -> list[str]:
    """Return what may happen to the records in the target. times: with the first and the last of all records. Raises
    InvalidConfig if it cannot keep them as they are."""
    needed = max(counts) + 1
    if len(target.partitions) < needed:
        raise InvalidConfig(
            f"topic {target.name!r} has {len(target.partitions)} partitions, and the archive has records of partition "
            f"{needed - 1} of {topic!r}: enlarge it, or create another one (tidelog topic create NAME --partitions "
            f"{needed})"
        )
    settings: Any = target.configs
    if settings.get("message.timestamp.type") == "LogAppendTime":
        raise InvalidConfig(
            f"topic {target.name!r} replaces timestamps (message.timestamp.type=LogAppendTime): set it to CreateTime "
            "for the restore"
        )
    now = MachineClock().wall_ms()
    for name, distance in (
        ("message.timestamp.before.max.ms", now - min(times, default=now)),
        ("message.timestamp.after.max.ms", max(times, default=now) - now),
    ):
        if distance > int(settings.get(name, INT64_MAX)):
            raise InvalidConfig(
                f"topic {target.name!r} refuses the time of some records of {topic!r}: its {name} is {settings[name]}, "
                f"and they are {distance} ms from now: set it to {INT64_MAX} for the restore"
            )
    warnings = []
    if "compact" in settings.get("cleanup.policy", ""):
        warnings.append(f"topic {target.name!r} is compacted: only the last record of each key stays")
    retention = settings.get("retention.ms", "-1")
    if "delete" in settings.get("cleanup.policy", "delete") and retention != "-1":
        warnings.append(
            f"topic {target.name!r} deletes records older than {retention} ms, by their timestamps: restored ones may "
            "go soon; set retention.ms=-1 to keep them"
        )
    return warnings


def _before(done: RestoredTopic) -> str:
    """What earlier runs had written of it."""
    if not done.complete_before:
        return ""
    if done.complete_before == done.steps:
        return ": it was complete already, and nothing was written"
    return f"; {done.complete_before} of {done.steps} steps were complete already, and were not written again"


def _admin(connection: ClusterConnection) -> Admin:
    return Admin(connection.bootstrap, **connection.of_client)


def _report(arguments: RestoreArguments, done: list[RestoredTopic]) -> int:
    lines = [
        f"{each.target}: {each.records} records of {each.topic} in {len(each.partitions)} partitions "
        f"from {arguments.source}{_before(each)}"
        for each in done
    ]
    print_report({"job": "restore", "source": arguments.source, "topics": done}, lines, as_json=arguments.as_json)
    return 0


JOB: Final = Job("restore", DESCRIPTION, RestoreArguments, _work, WHEN_INTERRUPTED)
main: Final = JOB.main


if __name__ == "__main__":
    sys.exit(run_as_program(main, __file__))
