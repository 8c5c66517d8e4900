"""Folders of Kafka before 3.7: without an id of their own, and of ZooKeeper's days without topic ids (KIP-516,
KIP-858)."""

from __future__ import annotations

import random

import pytest

from storage.checkpoints.checkpoint_file import read_partition_metadata
from storage.checkpoints.older_folder import topic_id_of
from storage.config import LogConfig
from storage.directory.log_directory import DataFolder
from storage.files.file_system import read_file, write_file
from tests.fakes.fake_disk import FakeDisk, SimulatedCrash
from tests.storage.workbench import SetClock
from tidelog.errors import InvalidConfig
from tidelog.types import PartitionIndex, TopicPartition

CLUSTER = "gXd6PjvtQ4GCTu5KP7ko8w"
ZOOKEEPER = f"#\n#Sat Nov 21 12:32:39 UTC 2026\nbroker.id=4\nversion=0\ncluster.id={CLUSTER}\n"
KRAFT = f"node.id=4\nversion=1\ncluster.id={CLUSTER}\n"


def folder_with(properties: str, *names: str) -> FakeDisk:
    disk = FakeDisk()
    disk.make_folder("/data")
    disk.sync_folder("/")
    write_file(disk, "/data/meta.properties", properties.encode())
    for name in names:
        disk.make_folder(f"/data/{name}")
        disk.open(f"/data/{name}/{0:020d}.log", create=True).close()
        disk.sync_folder(f"/data/{name}")
    disk.sync_folder("/data")
    return disk


def opened(disk: FakeDisk, seed: int = 1) -> DataFolder:
    folder = DataFolder.open("/data", files=disk, clock=SetClock(), rng=random.Random(seed))
    folder.load_logs(lambda _tp, _id: LogConfig())
    return folder


@pytest.mark.parametrize("properties", [ZOOKEEPER, KRAFT], ids=["ZooKeeper", "KRaft"])
def test_it_gets_an_id_and_keeps_node_and_cluster(properties: str) -> None:
    disk = folder_with(properties)
    folder = opened(disk)
    assert (folder.node_id, folder.cluster_id) == (4, CLUSTER)
    folder_id = folder.folder_id
    disk.kill()
    assert opened(disk, seed=2).folder_id == folder_id


def test_partitions_of_one_topic_have_one_id_in_every_folder() -> None:
    """Two brokers that are moved one after the other agree without having spoken."""
    names = ("orders-0", "orders-7", "paid-0")
    first, second = opened(folder_with(ZOOKEEPER, *names)), opened(folder_with(ZOOKEEPER, *names), seed=9)
    ids = {str(tp): log.topic_id for tp, log in first.logs.items()}
    assert ids == {str(tp): log.topic_id for tp, log in second.logs.items()}
    assert ids["orders-0"] == ids["orders-7"] != ids["paid-0"]
    assert ids["paid-0"] == topic_id_of(CLUSTER, "paid")
    assert first.folder_id != second.folder_id


def test_a_topic_id_that_is_there_stays() -> None:
    disk = folder_with(ZOOKEEPER, "orders-0")
    text = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    write_file(disk, "/data/orders-0/partition.metadata", text)
    log = opened(disk).logs[TopicPartition("orders", PartitionIndex(0))]
    assert log.topic_id.int == 1


def test_power_fails_in_any_call_of_it() -> None:
    """Before all topic ids are durable the folder is an old one, and the work is done again."""
    for call in range(1, 200):
        disk = folder_with(ZOOKEEPER, "orders-0", "paid-0")
        disk.crash_at_call(disk.calls + call)
        try:
            opened(disk)
            disk.heal()
            done = True
        except SimulatedCrash:
            done = False
        disk.crash(random.Random(call))
        folder = opened(disk)
        assert {str(tp) for tp in folder.logs} == {"orders-0", "paid-0"}
        assert (folder.node_id, folder.damaged()) == (4, {})
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
def test_what_is_no_such_folder_is_refused_and_left_alone(properties: str) -> None:
    disk = folder_with(properties, "orders-0")
    with pytest.raises(InvalidConfig):
        opened(disk)
    assert read_file(disk, "/data/meta.properties") == properties.encode()
