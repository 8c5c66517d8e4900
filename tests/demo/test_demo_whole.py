"""The demo as a process, with the least load: its verdict is right, and it leaves no process and no file."""

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
    """Processes and files that an ended demo has left. Its processes are found by their TMPDIR."""
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
    contents: dict[str, dict[str, int]] = json.loads((directory / "out" / "report.json").read_text())
    return contents


@pytest.mark.deep
def test_a_compressed_file_is_complete_after_a_failover(tmp_path: Path) -> None:
    """The whole demo: three nodes, two failovers, Spark with streaming queries."""
    lines = tmp_path / "lines.log.gz"
    lines.write_bytes(gzip.compress(b"".join(b"line %d of many\n" % number for number in range(3_000))))
    with demo(tmp_path, "--input", str(lines)) as process:
        output, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, output
    assert "PASSED" in output
    counts = report(tmp_path)["counts"]
    assert counts["sent"] == counts["acknowledged"] > 1_000
    assert counts["missing"] == counts["out_of_order"] == 0
    assert (tmp_path / "out" / "failover.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "analytics.png").stat().st_size > 10_000
    assert "Top talkers" in output
    assert left_over(tmp_path) == []


@pytest.mark.deep
def test_the_demo_fails_on_a_planted_loss(tmp_path: Path) -> None:
    """The whole demo: three nodes, two failovers, Spark with streaming queries."""
    with demo(tmp_path, "--plant-loss") as process:
        output, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 1, output
    assert "FAILED" in output
    assert "1 acknowledged records are missing" in output
    assert report(tmp_path)["counts"]["missing"] == 1
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("starting three nodes", signal.SIGINT),
        pytest.param("load begins", signal.SIGINT, marks=pytest.mark.deep),
        pytest.param("Spark starts", signal.SIGTERM, marks=pytest.mark.deep),
    ],
)
def test_an_interrupt_ends_the_demo_and_all_its_processes(tmp_path: Path, moment: str, number: signal.Signals) -> None:
    """The demo runs until the moment of the interrupt: as far as the start of Spark."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text('{"verdict": "passed"}')  # as an earlier run has left it
    with demo(tmp_path) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if moment in line:
                process.send_signal(number)
                break
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert not (tmp_path / "out" / "report.json").exists()
    assert left_over(tmp_path) == []


FAILING_QUERY = """
import sys
from pathlib import Path
from examples.demo.session import session
with session(Path(sys.argv[1])) as spark:
    spark.sql("SELECT raise_error('the planted cause')").collect()
"""


@pytest.mark.deep
def test_an_error_of_spark_keeps_its_text_when_spark_has_ended(tmp_path: Path) -> None:
    """A Spark of its own, which ends with the program."""
    command = [sys.executable, "-c", FAILING_QUERY, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ended.returncode == 1
    assert "SparkFailed: " in ended.stderr
    assert "the planted cause" in ended.stderr
    assert "str() failed" not in ended.stderr


def test_a_file_that_cannot_be_read_is_named_before_anything_starts(tmp_path: Path) -> None:
    with demo(tmp_path, "--input", str(tmp_path / "absent.log")) as process:
        output, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "absent.log" in output
    assert left_over(tmp_path) == []


@pytest.mark.deep
def test_with_a_remote_tier_all_is_read_back_from_the_store(tmp_path: Path) -> None:
    """The whole demo, as above, with a topic whose closed segments leave the nodes: Spark reads them from the store."""
    with demo(tmp_path, "--tiered", "--rate", "1500") as process:
        output, _ = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, output
    assert "PASSED" in output
    assert "read from the object store" in output
    found = report(tmp_path)
    counts, tier = found["counts"], found["tier"]
    assert counts["sent"] == counts["acknowledged"] > 1_000
    assert counts["missing"] == counts["out_of_order"] == counts["read_twice"] == 0
    assert tier["segments"] > 6
    assert tier["remote_records"] + tier["local_records"] == counts["read"]
    assert tier["read_bytes"] > tier["remote_records"]
    assert left_over(tmp_path) == []
