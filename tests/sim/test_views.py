"""What checkers see of a log: its bytes, even when its node may no longer read them."""

from __future__ import annotations

import errno
from dataclasses import replace
from uuid import UUID

import pytest

from replication.controller.image import EMPTY, ClusterImage, PartitionState, TopicState
from storage.log.log import Log
from storage.recovery.loaded import Damage
from testbed.sim.views import Places, led_uncleanly
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC, write
from tidelog.types import DirectoryId, LeaderEpoch, NodeId, Offset, PartitionEpoch, PartitionIndex, TopicId


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


EVENTS = TopicId(UUID(int=7))


def image_of(isr: int, leader: int, epoch: int) -> ClusterImage:
    """A partition on nodes 3 and 4 with one member in its in-sync set, whose topic allows unclean elections."""
    state = PartitionState(
        EVENTS,
        PartitionIndex(0),
        (NodeId(3), NodeId(4)),
        (DirectoryId(UUID(int=2)),) * 2,
        (NodeId(isr),),
        (),
        (),
        NodeId(leader),
        LeaderEpoch(epoch),
        PartitionEpoch(epoch),
    )
    configs = {"unclean.leader.election.enable": "true"}
    return replace(EMPTY, topics={EVENTS: TopicState("events", EVENTS, configs, (state,))})


@pytest.mark.parametrize(
    ("isr", "leader", "epoch", "is_unclean"), [(4, 4, 3, True), (4, -1, 4, True), (3, -1, 2, False), (3, 3, 1, False)]
)
def test_an_unclean_election_is_seen_although_its_leader_is_gone(
    isr: int, leader: int, epoch: int, is_unclean: bool
) -> None:
    """A node that applies both changes at once sees a partition without a leader, and another in-sync set."""
    assert bool(led_uncleanly(image_of(3, 3, 1), image_of(isr, leader, epoch), ())) is is_unclean
