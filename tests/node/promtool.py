"""Prometheus' own tool, which checks metrics and queries and runs the tests of rules."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

import pytest

PROMTOOL: Final = shutil.which("promtool") or ""

needs_promtool: Final = pytest.mark.skipif(not PROMTOOL, reason="no promtool: Debian's package prometheus has it")


def promtool(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Its exit code, which is not 0 if something is wrong, and what it says. given: on its standard input."""
    return subprocess.run([PROMTOOL, *arguments], input=given, capture_output=True, text=True, check=False, timeout=60)
