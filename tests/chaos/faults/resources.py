"""Faults of what a node runs on: too little processor, too little memory, a clock that is wrong."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault, start_again
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import Band, Kind


def _starve(nodes: Nodes, band: Band, rng: Random) -> str:
    share = rng.uniform(0.05, 0.3)
    nodes.starve(band.nodes[0], share)
    return f"{share:.0%} of a core"


def _feed(nodes: Nodes, band: Band) -> None:
    nodes.starve(band.nodes[0], 0)


def _limit(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.limit_memory(band.nodes[0])
    return ""


def _lift(nodes: Nodes, band: Band) -> None:
    nodes.lift_memory_limit(band.nodes[0])
    start_again(nodes, band)


def _jump(nodes: Nodes, band: Band, rng: Random) -> str:
    seconds = rng.choice((-1, 1)) * rng.choice((2, 30, 600, 7_200))
    nodes.set_clock(band.nodes[0], seconds * 1_000)
    return f"{abs(seconds)} s {'ahead' if seconds > 0 else 'behind'}"


def _drift(nodes: Nodes, band: Band, rng: Random) -> str:
    drift = rng.choice((-2.0, -0.9, -0.2, 0.2, 1.0, 20.0))
    nodes.set_clock(band.nodes[0], 0, drift)
    return f"{abs(drift):g} s {'ahead' if drift > 0 else 'behind'} more each second"


def _set_right(nodes: Nodes, band: Band) -> None:
    nodes.set_clock(band.nodes[0], 0)


FAULTS: Final = (
    Fault(Kind("starve", (3, 10), takes_out=True, weight=2), "a node that answers late to everything", _starve, _feed),
    Fault(
        Kind("memory", (3, 8), takes_out=True),
        "an allocation that fails at any place",
        _limit,
        _lift,
        may_end_nodes=True,
    ),
    Fault(
        Kind("clock", (3, 10), weight=2),
        "no decision about records depends on the wall clock of a node",
        _jump,
        _set_right,
    ),
    Fault(
        Kind("drift", (3, 10)),
        "time that passes at another speed than elsewhere, or backwards",
        _drift,
        _set_right,
    ),
)
