"""One fault after the other in the world of applications, as its seed draws them; each ends before the next begins.

Not here: the plans of our own random worlds, whose faults overlap (tests/sim/plan.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from testbed.sim.network import LinkFaults

if TYPE_CHECKING:
    from testbed.sim.applications import ApplicationWorld
    from testbed.sim.world import Simulation

LASTS_S: Final = (0.1, 6.0)
PAUSE_S: Final = (0.1, 2.0)
STEP_MS: Final = 40.0
"""Average time of a callback in a slow process: its followers leave the in-sync set."""


class Fault(NamedTuple):
    """What happens to a node, and how it ends."""

    name: str
    begin: Callable[[Simulation, int], object]
    end: Callable[[Simulation, int], object]


def _lose_messages(sim: Simulation, _node: int) -> None:
    sim.network.set_faults(LinkFaults(loss=0.03, late=0.02, duplicate=0.05))


def _lose_none(sim: Simulation, _node: int) -> None:
    sim.network.set_faults(LinkFaults())


FAULTS: Final = (
    Fault("is killed", lambda sim, node: sim.kill(node), lambda sim, node: sim.restart(node)),
    Fault("loses power", lambda sim, node: sim.power_off(node), lambda sim, node: sim.restart(node)),
    Fault("stops", lambda sim, node: sim.stop(node), lambda sim, node: sim.restart(sim.kill(node))),
    Fault("is paused", lambda sim, node: sim.pause(node), lambda sim, node: sim.resume(node)),
    Fault("is cut off", lambda sim, node: sim.disconnect(node), lambda sim, node: sim.heal(node)),
    Fault("is slow", lambda sim, node: sim.slow_process(node, STEP_MS), lambda sim, node: sim.slow_process(node, 0)),
    Fault("has a slow disk", lambda sim, node: sim.slow_disk(node, 30), lambda sim, node: sim.slow_disk(node, 1)),
    Fault("has a disk that stalls", lambda sim, node: sim.stall_disk(node), lambda sim, node: sim.release_disk(node)),
    Fault("has its clock set", lambda sim, node: sim.jump_clock(node, -90_000), lambda sim, node: None),
    Fault("is in a network that loses messages", _lose_messages, _lose_none),
)


def disturb(world: ApplicationWorld, seconds: float, *, with_applications: bool) -> None:
    """Run the world for that time. with_applications: a third of the faults kill or pause one of those that run."""
    sim = world.sim
    over = sim.loop.time() + seconds
    while sim.loop.time() < over:
        running = [each for each in world.applications if each.runs] if with_applications else []
        lasts = min(sim.rng.uniform(*LASTS_S), over - sim.loop.time())
        if running and sim.rng.random() < 1 / 3:
            application = sim.rng.choice(running)
            if sim.rng.random() < 0.5:
                application.kill()
                sim.run_for(lasts)
                application.start()
            else:
                application.pause()
                sim.run_for(lasts)
                application.resume()
        else:
            fault, node = sim.rng.choice(FAULTS), sim.rng.choice(sim.nodes)
            sim.note(f"fault: node {node} {fault.name}")
            fault.begin(sim, node)
            sim.run_for(lasts)
            fault.end(sim, node)
        sim.run_for(min(sim.rng.uniform(*PAUSE_S), max(0.0, over - sim.loop.time())))
