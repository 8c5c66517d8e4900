"""One quiet local Spark session: started, used, and gone with all it started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

JVM_SECONDS_MAX: Final = 10
"""How long Spark's virtual machine may take to end before it is killed."""

LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = spark: %p %c{1}: %m%n
"""


def java() -> str | None:
    """The Java that Spark would start: JAVA_HOME's, else the one on the path; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """A session on two threads of this process's machine; `scratch` is for whatever it writes."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    scratch.mkdir(parents=True, exist_ok=True)
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING)
    spark = (
        SparkSession.builder.appName("tidelog-demo")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging} -Djava.io.tmpdir={scratch}")
        .config("spark.local.dir", str(scratch))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()
        _end_gateway()


def _end_gateway() -> None:
    """End the virtual machine: Spark would leave it until this process ends."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    machine = getattr(gateway, "proc", None)
    gateway.shutdown()
    if machine is not None:
        machine.stdin.close()  # it ends when its input does
        try:
            machine.wait(JVM_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            machine.kill()
            machine.wait()
