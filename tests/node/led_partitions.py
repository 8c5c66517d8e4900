"""Three nodes with one led partition, and records for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.node.wires import Cluster
from tidelog.records import Record
from tidelog.types import Millis, Offset

NOW = 1_700_000_000_000


def of(*values: bytes, key: bytes | None = b"k", timestamp: int = NOW) -> list[Record]:
    return [Record(Offset(i), Millis(timestamp), key, value) for i, value in enumerate(values)]


@contextmanager
def led(**configs: str) -> Iterator[Cluster]:
    """Three nodes, the first one leads. configs: the topic's settings."""
    cluster = Cluster(**configs)  # type: ignore[arg-type]  # they are all text
    cluster.set(leader=1)
    try:
        yield cluster
        cluster.loop.raise_defects()
    finally:
        cluster.close()
