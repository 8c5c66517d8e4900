"""The remote tier: uploads, leaders and coordinators that change meanwhile, and what leaves the nodes.

Every story has topics of small segments, of which the closed ones leave the nodes as soon as they are copied. The rules
of testbed/sim/remote_segments.py watch throughout.
"""

from __future__ import annotations

from node.coordinators.internal_topics import coordinator_partition
from testbed.fake_object_store import StoreCall
from testbed.sim.network import Held
from testbed.sim.object_store import HeldCalls
from testbed.sim.world import Simulation
from tests.sim.stories import TOPIC, end, epoch, leads
from tidelog.tiering.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from tidelog.tiering.segment_manifest import SEGMENT_SUFFIX
from tidelog.types import REMOTE_LOG_METADATA_TOPIC

TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": "1024",
    "local_retention_bytes": "0",
    "file_delete_delay_ms": "0",
}
"""Two records of `fill` in a segment."""
STARTED = RemoteSegmentState.COPY_SEGMENT_STARTED
MINUTES = 200.0
"""A partition whose copy or removal fails is tried again after a minute at most; a request waits for half of one."""


def start(
    sim: Simulation,
    *,
    nodes: int = 3,
    partitions: int = 1,
    replicas: int | None = None,
    sweeping: bool = False,
    **configs: str,
) -> None:
    sim.start(nodes=nodes, topics=(), cleaning=True, tiered=True, sweeping=sweeping)
    sim.create_topic(TOPIC, partitions=partitions, replicas=replicas, configs={**TIERED, **configs})


def fill(sim: Simulation, prefix: str, count: int, p: int = 0, acks: str = "all") -> None:
    """Write records of 400 bytes, each acknowledged."""
    client = sim.client()
    for number in range(count):
        value = f"{prefix}{number} ".encode().ljust(400, b".")
        sim.produce(TOPIC, value, partition=p, client=client, acks=acks).wait(within=60)


def known(sim: Simulation, p: int = 0) -> list[RemoteSegment]:
    """The remote segments of a partition that the coordinator knows."""
    return sim.checkers.remote.segments(sim.partition(TOPIC, p).key)


def finished(sim: Simulation, p: int = 0) -> list[RemoteSegment]:
    return sim.checkers.remote.finished(sim.partition(TOPIC, p).key)


def copied_end(sim: Simulation, p: int = 0) -> int:
    return max((each.end_offset for each in finished(sim, p)), default=0)


def wait_for_copies(sim: Simulation, offset: int, p: int = 0) -> None:
    """Until everything below is copied, and no other copy is under way or being deleted."""

    def is_done() -> bool:
        return copied_end(sim, p) >= offset and len(known(sim, p)) == len(finished(sim, p))

    sim.run_until(is_done, within=MINUTES, what=lambda: f"everything below {offset} is copied: {known(sim, p)}")


def wait_until_left(sim: Simulation, offset: int, p: int = 0, nodes: tuple[int, ...] = ()) -> None:
    """Until the local logs of these nodes (all replicas) start there."""

    def starts() -> dict[int, int]:
        return {node: local_start(sim, node, p) for node in nodes or sim.partition(TOPIC, p).replicas}

    sim.run_until(
        lambda: min(starts().values()) >= offset,
        within=MINUTES,
        what=lambda: f"what is below {offset} leaves the nodes: {starts()}",
    )


def local_start(sim: Simulation, node: int, p: int = 0) -> int:
    """Where the local log of a replica begins; -1 while its node has none."""
    replica = sim.replica(node, TOPIC, p)
    return -1 if replica is None or replica.log is None else replica.log.local_log_start_offset


def is_segment(call: StoreCall) -> bool:
    return call.key.endswith(SEGMENT_SUFFIX)


def coordinator_place(sim: Simulation, p: int = 0) -> int:
    """The partition of `__remote_log_metadata` that has a partition's segments."""
    return coordinator_partition(sim.image(), REMOTE_LOG_METADATA_TOPIC, str(sim.partition(TOPIC, p).key))


def coordinator(sim: Simulation, p: int = 0) -> int:
    """The node of its coordinator."""
    return sim.leader(REMOTE_LOG_METADATA_TOPIC, coordinator_place(sim, p))


def ends_well(sim: Simulation, end_of_copies: int, p: int = 0) -> None:
    """Everything is copied and leaves, nothing is left to delete, and readers are given all that is committed. The
    segments of a replica that was away may begin elsewhere: one may still go on behind the copies."""
    sim.heal_everything()
    wait_for_copies(sim, end_of_copies, p)
    wait_until_left(sim, end_of_copies - 1, p)
    sim.must_heal()


