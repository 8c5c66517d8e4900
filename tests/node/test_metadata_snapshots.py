"""Snapshots of the metadata log: they restore the same image, the log before them is deleted, and replicas below it
fetch them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from node.metadata.metadata_log import MetadataLog, open_log
from node.metadata.metadata_snapshots import MetadataSnapshots, decode_snapshot, encode_snapshot
from replication.controller.image import EMPTY, ClusterImage, apply
from replication.controller.image_records import records_of
from replication.controller.metadata_records import ClusterRecord, VotersRecord
from replication.raft.log_view import SnapshotId
from storage.directory.log_directory import LogDirectory
from testbed.fake_disk import FakeDisk
from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from testbed.topic_requests import changed, deleting
from tests.node.later_executor import EPOCH, Later
from tests.node.metadata_world import MetadataWorld
from tidelog.errors import CorruptLog, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.v1 import controller_pb2, quorum_pb2
from tidelog.types import LeaderEpoch, Millis, NodeId, Offset

STAMP = Millis(1_700_000_000_000)


def test_a_snapshot_makes_the_image_that_it_was_made_of() -> None:
    """Method: a cluster with a past: nodes that came back with other directories, topics made and deleted."""
    with MetadataWorld() as world:
        world.begin()
        world.create(min_insync_replicas="2")
        world.create("gone")
        changed(world.call(1, methods.ADMIN_DELETE_TOPICS, deleting(name="gone")))
        registered = world.image().nodes[NodeId(1)]
        block = controller_pb2.AllocateProducerIdsRequest(node_id=1, node_epoch=registered.node_epoch)
        world.call(0, methods.CONTROLLER_ALLOCATE_PRODUCER_IDS, block)
        world.kill(2)
        world.empty(2)
        world.start(2)
        world.wait_whole()
        image = world.image()
    assert image.next_producer_id == 1_000
    located = list(enumerate(records_of(image)))
    assert replace(apply(EMPTY, located), offset=image.offset) == image  # type: ignore[arg-type]
    snapshot = SnapshotId(image.offset, LeaderEpoch(1))
    data = encode_snapshot(image, snapshot.epoch, STAMP)
    assert decode_snapshot(data, snapshot) == image
    for cut in (data[:-10], data[61:], b""):
        with pytest.raises(TidelogError):
            decode_snapshot(cut, snapshot)
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1
    with pytest.raises(CorruptLog):
        decode_snapshot(bytes(flipped), snapshot)


class Small:
    """A metadata log whose snapshot is due after a few records, on a fake disk."""

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()
        self.loop = SimLoop(random.Random(1))
        self.executor = Later()
        directory = LogDirectory("/data", files=self.disk, clock=SimClock(self.loop), rng=random.Random(1))
        self.log = MetadataLog(
            open_log(directory), clock=SimClock(self.loop), executor=self.executor, snapshot_bytes=1_000
        )

    def write(self, count: int, epoch: LeaderEpoch = EPOCH, *, committed: bool = True) -> None:
        for number in range(count):
            self.log.append([ClusterRecord(f"cluster {number}", 1), VotersRecord(())], epoch)
        self.executor.run()
        if committed:
            self.log.commit(self.log.end)

    def snapshot(self) -> None:
        task = self.loop.create_task(self.log.write_snapshot())
        while not task.done():
            self.loop.run_for(0.001)
            self.executor.run()
        task.result()

    def install(self, snapshot: SnapshotId, data: bytes) -> None:
        task = self.loop.create_task(self.log.install_snapshot(snapshot, data, lambda: True))
        while not task.done():
            self.loop.run_for(0.001)
            self.executor.run()
        task.result()

    def names(self) -> list[str]:
        return sorted(name for name in self.disk.list("/data/__cluster_metadata-0") if name.endswith(".checkpoint"))


def test_the_log_before_a_snapshot_is_dropped_and_a_restart_begins_with_it() -> None:
    small = Small()
    wanted = [small.log.is_snapshot_due]
    for count in (5, 20):
        small.write(count)
        wanted.append(small.log.is_snapshot_due)
    small.snapshot()
    assert [*wanted, small.log.is_snapshot_due] == [False, False, True, False]
    assert small.names() == [f"{50:020d}-{1:010d}.checkpoint"]
    assert small.log.log.log_start_offset == 50
    small.write(2)
    image = small.log.image
    small.disk.crash(random.Random(3))
    again = Small(small.disk)
    assert again.log.image.offset >= 50
    again.log.commit(again.log.end)
    assert again.log.image == image
    again.write(30)
    again.snapshot()
    assert len(again.names()) == 1, "older ones are removed"


def test_a_fetched_snapshot_takes_the_place_of_the_log() -> None:
    ahead = Small()
    ahead.write(40)
    snapshot = SnapshotId(ahead.log.image.offset, EPOCH)
    data = encode_snapshot(ahead.log.image, EPOCH, STAMP)
    behind = Small()
    behind.write(3)
    seen: list[ClusterImage] = []
    behind.log.subscribe(seen.append)
    behind.install(snapshot, data)
    assert behind.log.image == ahead.log.image == seen[-1]
    view = behind.log.view()
    assert (view.log_start, view.log_end, view.durable_offset, view.high_watermark) == (80, 80, 80, 80)
    assert view.position == (1, 80)
    behind.disk.crash(random.Random(1))
    assert Small(behind.disk).log.image == ahead.log.image


def test_a_snapshot_that_ends_with_the_image_truncates_records_that_the_leader_lacks() -> None:
    """Method: a disconnected leader has records of its epoch after offset 20; the next leader's epoch and log begin
    there, so the two have no epoch in common for a truncation."""
    old = Small()
    old.write(10)
    image = old.log.image
    old.log.append([ClusterRecord("never committed", 1)], LeaderEpoch(2))
    old.executor.run()
    snapshot = SnapshotId(image.offset, EPOCH)
    data = encode_snapshot(image, EPOCH, STAMP)
    old.install(snapshot, data)
    assert (old.log.end, old.log.replayed(), old.log.view().position) == (20, image, (1, 20))
    old.disk.crash(random.Random(1))
    again = Small(old.disk)
    assert (again.log.end, again.log.replayed()) == (20, image)


def test_a_snapshot_is_not_installed_by_a_node_that_was_elected_meanwhile() -> None:
    small = Small()
    small.write(10)
    data = encode_snapshot(small.log.image, EPOCH, STAMP)
    asked, elected = small.log.end, False
    installing = small.loop.create_task(
        small.log.install_snapshot(SnapshotId(small.log.image.offset, EPOCH), data, lambda: not elected)
    )
    small.loop.run_for(0.001)
    elected = True
    small.log.append([ClusterRecord("of its own epoch", 1)], LeaderEpoch(2))
    small.executor.run()
    small.loop.run_for(0.001)
    assert installing.done()
    assert small.log.end == asked + 1


def test_a_snapshot_of_its_own_and_the_leaders_do_not_take_each_other_away() -> None:
    """Method: the leader's, which is newer, comes while the node's own waits for the disk. The log begins behind the
    newer one, and that must still be there."""
    ahead, behind = Small(), Small()
    ahead.write(40)
    behind.write(30)
    snapshot = SnapshotId(ahead.log.image.offset, EPOCH)
    data = encode_snapshot(ahead.log.image, EPOCH, STAMP)
    own = behind.loop.create_task(behind.log.write_snapshot())
    leaders = behind.loop.create_task(behind.log.install_snapshot(snapshot, data, lambda: True))
    while not (own.done() and leaders.done()):
        behind.loop.run_for(0.001)
        behind.executor.run()
    assert behind.names() == [f"{80:020d}-{1:010d}.checkpoint"]
    behind.disk.crash(random.Random(1))
    assert Small(behind.disk).log.image == ahead.log.image


def test_only_older_snapshots_are_removed() -> None:
    small = Small()
    snapshots = MetadataSnapshots(small.disk, "/data/__cluster_metadata-0")
    older, kept, newer = (SnapshotId(Offset(end), EPOCH) for end in (10, 20, 30))
    for each in (older, kept, newer):
        snapshots.write(each, b"")
    snapshots.remove_older(kept)
    assert small.names() == [f"{end:020d}-{1:010d}.checkpoint" for end in (20, 30)]


def test_a_crash_between_a_fetched_snapshot_and_the_new_log_loses_nothing() -> None:
    ahead = Small()
    ahead.write(40)
    behind = Small()
    behind.write(3)
    snapshot = SnapshotId(ahead.log.image.offset, EPOCH)
    MetadataSnapshots(behind.disk, "/data/__cluster_metadata-0").write(
        snapshot, encode_snapshot(ahead.log.image, EPOCH, STAMP)
    )
    behind.disk.crash(random.Random(1))
    again = Small(behind.disk)
    assert again.log.image == ahead.log.image
    assert again.log.end == 80


def test_a_log_start_that_is_lost_costs_no_committed_metadata() -> None:
    """The log began after its snapshot, whose epoch is no longer in the epoch cache."""
    path = "/data/log-start-offset-checkpoint"

    def begun_behind_a_snapshot() -> Small:
        small = Small()
        small.write(25)
        small.snapshot()
        small.write(10)
        small.disk.crash(random.Random(1))
        small = Small(small.disk)
        small.write(10, LeaderEpoch(2))
        assert (small.log.log.log_start_offset, small.log.end) == (50, 90)
        small.disk.crash(random.Random(3))
        return small

    size = begun_behind_a_snapshot().disk.size(path) or 0
    assert size
    refused = 0
    for bit in range(8 * size):
        small = begun_behind_a_snapshot()
        small.disk.flip_bit(path, bit // 8, bit % 8)
        try:
            assert Small(small.disk).log.end == 90, f"bit {bit}"
        except CorruptLog:  # it says that it begins where no snapshot ends
            refused += 1
    assert refused < 8
    small = begun_behind_a_snapshot()
    small.disk.remove(path)
    assert Small(small.disk).log.end == 90


@pytest.mark.parametrize("stop", ["the node is killed first", "its leader is deposed"])
def test_a_fetched_snapshot_outlives_a_longer_log_that_disagrees(stop: str) -> None:
    """A disconnected leader has records of its own, beyond the end of the snapshot that the next leader sends. Its log
    has not been restarted at the snapshot yet: the next start must not take those records for committed."""
    ahead, old = Small(), Small()
    ahead.write(10)
    old.write(10)
    old.write(40, committed=False)
    ahead.write(20, LeaderEpoch(2))
    snapshot = SnapshotId(ahead.log.image.offset, LeaderEpoch(2))
    data = encode_snapshot(ahead.log.image, LeaderEpoch(2), STAMP)
    if stop == "the node is killed first":
        MetadataSnapshots(old.disk, "/data/__cluster_metadata-0").write(snapshot, data)
    else:
        installing = old.loop.create_task(old.log.install_snapshot(snapshot, data, lambda: False))
        while not installing.done():
            old.loop.run_for(0.001)
            old.executor.run()
    assert old.log.end == 100
    old.disk.crash(random.Random(1))
    again = Small(old.disk)
    assert (again.log.end, again.log.high_watermark) == (60, 60)
    assert again.log.image == again.log.replayed() == ahead.log.image


def test_a_node_below_the_log_start_fetches_the_snapshot() -> None:
    with MetadataWorld(voters=3) as world:
        world.snapshot_bytes = 3_000
        world.begin()
        world.kill(2)
        for number in range(12):
            world.create(f"topic-{number}", replicas=2)
        world.run_until(lambda: world.side(0).metadata.log.log_start_offset > 0, what="the leader drops its prefix")
        world.empty(2)
        world.start(2)
        world.wait_whole()
        world.run_until(lambda: world.image(2).offset >= world.image(0).offset)
        assert world.side(2).metadata.log.log_start_offset > 0
        assert world.image(2).topics == world.image(0).topics
        assert world.image(2).nodes == world.image(0).nodes
        directory = world.node_runs[2].directories[0].directory_id
        world.run_until(
            lambda: directory in {voter.directory_id for voter in world.image(1).voters}, what="2 votes again"
        )
        world.kill(0)
        world.run_until(lambda: world.side(1).view.leads or world.side(2).view.leads, what="another leads")


def test_pieces_of_a_snapshot_are_sent_by_the_leader_only() -> None:
    with MetadataWorld() as world:
        world.snapshot_bytes = 3_000
        world.begin()
        for number in range(12):
            world.create(f"topic-{number}")
        world.run_until(lambda: world.side(0).metadata.snapshots.latest is not None)
        latest = world.side(0).metadata.snapshots.latest
        assert latest is not None
        wanted = quorum_pb2.SnapshotId(end_offset=latest.end_offset, epoch=latest.epoch)
        asker = quorum_pb2.ReplicaKey(node_id=9, directory_id=b"\x09" * 16)
        cluster = world.image().cluster_id
        request = quorum_pb2.FetchSnapshotRequest(
            cluster_id=cluster, replica=asker, snapshot=wanted, position=0, max_bytes=100, receiver=world.key(1)
        )
        assert world.call(1, methods.QUORUM_FETCH_SNAPSHOT, request).error.name == "NOT_LEADER_OR_FOLLOWER"
        request.receiver.CopyFrom(world.key(0))
        answer = world.call(0, methods.QUORUM_FETCH_SNAPSHOT, request)
        assert (len(answer.data), answer.leader_id) == (100, 0)
        request.position = answer.size
        assert world.call(0, methods.QUORUM_FETCH_SNAPSHOT, request).data == b""
        request.position = answer.size + 1
        assert world.call(0, methods.QUORUM_FETCH_SNAPSHOT, request).error.name == "INVALID_REQUEST"
        request.snapshot.end_offset = 1
        assert world.call(0, methods.QUORUM_FETCH_SNAPSHOT, request).error.name == "OFFSET_OUT_OF_RANGE"
        below = quorum_pb2.FetchMetadataRequest(
            cluster_id=cluster,
            node_id=9,
            current_leader_epoch=-1,
            fetch_offset=1,
            last_fetched_epoch=1,
            max_bytes=100,
            receiver=world.key(0),
        )
        reported = world.call(0, methods.QUORUM_FETCH_METADATA, below)
        assert reported.snapshot.end_offset == Offset(latest.end_offset)
        assert reported.records == b""
