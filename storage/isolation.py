"""How far a reader may see. Source: Kafka's FetchIsolation."""

from __future__ import annotations

from enum import Enum


class FetchIsolation(Enum):
    """What bounds a read."""

    LOG_END = "log end"
    """Followers: everything that the leader has."""
    HIGH_WATERMARK = "high watermark"
    """Consumers, read_uncommitted: what is replicated."""
    LAST_STABLE_OFFSET = "last stable offset"
    """Consumers, read_committed: what is replicated and decided; aborted transactions are named."""
