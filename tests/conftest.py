"""Shared by all tests: what this machine can run, and which tests must not run at the same time.

Tests that start processes, containers or Spark measure time outs on real clocks: pytest-xdist runs them one after the
other on one worker, while the other workers run the pure ones.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tidelog.grpc_environment import set_defaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

set_defaults(os.environ)  # as tidelog does, for test modules that import grpc first
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job: its children would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example's time says how busy the machine is: Hypothesis is not to call a test slow, or flaky, for that.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

ONE_AT_A_TIME = ("containers", "integration", "interop", "k8s", "spark")


@cache
def missing(marker: str) -> str | None:
    """What this machine lacks for tests of that marker, with what brings it; None where it lacks nothing."""
    if marker == "spark" and not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        return "no Java 17 (Debian: apt install openjdk-17-jre-headless)"
    if marker == "containers" and not answers("docker", "info"):
        return "no Docker engine answers (Debian: apt install docker.io)"
    if marker == "interop" and not os.environ.get("TIDELOG_KAFKA_LIBS"):
        return "make interop fetches Apache Kafka and runs them"
    if marker == "k8s" and not os.environ.get("KUBECONFIG"):
        return "KUBECONFIG names no cluster"
    return None


def answers(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return (
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30, check=False).returncode == 0
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """One group for every file whose tests carry such a marker. pytest-xdist's own groups go by names of tests that it
    sets in the workers, which pytest 9.2 does not let it do any more."""
    return OneAtATime(config, log)


class OneAtATime(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives the files that must not run beside each other to one worker, and any other test to the next free worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "one-at-a-time" if marked_as_such(file) else nodeid


@cache
def marked_as_such(file: str) -> bool:
    text = Path(file).read_text(encoding="utf-8")
    return any(f"pytest.mark.{marker}" in text for marker in ONE_AT_A_TIME)


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
