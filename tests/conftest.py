"""What all tests share: one place that knows what this machine can run, and who must not run at the same time.

Tests that start processes, containers or Spark measure time outs on real clocks: pytest-xdist runs them one after the
other on one worker (one group), while the other workers run the pure ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

ONE_AT_A_TIME = ("containers", "integration", "k8s", "spark")


@cache
def missing(marker: str) -> str | None:
    """What this machine lacks for tests of that marker, with what brings it; None where it lacks nothing."""
    if marker == "spark" and not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        return "no Java 17 (Debian: apt install openjdk-17-jre-headless)"
    if marker == "containers" and not answers("docker", "info"):
        return "no Docker engine answers (Debian: apt install docker.io)"
    if marker == "k8s" and not os.environ.get("KUBECONFIG"):
        return "KUBECONFIG names no cluster"
    return None


def answers(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return (
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False).returncode == 0
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(marker) for marker in ONE_AT_A_TIME):
            item.add_marker(pytest.mark.xdist_group("one-at-a-time"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in ONE_AT_A_TIME:
        if item.get_closest_marker(marker) and (reason := missing(marker)):
            pytest.skip(reason)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run: tests that use it are marked `spark`."""
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.appName("tidelog-tests")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    yield session
    session.stop()
