"""Directories of Kafka before 3.7: without a directory id, and of ZooKeeper-based Kafka without topic ids (KIP-516,
KIP-858)."""

from __future__ import annotations

import random

import pytest

from storage.checkpoints.checkpoint_file import read_partition_metadata
from storage.checkpoints.older_directory import topic_id_of
from storage.directory.log_directory import LogDirectory
from storage.files.file_system import read_file, write_file
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.storage.workbench import SetClock
from tidelog.errors import InvalidConfig
from tidelog.types import PartitionIndex, TopicPartition

CLUSTER = "gXd6PjvtQ4GCTu5KP7ko8w"
ZOOKEEPER = f"#\n#Sat Nov 21 12:32:39 UTC 2026\nbroker.id=4\nversion=0\ncluster.id={CLUSTER}\n"
KRAFT = f"node.id=4\nversion=1\ncluster.id={CLUSTER}\n"


def directory_with(properties: str, *names: str) -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("/data")
    disk.sync_directory("/")
    write_file(disk, "/data/meta.properties", properties.encode())
    for name in names:
        disk.make_directory(f"/data/{name}")
        disk.open(f"/data/{name}/{0:020d}.log", create=True).close()
        disk.sync_directory(f"/data/{name}")
    disk.sync_directory("/data")
    return disk


def opened(disk: FakeDisk, seed: int = 1) -> LogDirectory:
    directory = LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(seed))
    directory.load_logs(lambda _tp, _id: LogConfig())
    return directory


@pytest.mark.parametrize("properties", [ZOOKEEPER, KRAFT], ids=["ZooKeeper", "KRaft"])
def test_it_gets_an_id_and_keeps_node_and_cluster(properties: str) -> None:
    disk = directory_with(properties)
    directory = opened(disk)
    assert (directory.identity.node_id, directory.identity.cluster_id) == (4, CLUSTER)
    directory_id = directory.directory_id
    disk.kill()
    assert opened(disk, seed=2).directory_id == directory_id


def test_partitions_of_one_topic_have_one_id_in_every_directory() -> None:
    """Two brokers that are upgraded one after the other derive the same ids independently."""
    names = ("orders-0", "orders-7", "paid-0")
    first, second = opened(directory_with(ZOOKEEPER, *names)), opened(directory_with(ZOOKEEPER, *names), seed=9)
    ids = {str(tp): log.topic_id for tp, log in first.logs.items()}
    assert ids == {str(tp): log.topic_id for tp, log in second.logs.items()}
    assert ids["orders-0"] == ids["orders-7"] != ids["paid-0"]
    assert ids["paid-0"] == topic_id_of(CLUSTER, "paid")
    assert first.directory_id != second.directory_id


def test_an_existing_topic_id_stays() -> None:
    disk = directory_with(ZOOKEEPER, "orders-0")
    text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    write_file(disk, "/data/orders-0/partition.metadata", text)
    log = opened(disk).logs[TopicPartition("orders", PartitionIndex(0))]
    assert log.topic_id.int == 1


def test_power_fails_at_any_call_of_the_upgrade() -> None:
    """Until all topic ids are durable the directory counts as old, and the upgrade is repeated."""
    for call in range(1, 200):
        disk = directory_with(ZOOKEEPER, "orders-0", "paid-0")
        disk.crash_at_call(disk.calls + call)
        try:
            opened(disk)
            disk.heal()
            done = True
        except SimulatedCrash:
            done = False
        disk.crash(random.Random(call))
        directory = opened(disk)
        assert {str(tp) for tp in directory.logs} == {"orders-0", "paid-0"}
        assert (directory.identity.node_id, directory.damaged()) == (4, {})
        assert read_partition_metadata(disk, "/data/paid-0") == topic_id_of(CLUSTER, "paid")
        if done:
            assert call > 10
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize(
    "properties",
    [
        "version=0\nbroker.id=1\n",
        "version=0\nbroker.id=x\ncluster.id=gXd6PjvtQ4GCTu5KP7ko8w\n",
        "version=0\nbroker.id=1\ncluster.id=?\n",
        "version=2\nbroker.id=1\ncluster.id=gXd6PjvtQ4GCTu5KP7ko8w\n",
    ],
)
def test_other_directories_are_rejected_and_unchanged(properties: str) -> None:
    disk = directory_with(properties, "orders-0")
    with pytest.raises(InvalidConfig):
        opened(disk)
    assert read_file(disk, "/data/meta.properties") == properties.encode()
