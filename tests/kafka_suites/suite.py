"""What a suite of a Kafka client is to the runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Protocol

HOME: Final = Path(__file__).resolve().parent.parent.parent
BUILT: Final = HOME / "build" / "kafka-suites"
"""What `make kafka-suites` compiles."""

PARTITIONS: Final = 6


class Verdict(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(NamedTuple):
    """The result of one test."""

    test: str
    verdict: Verdict
    seconds: float
    note: str = ""


class Effort(NamedTuple):
    """How much is asked of the nodes."""

    records: int
    """Of each transformation."""
    kill_every_s: float = 0
    """Seconds from one kill -9 of a node to the next; 0: none is killed."""
    at_kafka: bool = False
    """Three brokers of Apache Kafka are asked instead."""


class Nodes(Protocol):
    """A LocalCluster, or brokers of Apache Kafka in its place."""

    @property
    def nodes(self) -> Sequence[object]: ...

    @property
    def kafka_bootstrap(self) -> str: ...

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> object: ...

    def kill(self, node_id: int) -> None: ...

    def start_node(self, node_id: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Suite:
    """A suite of a client."""

    name: str
    missing: Callable[[], str]
    """Why it cannot run here; empty if it can."""
    run: Callable[[Nodes, Path, Effort], Iterator[Outcome]]
    """Takes a directory for its logs."""
    topics: tuple[str, ...] = ()
    """Of PARTITIONS each, which exist before it runs: none can be created while too few nodes run."""
    known: Mapping[str, str] = field(default_factory=dict)
    """Tests that may fail, with the reason."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the nodes, beside those of all suites."""
