"""The replica of the metadata log, alone: committed images only, replay, truncation by epoch; and failures of its
writers."""

from __future__ import annotations

import errno
import random

import pytest

from node.metadata.metadata_log import MetadataLog, open_log
from node.quorum.state import QuorumView, read_state, write_state
from node.requests.topic_settings import TopicSettings
from replication.controller.image import EMPTY, ClusterImage
from replication.controller.metadata_records import ClusterRecord, VotersRecord
from replication.raft.roles import QuorumState
from storage.directory.log_directory import LogDirectory
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from testbed.sim.clock import SimClock
from testbed.sim.loop import SimLoop
from testbed.topic_requests import creating
from tests.node.later_executor import EPOCH, Later
from tests.node.metadata_world import MetadataWorld
from tidelog.cluster_descriptions import ConfigSource
from tidelog.errors import CorruptLog, InvalidConfig, RequestTimedOut, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.status import error_of
from tidelog.protocol.v1 import admin_pb2
from tidelog.records import LeaderChange
from tidelog.settings import SettingType
from tidelog.types import NO_NODE, Endpoint, LeaderEpoch, NodeAddress, NodeId, Offset


class Replica:
    """One metadata log on a fake disk."""

    def __init__(self, disk: FakeDisk | None = None) -> None:
        self.disk = disk or FakeDisk()
        self.clock = SimClock(SimLoop(random.Random(1)))
        self.executor = Later()
        self.directory = LogDirectory("/data", files=self.disk, clock=self.clock, rng=random.Random(1))
        self.log = MetadataLog(open_log(self.directory), clock=self.clock, executor=self.executor)

    def reopened(self, *, power: bool = False) -> Replica:
        if power:
            self.disk.crash(random.Random(3))
        else:
            self.disk.kill()
        return Replica(self.disk)


OPENING = LeaderChange(NodeId(0), (), ())


def test_only_committed_records_are_applied_to_the_image() -> None:
    replica = Replica()
    seen: list[ClusterImage] = []
    replica.log.subscribe(seen.append)
    replica.log.append_leader_change(OPENING, EPOCH)
    replica.log.append([ClusterRecord("cluster", 1), VotersRecord(())], EPOCH)
    assert replica.log.image is EMPTY
    assert replica.log.replayed().cluster_id == "cluster"
    replica.log.commit(Offset(2))  # inside the batch: not the whole of it
    assert replica.log.image.cluster_id == ""
    replica.log.commit(Offset(3))
    assert (replica.log.image.cluster_id, replica.log.image.offset) == ("cluster", 3)
    assert [image.offset for image in seen] == [1, 3]
    late: list[ClusterImage] = []
    replica.log.subscribe(late.append)
    assert late == [replica.log.image]


def test_fsynced_records_are_read_back_and_the_committed_ones_make_the_first_image() -> None:
    replica = Replica()
    replica.log.append([ClusterRecord("cluster", 1)], EPOCH)
    replica.executor.run()
    assert replica.log.durable_offset == 1
    replica.log.commit(Offset(1))
    replica.directory.write_checkpoints()
    replica.log.append([VotersRecord(())], EPOCH)
    replica.executor.run()
    again = replica.reopened(power=True)
    assert again.log.end == 2
    assert again.log.image.cluster_id == "cluster"
    assert again.log.replayed().offset == 2


def test_the_image_after_replay_equals_the_live_one() -> None:
    replica = Replica()
    for number in range(5):
        replica.log.append([ClusterRecord(f"cluster {number}", 1)], EPOCH)
    replica.executor.run()
    replica.log.commit(replica.log.end)
    again = replica.reopened()
    again.log.commit(again.log.end)
    assert again.log.image == replica.log.image


def test_a_truncation_removes_uncommitted_records_and_rejects_committed_ones() -> None:
    replica = Replica()
    replica.log.append([ClusterRecord("kept", 1)], EPOCH)
    replica.log.commit(Offset(1))
    replica.log.append([ClusterRecord("cut", 2)], EPOCH)
    replica.log.truncate_to(Offset(1))
    assert replica.log.replayed().cluster_id == "kept"
    with pytest.raises(CorruptLog, match="its log was lost or put back"):
        replica.log.truncate_to(Offset(0))


def test_a_failed_fsync_fails_all_waiting_calls() -> None:
    replica = Replica()
    replica.log.append([ClusterRecord("cluster", 1)], EPOCH)
    replica.disk.fail("sync", path="__cluster_metadata-0", error=errno.EIO)
    replica.executor.run()
    assert replica.log.durable_offset == 0
    loop = SimLoop(random.Random(1))
    with pytest.raises(TidelogError, match="offline"):
        loop.run_until_complete(replica.log.wait_until(lambda: False))
    loop.dispose()


