"""Damage to the files of a node that does not run: emptied, flipped bits, cut files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault, start_again
from tests.chaos.nodes import Nodes
from tests.chaos.schedule import Band, Kind

BYTES_MIN: Final = 200
"""Shorter files have no record worth damaging."""
OF_TOPICS: Final = ("orders-*", "ledger-*", "copies-*")


def _wipe(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.kill(band.nodes[0])
    for each in sorted(nodes.data(band.nodes[0]).iterdir()):
        shutil.rmtree(each) if each.is_dir() else each.unlink()
    return ""


def _flip(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.kill(band.nodes[0])
    path = _some_file(nodes.data(band.nodes[0]), rng, ["*.log"])
    if path is None:
        return "nothing: no log is long enough"
    at = rng.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ (1 << rng.randrange(8))]))
    return f"{path.parent.name}/{path.name} at byte {at}"


def _cut(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.kill(band.nodes[0])
    path = _some_file(
        nodes.data(band.nodes[0]), rng, ["*.log", "*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint"]
    )
    if path is None:
        return "nothing: no file is long enough"
    size = rng.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.parent.name}/{path.name} to {size} bytes"


def _some_file(data: Path, rng: Random, patterns: list[str]) -> Path | None:
    """One of the topics' files: chance chooses a pattern, then a file of it."""
    found = [_files(data, pattern) for pattern in patterns]
    long_enough = [paths for paths in found if paths]
    return rng.choice(rng.choice(long_enough)) if long_enough else None


def _files(data: Path, pattern: str) -> list[Path]:
    paths = sorted(path for topic in OF_TOPICS for path in data.glob(f"{topic}/{pattern}"))
    return [path for path in paths if path.stat().st_size > BYTES_MIN]


FAULTS: Final = (
    Fault(
        Kind("wipe", (0.5, 3), takes_data=True),
        "a node with an empty disk is no longer in sync, and gets everything again",
        _wipe,
        start_again,
    ),
    Fault(
        Kind("flip-bit", (0.5, 2), takes_data=True, weight=2),
        "damage is noticed, and repaired from a replica",
        _flip,
        start_again,
    ),
    Fault(
        Kind("truncate-file", (0.5, 2), takes_data=True, weight=2),
        "a log, an index or a checkpoint that ends early",
        _cut,
        start_again,
    ),
)
