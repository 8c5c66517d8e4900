"""Importing the record formats imports no codec library, no other package of the project, and little of Python."""

from __future__ import annotations

import subprocess
import sys

HEAVY = (
    *("lz4", "zstandard", "cramjam", "grpc", "google", "pyarrow", "pyspark", "numpy", "crcmod", "storage", "node"),
    *("importlib.metadata", "email", "zipfile"),  # for a version that nothing asks for
)


def test_codecs_are_imported_on_first_use() -> None:
    program = f"import sys, tidelog.records; print([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"
