"""Spark as processes of its own: drivers that a test starts and kills, and a standalone cluster with hosts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

import pyspark

from node.process.free_ports import free_ports
from node.process.local_cluster import LocalCluster

ROOT: Final = Path(__file__).resolve().parents[2]
SPARK_HOME: Final = Path(pyspark.__file__).parent
ENVIRONMENT: Final = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}


class ExecutorJobRun:
    """A run of `executor_job.py`. options: of its command line."""

    def __init__(self, cluster: LocalCluster, home: Path, part: str, *flags: str, **options: str | Path) -> None:
        self.cluster, self.home, self.part = cluster, home, part
        self.notes = home / "notes"
        self.notes.mkdir(exist_ok=True)
        given = {"bootstrap": cluster.bootstrap, "notes": self.notes, "checkpoint": home / "checkpoint", **options}
        self.arguments = [part, *flags, *(f"--{name}={value}" for name, value in given.items())]

    def __enter__(self) -> Self:
        """Start the driver. Leaving the block kills what runs."""
        self._applications = set(_application_directories())
        with (self.home / "out").open("wb") as out, (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.executor_job", *self.arguments],
                env={**os.environ, **ENVIRONMENT},
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for directory in set(_application_directories()) - self._applications:
            shutil.rmtree(directory, ignore_errors=True)  # executors may still write there

    def kill(self) -> None:
        """End the driver and, with `local-cluster`, its executors at once."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, *notes: str, batches: int = 0) -> None:
        """Until these notes exist, and so many batches of the stream are noted as complete."""
        self.cluster.wait_until(
            lambda: self._ended() or (all((self.notes / each).exists() for each in notes) and self.batches >= batches),
            within_s=240,
            what=f"{self.part} with {notes or ''} and {batches} batches",
        )
        assert not self._ended(), self.log()

    def result(self, within_s: float = 400) -> Any:
        """Wait for the end; return what the job has printed."""
        try:
            assert self.process.wait(within_s) == 0, self.log()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"no end within {within_s} s: {self.log()}") from None
        return json.loads((self.home / "out").read_text(encoding="utf-8").strip().splitlines()[-1])

    @property
    def batches(self) -> int:
        """Batches that Spark has noted as complete."""
        commits = (self.home / "checkpoint" / "commits").glob("[0-9]*")
        return sum(each.name.isdigit() for each in commits)

    def log(self) -> str:
        return (self.home / "log").read_text(encoding="utf-8", errors="replace")[-4000:]

    def _ended(self) -> bool:
        return self.process.poll() is not None


def _application_directories() -> Iterator[Path]:
    """Those of `local-cluster`, with the logs of its executors."""
    return (SPARK_HOME / "work").glob("app-*")


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, so that a worker ends its executors; SIGKILL if it does not end."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def standalone_cluster(home: Path) -> Iterator[str]:
    """A master, and two workers with one core each on hosts of their own: Spark runs a speculative attempt only on a
    host without an attempt of the task, and `local-cluster` has one host. Yields the master's URL."""
    (port,) = free_ports(1)
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack, (home / "standalone.log").open("wb") as log:

        def start(role: str, *arguments: str) -> None:
            process = subprocess.Popen(
                [
                    SPARK_HOME / "bin" / "spark-class",
                    f"org.apache.spark.deploy.{role}",
                    *arguments,
                    "--webui-port",
                    "0",
                ],
                env={**os.environ, **ENVIRONMENT, "SPARK_HOME": str(SPARK_HOME), "SPARK_DAEMON_MEMORY": "256m"},
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(_end, process)

        start("master.Master", "--host", "127.0.0.1", "--port", str(port))
        for host in ("127.0.0.1", "127.0.0.2"):
            work = ("--work-dir", str(home / f"work-{host}"))
            start("worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", *work, url)
        yield url
