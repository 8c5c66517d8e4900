"""All that the tests of records and of conformance show holds without the compiled codec."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ("tests/records", "tests/conformance")


@pytest.mark.deep
def test_the_tests_of_records_pass_in_pure_python() -> None:
    """Half a minute: some 1500 tests, in a process that was told not to load the compiled codec."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not deep", *TESTS],
        cwd=ROOT,
        env={**os.environ, "TIDELOG_PURE_PYTHON": "1"},
        capture_output=True,
        check=False,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
