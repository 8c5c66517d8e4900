"""A streaming query to the sink under 200 random failures of tasks and drivers, restarts and other numbers of tasks.

The topic has the input then, each row once. It takes up to 20 minutes, so it is not part of `make test`:
`make sink-failures`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.process.local_cluster import LocalCluster
from tests.spark.sink_job import ROWS
from tests.spark.sink_runs import committed

pytestmark = [pytest.mark.spark, pytest.mark.integration, pytest.mark.slow]

FAILURES = 200
BATCHES = 400
"""More than the failures take."""
SECONDS = 1_200

DRIVER = ("driver before", "driver after")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("failures")) as cluster:
        cluster.wait_healthy(120)
        cluster.create_topic("out", 3, min_insync_replicas="2")
        yield cluster


class Job:
    """The processes of one query, one after the other."""

    def __init__(self, cluster: LocalCluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self.failures = home / "failures"
        self.failures.touch()

    @property
    def failed(self) -> int:
        return len(self.failures.read_text().splitlines())

    def start(self, probability: float, batches: int = BATCHES) -> subprocess.Popen[bytes]:
        options = {
            "bootstrap": self.cluster.bootstrap,
            "topic": "out",
            "checkpoint": self.home / "checkpoint",
            "failures": self.failures,
            "starts": self.home / "starts",
            "batches": batches,
            "probability": probability,
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.spark.sink_job", *arguments, "--tasks", "5", "6", "8"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self) -> str:
        return (self.home / "log").read_text()[-3000:]

    def noted(self) -> int:
        """Batches that Spark has noted as complete."""
        names = [path.name for path in (self.home / "checkpoint" / "commits").glob("*")]
        return 1 + max((int(name) for name in names if name.isdigit()), default=-1)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill the driver, its JVM and its tasks at once."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.mark.timeout(SECONDS + 200)
def test_two_hundred_failures_of_tasks_and_drivers(cluster: LocalCluster, tmp_path: Path) -> None:
    """Goal: exactly the input. Method: the query runs until 200 failures have happened. When it fails it starts again,
    with another number of tasks; its process is killed three times."""
    job, end = Job(cluster, tmp_path), time.monotonic() + SECONDS
    for killed_at in (FAILURES // 3, 2 * FAILURES // 3, FAILURES):
        process = job.start(0.4)
        try:
            cluster.wait_until(
                lambda: process.poll() is not None or job.failed >= killed_at,  # noqa: B023 - called in this round
                within_s=end - time.monotonic(),
                what=f"{killed_at} failures in {SECONDS} s",
            )
            assert process.poll() is None, f"the job ends with {process.poll()}: {job.log()}"
        finally:
            stop(process)
    process = job.start(0.0, batches=job.noted() + 3)
    try:
        assert process.wait(180) == 0, job.log()
    finally:
        stop(process)
    found, whole = committed(cluster), job.noted()
    assert found >= Counter(str(number) for number in range(whole * ROWS)), "nothing is missing"
    assert not [value for value, times in found.items() if times > 1], "nothing is there twice"
    kinds = Counter(job.failures.read_text().splitlines())
    assert {"among rows", "after COMMITTED", "after PREPARED"} <= kinds.keys()
    ends = Counter((tmp_path / "starts").read_text().splitlines())
    assert ends.keys() <= {"complete", "by chance", "DifferentRetry", "BatchNotCommitted", *DRIVER}, ends
    print(f"{whole} batches, {kinds}, {ends}")
