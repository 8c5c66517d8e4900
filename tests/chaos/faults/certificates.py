"""Faults of the certificates by which nodes know each other."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import Band, Kind


def _expire(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.expire_certificate(band.nodes[0], expired=True)
    return ""


def _renew(nodes: Nodes, band: Band) -> None:
    nodes.expire_certificate(band.nodes[0], expired=False)


FAULTS: Final = (
    Fault(
        # A node reads its files every 5 s, and its session lasts 3 s from then.
        Kind("expired-certificate", (9, 15), takes_out=True),
        "a node whose calls are refused, while its open streams and all clients are served",
        _expire,
        _renew,
    ),
)
