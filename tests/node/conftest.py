"""Shared by the tests of nodes."""

from __future__ import annotations

import pytest

from node.replicas import log_maintenance
from node.tiering import remote_tier, tiered_partition


@pytest.fixture
def quick_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """What nodes do with a remote tier follows at once, where it would wait for the next of many ticks."""
    for module, name in (
        (log_maintenance, "TICK_MS"),
        (remote_tier, "TICK_MS"),
        (remote_tier, "PAUSE_MS_MIN"),
        (remote_tier, "FOLLOW_MS"),
        (tiered_partition, "RETENTION_MS"),
    ):
        monkeypatch.setattr(module, name, 25)
