"""What survives a restart, and what an operator is told of damage and may give up. Told as in log_stories.py: node 0 is
the quorum's only voter unless the story says otherwise.
"""

from __future__ import annotations

from tests.sim.controller_stories import eligible, on_two_nodes
from tests.sim.stories import TOPIC, fenced, write
from tests.sim.world import Simulation

# --- a clean stop and a reboot ---


def clean_stop_and_reboot_of_all(sim: Simulation) -> None:
    """All nodes are stopped cleanly, then all machines reboot. What a topic of `durability=page-cache` had was flushed
    before: the replica that left the set first is as eligible as it was, and leads when it is back alone."""
    first, last = on_two_nodes(sim, 2, durability="page-cache")
    write(sim, 0, "a", 5)
    for node in (first, last, 0):
        sim.stop(node)
        sim.run_until(lambda node=node: not sim.machines[node].up, within=60, what=f"node {node} has stopped")  # type: ignore[misc]
    assert (sim.isr(TOPIC), eligible(sim, 0)) == ({last}, {first})
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in (0, first):
        sim.restart(node)
    sim.run_until(lambda: not fenced(sim, first), what="the eligible one is back")
    sim.run_until(lambda: sim.leader(TOPIC) == first, what="the eligible one leads: it was stopped cleanly")
    assert (sim.isr(TOPIC), eligible(sim, 0)) == ({first}, {last}), "the other one may have as much"
    sim.restart(last)
    sim.must_heal()
    assert len(sim.read_committed(TOPIC)) == 6, "with the record that shows that it can be written"


ALL = (clean_stop_and_reboot_of_all,)
