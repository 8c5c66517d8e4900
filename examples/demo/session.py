"""One quiet local Spark session: started, used, and gone with all it started."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

JVM_SECONDS_MAX: Final = 10
"""How long Spark's virtual machine may take to end before it is killed."""

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
"""For a life of seconds: compile once and quickly, collect on one thread. Half the processor time of the defaults."""


class SparkFailed(Exception):
    """What Spark could not do, in its own text: its errors ask the virtual machine for theirs, which ends."""


def java() -> str | None:
    """The Java that Spark would start: JAVA_HOME's, else the one on the path; None where there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


@contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    """A session on two threads of this machine; `scratch` is for what it writes, `spark.log` there for what it says.
    Raises SparkFailed."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    scratch.mkdir(parents=True, exist_ok=True)
    settings = {
        "spark.app.name": "tidelog-demo",
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Djava.io.tmpdir={scratch}",
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setAll(list(settings.items()))
    with (scratch / "spark.log").open("wb") as log:
        gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
    interrupt = signal.getsignal(signal.SIGINT)
    logging.getLogger().addFilter(_is_news)
    try:
        with SparkContext(conf=conf, gateway=gateway) as context:
            signal.signal(signal.SIGINT, interrupt)  # Spark's own would first ask a machine that is being stopped
            yield SparkSession(context)
    except CapturedException as error:
        raise SparkFailed(str(error)) from error.__cause__
    finally:
        _end(gateway)


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a log line is no consequence of Ctrl-C, which Spark's connection reports as an error of its own."""
    return not record.getMessage().startswith("KeyboardInterrupt while")


def _end(gateway: Any) -> None:
    """End the virtual machine now: Spark would leave it until this process ends."""
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    machine: subprocess.Popen[bytes] = gateway.proc
    assert machine.stdin is not None
    machine.stdin.close()  # it ends when its input does
    try:
        machine.wait(JVM_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        machine.kill()
        machine.wait()