# --- copies and local segments ----------------------------------------------------------------------------------------


def segments_leave_once_they_are_copied(sim: Simulation) -> None:
    """Closed segments are copied and leave all replicas. The whole log is read, from followers too, and after all
    nodes were started again."""
    start(sim)
    fill(sim, "a", 11)
    wait_for_copies(sim, 10)
    wait_until_left(sim, 10)
    assert len(sim.read_committed(TOPIC)) == 11
    for node in sim.nodes:
        sim.kill(node)
        sim.restart(node)
    ends_well(sim, 10)
    assert all(sim.log(node, TOPIC).log_start_offset == 0 for node in sim.nodes)


def local_start_outlives_a_power_loss(sim: Simulation) -> None:
    """All machines lose power after segments have left: what is missing at the beginning of a log is in the tier, and
    no damage."""
    start(sim)
    fill(sim, "a", 11)
    wait_until_left(sim, 10)
    for node in sim.nodes:
        sim.power_off(node, forget_all=True)
    for node in sim.nodes:
        sim.restart(node)
    sim.run_until(lambda: min(local_start(sim, node) for node in sim.nodes) >= 0, within=60, what="all have their logs")
    assert all(local_start(sim, node) == 10 for node in sim.nodes), "records are damaged or fetched again"
    fill(sim, "b", 4)
    ends_well(sim, 14)


def store_is_away(sim: Simulation) -> None:
    """The store does not answer for a while, then it is full: the segments stay on the nodes, and leave once they were
    copied. Each has one object in the end."""
    start(sim)
    sim.store.pace.away = True
    fill(sim, "a", 9)
    sim.run_for(20)
    assert all(local_start(sim, node) == 0 for node in sim.nodes), "nothing leaves"
    sim.store.heal()
    sim.store.fill(room=600)
    fill(sim, "b", 4)
    sim.run_for(20)
    assert not finished(sim), "no object fits"
    sim.store.fill(room=None)
    ends_well(sim, 12)
    starts = [each.start_offset for each in finished(sim)]
    assert len(starts) == len(set(starts)), "each segment once"
    assert not sim.checkers.remote.orphans()


def store_fails_now_and_then(sim: Simulation) -> None:
    """Calls fail before and after they took effect, and uploads take effect after their leader has given up."""
    start(sim)
    sim.store.pace.fails, sim.store.pace.loses, sim.store.pace.late = 0.1, 0.1, 0.1
    for name in ("a", "b", "c", "d"):
        fill(sim, name, 6)
        sim.run_for(15)
    sim.store.pace.fails = sim.store.pace.loses = sim.store.pace.late = 0.0
    ends_well(sim, 22)


def uncommitted_records_are_not_copied(sim: Simulation) -> None:
    """The followers stop fetching: what only the leader has fills segments, and none of them is copied. Another leader
    follows, without these records."""
    start(sim, partitions=3)
    p = sim.led_by(TOPIC, 1)  # node 0 may be the only voter
    leader, others = 1, sim.followers(TOPIC, p)
    fill(sim, "a", 3, p)
    held = [sim.hold("Data.FetchStream", source=leader, target=node, part="answer") for node in others]
    sim.run_for(0.2)
    client = sim.client()
    for number in range(6):
        value = f"b{number} ".encode().ljust(400, b".")
        sim.produce(TOPIC, value, partition=p, acks="1", client=client)
    sim.run_until(lambda: end(sim, leader, p) == 9, within=3, what="the leader alone has them")
    sim.run_for(1.5)
    assert copied_end(sim, p) <= 3
    sim.kill(leader)
    for each in held:
        each.release()
    sim.run_until(lambda: any(leads(sim, node, p) for node in others), what="another one leads")
    fill(sim, "c", 4, p)
    ends_well(sim, 6, p)


# --- leaders ----------------------------------------------------------------------------------------------------------


def leader_dies_during_an_upload(sim: Simulation) -> None:
    """The leader dies while its upload is under way. The next one deletes that copy before it copies anything itself,
    and then the upload takes effect: an object of a segment that no coordinator knows, which nothing reads."""
    p, upload, begun = killed_during_an_upload(sim)
    sim.run_until(
        lambda: begun not in {each.segment_id for each in known(sim, p)},
        within=MINUTES,
        what="the next leader has the copy deleted",
    )
    upload.release()
    ends_well(sim, 8, p)
    assert len(sim.checkers.remote.orphans()) == 1


