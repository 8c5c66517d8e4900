"""The Spark session of a job, and what is missing if there is none.

Facts (Spark 4.3): data sources in Python run in `$PYSPARK_DRIVER_PYTHON`, else `$PYSPARK_PYTHON`, else `python3`; the
job names its own Python if the environment names none. `spark-submit` has chosen master and settings before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.errors import InvalidConfig, UnsupportedVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL: Final = "pip install 'tidelog[spark]'"
CHECK: Final = "`tidelog spark check` says what else Spark needs"

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
}
"""What jobs rely on: times in UTC, exact to the millisecond, and one task for each partition that a job asks for."""


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
def spark_session(arguments: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """The session of the job, or the one that this process has already, which is not stopped then.

    Raises UnsupportedVersion, InvalidConfig for `--conf`, and what Spark raises.
    """
    ensure_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    settings = dict(_setting(text) for text in arguments.conf)
    if getattr(SparkContext, "_active_spark_context", None) is not None:
        existing = SparkSession.builder.getOrCreate()
        changed = {**SETTINGS, **settings}
        before = {key: existing.conf.get(key, None) for key in changed}
        for key, value in changed.items():
            existing.conf.set(key, value)
        try:
            yield existing
        finally:
            for key, old in before.items():
                existing.conf.unset(key) if old is None else existing.conf.set(key, old)
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder.appName(f"tidelog {name}")
    if arguments.master:
        builder = builder.master(arguments.master)
    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
    for key, value in {**quiet, **SETTINGS, **settings}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise InvalidConfig(f"--conf {text!r}: write it as NAME=VALUE, for example spark.executor.memory=2g")
    return name.strip(), value.strip()
