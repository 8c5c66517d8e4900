"""Every change of watched state is announced: the omitted checks would have found nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.log.log import Log
from testbed.sim import views
from testbed.sim.loop import SimLoop
from testbed.sim.process import Process
from testbed.sim.stirring import WATCHED
from testbed.sim.world import Simulation
from tests.sim import random_world
from tests.sim.plan import make_plan
from tidelog.types import Offset


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Checks, after every callback of every world, that nothing changed on nodes that are not stirred. Returns a
    list with the number of these checks."""
    worlds: list[Simulation] = []
    looks = [0]
    begin, step = Simulation.__init__, SimLoop.step

    def begun(world: Simulation, *arguments: object, **options: object) -> None:
        begin(world, *arguments, **options)  # type: ignore[arg-type]
        worlds.append(world)

    def stepped(loop: SimLoop) -> bool:
        more = step(loop)
        world = worlds[-1]
        for machine in world.machines.values():
            node, process = machine.node, machine.process
            if node is None or process is None or process.stirred or not process.alive:
                continue
            looks[0] += 1
            moved = views.moved(node, dict(machine._seen))
            assert not moved, f"{moved} changed without an announcement"
            assert views.image(node).offset <= world.image().offset, "a new image without an announcement"
        return more

    monkeypatch.setattr(Simulation, "__init__", begun)
    monkeypatch.setattr(SimLoop, "step", stepped)
    return looks


@pytest.mark.parametrize("seed", [3, 8])
def test_every_change_in_a_random_world_is_announced(seed: int, looked_at: list[int]) -> None:
    outcome = random_world.run(replace(make_plan(seed, 3, 6.0), voters=3))
    assert outcome.failure is None
    assert outcome.acknowledged
    assert looked_at[0] > 10_000


def test_all_that_is_watched_is_there_to_be_written() -> None:
    """A renamed attribute would never be announced."""
    with Simulation(5) as sim:
        sim.start(nodes=1)
        node = sim.machines[0].node
        assert node is not None
        metadata = node._metadata
        assert metadata is not None
        log = sim.log(0, "orders")
        assert isinstance(log, Log)
        assert node.replicas is not None
        parts = list(node.replicas.partitions())
        found = [log, log.flush_state, log.directory, *parts, metadata, metadata.view, metadata.metadata, node]
        for one in found:
            for name in WATCHED[type(one)]:
                assert hasattr(one, name), f"{type(one).__name__} has no {name}"
        assert {type(one) for one in found} == set(WATCHED)


def test_a_write_from_outside_any_process_stirs_all() -> None:
    with Simulation(5) as sim:
        sim.start(nodes=1)
        sim.run_for(1)
        process = sim.machines[0].process
        assert isinstance(process, Process)
        process.stirred = False
        log = sim.log(0, "orders")
        assert isinstance(log, Log)
        log.high_watermark = Offset(log.high_watermark)
        assert process.stirred
