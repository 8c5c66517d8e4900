"""The parts of the suite `tiering`. Imports nothing: `--help` stays quick."""

from __future__ import annotations

from typing import Final

PARTS: Final = ("produce", "consume", "manifests", "replacement", "spark")
"""In the order in which they are measured; bench/suite_tiering.py describes each."""
