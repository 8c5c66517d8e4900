"""What checkers see of a log: its bytes, even when its node may no longer read them."""

from __future__ import annotations

import errno

from storage.log.log import Log
from storage.recovery.loaded import Damage
from tests.sim.stories import TOPIC, write
from tests.sim.views import Places
from tests.sim.world import Simulation
from tidelog.types import Offset


def test_a_log_whose_directory_has_just_failed_is_read_from_its_files() -> None:
    """A leader may have committed in the same step in which its directory failed: the checkers need these records."""
    with Simulation(1) as sim:
        sim.start(nodes=3, min_insync=2, segment_bytes="1000")
        write(sim, 0, "a" * 100, 30)
        node = sim.leader(TOPIC)
        name, log = sim.machines[node].name, sim.log(node, TOPIC)
        assert isinstance(log, Log)
        assert len(log.segments) > 2
        whole = sim.undisturbed.read(name, log, 0, 30)
        part = sim.undisturbed.read(name, log, 7, 25)
        log.directory.fail("a test", OSError(errno.EIO, "an error"))
        sim.undisturbed._places = Places()  # drop the known positions of batches
        assert (sim.undisturbed.read(name, log, 0, 30), sim.undisturbed.read(name, log, 7, 25)) == (
            whole,
            part,
        )


def test_a_log_that_knows_of_damage_is_read_from_its_files() -> None:
    """The log refuses reads of corrupt bytes. A leader without a successor still commits after them: the checkers
    need these records as they were written."""
    with Simulation(1) as sim:
        sim.start(nodes=3, min_insync=2, segment_bytes="1000")
        write(sim, 0, "a" * 100, 30)
        node = sim.leader(TOPIC)
        machine, log = sim.machines[node], sim.log(node, TOPIC)
        assert isinstance(log, Log)
        whole = sim.undisturbed.read(machine.name, log, 0, 30)
        path, end = log.segments[0].path, log.segments[1].base_offset
        machine.disk.flip_bit(path, 80)
        log.lost.note(Damage(path, 0, Offset(0), Offset(end), "a bit has flipped"))
        sim.undisturbed._places = Places()
        assert sim.undisturbed.read(machine.name, log, 0, 30) == whole
