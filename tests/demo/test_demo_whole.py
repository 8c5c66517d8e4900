"""The demo as a person starts it, as short as it can be: it tells the truth, and leaves nothing running."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 280


@contextmanager
def demo(directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """The running demo; its temporary files are below `directory`."""
    temporary = directory / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--quick", "--rate", "500", "--out", str(directory / "out"), *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def left_over(directory: Path) -> list[str]:
    """Processes (known by the environment they inherited) and files of a demo that has ended."""
    found = [
        str(process) for process in psutil.process_iter() if temporary_directory(process) == str(directory / "tmp")
    ]
    return [*found, *map(str, (directory / "tmp").glob("tidelog-demo-*"))]


def temporary_directory(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("TMPDIR")
    except psutil.Error:  # gone, or not ours
        return None


def report(directory: Path) -> dict[str, dict[str, int]]:
    told: dict[str, dict[str, int]] = json.loads((directory / "out" / "report.json").read_text())
    return told


def test_a_packed_file_goes_through_a_failover_and_comes_back_whole(tmp_path: Path) -> None:
    lines = tmp_path / "lines.log.gz"
    lines.write_bytes(gzip.compress(b"".join(b"line %d of many\n" % number for number in range(3_000))))
    with demo(tmp_path, "--input", str(lines)) as process:
        told, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, told
    assert "PASSED" in told
    counts = report(tmp_path)["counts"]
    assert counts["sent"] == counts["acknowledged"] > 1_000
    assert counts["missing"] == counts["out_of_order"] == 0
    assert (tmp_path / "out" / "failover.png").stat().st_size > 10_000
    assert left_over(tmp_path) == []


def test_a_planted_loss_makes_it_fail(tmp_path: Path) -> None:
    with demo(tmp_path, "--plant-loss") as process:
        told, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1, told
    assert "FAILED" in told
    assert "1 acknowledged records are missing" in told
    assert report(tmp_path)["counts"]["missing"] == 1
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [("starting three nodes", signal.SIGINT), ("load begins", signal.SIGINT), ("Spark starts", signal.SIGTERM)],
)
def test_an_interrupt_ends_it_and_all_it_started(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text('{"verdict": "passed"}')  # of an earlier run
    with demo(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                process.send_signal(number)
                break
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert not (tmp_path / "out" / "report.json").exists()
    assert left_over(tmp_path) == []


def test_a_file_that_cannot_be_read_is_named_before_anything_starts(tmp_path: Path) -> None:
    with demo(tmp_path, "--input", str(tmp_path / "absent.log")) as process:
        told, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "absent.log" in told
    assert left_over(tmp_path) == []