def test_a_vote_survives_and_a_damaged_one_is_no_vote() -> None:
    disk = FakeDisk()
    disk.make_directory("/f")
    assert read_state(disk, "/f") == QuorumState()
    state = QuorumState(LeaderEpoch(7), NodeId(2), NodeId(2), None)
    write_state(disk, "/f", state)
    disk.sync_directory("/")
    disk.crash(random.Random(1))
    assert read_state(disk, "/f") == state
    file = disk.open("/f/quorum-state")
    file.pwritev([b"{"], 5)
    with pytest.raises(CorruptLog, match="does not know how it voted"):
        read_state(disk, "/f")


def test_a_view_never_goes_back_and_reports_changes() -> None:
    view = QuorumView(NodeId(1))
    at = Endpoint("node-0", 9092)
    assert view.show(NodeId(0), LeaderEpoch(3), at)
    assert not view.show(NodeId(0), LeaderEpoch(3), at)
    assert view.address() == NodeAddress(NodeId(0), at, leader_epoch=LeaderEpoch(3))
    assert view.show(NO_NODE, LeaderEpoch(3), None)
    assert view.address() is None
    assert view.show(NodeId(1), LeaderEpoch(4), at)
    assert (view.leads, view.endpoint) == (True, None)


def test_settings_in_force_are_settings_that_may_be_asked_for() -> None:
    settings = TopicSettings({"segment.bytes": "1048576", "min.insync.replicas": "2"})
    in_force = settings.in_force({"flush.messages": "10"})
    assert (in_force["segment.bytes"], in_force["flush.messages"]) == ("1048576", "10")
    assert in_force["min.insync.replicas"] == "1"  # the topic's record does not say more
    described = {each.key: each for each in settings.described({"flush.messages": "10"})}
    assert {key: each.value for key, each in described.items()} == in_force
    assert described["segment.bytes"].source is ConfigSource.NODE
    assert described["flush.messages"].source is ConfigSource.TOPIC
    assert described["min.insync.replicas"].source is ConfigSource.DEFAULT
    synonyms = [(each.key, each.value, each.source) for each in described["segment.bytes"].values]
    assert synonyms == [
        ("log.segment.bytes", "1048576", ConfigSource.NODE),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]
    types = {key: described[key].type for key in ("cleanup.policy", "segment.bytes", "retention.ms", "preallocate")}
    assert list(types.values()) == [SettingType.LIST, SettingType.INT, SettingType.LONG, SettingType.BOOLEAN]
    settings.check(in_force)
    assert LogConfig.from_topic(TopicSettings({}).in_force({})) == LogConfig()
    assert settings.at_creation({"flush.ms": "5"}) == {"min.insync.replicas": "2", "flush.ms": "5"}
    with pytest.raises(InvalidConfig):
        settings.check({"min.insync.replicas": "none"})


# --- disks that refuse, under whole nodes -----------------------------------------------------------------------


def create(name: str) -> admin_pb2.CreateTopicsRequest:
    return creating(name=name, partitions=1, replication_factor=3)


def test_a_full_disk_ends_the_controllers_leadership_and_room_brings_it_back() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.disks[0].fail("write", path="__cluster_metadata-0", error=errno.ENOSPC, times=1)
        refused = world.asking(1, methods.ADMIN_CREATE_TOPICS, create("orders"))
        world.run_until(lambda: world.side(0).view.leader_epoch == 2)
        world.run_until(refused.done)
        assert isinstance(
            error_of(refused.result().topics[0]), RequestTimedOut
        )  # unknown outcome: the node does not retry
        world.wait_whole()
        world.create("later", at=2)
        assert sorted(world.image(2).topic_ids) == ["later"]
        assert world.side(0).metadata.replayed() == world.image(0)


