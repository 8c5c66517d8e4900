"""What all tests share: one place that knows what this machine can run, and who must not run at the same time.

Tests that start processes, containers or Spark measure time outs on real clocks: pytest-xdist runs them one after the
other on one worker (one group), while the other workers run the pure ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache

import pytest

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.get_closest_marker(marker) for marker in ONE_AT_A_TIME):
            item.add_marker(pytest.mark.xdist_group("one-at-a-time"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in ONE_AT_A_TIME:
        if item.get_closest_marker(marker) and (reason := missing(marker)):
            pytest.skip(reason)
