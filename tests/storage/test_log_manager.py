"""Several log directories on one node: each opens, fails and fills by itself, and a log is used only for its topic
id."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from storage.directory.load_progress import LoadProgress
from storage.directory.log_directory import LogDirectory
from storage.directory.log_manager import LogManager
from storage.files.disk_executor import Executor, InlineExecutor
from storage.log.log import Log
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import SMALL, TOPIC_ID, Deferred, SetClock, batch
from tidelog.errors import InconsistentClusterId, InconsistentTopicId, InvalidConfig, KafkaStorageError
from tidelog.types import DirectoryId, Durability, LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicPartition

PATHS = ("/one", "/two", "/three")
CLUSTER = "u2n9nW-xE8Z4OMkj66OjEg"


def name(partition: int) -> TopicPartition:
    return TopicPartition("orders", PartitionIndex(partition))


def nothing() -> None:
    return None


class Node:
    """The directories of a node, without the node."""

    def __init__(self, disk: FakeDisk, paths: Sequence[str] = PATHS, executor: Executor | None = None) -> None:
        self.disk = disk
        self.executor = executor or InlineExecutor()
        self.logs = LogManager()
        self.steps: list[str] = []
        self.logs.open(paths, self._open, lambda _path: self.executor, self._note_opened)

    def _open(self, path: str) -> LogDirectory:
        return LogDirectory(path, files=self.disk, clock=SetClock(), rng=random.Random(path), executor=self.executor)

    def _note_opened(self) -> None:
        self.steps.append("opened")

    def load(self) -> Node:
        self.logs.load(lambda _name, _id: SMALL, self._note_loaded)
        return self

    def _note_loaded(self) -> None:
        self.steps.append("loaded")

    def make(self, partition: int) -> tuple[LogDirectory, Log]:
        return self.make_in(partition, None)

    def make_in(self, partition: int, home: DirectoryId | None) -> tuple[LogDirectory, Log]:
        directory = self.logs.home_of(name(partition), home)
        return directory, directory.create_log(name(partition), TOPIC_ID, SMALL)


def a_cluster_of_logs(disk: FakeDisk, logs: int = 6) -> None:
    """Three directories with logs of ten records each, closed cleanly."""
    node = Node(disk).load()
    node.logs.adopt(CLUSTER, NodeId(1), nothing)
    for partition in range(logs):
        _, log = node.make(partition)
        for _ in range(10):
            log.append(batch(b"x" * 100), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    for directory in node.logs.directories:
        directory.close_clean()


def test_a_new_log_goes_to_the_directory_with_the_fewest_logs_and_the_most_space() -> None:
    disk = FakeDisk()
    node = Node(disk)
    assert [node.make(partition)[0].path for partition in range(6)] == ["/one", "/two", "/three"] * 2
    node.logs.directories[1].delete_log(name(4))
    assert node.make(6)[0].path == "/two"
    for directory, free in zip(node.logs.directories, (10, 30, 20), strict=True):
        directory.reserve.free = free
    assert [node.make(partition)[0].path for partition in range(7, 10)] == ["/two", "/three", "/one"]
    node.logs.directories[0].reserve.low = True
    assert [node.make(partition)[0].path for partition in range(10, 14)] == ["/two", "/three"] * 2


def test_a_named_directory_is_the_only_one_allowed() -> None:
    node = Node(FakeDisk())
    wanted = node.logs.directories[2]
    for partition in range(3):
        assert node.make_in(partition, wanted.directory_id)[0] is wanted
    wanted.take_offline("its disk was pulled")
    with pytest.raises(KafkaStorageError, match="offline or gone"):
        node.make_in(3, wanted.directory_id)


def test_directories_are_opened_and_loaded_in_parallel_with_progress() -> None:
    disk, executor = FakeDisk(), Deferred()
    a_cluster_of_logs(disk)
    node = Node(disk, executor=executor)
    assert len(executor.waiting) == 3, "none waits for another"
    assert node.steps == []
    executor.run_all()
    assert node.steps == ["opened"]
    node.load()
    assert len(executor.waiting) == 3
    executor.run_one()
    assert set(node.logs.progress) == {"/one"}
    assert node.steps == ["opened"]
    executor.run_all()
    assert node.steps == ["opened", "loaded"]
    progress = node.logs.progress["/three"]
    assert progress == LoadProgress("/three", "orders-5", 2, 2, progress.bytes)
    assert progress.bytes > 2_000
    assert str(progress) == "/three: 2 of 2 logs, 0 MiB, the last one orders-5"


@pytest.mark.parametrize("broken", PATHS)
def test_a_directory_that_cannot_be_opened_is_left_out(broken: str) -> None:
    disk = FakeDisk()
    a_cluster_of_logs(disk)
    disk.fail("open", broken, times=-1)
    node = Node(disk).load()
    assert set(node.logs.failed) == {broken}
    assert isinstance(node.logs.failed[broken], KafkaStorageError)
    assert [directory.path for directory in node.logs.directories] == [path for path in PATHS if path != broken]
    assert sum(1 for _ in node.logs.logs()) == 4
    node.make(9)[1].append(batch(), assign_offsets=True, leader_epoch=LeaderEpoch(0))


def test_a_directory_that_fails_during_loading_goes_offline() -> None:
    disk = FakeDisk()
    a_cluster_of_logs(disk)
    node = Node(disk)
    disk.fail("read", "/two/orders-4", times=-1)
    node.load()
    assert node.steps == ["opened", "loaded"]
    assert [directory.path for directory in node.logs.working] == ["/one", "/three"]
    assert "orders-4" in node.logs.failed["/two"].message
    assert {log.topic_partition.partition for _, log in node.logs.logs()} == {0, 2, 3, 5}


def test_a_directory_that_fails_at_run_time_affects_only_its_logs() -> None:
    disk = FakeDisk()
    a_cluster_of_logs(disk)
    node = Node(disk).load()
    disk.fail("write", "/two/orders-1")
    first, second = (directory.logs[name(partition)] for partition, directory in enumerate(node.logs.directories[:2]))
    with pytest.raises(KafkaStorageError, match="/two is offline"):
        second.append(batch(), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    first.append(batch(), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    assert [directory.path for directory in node.logs.working] == ["/one", "/three"]
    assert node.make(20)[0].path != "/two"


def test_a_directory_of_another_cluster_or_node_is_left_out_by_name() -> None:
    disk = FakeDisk()
    a_cluster_of_logs(disk)
    stranger, other = Node(disk, ("/stranger",)), Node(disk, ("/other",))
    stranger.logs.adopt("AAAAnW-xE8Z4OMkj66OjEg", NodeId(1), nothing)
    other.logs.adopt(CLUSTER, NodeId(2), nothing)
    stranger.logs.close()
    other.logs.close()
    node = Node(disk, (*PATHS, "/stranger", "/other"))
    assert node.logs.cluster_id == CLUSTER
    node.logs.adopt(CLUSTER, NodeId(1), nothing)
    assert isinstance(node.logs.failed["/stranger"], InconsistentClusterId)
    assert isinstance(node.logs.failed["/other"], InvalidConfig)
    assert [directory.path for directory in node.logs.directories] == list(PATHS)
    Node(disk, ("/stranger",)).logs.close()  # its lock was released


def test_a_log_is_used_only_for_its_topic_id() -> None:
    node = Node(FakeDisk())
    directory, log = node.make(0)
    assert node.logs.use(directory, log, TOPIC_ID, SMALL) is log
    with pytest.raises(InconsistentTopicId, match="was created for topic id"):
        node.logs.use(directory, log, TopicId(UUID(int=99)), SMALL)


def test_a_log_that_was_loaded_with_another_durability_is_loaded_again() -> None:
    disk = FakeDisk()
    a_cluster_of_logs(disk)
    node = Node(disk).load()
    directory = node.logs.directories[0]
    log = directory.logs[name(0)]
    cached = LogConfig(durability=Durability.PAGE_CACHE)
    again = node.logs.use(directory, log, TOPIC_ID, cached)
    assert again is directory.logs[name(0)]
    assert again is not log
    assert log.closed
    assert again.config.durability is Durability.PAGE_CACHE
    assert again.log_end_offset == 10


def test_a_defect_is_raised() -> None:
    def broken(_path: str) -> LogDirectory:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        LogManager().open(("/one",), broken, lambda _path: InlineExecutor(), nothing)
