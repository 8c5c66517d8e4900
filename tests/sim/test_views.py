"""What checkers see of a log: its bytes, also where its node may not read them any more."""

from __future__ import annotations

import errno

from storage.log.log import Log
from storage.recovery.loaded import Damage
from tests.sim.stories import TOPIC, write
from tests.sim.views import Places
from tests.sim.world import Simulation
from tidelog.types import Offset


def test_a_log_whose_directory_has_just_failed_is_read_from_its_files() -> None:
    """A leader may have committed in the very step in which its directory failed: the checkers still want to see
    what."""
    with Simulation(1) as sim:
        sim.start(nodes=3, min_insync=2, segment_bytes="1000")
        write(sim, 0, "a" * 100, 30)
        node = sim.leader(TOPIC)
        name, log = sim.machines[node].name, sim.log(node, TOPIC)
        assert isinstance(log, Log)
        assert log.segment_count > 2
        whole = sim.quiet.read(name, log, 0, 30)
        part = sim.quiet.read(name, log, 7, 25)
        log.directory.fail("a test", OSError(errno.EIO, "an error"))
        sim.quiet._places = Places()  # nobody remembers where the batches lie
        assert (sim.quiet.read(name, log, 0, 30), sim.quiet.read(name, log, 7, 25)) == (whole, part)


def test_a_log_that_knows_of_damage_is_read_from_its_files() -> None:
    """It refuses what a bit has flipped in. A leader that nobody can take over from commits behind that all the same:
    the checkers still want to see what, as it was written."""
    with Simulation(1) as sim:
        sim.start(nodes=3, min_insync=2, segment_bytes="1000")
        write(sim, 0, "a" * 100, 30)
        node = sim.leader(TOPIC)
        machine, log = sim.machines[node], sim.log(node, TOPIC)
        assert isinstance(log, Log)
        whole = sim.quiet.read(machine.name, log, 0, 30)
        path, end = log.segments[0].path, log.segments[1].base_offset
        machine.disk.flip_bit(path, 80)
        log.lost.note(Damage(path, 0, Offset(0), Offset(end), "a bit has flipped"))
        sim.quiet._places = Places()
        assert sim.quiet.read(machine.name, log, 0, 30) == whole
