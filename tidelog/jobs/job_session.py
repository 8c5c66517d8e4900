"""The Spark session of a job, and the error if Spark is not installed.

Facts (Spark 4.3): data sources in Python run in `$PYSPARK_DRIVER_PYTHON`, else `$PYSPARK_PYTHON`, else `python3`; the
job names its own Python if the environment names none. `spark-submit` has chosen master and settings before.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import UnsupportedVersion
from tidelog.jobs.job_frame import SparkJobArguments, StopRequest, is_of_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

INSTALL: Final = "pip install 'tidelog[jobs]'"
CHECK: Final = "`tidelog spark check` says what else Spark needs"

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""What jobs rely on: times in UTC, exact to the millisecond."""
FIXED_TASKS: Final = {"spark.sql.adaptive.coalescePartitions.enabled": "false"}
"""For a job that asks for a number of tasks: Spark does not merge small ones."""
SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
OWN: Final = "spark.tidelog.job"
"""The setting that marks a session as started by a job: its name."""
STREAM_LOG: Final = "org.apache.spark.sql.execution.streaming"
"""The loggers of streaming queries. What ends a query reaches the job as an error: its sentence is enough."""

SPARK_LOG: Final = "org.apache.spark"
"""The loggers of all of Spark, for a job that makes sentences of its errors."""


WHILE_STARTING: Final = (
    "the job ends as soon as Spark has started; a second signal ends it at once, and may leave the JVM running"
)


def ensure_spark() -> None:
    """Raises UnsupportedVersion if PySpark, pyarrow or Java is missing."""
    for name in ("pyspark", "pyarrow"):
        if find_spec(name) is None:
            raise UnsupportedVersion(f"this job runs on Spark, and {name} is not installed: {INSTALL}")
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise UnsupportedVersion(f"this job runs on Spark, and JAVA_HOME is {home}, which has no bin/java: correct it")
    if not home and shutil.which("java") is None:
        raise UnsupportedVersion(
            "this job runs on Spark, which needs Java 17, and there is no java in PATH: install it (Debian: apt "
            f"install openjdk-17-jre-headless), or set JAVA_HOME; {CHECK}"
        )


@contextmanager
def spark_session(
    arguments: SparkJobArguments, name: str, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """The session of the job, or the one that this process has already, which is not stopped then.

    settings: that the job needs besides `SETTINGS`; `--conf` overrides both. A shuffle has as many partitions as the
    session has cores, not the 200 of Spark's default, unless the user has chosen a number.
    Raises UnsupportedVersion and what Spark raises.
    """
    ensure_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    chosen = {**SETTINGS, **(settings or {}), **dict(arguments.conf)}
    if getattr(SparkContext, "_active_spark_context", None) is not None:
        existing = SparkSession.builder.getOrCreate()
        before = existing.conf.getAll
        try:
            for key, value in chosen.items():
                existing.conf.set(key, value)
            _bound_shuffles(existing)
            yield existing
        finally:
            for key in (*chosen, SHUFFLE_PARTITIONS):
                with suppress(Exception):  # a static one was not set either
                    existing.conf.set(key, before[key]) if key in before else existing.conf.unset(key)
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.appName(f"tidelog {name}")
    if arguments.master:
        builder = builder.master(arguments.master)
    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    for key, value in {**quiet, **chosen, OWN: name}.items():
        builder = builder.config(key, value)
    logging.getLogger().addFilter(_is_logged)
    session: SparkSession | None = None
    try:
        with StopRequest(
            WHILE_STARTING
        ) as stop:  # an interrupt in the midst would leave PySpark half started, with tracebacks
            try:
                session = builder.getOrCreate()
            except Exception:
                stop.raise_if_asked()
                raise
        stop.raise_if_asked()
        silence(session, STREAM_LOG)
        _bound_shuffles(session)
        yield session
    finally:
        if session is not None:
            with suppress(Exception):  # its JVM may have ended by the same signal
                silence(session)
                session.sparkContext.cancelAllJobs()
                session.stop()
        logging.getLogger().removeFilter(_is_logged)


def _is_logged(record: logging.LogRecord) -> bool:
    """Whether to log it: py4j logs the stack trace of what the job hears of, the interrupt or the JVM's end."""
    error = record.exc_info[1] if record.exc_info else None
    return error is None or not (isinstance(error, KeyboardInterrupt) or is_of_spark(error))


def _bound_shuffles(session: SparkSession) -> None:
    if SHUFFLE_PARTITIONS not in session.conf.getAll:
        session.conf.set(SHUFFLE_PARTITIONS, str(session.sparkContext.defaultParallelism))


def map_arrow(frame: DataFrame, task: Any, schema: str | StructType) -> DataFrame:
    """`frame.mapInArrow(task, schema)` without pandas, which Spark 4.3 asks for although Arrow alone is used."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import UserDefinedFunction
    from pyspark.util import PythonEvalType

    function = UserDefinedFunction(task, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = function(*(frame[name] for name in frame.columns))
    classic: Any = frame
    return DataFrame(classic._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: FBT003 - no barrier


def silence(session: SparkSession, logger: str = "") -> None:
    """Turn loggers off in the driver's JVM: this one and those below it; none named: all, because what Spark logs while
    its tasks are ended is no failure. A session that the job did not start keeps its log."""
    with suppress(Exception):  # Spark may have another logging library, or its JVM may have ended
        if not session.sparkContext.getConf().contains(OWN):
            return
        jvm: Any = session._jvm
        log4j = jvm.org.apache.logging.log4j
        log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)
        log4j.core.config.Configurator.setAllLevels(logger, log4j.Level.OFF)
