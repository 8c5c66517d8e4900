"""The parts of the suite `coordinators`. Imports nothing: `--help` stays quick."""

from __future__ import annotations

from typing import Final

PARTS: Final = ("commits", "rebalance", "large-group", "transactions", "throughput", "coordinator-failover", "memory")
"""In the order in which they are measured; bench/suite_coordinators.py describes each."""
