"""The remote tier: objects without a segment, which sweeps of the store remove, and deletions under way when the leader
changes.

No object is too young for these sweeps: only the order of their questions protects what is being copied.
"""

from __future__ import annotations

from collections.abc import Callable

from testbed.fake_object_store import StoreCall
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC
from tests.sim.tier_retention_stories import delete_below
from tests.sim.tier_stories import (
    MINUTES,
    STARTED,
    ends_well,
    fill,
    finished,
    is_segment,
    killed_during_an_upload,
    known,
    led_away_from_its_coordinator,
    start,
    wait_for_copies,
    wait_until_left,
)
from tidelog.types import REMOTE_LOG_METADATA_TOPIC

SWEEP = 30.0
"""Within this time a sweep begins, also after its node has ended."""


def sweeps(sim: Simulation) -> int:
    """How many have begun."""
    return sum(call.operation == "list" for call in sim.store.there.calls)


def wait_for_sweeps(sim: Simulation, count: int = 2) -> None:
    """Until so many have begun: all but the last one have removed what they found."""
    goal = sweeps(sim) + count
    sim.run_until(lambda: sweeps(sim) >= goal, within=count * SWEEP, what="the store is swept")


def segment_at(offset: int) -> Callable[[StoreCall], bool]:
    """Calls for the objects of segments that start there."""
    return lambda call: is_segment(call) and f"/{offset:020d}-" in call.key


def led_beside_no_sweep(sim: Simulation) -> tuple[int, int]:
    """A partition whose leader does not sweep and is not node 0, and that leader. All but one record of it were copied
    and deleted: the log starts within its next segment, so that no copy of that is needed any more."""
    start(sim, partitions=3, sweeping=True)
    sim.run_until(
        lambda: sim.image().topic(REMOTE_LOG_METADATA_TOPIC) is not None, within=60, what="leaders have registered"
    )
    sim.run_for(3)
    others = {0, sim.leader(REMOTE_LOG_METADATA_TOPIC, 0)}
    p = sim.partition_where(TOPIC, lambda state: state.leader not in others)
    fill(sim, "a", 7, p)
    wait_for_copies(sim, 6, p)
    delete_below(sim, 7, p)
    sim.run_until(lambda: not known(sim, p), within=MINUTES, what="the deleted segments are forgotten")
    return p, sim.leader(TOPIC, p)


# --- sweeps -----------------------------------------------------------------------------------------------------------


def orphan_of_a_dead_leader_is_swept(sim: Simulation) -> None:
    """The leader dies during an upload, and the next one copies the segment itself. Then the upload takes effect: the
    sweep removes this object, and no other one."""
    p, upload, begun = killed_during_an_upload(sim, sweeping=True)
    wait_for_copies(sim, 8, p)
    assert begun not in {each.segment_id for each in known(sim, p)}
    wait_for_sweeps(sim)
    needed = {*sim.store.there.objects}
    upload.release()
    (orphan,) = {*sim.store.there.objects} - needed
    sim.run_until(
        lambda: orphan not in sim.store.there.objects, within=2 * SWEEP, what="the object without a segment is removed"
    )
    assert {*sim.store.there.objects} == needed
    ends_well(sim, 8, p)


def sweep_leaves_what_is_under_way(sim: Simulation) -> None:
    """A segment is uploaded and being read back while the store is swept."""
    p, _ = led_beside_no_sweep(sim)
    read_back = sim.store.hold("get_range", segment_at(6))
    fill(sim, "b", 2, p)
    sim.run_until(lambda: read_back.count > 0, within=MINUTES, what="the object is read back")
    (begun,) = known(sim, p)
    assert (begun.start_offset, begun.state) == (6, STARTED)
    wait_for_sweeps(sim)
    read_back.release()
    ends_well(sim, 8, p)
    assert [each.segment_id for each in finished(sim, p)] == [begun.segment_id]


def sweep_leaves_what_a_new_leader_has_copied(sim: Simulation) -> None:
    """A sweep begins, and the store takes its time for the listing. Meanwhile the leader dies, and the next one
    registers and copies a segment, which is then in the listing."""
    p, leader = led_beside_no_sweep(sim)
    listing = sim.store.hold("list")
    sim.run_until(lambda: listing.count > 0, within=SWEEP, what="a sweep begins")
    sim.kill(leader)
    fill(sim, "b", 2, p)
    wait_for_copies(sim, 8, p)
    assert listing.count == 1, "the sweep is under way"
    listing.release()
    wait_for_sweeps(sim)
    ends_well(sim, 8, p)


# --- deletions --------------------------------------------------------------------------------------------------------


def leader_dies_while_its_segments_are_deleted(sim: Simulation) -> None:
    """An operator deletes records. The deletion of their segments is committed and the store removes none of them yet
    when the leader dies: its successor neither reads them nor takes them back, and copies the next ones."""
    p, leader = led_away_from_its_coordinator(sim)
    fill(sim, "a", 7, p)
    wait_until_left(sim, 6, p)
    removal = sim.store.hold("delete")
    delete_below(sim, 5, p)
    its_leader_dies(sim, p, leader)
    fill(sim, "b", 4, p)
    sim.run_until(lambda: len(finished(sim, p)) == 3, within=MINUTES, what="the next segments are copied")
    assert len(known(sim, p)) == 5, "two are being deleted"
    assert sim.start_of(TOPIC, p) == 5
    assert len(sim.read_committed(TOPIC, p)) == 6
    removal.release()
    ends_well(sim, 10, p)
    assert [each.start_offset for each in known(sim, p)] == [4, 6, 8]


def leader_dies_while_expired_segments_are_deleted(sim: Simulation) -> None:
    """The same with segments that expire by size."""
    p, leader = led_away_from_its_coordinator(sim, retention_bytes="4000")
    removal = sim.store.hold("delete")
    fill(sim, "a", 18, p)
    its_leader_dies(sim, p, leader)
    fill(sim, "b", 4, p)
    wait_until_left(sim, 20, p, nodes=(sim.leader(TOPIC, p),))
    assert len(sim.read_committed(TOPIC, p)) == 22 - sim.start_of(TOPIC, p)
    removal.release()
    ends_well(sim, 20, p)
    assert all(each.end_offset > sim.start_of(TOPIC, p) for each in known(sim, p))


def its_leader_dies(sim: Simulation, p: int, leader: int) -> None:
    """As soon as the deletion of segments is committed; another node leads."""
    sim.run_until(
        lambda: len(finished(sim, p)) < len(known(sim, p)) and not any(each.state is STARTED for each in known(sim, p)),
        within=MINUTES,
        what="segments are being deleted",
    )
    sim.kill(leader)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (leader, -1), within=30, what="another node leads")


ALL = (
    orphan_of_a_dead_leader_is_swept,
    sweep_leaves_what_is_under_way,
    sweep_leaves_what_a_new_leader_has_copied,
    leader_dies_while_its_segments_are_deleted,
    leader_dies_while_expired_segments_are_deleted,
)
