"""A cluster whose quorum epoch was driven to the end of its range: it reports that, and can be repaired."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from node.metadata.metadata_log import METADATA
from node.quorum.reset import UNDER_WAY, Epochs, epochs_of, reset
from node.quorum.state import ensure_usable, read_state, write_state
from replication.raft.epoch_limits import EPOCH_JUMP, EPOCH_LAST, EPOCH_MAX, step_towards
from replication.raft.log_view import MetadataLogView
from replication.raft.roles import QuorumState
from storage.files.file_system import Files, read_file, write_file
from storage.files.os_files import OsFiles
from tests.node.metadata_world import MetadataWorld, only_error
from tidelog import cli
from tidelog.errors import CorruptLog, InvalidConfig, InvalidRequest, KafkaStorageError
from tidelog.records import iter_batches
from tidelog.types import EpochStart, LeaderEpoch, NodeId, Offset

DIRECTORY = "/data0"
LOG = f"{DIRECTORY}/{METADATA}"
SEGMENT = f"{LOG}/00000000000000000000.log"
POISON = LeaderEpoch(EPOCH_MAX - 1)


def poison(files: Files, log: str = LOG, *, epoch: LeaderEpoch = POISON, from_offset: int | None = None) -> None:
    """What the version before wrote: the epoch in the vote; from_offset: a leader of it has written from there on."""
    write_state(files, log, dataclasses.replace(read_state(files, log), leader_epoch=epoch))
    if from_offset is None:
        return
    path = f"{log}/00000000000000000000.log"
    file = files.open(path)
    data = file.pread(file.size(), 0)
    position = 0
    for batch in iter_batches(data):
        if batch.base_offset >= from_offset:
            file.pwritev([epoch.to_bytes(4, "big")], position + 12)
        position += len(batch.buffer)
    file.sync()
    file.close()
    checkpoint = f"{log}/leader-epoch-checkpoint"
    lines = (read_file(files, checkpoint) or b"").decode().splitlines()[2:]
    kept = [line for line in lines if int(line.split()[1]) < from_offset]
    kept.append(f"{epoch} {from_offset}")
    write_file(files, checkpoint, "\n".join(["0", str(len(kept)), *kept, ""]).encode())


def whole_cluster(world: MetadataWorld) -> None:
    world.begin()
    world.run_until(lambda: len(world.image().voters) == 3)
    world.create("orders")
    end = world.image().offset
    world.run_until(lambda: all(world.image(node).offset >= end for node in range(3)))


def stop_all(world: MetadataWorld) -> None:
    for node in range(3):
        world.kill(node)


def must_start_again(world: MetadataWorld) -> None:
    world.start(0, 1, 2)
    world.wait_whole()
    assert world.image().topic("orders") is not None
    world.create("later")
    end = world.image().offset
    world.run_until(lambda: all(world.image(node).offset >= end for node in range(3)))


@pytest.mark.parametrize("from_offset", [None, 6])
def test_a_poisoned_cluster_reports_it_and_works_after_a_reset(from_offset: int | None) -> None:
    with MetadataWorld(voters=3) as world:
        whole_cluster(world)
        stop_all(world)
        for disk in world.disks.values():
            poison(disk, from_offset=from_offset)
        world.start(0, 1, 2)
        world.run_until(lambda: all(node_run.failure is not None for node_run in world.node_runs.values()))
        for node_run in world.node_runs.values():
            refusal = only_error(node_run.failure)
            assert isinstance(refusal, CorruptLog)
            assert "`tidelog quorum reset-epoch` on the first log directory of each" in refusal.message
            assert str(POISON) in refusal.message
        stop_all(world)
        after = max(epochs_of(DIRECTORY, disk).below for disk in world.disks.values())
        for disk in world.disks.values():
            assert reset([DIRECTORY], after, disk) == [DIRECTORY]
            assert epochs_of(DIRECTORY, disk).beyond == -1
            assert reset([DIRECTORY], EPOCH_LAST - EPOCH_MAX // 2, disk) == [], "nothing is left to do"
        must_start_again(world)


def test_a_node_that_was_off_when_the_others_were_poisoned_recovers_too() -> None:
    with MetadataWorld(voters=3) as world:
        whole_cluster(world)
        stop_all(world)
        for node in (0, 1):
            poison(world.disks[node])
        after = max(epochs_of(DIRECTORY, disk).below for disk in world.disks.values())
        assert [reset([DIRECTORY], after, disk) for disk in world.disks.values()] == [[DIRECTORY], [DIRECTORY], []]
        world.start(0, 1, 2)
        world.run_until(lambda: bool(world.node_runs[2].node) and world.side(2).view.leader_epoch > EPOCH_JUMP)
        world.wait_whole()
        assert len({world.side(node).view.leader_epoch for node in range(3)}) == 1


def test_snapshots_keep_their_place_and_their_contents() -> None:
    with MetadataWorld() as world:
        world.snapshot_bytes = 3_000
        world.begin()
        for number in range(12):
            world.create(f"topic-{number}")
        world.create("orders")
        world.run_until(lambda: world.side(0).metadata.snapshots.latest is not None)
        world.kill(0)
        disk = world.disks[0]
        (name,) = [name for name in disk.list(LOG) if name.endswith(".checkpoint")]
        data = bytearray(read_file(disk, f"{LOG}/{name}") or b"")
        position = 0
        for batch in iter_batches(bytes(data)):
            data[position + 12 : position + 16] = EPOCH_LAST.to_bytes(4, "big")
            position += len(batch.buffer)
        disk.remove(f"{LOG}/{name}")
        write_file(disk, f"{LOG}/{name[:20]}-{EPOCH_LAST:010d}.checkpoint", bytes(data))
        poison(disk, epoch=LeaderEpoch(EPOCH_LAST), from_offset=0)
        assert reset([DIRECTORY], 1, disk) == [DIRECTORY]
        assert [each for each in disk.list(LOG) if each.endswith(".checkpoint")] == [
            f"{name[:20]}-0000000002.checkpoint"
        ]
        world.start(0)
        world.wait_whole()
        assert world.image().topic("orders") is not None


def test_an_interrupted_reset_is_finished_by_the_same_one_and_the_node_does_not_start_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with MetadataWorld(voters=3) as world:
        whole_cluster(world)
        stop_all(world)
        for disk in world.disks.values():
            poison(disk, from_offset=6)
        disk = world.disks[0]

        def no_power(*_: object) -> None:
            raise OSError("the power is gone")

        with monkeypatch.context() as patch:
            patch.setattr("node.quorum.reset.write_state", no_power)
            with pytest.raises(KafkaStorageError, match="the power is gone"):
                reset([DIRECTORY], 1, disk)
        assert read_file(disk, f"{DIRECTORY}/{UNDER_WAY}") is not None
        world.start(0)
        world.run_until(lambda: world.node_runs[0].failure is not None)
        world.kill(0)
        with pytest.raises(InvalidRequest, match="was interrupted"):
            reset([DIRECTORY], 2, disk)
        for each in world.disks.values():
            reset([DIRECTORY], 1, each)
        assert read_file(disk, f"{DIRECTORY}/{UNDER_WAY}") is None
        must_start_again(world)


def poisoned_directories(parent: Path, count: int) -> list[str]:
    directories = [parent / f"node-{number}" for number in range(count)]
    for directory in directories:
        (directory / str(METADATA)).mkdir(parents=True)
        write_state(OsFiles(), f"{directory}/{METADATA}", QuorumState(LeaderEpoch(EPOCH_LAST)))
    return [str(directory) for directory in directories]


def epochs_in(directories: list[str]) -> list[int]:
    return [read_state(OsFiles(), f"{directory}/{METADATA}").leader_epoch for directory in directories]


def test_a_reset_of_all_directories_that_was_interrupted_between_two_is_finished_by_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes must get the same epochs: the directory that was done is left alone, the others follow."""
    directories = poisoned_directories(tmp_path, 3)
    written: list[str] = []

    def no_power_at_the_second(files: Files, log: str, state: QuorumState) -> None:
        if written:
            raise OSError("the power is gone")
        written.append(log)
        write_state(files, log, state)

    with monkeypatch.context() as patch:
        patch.setattr("node.quorum.reset.write_state", no_power_at_the_second)
        with pytest.raises(KafkaStorageError, match="the power is gone"):
            reset(directories, 7, OsFiles())
    assert epochs_in(directories) == [8, EPOCH_LAST, EPOCH_LAST]
    assert reset(directories, 7, OsFiles()) == directories[1:]
    assert epochs_in(directories) == [8, 8, 8]


