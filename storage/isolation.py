"""Isolation levels of a read. Source: Kafka's FetchIsolation."""

from __future__ import annotations

from enum import Enum


class FetchIsolation(Enum):
    """The upper bound of a read."""

    LOG_END = "log end"
    """Followers: everything in the leader's log."""
    HIGH_WATERMARK = "high watermark"
    """Consumers with read_uncommitted: replicated records."""
    LAST_STABLE_OFFSET = "last stable offset"
    """Consumers with read_committed: replicated records of ended transactions; the aborted ones are listed."""
