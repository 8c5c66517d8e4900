"""The fixtures and options that `tidelog.testing` gives to pytest, in runs of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.testing.child_runs import WITHOUT_ENTRY_POINTS

STORY = """
import tidelog

async def write(bootstrap, topic):
    async with tidelog.Producer(bootstrap) as producer:
        await producer.send(topic, b"a")

def test_story(tidelog_simulation):
    topic = tidelog_simulation.create_topic()
    tidelog_simulation.run(tidelog_simulation.start(write, tidelog_simulation.bootstrap, topic))
    assert tidelog_simulation.seed != 2
"""


def run(directory: Path, *options: str) -> str:
    """What pytest prints for the test above."""
    (directory / "test_story.py").write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tidelog.testing.plugin", "--rootdir", ".", *options]
    done = subprocess.run(
        command,
        cwd=directory,
        env=WITHOUT_ENTRY_POINTS,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout + done.stderr


def test_a_simulated_test_runs_with_each_seed_and_a_failure_says_how_to_play_it_again(tmp_path: Path) -> None:
    told = run(tmp_path, "--tidelog-seeds", "4")
    assert "1 failed, 3 passed" in told
    assert "the world of seed 2" in told
    assert "pytest --tidelog-seed 2 test_story.py::test_story" in told
    again = run(tmp_path, "--tidelog-seed", "2")
    assert "1 failed" in again
    assert "passed" not in again


def test_without_seeds_no_simulated_test_is_skipped_in_silence(tmp_path: Path) -> None:
    told = run(tmp_path, "--tidelog-seeds", "0")
    assert "--tidelog-seeds 0: a simulated test needs 1 or more seeds" in told
    assert "skipped" not in told


def test_the_plugin_imports_nothing_of_tidelog_but_its_leaves() -> None:
    script = "import sys, tidelog.testing.plugin; print([name for name in sys.modules if name.startswith('tidelog.')])"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "client" not in loaded.stdout
    assert "cli" not in loaded.stdout