def test_a_second_reset_changes_nothing_and_other_numbers_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory that was reset shows a greater epoch than before: taken for the greatest of all, the next node would
    get other epochs than this one."""
    done, other = poisoned_directories(tmp_path, 2)
    for _ in range(2):
        assert cli.main(["quorum", "reset-epoch", done, "--after", "7"]) == 0
    assert epochs_in([done, other]) == [8, EPOCH_LAST]
    capsys.readouterr()
    assert cli.main(["quorum", "reset-epoch", done, other]) == 0
    numbers = f"--after 7 --first {EPOCH_LAST}"
    assert f"{done} was reset with {numbers}: use the same for the other nodes" in capsys.readouterr().err
    with pytest.raises(InvalidRequest, match=f"use the same options: {numbers}"):
        reset([done, other], 6, OsFiles())


def test_a_reset_behind_an_epoch_that_some_node_has_passed_changes_nothing() -> None:
    with MetadataWorld(voters=3) as world:
        whole_cluster(world)
        world.kill(0)
        world.run_until(lambda: world.side(1).view.leader_epoch > 1 and world.side(1).view.leader_id > 0)
        world.run_until(lambda: world.side(1).metadata.view().last_epoch > 1)
        world.kill(1)
        world.kill(2)
        disk = world.disks[1]
        poison(disk)
        with pytest.raises(InvalidRequest, match="use the largest of all nodes"):
            reset([DIRECTORY], 1, disk)
        assert read_state(disk, LOG).leader_epoch == POISON


def test_a_running_node_and_a_directory_without_metadata_are_refused() -> None:
    with MetadataWorld() as world:
        world.begin()
        with pytest.raises(KafkaStorageError, match="stop all nodes"):
            epochs_of(DIRECTORY, world.disks[0])
        with pytest.raises(InvalidConfig, match="first log directory"):
            epochs_of("/elsewhere", world.disks[0])
        world.kill(0)
        with pytest.raises(InvalidRequest, match="do not fit"):
            reset([DIRECTORY], EPOCH_LAST, world.disks[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [("leaderEpoch", -1), ("leaderEpoch", EPOCH_MAX + 1), ("leaderId", -2), ("votedId", 1 << 40), ("lostEnd", -1)],
)
def test_a_vote_with_values_that_cannot_be_is_not_taken_into_use(field: str, value: int, tmp_path: Path) -> None:
    files = OsFiles()
    write_state(files, str(tmp_path), QuorumState(LeaderEpoch(1), NodeId(0), NodeId(0), None, Offset(5)))
    path = tmp_path / "quorum-state"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(CorruptLog, match=field):
        read_state(files, str(tmp_path))


def test_the_epoch_may_be_in_the_log_only() -> None:
    poisoned = MetadataLogView(log_end=Offset(5), epochs=(EpochStart(LeaderEpoch(EPOCH_LAST), Offset(0)),))
    with pytest.raises(CorruptLog, match="reset-epoch"):
        ensure_usable(QuorumState(), poisoned, "/data")
    ensure_usable(QuorumState(LeaderEpoch(EPOCH_LAST - 1)), MetadataLogView(), "/data")
    assert step_towards(LeaderEpoch(1), LeaderEpoch(EPOCH_LAST + 1)) == 1
    assert step_towards(LeaderEpoch(EPOCH_LAST - 1), LeaderEpoch(EPOCH_LAST)) == EPOCH_LAST


def test_the_command_shows_first_and_changes_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> Callable[[], str]:
        assert cli.main(["quorum", "reset-epoch", *arguments]) == 0
        return lambda: capsys.readouterr().out

    monkeypatch.setenv("COLUMNS", "200")
    directories = [tmp_path / f"node-{number}" for number in range(2)]
    for number, directory in enumerate(directories):
        (directory / str(METADATA)).mkdir(parents=True)
        write_state(OsFiles(), f"{directory}/{METADATA}", QuorumState(LeaderEpoch((7, EPOCH_LAST + 3)[number])))
    shown = run(*map(str, directories))()
    assert "greatest usable" in shown
    assert read_state(OsFiles(), f"{directories[1]}/{METADATA}").leader_epoch == EPOCH_LAST + 3
    reported = json.loads(run(*map(str, directories), "--after", "7", "--json")())
    assert reported["reset"] == [str(directories[1])]
    assert read_state(OsFiles(), f"{directories[1]}/{METADATA}").leader_epoch == 7 + 1 + 3
    assert epochs_of(str(directories[1]), OsFiles()) == Epochs(11, -1)
