"""A streaming query of Spark with the exactly-once sink, which starts again from its checkpoint when it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.chaos.history import Begun, Failed, Step, now
from tests.chaos.workloads.work import LEDGER, SPARKED, Work, pause
from tests.wheels import ROOT

LOOK_S: Final = 0.5


async def copy_by_spark(work: Work, name: str, home: Path) -> None:
    """Until readers stop. home: for the checkpoint and the log. A batch that Spark notes as complete is a success."""
    work.history.note(Begun(now(), name, []))
    stopping = work.stopping_readers
    complete: set[str] = set()
    while not stopping.is_set():
        process = _start(work, home)
        try:
            while process.poll() is None and not stopping.is_set():
                await pause(stopping, LOOK_S)
                noted = {path.name for path in (home / "checkpoint" / "commits").glob("[0-9]*")}
                for batch in sorted(noted - complete, key=int):
                    work.history.note(Step(now(), name, f"batch {batch}"))
                complete |= noted
        finally:
            _kill(process)
        if not stopping.is_set():
            work.history.note(Failed(now(), name, f"the query has ended with {process.returncode}"))


def _start(work: Work, home: Path) -> subprocess.Popen[bytes]:
    arguments = [work.bootstrap, LEDGER, SPARKED, str(home / "checkpoint")]
    with (home / "spark.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.workloads.spark_query", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With its JVM and its tasks."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
