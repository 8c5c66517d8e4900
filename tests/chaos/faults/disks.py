"""Faults of disks in use: full, slow, read-only, broken."""

from __future__ import annotations

import errno
from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import Band, Kind


def _fill(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.fill_disk(band.nodes[0], full=True)
    return ""


def _free(nodes: Nodes, band: Band) -> None:
    nodes.fill_disk(band.nodes[0], full=False)
    nodes.start(band.nodes[0])


def _slow(nodes: Nodes, band: Band, rng: Random) -> str:
    sync_ms = rng.uniform(50, 1_500)
    nodes.slow_disk(band.nodes[0], sync_ms)
    return f"{sync_ms:.0f} ms more for each sync"


def _speed_up(nodes: Nodes, band: Band) -> None:
    nodes.slow_disk(band.nodes[0], 0)


def _make_read_only(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.break_disk(band.nodes[0], errno.EROFS)
    return ""


def _break(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.break_disk(band.nodes[0], errno.EIO)
    return ""


def _replace(nodes: Nodes, band: Band) -> None:
    """A node gives up a directory that has failed, and ends if it was its only one."""
    nodes.break_disk(band.nodes[0], 0)
    nodes.start(band.nodes[0])


FAULTS: Final = (
    Fault(
        Kind("full-disk", (3, 8), takes_out=True, weight=2),
        "what is refused for lack of space is not written",
        _fill,
        _free,
        may_end_nodes=True,
    ),
    Fault(Kind("slow-disk", (3, 10), weight=2), "acknowledgements wait for the disk", _slow, _speed_up),
    Fault(
        Kind("read-only-disk", (3, 8), takes_out=True),
        "a failed write makes no record look durable",
        _make_read_only,
        _replace,
        may_end_nodes=True,
    ),
    Fault(
        Kind("broken-disk", (3, 8), takes_out=True),
        "a failed sync is not repeated, but believed",
        _break,
        _replace,
        may_end_nodes=True,
    ),
)