def test_a_full_disk_for_the_epochs_ends_no_node() -> None:
    """Method: the voter begins a new quorum epoch, for which every disk writes a new leader-epoch-checkpoint."""
    with MetadataWorld() as world:
        world.begin()
        for node in (0, 1):
            world.disks[node].fail("write", path="leader-epoch-checkpoint", error=errno.ENOSPC, times=3)
        world.disks[0].fail("write", path=".log", error=errno.ENOSPC, times=1)
        refused = world.asking(1, methods.ADMIN_CREATE_TOPICS, create("orders"))
        world.run_until(refused.done)
        assert isinstance(error_of(refused.result().topics[0]), RequestTimedOut)
        world.run_until(lambda: world.side(0).view.leader_epoch >= 3, what="the voter begins again until it can")
        world.wait_whole()
        for name in ("payments", "clicks", "views", "logs"):
            world.create(name, at=1)
        assert [node_run.failure for _, node_run in sorted(world.node_runs.items())] == [None] * 3
        log = world.side(1).metadata.log
        world.run_until(lambda: log.durable_offset == log.log_end_offset, what="node 1 holds all, once there is room")


def test_a_broken_disk_under_the_metadata_log_ends_the_voter() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.disks[0].fail("sync", path="__cluster_metadata-0", error=errno.EIO)
        world.asking(1, methods.ADMIN_CREATE_TOPICS, create("orders"))
        world.run_until(lambda: world.node_runs[0].failure is not None)
        assert world.image(1).topic("orders") is None


def test_an_observer_truncates_by_epoch_records_that_the_leader_lacks() -> None:
    """A leader of epoch 2 gave it records and was gone before they were committed; epoch 3 does not have them."""
    with MetadataWorld() as world:
        world.begin()
        world.kill(2)
        world.kill(0)
        log_host = "/data0/__cluster_metadata-0"
        write_state(world.disks[0], log_host, QuorumState(LeaderEpoch(2), NO_NODE, NO_NODE, None))
        directory = LogDirectory("/data0", files=world.disks[2], clock=SimClock(world.loop), rng=random.Random(1))
        replica = MetadataLog(open_log(directory), clock=SimClock(world.loop), executor=Later())
        end = replica.end
        replica.append([ClusterRecord("another history", 1)], LeaderEpoch(2))
        replica.log.flush()
        directory.close_clean()
        world.start(0, 2)
        world.wait_whole()
        assert [entry.epoch for entry in world.side(2).metadata.log.epochs.entries] == [1, 3]
        assert world.image(2).cluster_id == world.image(0).cluster_id
        assert world.image(2).offset > end


def test_a_damaged_replica_of_an_observer_is_fetched_again() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.create()
        world.kill(2, power=True)
        path = "/data0/__cluster_metadata-0/00000000000000000000.log"
        file = world.disks[2].open(path)
        file.pwritev([b"\x55" * 8], 70)
        file.sync()
        world.start(2)
        world.wait_whole()
        assert world.image(2).topic("orders") is not None
        assert world.image(2).nodes == world.image(0).nodes


def test_a_damaged_replica_is_noted_before_it_is_emptied() -> None:
    """The lost records may have made the node a voter: the file beside the log contains the offset for which a vote has
    to wait."""
    with MetadataWorld() as world:
        world.begin()
        world.create()
        metadata = world.side(2).metadata
        world.run_until(lambda: metadata.durable_offset == metadata.end == world.side(0).metadata.end)
        end = metadata.durable_offset
        world.kill(2)
        directory = "/data0/__cluster_metadata-0"
        file = world.disks[2].open(f"{directory}/00000000000000000000.log")
        file.pwritev([b"\x55" * 8], file.size() - 20)
        file.sync()
        world.start(2)
        world.wait_whole()
        assert read_state(world.disks[2], directory).lost_end >= end


def test_a_lost_metadata_log_is_not_recreated_in_its_old_directory() -> None:
    """Its durable records and the record of this node's vote are lost with it; an empty log directory is another
    replica."""
    with MetadataWorld() as world:
        world.begin()
        world.create()
        world.kill(2)
        disk, directory = world.disks[2], "/data0/__cluster_metadata-0"
        for name in disk.list(directory):
            disk.remove(f"{directory}/{name}")
        disk.remove_directory(directory)
        disk.sync_directory("/data0")
        world.start(2)
        world.run_until(lambda: world.node_runs[2].failure is not None)
        failure = world.node_runs[2].failure
        assert isinstance(failure, CorruptLog)
        assert "how this node voted" in failure.message
        world.kill(2)
        world.empty(2)
        world.start(2)
        world.wait_whole()


def test_a_damaged_log_of_the_only_voter_is_not_emptied() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.kill(0, power=True)
        file = world.disks[0].open("/data0/__cluster_metadata-0/00000000000000000000.log")
        file.pwritev([b"\x55" * 8], 70)
        file.sync()
        world.start(0)
        world.run_until(lambda: world.node_runs[0].failure is not None)
