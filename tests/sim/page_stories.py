"""Stories of unreadable pages of mapped indexes. Setup as in stories.py; each node has two directories, and the
first one holds the metadata log."""

from __future__ import annotations

from unittest.mock import patch

from storage.segment import abstract_index
from testbed.sim.world import Simulation
from tests.sim.directory_stories import lies_in_second, with_second_directories
from tests.sim.stories import TOPIC, write


def index_page_of_a_follower_is_unreadable(sim: Simulation) -> None:
    """A follower adds an entry to an index whose page cannot be read. This is a directory failure like any other:
    its replicas in that directory leave their sets, and the node continues with its other directory. The indexes are
    mapped from the first entry on, as those of long segments are."""
    with patch.object(abstract_index, "memory_entries_max", lambda _path: 0):
        _fail_an_index_page(sim)


def _fail_an_index_page(sim: Simulation) -> None:
    sim.start(nodes=4, min_insync=2, partitions=24, directories=2)
    p, (victim, leader, other) = with_second_directories(sim, of_leader=False)
    write(sim, p, "a", 3)
    replicas = [int(state.partition) for state in sim.topic(TOPIC).partitions if victim in state.replicas]
    here = [q for q in replicas if not lies_in_second(sim, victim, q)]
    for operation in ("load", "store"):
        sim.break_disk(victim, operation, path="/more/", times=-1)
    write(sim, p, "b" * 3_000, 3)
    sim.run_until(lambda: sim.isr(TOPIC, p) == {leader, other}, within=2, what="its directory is offline")
    sim.run_for(2)
    assert sim.machines[victim].up, "the node continues"
    assert here and all(victim in sim.isr(TOPIC, q) for q in here), "the other directory works"
    sim.repair_disk(victim)
    sim.must_heal()


ALL = [index_page_of_a_follower_is_unreadable]
