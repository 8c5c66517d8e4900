"""Faults of processes: they are killed, stopped, paused, restarted one after the other."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault, roll, start_again
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import EVERY_NODE, Band, Kind


def _kill(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.kill(*band.nodes)
    return ""


def _terminate(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.terminate(band.nodes[0])
    return ""


def _pause(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.pause(band.nodes[0])
    return ""


def _resume(nodes: Nodes, band: Band) -> None:
    nodes.resume(band.nodes[0])


def _roll(nodes: Nodes, band: Band, rng: Random) -> str:
    for node in band.nodes:
        roll(nodes, node)
    return ""


FAULTS: Final = (
    Fault(
        Kind("kill", (0.5, 6), takes_out=True, weight=4),
        "a leader or controller ends at once, and recovers its logs",
        _kill,
        start_again,
    ),
    Fault(
        Kind("kill-two", (0.5, 5), victims=2, takes_out=True, weight=2),
        "too few in-sync replicas, no majority of three voters",
        _kill,
        start_again,
    ),
    Fault(
        Kind("kill-all", (0.5, 3), victims=EVERY_NODE, takes_out=True),
        "nothing is left but the disks",
        _kill,
        start_again,
    ),
    Fault(
        Kind("terminate", (0.5, 4), takes_out=True, weight=2),
        "a node hands over its leaderships and closes its logs",
        _terminate,
        start_again,
    ),
    Fault(
        Kind("pause", (1, 9), takes_out=True, weight=4),
        "a deposed leader continues and believes that it leads",
        _pause,
        _resume,
    ),
    Fault(
        Kind("rolling-restart", (1, 2), victims=EVERY_NODE, takes_out=True),
        "an update of all nodes under load",
        _roll,
        start_again,
    ),
)
