"""A record as the program sends it."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidelog.client.accumulator import Headers


class OutgoingRecord(NamedTuple):
    """A record as the program sends it, before it is serialized."""

    topic: str
    value: Any
    key: Any
    headers: Headers
    partition: int | None
    """None if the producer chooses it."""
    timestamp: int | None
