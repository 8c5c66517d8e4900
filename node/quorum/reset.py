"""Offline repair of a metadata quorum whose epoch is too high for any further election. It runs on each node's
directory.

Epoch `first` (normally `EPOCH_LAST`) becomes `after + 1`, the next one `after + 2`, and so on, everywhere in a log
directory: in the vote, in the batches of the metadata log and of its snapshots, in the epoch checkpoint. The order is
kept, and with the same two numbers on all nodes equal epochs stay equal: logs match as before, no vote is forgotten,
and no record is lost. Epochs below `first` are unchanged, so none of them may be above `after`.

Invariant: the vote is written last, so that a node whose reset was interrupted still refuses to start. Running the same
reset again completes it and skips what is already done. A batch's checksum does not cover its epoch, so the epoch is
changed in place.
Not here: stopping all nodes. Only this one is checked, by the lock of its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Final

from node.metadata.metadata_log import METADATA
from node.metadata.metadata_snapshots import NAME
from node.quorum.state import read_state, write_state
from replication.raft.epoch_limits import EPOCH_LAST, EPOCH_MAX
from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT, encode_epochs, read_epochs
from storage.checkpoints.directory_identity import LOCK
from storage.files.file_system import Files, read_file, write_file
from tidelog.errors import CorruptRecord, InvalidConfig, InvalidRequest, KafkaStorageError
from tidelog.records import walk_headers
from tidelog.types import EpochStart, LeaderEpoch
from tidelog.values import dataclass

EPOCH_AT: Final = 12
"""Position of the epoch in a batch header, four bytes."""

UNDER_WAY: Final = "epoch-reset"
"""File in the log directory while a reset is in progress, with its `after` and `first`."""
DONE: Final = "epoch-reset-done"
"""File in the log directory after a reset, with the same numbers. The directories of other nodes need the same."""

Change = Callable[[LeaderEpoch], LeaderEpoch]


@dataclass(frozen=True, slots=True)
class Epochs:
    """Epochs of one log directory: the largest one below `first`, and the largest one at or above it (-1: none)."""

    below: int
    beyond: int


def epochs_of(directory: str, files: Files, first: int = EPOCH_LAST) -> Epochs:
    """The epochs in the first log directory of a stopped node. Raises InvalidConfig if it has no metadata log,
    KafkaStorageError if its node runs or the disk fails, CorruptLog."""
    with _locked(files, directory) as log:
        return _found(files, log, first)


def reset(directories: Sequence[str], after: int, files: Files, first: int = EPOCH_LAST) -> list[str]:
    """Move the epochs from `first` on to `after + 1` and following, durably, in all of these directories or in none.
    Returns the directories that had any. Raises InvalidRequest if one of them has another epoch above `after`, and the
    errors of `epochs_of`."""
    numbers = f"{after} {first}".encode()
    if after < 0 or after + 1 + EPOCH_MAX - first >= first:
        raise InvalidRequest(f"the epochs from {first} on do not fit after {after}: choose a smaller --after")

    def change(epoch: LeaderEpoch) -> LeaderEpoch:
        return LeaderEpoch(after + 1 + epoch - first) if epoch >= first else epoch

    with ExitStack() as locks:
        logs = {directory: locks.enter_context(_locked(files, directory)) for directory in directories}
        wanted = [
            directory for directory, log in logs.items() if _needs_reset(files, directory, log, after, first, numbers)
        ]
        for directory in wanted:
            write_file(files, f"{directory}/{UNDER_WAY}", numbers)
            _change_all(files, logs[directory], change)
            files.rename(f"{directory}/{UNDER_WAY}", f"{directory}/{DONE}")
            files.sync_directory(directory)
    return wanted


def _needs_reset(files: Files, directory: str, log: str, after: int, first: int, numbers: bytes) -> bool:
    begun = read_file(files, f"{directory}/{UNDER_WAY}")
    if begun is not None:
        if begun != numbers:
            raise InvalidRequest(f"a reset of {directory} with {_shown(begun)} was interrupted: run it again first")
        return True
    known = _found(files, log, first)
    done = read_file(files, f"{directory}/{DONE}")
    if known.beyond < 0 and done == numbers:
        return False
    if known.below > after:
        hint = (
            "" if done is None else f"; if no node has run since its last reset, use the same options: {_shown(done)}"
        )
        raise InvalidRequest(
            f"{directory} contains epoch {known.below}, above {after}: use the largest of all nodes for --after{hint}"
        )
    return known.beyond >= 0


def last_reset(directory: str, files: Files) -> str:
    """The options of the last reset of this directory, in progress or done; empty if there is none."""
    numbers = read_file(files, f"{directory}/{UNDER_WAY}") or read_file(files, f"{directory}/{DONE}")
    return "" if numbers is None else _shown(numbers)


def _shown(numbers: bytes) -> str:
    after, _, first = numbers.decode(errors="replace").partition(" ")
    return f"--after {after} --first {first}"


@contextmanager
def _locked(files: Files, directory: str) -> Iterator[str]:
    """Lock the directory against other processes and return the path of its metadata log."""
    log = f"{directory}/{METADATA}"
    if not files.is_directory(log):
        raise InvalidConfig(f"{directory} contains no metadata log: name the first log directory of a node")
    try:
        lock = files.lock(f"{directory}/{LOCK}")
        try:
            yield log
        finally:
            lock.release()
    except BlockingIOError as error:
        raise KafkaStorageError(
            f"the log directory {directory} is in use: stop all nodes of the cluster first"
        ) from error
    except OSError as error:
        raise KafkaStorageError(
            f"the epochs in {directory} cannot be read or reset: {error}; check the disk"
        ) from error


def _found(files: Files, log: str, first: int) -> Epochs:
    epochs = {read_state(files, log).leader_epoch}
    epochs.update(entry.epoch for entry in read_epochs(files, f"{log}/{LEADER_EPOCH_CHECKPOINT}") or ())
    for name in _with_batches(files, log):
        data = read_file(files, f"{log}/{name}") or b""
        epochs.update(_epoch_at(data, position) for position in _batches(data))
    below = {epoch for epoch in epochs if epoch < first}
    return Epochs(max(below, default=-1), max(epochs - below, default=-1))


def _change_all(files: Files, log: str, change: Change) -> None:
    for name in _with_batches(files, log):
        if (snapshot := NAME.fullmatch(name)) is not None:
            data = bytearray(read_file(files, f"{log}/{name}") or b"")
            for position in _batches(data):
                data[position : position + 4] = change(_epoch_at(data, position)).to_bytes(4, "big")
            renamed = f"{snapshot['end']}-{change(LeaderEpoch(int(snapshot['epoch']))):010d}.checkpoint"
            if renamed != name:
                write_file(files, f"{log}/{renamed}", bytes(data))
                files.remove(f"{log}/{name}")
        else:
            _change_segment(files, f"{log}/{name}", change)
    path = f"{log}/{LEADER_EPOCH_CHECKPOINT}"
    entries = read_epochs(files, path)
    if entries is not None:
        changed = [EpochStart(change(entry.epoch), entry.start_offset) for entry in entries]
        write_file(files, path, encode_epochs(changed))
    files.sync_directory(log)
    state = read_state(files, log)
    write_state(files, log, replace(state, leader_epoch=change(state.leader_epoch)))


def _change_segment(files: Files, path: str, change: Change) -> None:
    file = files.open(path)
    try:
        data = file.pread(file.size(), 0)
        for position in _batches(data):
            known = _epoch_at(data, position)
            if change(known) != known:
                file.pwritev([change(known).to_bytes(4, "big")], position)
        file.sync()
    finally:
        file.close()


def _with_batches(files: Files, log: str) -> list[str]:
    return [name for name in files.list(log) if name.endswith(".log") or NAME.fullmatch(name)]


def _batches(data: bytes | bytearray) -> Iterator[int]:
    """Positions of the epochs of all complete batches. Recovery truncates what follows the last one."""
    try:
        for header in walk_headers(data):
            yield header.position + EPOCH_AT
    except CorruptRecord:
        return


def _epoch_at(data: bytes | bytearray, position: int) -> LeaderEpoch:
    return LeaderEpoch(int.from_bytes(data[position : position + 4], "big", signed=True))
