"""A fault: its kind, how it begins and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from tests.chaos.nodes import Nodes
from tests.chaos.schedule import Band, Kind

READY_S: Final = 240.0
"""A node that is started again may have to copy everything, on cores that are kept busy."""


@dataclass(frozen=True, slots=True)
class Fault:
    kind: Kind
    shows: str
    """What a run with it checks, for docs/reliability.md."""
    begin: Callable[[Nodes, Band, Random], str]
    """Returns what was done, if the kind and the nodes do not say it."""
    end: Callable[[Nodes, Band], None]
    may_end_nodes: bool = False
    """Its nodes may end by themselves, also a moment after its end."""


def roll(nodes: Nodes, node: int) -> None:
    """As a rolling update does with the readiness probe of the manifest: the next node is stopped once the replicas of
    this one are in sync again."""
    nodes.terminate(node)
    nodes.start(node)
    nodes.wait_until(partial(nodes.has_caught_up, node), READY_S, f"node {node} has caught up")


def start_again(nodes: Nodes, band: Band) -> None:
    """The end of a fault whose nodes do not run, or may have ended by themselves."""
    for node in band.nodes:
        nodes.start(node)
