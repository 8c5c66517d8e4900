"""All nodes go back to another version of Tidelog, one after the other under load, and then to this one again.

The other version has formed the cluster, at the feature level that it knows; the level is raised once all faults have
ended (play.py). Until then there is a way back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault, roll
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import EVERY_NODE, Band, Kind
from tests.wheels import ROOT

RAISED_S: Final = 60.0
"""A node says with its heartbeats which levels it knows."""


def change_version(nodes: Nodes, order: Iterable[int], *, other: bool) -> None:
    """Restart these nodes one after the other with the other version, or with this one."""
    for node in order:
        nodes.choose_version(node, other=other)
        roll(nodes, node)


def raise_feature_level(nodes: Nodes) -> None:
    """As an operator does once every node runs this version. Raises ClusterFailed."""
    command = [sys.executable, "-m", "tidelog.cli", "cluster", "upgrade", "--bootstrap", nodes.addresses.bootstrap]

    def raised() -> bool:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([*nodes.addresses.wrapper, *command], env=environment, capture_output=True, check=False)
        return done.returncode == 0

    nodes.wait_until(raised, RAISED_S, "the feature level is raised (`tidelog cluster upgrade`)")


def _go_back(nodes: Nodes, band: Band, rng: Random) -> str:
    change_version(nodes, band.nodes, other=True)
    assert nodes.other is not None
    return f"back to {nodes.other.name}, then to this version"


def _upgrade(nodes: Nodes, band: Band) -> None:
    change_version(nodes, band.nodes, other=False)


FAULTS: Final = (
    Fault(
        Kind("rolling-upgrade", (2, 5), victims=EVERY_NODE, takes_out=True),
        "two versions in one cluster, in both directions",
        _go_back,
        _upgrade,
    ),
)
