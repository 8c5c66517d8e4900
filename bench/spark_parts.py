"""The parts of the suite `spark`. Imports nothing: `--help` stays quick."""

from __future__ import annotations

from typing import Final

PARTS: Final = ("batch", "streaming", "sink", "growth")
"""In the order in which they are measured; bench/suite_spark.py describes each."""
