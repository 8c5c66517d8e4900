"""What all workers share: where the cluster is, where they note what happens, when they stop."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.history import History

ORDERS: Final = "orders"
"""durability=page-cache; every consumer group reads it, and its replicas move."""
LEDGER: Final = "ledger"
"""durability=fsync; the source of the pipeline."""
COPIES: Final = "copies"
"""The target of the pipeline."""
SPARKED: Final = "sparked"
"""The target of Spark's query, if it runs; its source is `ledger` too."""
LATEST: Final = "latest"
"""Compacted: a producer writes the same few keys again and again."""
KEYS: Final = 16
"""Of each partition of `latest`: record n has key n modulo so many."""
PARTITIONS: Final = {ORDERS: 6, LEDGER: 3, COPIES: 3, SPARKED: 3, LATEST: 2}
CONFIGS: Final = {
    ORDERS: {"durability": "page-cache"},
    LEDGER: {"durability": "fsync"},
    COPIES: {"durability": "page-cache"},
    SPARKED: {"durability": "page-cache"},
    LATEST: {
        "durability": "page-cache",
        "cleanup.policy": "compact",
        "segment.bytes": "16384",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
REPLICAS: Final = 3
DELIVERY_MS: Final = 60_000
PIPELINE: Final = "pipeline"
"""The group of the pipeline."""


@dataclass
class Work:
    """One run of the workload."""

    bootstrap: str
    kafka_bootstrap: str
    nodes: int
    seed: int
    history: History
    stopping_producers: threading.Event = field(default_factory=threading.Event)
    stopping_readers: threading.Event = field(default_factory=threading.Event)
    reached: dict[str, dict[tuple[str, int], int]] = field(default_factory=lambda: defaultdict(dict))
    """By group and partition: the newest offset that a member got."""

    def note_reached(self, group: str, topic: str, partition: int, offset: int) -> None:
        places = self.reached[group]
        places[topic, partition] = max(offset, places.get((topic, partition), -1))


def places_of(*topics: str) -> list[tuple[str, int]]:
    """All partitions of these topics."""
    return [(topic, partition) for topic in topics for partition in range(PARTITIONS[topic])]


async def pause(stopping: threading.Event, seconds: float) -> None:
    """So long, or until the worker must stop."""
    step = 0.05
    while seconds > 0 and not stopping.is_set():
        await asyncio.sleep(min(step, seconds))
        seconds -= step
