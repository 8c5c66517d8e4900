"""The parts of the suite `kafka`. Imports nothing: `--help` stays quick."""

from __future__ import annotations

from typing import Final

PARTS: Final = ("idle", "latency", "produce", "batches", "fsync", "consume", "own")
"""In the order in which they are measured; bench/suite_kafka.py describes each."""