def killed_during_an_upload(sim: Simulation, *, sweeping: bool = False) -> tuple[int, HeldCalls, RemoteSegmentId]:
    """A partition with 8 copied or closed records, whose leader was killed while it uploaded the last segment. The
    upload, which the store holds, and the id of its segment."""
    start(sim, partitions=3, sweeping=sweeping)
    p = sim.led_by(TOPIC, 1)
    fill(sim, "a", 7, p)
    wait_for_copies(sim, 6, p)
    upload = sim.store.hold("put", is_segment)
    fill(sim, "b", 2, p)
    sim.run_until(lambda: upload.count == 1, what="the next segment is uploaded")
    (begun,) = (each for each in known(sim, p) if each.state is STARTED)
    upload.let_pass()
    sim.kill(1)
    return p, upload, begun.segment_id


def led_away_from_its_coordinator(sim: Simulation, retention_bytes: str = "-1") -> tuple[int, int]:
    """A partition whose leader is neither beside its coordinator nor the controller, and that leader. Neither is node
    0."""
    start(sim, nodes=4, partitions=8, retention_bytes=retention_bytes)
    sim.run_until(
        lambda: sim.image().topic(REMOTE_LOG_METADATA_TOPIC) is not None, within=60, what="leaders have registered"
    )
    sim.run_for(3)
    for state in sim.topic(TOPIC).partitions:
        p = int(state.partition)
        if len({0, state.leader, coordinator(sim, p)}) == 3 and not leads_quorum(sim, state.leader):
            return p, state.leader
    raise AssertionError("every leader is beside its coordinator")


def leads_quorum(sim: Simulation, node: int) -> bool:
    machine = sim.machines[node].node
    return machine is not None and machine._metadata is not None and machine._metadata.view.leads


def cut_off_from_controllers(sim: Simulation, node: int) -> list[Held]:
    """From now on a node learns nothing of the cluster, and is fenced; it reaches all other nodes."""
    return [
        sim.hold("Controller.Heartbeat", source=node),
        sim.hold("Quorum.FetchMetadata", target=node, part="answer"),
    ]


def deposed_leader_ends_its_upload(sim: Simulation) -> None:
    """A leader does not learn that it was replaced. Its upload ends after the next leader has registered: the
    coordinator refuses it, and it copies and deletes nothing more."""
    p, old = led_away_from_its_coordinator(sim)
    before = epoch(sim, old, p)
    upload = sim.store.hold("put", is_segment)
    fill(sim, "b", 5, p)
    sim.run_until(lambda: upload.count > 0, what="it uploads a segment")
    upload.let_pass()
    cut_off = cut_off_from_controllers(sim, old)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (old, -1), within=30, what="another node leads")
    sim.run_until(lambda: copied_end(sim, p) >= 4, within=MINUTES, what="that one copies the segments")
    assert epoch(sim, old, p) == before, "the old one does not know"
    upload.release()
    sim.run_for(5)
    assert all(each.copied_in > before for each in finished(sim, p))
    for each in cut_off:
        each.release()
    ends_well(sim, 4, p)


def deposed_leader_begins_a_copy(sim: Simulation) -> None:
    """The same, while the request that begins a copy is under way: it is refused, and nothing is uploaded."""
    p, old = led_away_from_its_coordinator(sim)
    late = sim.hold("RemoteLogs.BeginCopy", source=old)
    fill(sim, "b", 5, p)
    sim.run_until(lambda: late.count > 0, within=20, what="it begins a copy")
    late.let_pass()
    cut_off = cut_off_from_controllers(sim, old)
    sim.run_until(lambda: sim.leader(TOPIC, p) not in (old, -1), within=30, what="another node leads")
    sim.run_until(lambda: copied_end(sim, p) >= 4, within=MINUTES, what="that one copies the segments")
    late.release()
    sim.run_for(5)
    for each in cut_off:
        each.release()
    ends_well(sim, 4, p)


ALL = (
    segments_leave_once_they_are_copied,
    local_start_outlives_a_power_loss,
    store_is_away,
    store_fails_now_and_then,
    uncommitted_records_are_not_copied,
    leader_dies_during_an_upload,
    deposed_leader_ends_its_upload,
    deposed_leader_begins_a_copy,
)
