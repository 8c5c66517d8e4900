"""Snapshots of topics whose nodes fail: what was taken stays, whole, until it expires (decision 0034). What is in none
expires within seconds."""

from __future__ import annotations

from testbed.sim.machine import coordinator_settings
from testbed.sim.world import Simulation
from tests.sim.group_stories import transaction_coordinator_of
from tests.sim.log_stories import log_of
from tests.sim.quorum_stories import active
from tests.sim.stepped_transactor import SteppedTransactor
from tests.sim.stories import TOPIC, write
from tidelog.errors import PolicyViolation
from tidelog.protocol import methods
from tidelog.protocol.message_mapping import read_message
from tidelog.protocol.v1 import admin_pb2
from tidelog.records import iter_batches
from tidelog.topic_snapshots import SnapshotPartition, TopicSnapshot
from tidelog.types import Offset

NAME = "friday"
KEEP_MS = 3_600_000
PARTITIONS = 3


def taken(sim: Simulation, keep_ms: int = KEEP_MS) -> TopicSnapshot:
    request = admin_pb2.CreateTopicSnapshotRequest(name=NAME, topics=[TOPIC], keep_ms=keep_ms)
    return read_message(TopicSnapshot, sim.admin(methods.ADMIN_CREATE_TOPIC_SNAPSHOT, request).snapshot)


def parts_of(snapshot: TopicSnapshot) -> tuple[SnapshotPartition, ...]:
    return snapshot.topics[0].partitions


def rows_of(sim: Simulation, snapshot: TopicSnapshot) -> dict[int, list[bytes | None]]:
    """The values of the snapshot at the present leaders. Every transaction in these stories is committed."""
    return {each.partition: _rows(sim, each) for each in parts_of(snapshot)}


def _rows(sim: Simulation, part: SnapshotPartition) -> list[bytes | None]:
    log = log_of(sim, sim.leader(TOPIC, part.partition), part.partition)
    left_out = {each.producer_id: each.first_offset for each in part.left_out}
    found: list[bytes | None] = []
    at = part.start_offset
    while at < part.end_offset:
        batches = list(iter_batches(log.read(at, 1 << 20, up_to=part.end_offset).records))
        assert batches and batches[0].base_offset == at, f"the log of {TOPIC}-{part.partition} lacks offset {at}"
        for batch in batches:
            if not batch.is_control and batch.base_offset < left_out.get(batch.producer_id, part.end_offset):
                found += [record.value for record in batch.records()]
        at = Offset(batches[-1].last_offset + 1)
    return found


def write_whole(transactor: SteppedTransactor, number: int) -> None:
    """One transaction with the same value in each partition."""
    transactor.begin()
    for partition in range(PARTITIONS):
        transactor.send(b"%d" % number + b"." * 400, partition).wait()


def ensure_whole(rows: dict[int, list[bytes | None]], numbers: range) -> None:
    """Each of these transactions is in all partitions, and no other one."""
    for partition, values in rows.items():
        found = [int(value.split(b".")[0]) for value in values if value is not None]
        assert found == list(numbers), f"partition {partition} of the snapshot has the transactions {found}"


def write_later(sim: Simulation, what: str) -> None:
    """Fill a segment of each partition behind the snapshot."""
    for partition in range(PARTITIONS):
        write(sim, partition, what + "." * 400, 4)


def snapshot_outlives_its_nodes(sim: Simulation) -> None:
    """A snapshot is taken while a transaction is open, which is committed later. The transaction coordinator, then the
    leader of a partition are lost, and records expire meanwhile: the snapshot has the same rows each time, whole
    transactions only. Extended, it stays; deleted, all expires."""
    sim.start(
        nodes=4,
        voters=3,
        min_insync=2,
        partitions=PARTITIONS,
        cleaning=True,
        coordinators=coordinator_settings(partitions=1),
        segment_bytes="1000",
        retention_ms="1000",
    )
    first, second = SteppedTransactor(sim, "first"), SteppedTransactor(sim, "second")
    for number in range(3):
        write_whole(first, number)
        assert first.end() is True
    write_whole(second, 3)
    snapshot = taken(sim, keep_ms=60_000)
    assert second.end() is True
    rows = rows_of(sim, snapshot)
    ensure_whole(rows, range(3))
    assert all(each.left_out for each in parts_of(snapshot)), "the open transaction is left out everywhere"
    write_later(sim, "later")
    for lost in (transaction_coordinator_of(sim, "first"), None):
        node = sim.leader(TOPIC, 0) if lost is None else lost
        sim.kill(node)
        sim.run_until(
            lambda: all(sim.leader(TOPIC, p) not in (-1, node) for p in range(PARTITIONS)),  # noqa: B023
            what="others lead",
        )
        sim.run_for(5)
        assert rows_of(sim, snapshot) == rows, "the same rows again"
        sim.restart(node)
        sim.run_for(5)
    extended = admin_pb2.ExtendTopicSnapshotRequest(name=NAME, expires_ms=snapshot.expires_ms + KEEP_MS)
    sim.admin(methods.ADMIN_EXTEND_TOPIC_SNAPSHOT, extended)
    write_later(sim, "still later")
    sim.run_for(60)
    assert rows_of(sim, snapshot) == rows, "it was extended"
    try:
        sim.delete_topic(TOPIC)
    except PolicyViolation:
        pass
    else:
        raise AssertionError("a topic in a snapshot is deleted")
    sim.admin(methods.ADMIN_DELETE_TOPIC_SNAPSHOT, admin_pb2.DeleteTopicSnapshotRequest(name=NAME))
    sim.run_until(
        lambda: all(sim.start_of(TOPIC, each.partition) >= each.end_offset for each in parts_of(snapshot)),
        what="its records expire once it is deleted",
    )
    sim.must_heal()


def snapshot_expires_under_another_controller(sim: Simulation) -> None:
    """The controller that recorded a snapshot is lost: the next one knows it, keeps it, and removes it in time."""
    sim.start(nodes=4, voters=3, min_insync=2, cleaning=True, segment_bytes="1000", retention_ms="1000")
    write(sim, 0, "a" * 400, 6)
    snapshot = taken(sim, keep_ms=15_000)
    (part,) = parts_of(snapshot)
    sim.kill(active(sim))
    write(sim, 0, "b" * 400, 6)
    sim.run_for(8)
    assert len(rows_of(sim, snapshot)[0]) == 6, "nothing of it is removed"
    sim.run_until(lambda: sim.start_of(TOPIC, 0) >= part.end_offset, what="it has expired")
    assert NAME not in sim.image().topic_snapshots
    sim.must_heal()


ALL = (snapshot_outlives_its_nodes, snapshot_expires_under_another_controller)
