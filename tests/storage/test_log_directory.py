"""A log directory: its owner, its logs, and the offsets recorded about them. Source: KIP-858, Kafka's LogManager."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from storage.directory.log_directory import LogDirectory
from storage.files.file_system import read_file, write_file
from storage.files.os_files import OsFiles
from storage.log_config import LogConfig
from storage.recovery.loaded import Damage
from testbed.fake_disk import FakeDisk
from tests.storage.workbench import SMALL, TOPIC_ID, TP, Bench, Deferred, SetClock, batch
from tidelog.errors import InconsistentClusterId, InvalidConfig, KafkaStorageError
from tidelog.types import Durability, LeaderEpoch, NodeId, Offset, PartitionIndex, PartitionKey, TopicId, TopicPartition

OTHER = TopicPartition("other.topic-with-9", PartitionIndex(12))


def text(bench: Bench, name: str) -> str:
    data = read_file(bench.disk, f"/data/{name}")
    assert data is not None
    return data.decode()


@pytest.mark.parametrize("below", ["", "/data"])
def test_a_file_in_the_place_of_a_directory_is_no_fault_of_the_disk(tmp_path: Path, below: str) -> None:
    path = tmp_path / "tidelog.toml"
    path.write_text("")
    with pytest.raises(KafkaStorageError, match=r"it must be a directory .*; name another one in log\.dirs"):
        LogDirectory(f"{path}{below}", files=OsFiles(), clock=SetClock(), rng=random.Random(1))


def test_a_new_directory_gets_an_id_and_keeps_it() -> None:
    bench = Bench()
    directory_id = bench.directory.directory_id
    assert directory_id.version == 4
    assert (
        bench.directory.identity.cluster_id,
        bench.directory.identity.node_id,
        bench.directory.identity.last_registration,
    ) == (None, None, -1)
    for seed in range(10):
        bench.crash(seed)
        assert bench.directory.directory_id == directory_id


def test_it_belongs_to_one_node_of_one_cluster() -> None:
    bench = Bench()
    bench.directory.adopt("u2n9nW-xE8Z4OMkj66OjEg", NodeId(3))
    bench.directory.adopt("u2n9nW-xE8Z4OMkj66OjEg", NodeId(3))
    bench.crash(1)
    assert (bench.directory.identity.cluster_id, bench.directory.identity.node_id) == ("u2n9nW-xE8Z4OMkj66OjEg", 3)
    with pytest.raises(InconsistentClusterId, match="belongs to cluster"):
        bench.directory.adopt("AAAAnW-xE8Z4OMkj66OjEg", NodeId(3))
    with pytest.raises(InvalidConfig, match="belongs to node 3"):
        bench.directory.adopt("u2n9nW-xE8Z4OMkj66OjEg", NodeId(4))


def test_the_registration_number_survives_a_crash() -> None:
    bench = Bench()
    bench.directory.write_registration(17)
    for seed in range(10):
        bench.crash(seed)
        assert bench.directory.identity.last_registration == 17
    bench.directory.write_registration(30)
    assert bench.directory.identity.last_registration == 30


def test_meta_properties_has_kafkas_format() -> None:
    bench = Bench()
    bench.directory.adopt("u2n9nW-xE8Z4OMkj66OjEg", NodeId(1))
    lines = set(text(bench, "meta.properties").splitlines())
    assert {"version=1", "node.id=1", "cluster.id=u2n9nW-xE8Z4OMkj66OjEg"} < lines


@pytest.mark.parametrize("contents", ["", "version=0\nbroker.id=1\n", "version=1\ndirectory.id=???\n"])
def test_a_damaged_meta_properties_is_rejected(contents: str) -> None:
    disk = FakeDisk()
    disk.make_directory("/data")
    write_file(disk, "/data/meta.properties", contents.encode())
    with pytest.raises(InvalidConfig, match=r"meta\.properties"):
        LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(1))


def test_a_directory_with_other_files_is_rejected() -> None:
    disk = FakeDisk()
    disk.make_directory("/home/photos")
    with pytest.raises(InvalidConfig, match="not empty"):
        LogDirectory("/home", files=disk, clock=SetClock(), rng=random.Random(1))


def test_a_directory_is_used_by_one_process() -> None:
    bench = Bench()
    with pytest.raises(KafkaStorageError, match="another process"):
        bench.open_directory()
    bench.directory.close()
    bench.open_directory()


def test_logs_come_back_with_their_topic_ids() -> None:
    bench = Bench()
    bench.directory.create_log(OTHER, TopicId(UUID(int=77)), SMALL)
    bench.directory.close_clean()
    directory = bench.open_directory()
    asked: list[tuple[TopicPartition, TopicId]] = []

    def config_of(tp: TopicPartition, topic_id: TopicId) -> LogConfig:
        asked.append((tp, topic_id))
        return SMALL

    assert sorted(directory.load_logs(config_of)) == sorted([TP, OTHER])
    assert sorted(asked) == sorted([(TP, TOPIC_ID), (OTHER, TopicId(UUID(int=77)))])
    assert text(bench, f"{OTHER}/partition.metadata") == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAATQ"


def test_some_logs_can_be_loaded_before_the_others() -> None:
    """The metadata log contains the settings of the others."""
    bench = Bench()
    bench.directory.create_log(OTHER, TopicId(UUID(int=77)), SMALL)
    bench.directory.close_clean()
    directory = bench.open_directory()
    assert list(directory.load_logs(lambda _tp, _id: SMALL, only=lambda tp: tp == OTHER)) == [OTHER]
    first = directory.logs[OTHER]
    assert sorted(directory.load_logs(lambda _tp, _id: SMALL)) == sorted([TP, OTHER])
    assert directory.logs[OTHER] is first


def test_a_log_created_and_flushed_survives() -> None:
    for seed in range(20):
        bench = Bench()
        bench.lead(b"a")
        bench.commit()
        bench.crash(seed)
        assert bench.log.topic_id == TOPIC_ID
        assert len(bench.contents()) == 1


def test_a_log_without_metadata_is_not_deleted() -> None:
    bench = Bench()
    bench.lead(b"precious")
    bench.log.flush()
    bench.directory.close_clean()
    bench.disk.remove("/data/orders-0/partition.metadata")
    bench.disk.make_directory("/data/not a log")
    directory = bench.open_directory()
    assert directory.load_logs(lambda _tp, _id: SMALL) == {}
    (stray,) = [name for name in bench.disk.list("/data") if name.endswith("-stray")]
    assert bench.disk.size(f"/data/{stray}/{0:020d}.log")
    assert "set aside" in directory.notes[-1]
    assert bench.disk.is_directory("/data/not a log")


def test_a_new_log_does_not_take_over_an_old_directory() -> None:
    bench = Bench()
    bench.lead(b"old life")
    bench.log.flush()
    bench.directory.set_aside(TP, "it belongs to a topic that was deleted")
    log = bench.directory.create_log(TP, TopicId(UUID(int=5)), SMALL)
    assert log.log_end_offset == 0
    assert [name.endswith("-stray") for name in bench.disk.list("/data") if "orders" in name] == [False, True]


def test_a_deleted_log_stays_deleted() -> None:
    for seed in range(10):
        bench = Bench()
        bench.lead(b"x")
        bench.commit()
        bench.directory.write_checkpoints()
        bench.directory.delete_log(TP)
        assert bench.directory.logs == {}
        assert not any("orders" in name for name in bench.disk.list("/data"))
        log = bench.directory.create_log(TP, TOPIC_ID, SMALL)
        bench.directory.commit.request(log)
        bench.crash(seed)
        assert bench.log.log_end_offset == 0
        assert bench.log.damage is None, "the second process does not report the first log's records as lost"


def test_an_interrupted_deletion_is_completed() -> None:
    bench = Bench()
    bench.lead(b"x")
    bench.log.flush()
    bench.disk.kill()
    bench.disk.rename("/data/orders-0", "/data/orders-0.0123456789abcdef-delete")
    bench.open_directory().load_logs(lambda _tp, _id: SMALL)
    assert not any("orders" in name for name in bench.disk.list("/data"))


def test_checkpoints_have_kafkas_format_and_the_current_offsets() -> None:
    bench = Bench()
    for _ in range(5):
        bench.lead(b"x")
    bench.commit()
    bench.lead(b"not flushed")
    bench.log.advance_high_watermark(Offset(4))
    bench.directory.request_flushes()
    bench.directory.write_checkpoints()
    assert text(bench, "recovery-point-offset-checkpoint") == "0\n1\norders 0 6\n"
    assert text(bench, "replication-offset-checkpoint") == "0\n1\norders 0 4\n"
    bench.log.truncate_fully_and_start_at(Offset(9))
    assert text(bench, "log-start-offset-checkpoint") == "0\n1\norders 0 9\n"
    assert text(bench, "recovery-point-offset-checkpoint") == "0\n1\norders 0 0\n"


def test_checkpoints_are_written_only_when_something_changed() -> None:
    bench = Bench()
    bench.lead(b"x")
    bench.commit()
    bench.directory.write_checkpoints()
    calls = bench.disk.calls
    bench.directory.write_checkpoints()
    assert bench.disk.calls == calls


def test_the_high_watermark_survives_a_restart_and_is_at_most_the_log_end() -> None:
    bench = Bench()
    for _ in range(5):
        bench.lead(b"x")
    bench.log.advance_high_watermark(Offset(5))
    bench.directory.write_checkpoints()
    bench.kill()
    assert bench.log.high_watermark == 5
    bench.disk.kill()
    write_file(bench.disk, "/data/replication-offset-checkpoint", b"0\n1\norders 0 99\n")
    bench.reopen()
    assert bench.log.high_watermark == 5


def test_a_recreated_log_does_not_inherit_the_high_watermark_of_its_name() -> None:
    """A topic that is deleted and created again has the same directory name: the recorded high watermark of the old log
    must be gone before the new one has records."""
    bench = Bench()
    for _ in range(5):
        bench.lead()
    bench.commit()
    bench.log.advance_high_watermark(Offset(5))
    bench.directory.write_checkpoints()
    bench.directory.delete_log(TP)
    again = TopicId(UUID(int=0x77))
    bench.log = bench.directory.create_log(TP, again, SMALL)
    for _ in range(3):
        bench.lead()
    bench.commit()
    log = bench.kill()
    assert (log.topic_id, log.log_end_offset, log.high_watermark) == (again, 3, 0)


def test_a_log_that_was_set_aside_is_not_missing() -> None:
    """Its node has decided so: nothing is recorded about it at the next start, so nothing is damaged."""
    bench = Bench()
    bench.lead()
    bench.commit()
    bench.directory.set_aside(TP, "the metadata name another log directory for it")
    bench.disk.crash(random.Random(1))
    bench.directory = bench.open_directory()
    assert bench.directory.load_logs(lambda _tp, _id: SMALL) == {}
    assert bench.directory.damaged() == {}


def test_a_damaged_checkpoint_only_lengthens_the_recovery() -> None:
    bench = Bench()
    for _ in range(50):
        bench.lead(b"x")
    contents = bench.contents()
    bench.directory.close_clean()
    write_file(bench.disk, "/data/recovery-point-offset-checkpoint", b"0\n5\nhalf a fi")
    bench.reopen()
    assert bench.contents() == contents
    assert bench.log.damage is None


def test_durable_offset_marks_are_written_after_each_group_commit_without_an_extra_sync() -> None:
    bench = Bench()
    bench.lead(b"x")
    bench.commit()
    syncs = bench.disk.syncs
    bench.lead(b"x")
    bench.commit()
    assert bench.disk.syncs - syncs == 1, "the .log, nothing else"
    data = read_file(bench.disk, "/data/held-offset-marks")
    assert data is not None
    assert (len(data), int.from_bytes(data[20:28])) == (32, 2)


def test_page_cache_logs_have_no_durable_offset_marks() -> None:
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE))
    bench.lead(b"x")
    bench.log.flush()
    assert read_file(bench.disk, "/data/held-offset-marks") == b""


def test_the_directory_on_a_real_disk(tmp_path: Path) -> None:
    """Everything once through the operating system: create, append, roll, truncate, clean and unclean restarts,
    delete."""
    bench = Bench(SMALL, files=OsFiles(), path=str(tmp_path / "data"))
    key = PartitionKey(TOPIC_ID, TP.partition)
    for i in range(60):
        bench.lead(b"value %d" % i)
    bench.commit()
    assert bench.log.durable_offset == 60
    bench.log.truncate_to(Offset(50))
    contents = bench.contents()
    bench.restart_clean()
    assert (bench.directory.identity.was_clean, bench.directory.notes, bench.contents()) == (True, [], contents)
    bench.log.append(batch(b"unsynced"), assign_offsets=True, leader_epoch=LeaderEpoch(0))
    bench.directory.close()
    bench.reopen()
    assert bench.contents()[:-1] == contents
    path = Path(bench.segment_path)
    bench.directory.close()
    path.write_bytes(path.read_bytes()[:-10])
    bench.reopen()
    assert bench.directory.damaged()[key].end_offset == 51
    bench.log.truncate_fully_and_start_at(Offset(7))
    bench.lead(b"again")
    bench.restart_clean()
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (7, 8)
    bench.directory.delete_log(TP)
    assert not any(name.startswith("orders") for name in OsFiles().list(bench.path))
    bench.directory.close_clean()


def test_a_topic_with_the_longest_name_can_be_deleted_and_set_aside(tmp_path: Path) -> None:
    """Goal: no topic name takes a directory offline. Method: the real file system, with 255 bytes per name."""
    directory = LogDirectory(f"{tmp_path}/data", files=OsFiles(), clock=SetClock(), rng=random.Random(1))
    for partition in (0, 9999):
        longest = TopicPartition("t" * 249, PartitionIndex(partition))
        directory.create_log(longest, TOPIC_ID, SMALL)
        directory.delete_log(longest)
        directory.create_log(longest, TOPIC_ID, SMALL)
        aside = directory.set_aside(longest, "a test")
        assert Path(aside).is_dir()
        assert f"-{partition}." in aside
    assert directory.offline is None
    assert not [name for name in OsFiles().list(directory.path) if name.endswith("-delete")]
    directory.close()
    again = LogDirectory(directory.path, files=OsFiles(), clock=SetClock(), rng=random.Random(1))
    assert again.load_logs(lambda _tp, _id: SMALL) == {}
    again.close()


def test_a_deletion_that_is_requested_twice_is_done_once() -> None:
    """Loading requests the deletion again if it finds a directory whose deletion is in progress."""
    executor = Deferred()
    bench = Bench(executor=executor)
    executor.run_all()
    bench.directory.delete_log(TP)
    bench.directory.load_logs(lambda _tp, _id: SMALL)
    executor.run_all()
    assert bench.directory.offline is None
    assert not [name for name in bench.disk.list("/data") if name.endswith("-delete")]


@pytest.mark.parametrize("stop", ["clean", "killed", *(f"crashed {seed}" for seed in range(10))])
@pytest.mark.parametrize("first", [0, 1, 40])
@pytest.mark.parametrize("accepted", [False, True])
def test_damage_found_below_the_recovery_point_is_found_again_unless_it_is_accepted(
    stop: str, first: int, accepted: bool
) -> None:
    """A start reads from the recovery point on, and would not find it."""
    bench = Bench()
    for number in range(60):
        bench.lead(b"value %d" % number)
    bench.commit()
    bench.directory.write_checkpoints()
    segment = next(each for each in reversed(bench.log.segments) if each.base_offset <= first)
    found = segment.find(Offset(first))
    assert found is not None
    bench.disk.flip_bit(segment.path, found.position + 70)
    bench.log.lost.note(Damage(segment.path, found.position, Offset(first), Offset(first + 1), "the test says so"))
    bench.directory.keep_damage(bench.log, accepted=False)
    if accepted:
        bench.directory.keep_damage(bench.log, accepted=True)
    bench.directory.write_checkpoints()
    crashed = stop.startswith("crashed")
    log = bench.crash(int(stop.split()[1])) if crashed else bench.restart_clean() if stop == "clean" else bench.kill()
    if accepted:
        assert log.damage is None
    else:
        assert log.damage is not None
        assert (log.damage.first_offset, log.damage.end_offset) == (first, first + 1)
    assert log.log_end_offset == 60


def test_damage_of_a_page_cache_log_is_not_recorded_as_a_torn_tail() -> None:
    bench = Bench(replace(SMALL, durability=Durability.PAGE_CACHE))
    for number in range(60):
        bench.lead(b"value %d" % number)
    bench.commit_log()
    bench.directory.write_checkpoints()
    bench.disk.flip_bit(bench.log.segments[0].path, 70)
    bench.log.lost.note(Damage(bench.log.segments[0].path, 0, Offset(0), Offset(1), "the test says so"))
    bench.directory.keep_damage(bench.log, accepted=False)
    assert bench.kill().log_end_offset == 60


def opened_on(disk: FakeDisk, boot: bytes) -> LogDirectory:
    return LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(1), boot_id=boot)


@pytest.mark.parametrize(
    ("clean", "boot", "intact"),
    [
        (True, b"first", True),
        (True, b"second", True),
        (False, b"first", True),
        (False, b"second", False),
    ],
)
def test_a_directory_is_intact_after_a_clean_stop_or_on_the_boot_of_its_last_registration(
    clean: bool, boot: bytes, intact: bool
) -> None:
    disk = FakeDisk()
    directory = opened_on(disk, b"first")
    directory.write_registration(7)
    directory.close_clean() if clean else directory.close()
    assert opened_on(disk, boot).identity.intact is intact


def test_a_directory_stays_intact_if_a_process_ends_between_a_clean_stop_and_its_registration() -> None:
    disk = FakeDisk()
    directory = opened_on(disk, b"first")
    directory.write_registration(7)
    directory.close_clean()
    opened_on(disk, b"second").close()  # removes the marker, and dies
    again = opened_on(disk, b"second")
    assert (again.identity.intact, again.identity.last_registration) == (True, 7)
    again.close()
    assert not opened_on(disk, b"third").identity.intact


def test_a_loss_is_reported_until_a_registration_has_reported_it() -> None:
    disk = FakeDisk()
    directory = opened_on(disk, b"first")
    directory.write_registration(7)
    directory.close()
    opened_on(disk, b"second").close()  # dies before it registers
    again = opened_on(disk, b"second")
    assert not again.identity.intact
    again.write_registration(8)
    again.close()
    assert opened_on(disk, b"second").identity.intact


def test_a_directory_of_an_older_version_is_intact_after_a_clean_stop_alone() -> None:
    disk = FakeDisk()
    directory = opened_on(disk, b"first")
    directory.write_registration(7)
    directory.close()
    write_file(disk, "/data/registration", b"0\n7\n")
    assert not opened_on(disk, b"first").identity.intact
