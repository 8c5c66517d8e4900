"""What the options of the suite `cluster` may name. Imports nothing: `--help` stays quick."""

from __future__ import annotations

from typing import Final

PEERS: Final = ("kafka", "jetstream", "rabbitmq")
PARTS: Final = ("idle", "latency", "produce", "batches", "fsync", "consume", "clients", "failover", "calls", "limits")
"""In the order in which they are measured; bench/suite_cluster.py describes each."""
