"""Faults of the network: nodes do not reach each other, in one direction or both, or slowly, or with losses."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.chaos.faults.fault import Fault
from tests.chaos.nodes import Network, Nodes
from tests.chaos.schedule import Band, Kind


def _cut_off(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.cut_off(band.nodes[0])
    return "from all others"


def _cut_some(nodes: Nodes, band: Band, rng: Random) -> str:
    one, other = band.nodes
    nodes.cut_off(one, other)
    return f"only between nodes {one} and {other}"


def _silence(nodes: Nodes, band: Band, rng: Random) -> str:
    nodes.silence(band.nodes[0])
    return "the others do not hear it, it hears them"


def _shaped(network: Callable[[Random], Network]) -> Callable[[Nodes, Band, Random], str]:
    def begin(nodes: Nodes, band: Band, rng: Random) -> str:
        chosen = network(rng)
        nodes.shape(band.nodes[0], chosen)
        return described(chosen)

    return begin


def described(network: Network) -> str:
    parts = []
    if network.delay_ms:
        parts.append(f"{network.delay_ms:.0f} ms")
    if network.bytes_per_s:
        parts.append(f"{network.bytes_per_s / 1_000:.0f} kB/s")
    if network.lost:
        parts.append(f"{network.lost:.0%} of the packets")
    for name, share in (
        ("reordered", network.reordered),
        ("duplicate", network.duplicate),
        ("corrupt", network.corrupt),
    ):
        if share:
            parts.append(f"{share:.1%} {name}")
    return ", ".join(parts)


def _reconnect(nodes: Nodes, band: Band) -> None:
    for node in band.nodes:
        nodes.reconnect(node)


_LONG: Final = (4.0, 10.0)


def _share(rng: Random) -> float:
    return rng.uniform(0.02, 0.2)


FAULTS: Final = (
    Fault(
        Kind("isolate", (3, 10), takes_out=True, weight=3),
        "an isolated leader acknowledges nothing",
        _cut_off,
        _reconnect,
    ),
    Fault(
        Kind("isolate-pair", (3, 10), victims=2, takes_out=True, weight=2),
        "two nodes that do not see each other, a third that sees both",
        _cut_some,
        _reconnect,
    ),
    Fault(
        Kind("isolate-one-way", (3, 10), takes_out=True, weight=2),
        "a node that hears of its end, and cannot answer",
        _silence,
        _reconnect,
    ),
    Fault(
        Kind("delay", _LONG, weight=2),
        "answers later than some timeouts",
        _shaped(lambda rng: Network(delay_ms=rng.uniform(20, 400))),
        _reconnect,
    ),
    Fault(
        Kind("narrow", _LONG, takes_out=True),
        "a follower that falls behind under load",
        _shaped(lambda rng: Network(bytes_per_s=rng.uniform(30_000, 300_000))),
        _reconnect,
    ),
    Fault(
        Kind("loss", _LONG),
        "connections that stall and are given up",
        _shaped(lambda rng: Network(lost=rng.uniform(0.02, 0.3))),
        _reconnect,
    ),
    Fault(
        Kind("reorder", _LONG),
        "packets overtake each other",
        _shaped(lambda rng: Network(delay_ms=20, reordered=_share(rng))),
        _reconnect,
    ),
    Fault(
        Kind("duplicate", _LONG),
        "packets arrive twice",
        _shaped(lambda rng: Network(duplicate=_share(rng))),
        _reconnect,
    ),
    Fault(
        Kind("corrupt", _LONG),
        "packets with flipped bits",
        _shaped(lambda rng: Network(corrupt=_share(rng))),
        _reconnect,
    ),
)
