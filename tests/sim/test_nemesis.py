"""The disconnections of a plan: one direction of a link, both, one node from all others, two together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.sim.machine import machine_name
from testbed.sim.world import Simulation
from tests.sim.nemesis import Nemesis
from tests.sim.plan import Fault, Kind, make_plan


def disconnected_links(sim: Simulation) -> set[tuple[int, int]]:
    """The directed links between nodes on which nothing passes."""
    return {
        (source, target)
        for source in sim.nodes
        for target in sim.nodes
        if sim.network.link(machine_name(source), machine_name(target)).is_disconnected
    }


@pytest.mark.parametrize(
    ("kind", "amount", "nodes", "expected"),
    [
        (Kind.CUT, 0.3, 3, {(1, 2)}),
        (Kind.CUT, 0.7, 3, {(1, 2), (2, 1)}),
        (Kind.ISOLATE, 0.7, 4, {(1, 0), (0, 1), (1, 2), (2, 1), (1, 3), (3, 1)}),
        (Kind.ISOLATE, 0.1, 4, {(1, 0), (0, 1), (1, 3), (3, 1), (2, 0), (0, 2), (2, 3), (3, 2)}),
        (Kind.ISOLATE, 0.1, 3, {(1, 0), (0, 1), (1, 2), (2, 1)}),
    ],
)
def test_a_disconnection_begins_and_ends(kind: Kind, amount: float, nodes: int, expected: set[tuple[int, int]]) -> None:
    with Simulation(1) as sim:
        sim.start(nodes=nodes)
        Nemesis(sim, replace(make_plan(1, nodes), faults=(Fault(0.5, kind, 1, 2, 1.0, amount),)))
        sim.run_for(0.4)
        assert disconnected_links(sim) == set()
        sim.run_for(0.2)
        assert disconnected_links(sim) == expected
        sim.run_for(1.0)
        assert disconnected_links(sim) == set()
        sim.must_heal()
