"""What a node remembers of the metadata quorum: on disk its vote, in memory who leads, for all who ask.

Kept true: the file is replaced as a whole, durably; the view never goes back to an older epoch.
Left to others: when a vote must be on the disk (replication/raft/quorum.py, driver.py).
Source: the `quorum-state` file of KRaft (KIP-595, KIP-853), same name, same fields, same directory; `lostEnd` is
ours, and there only behind damage.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from replication.raft.epoch_limits import EPOCH_LAST, EPOCH_MAX
from replication.raft.log_view import LogView
from replication.raft.roles import QuorumState
from storage.files.file_system import Files, read_file, write_file
from tidelog.errors import CorruptLog
from tidelog.types import NO_NODE, DirectoryId, Endpoint, LeaderEpoch, NodeAddress, NodeId, Offset

QUORUM_STATE: Final = "quorum-state"
DATA_VERSION: Final = 1
NODE_MAX: Final = (1 << 31) - 1
OFFSET_MAX: Final = (1 << 63) - 1

LOST_MS: Final = 3_000
"""Longer than an election that nobody disturbs: who has heard no leader for so long says that there is none."""


def read_state(files: Files, directory: str) -> QuorumState:
    """The state in the metadata log's directory; the first one where there is no file. Raises CorruptLog, OSError."""
    path = f"{directory}/{QUORUM_STATE}"
    data = read_file(files, path)
    if data is None:
        return QuorumState()
    try:
        fields = json.loads(data)
        if fields["data_version"] != DATA_VERSION:
            raise ValueError(f"data_version is {fields['data_version']}, this version reads {DATA_VERSION}")
        voted_directory = _decode_id(fields["votedDirectoryId"])
        return QuorumState(
            LeaderEpoch(_number(fields, "leaderEpoch", 0, EPOCH_MAX)),
            NodeId(_number(fields, "leaderId", NO_NODE, NODE_MAX)),
            NodeId(_number(fields, "votedId", NO_NODE, NODE_MAX)),
            None if voted_directory.int == 0 else DirectoryId(voted_directory),
            Offset(_number({"lostEnd": 0, **fields}, "lostEnd", 0, OFFSET_MAX)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLog(
            f"{path} cannot be read ({error}): this node does not know how it voted. Give its directory back, "
            f"or start it "
            "with an empty one"
        ) from error


def _number(fields: Mapping[str, Any], name: str, least: int, most: int) -> int:
    """Raises ValueError, KeyError, TypeError."""
    number = int(fields[name])
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, not within {least} to {most}")
    return number


def ensure_usable(state: QuorumState, log: LogView, directory: str) -> None:
    """Raises CorruptLog where the epoch of the vote or of the log lies in the reserve: no election can follow it."""
    found = max(state.leader_epoch, log.last_epoch)
    if found >= EPOCH_LAST:
        raise CorruptLog(
            f"the metadata quorum in {directory} is in epoch {found}, and {EPOCH_LAST} is the last that is used: no "
            "leader could be elected any more. Elections do not lead there, a faulty or hostile message did. Stop all "
            "nodes of the cluster and run `tidelog quorum reset-epoch` on the metadata directory of each: "
            "docs/operations.md"
        )


def write_state(files: Files, directory: str, state: QuorumState) -> None:
    """Put the state in place, durably. Raises OSError."""
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": _encode_id(state.voted_directory or UUID(int=0)),
        "data_version": DATA_VERSION,
    }
    if state.lost_end:
        fields["lostEnd"] = state.lost_end
    write_file(files, f"{directory}/{QUORUM_STATE}", json.dumps(fields, separators=(",", ":")).encode())


def note_lost(files: Files, directory: str, end: Offset) -> None:
    """Durably: the log, which ended there, is emptied. Raises CorruptLog, OSError."""
    state = read_state(files, directory)
    write_state(files, directory, replace(state, lost_end=max(state.lost_end, end)))


def _encode_id(value: UUID) -> str:
    """Kafka's text form of a uuid: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def _decode_id(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))


def new_cluster_id(random_bits: int) -> str:
    """A cluster id out of 128 random bits."""
    return _encode_id(UUID(int=random_bits, version=4))


class QuorumView:
    """Who leads the metadata quorum, and so is, or is about to be, the active controller, as far as this node knows."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.leader_id = NO_NODE
        self.leader_epoch = LeaderEpoch(-1)
        self.endpoint: Endpoint | None = None
        """Where the leader is reached; None where it is this node, or nobody is known."""
        self.silence_ms: Callable[[], int] = int
        """Tells how long no leader has been heard (driver.py)."""

    @property
    def is_lost(self) -> bool:
        """Has no leader been heard for longer than an election takes?"""
        return self.silence_ms() > LOST_MS

    @property
    def leads(self) -> bool:
        """Is it this node?"""
        return self.leader_id == self.node_id

    def show(self, leader_id: NodeId, leader_epoch: LeaderEpoch, endpoint: Endpoint | None) -> bool:
        """The leader (-1: nobody is known) of the newest epoch. Returns whether that is news."""
        assert leader_epoch >= self.leader_epoch, "epochs never go back"
        endpoint = None if leader_id == self.node_id else endpoint
        news = (leader_id, leader_epoch, endpoint) != (self.leader_id, self.leader_epoch, self.endpoint)
        self.leader_id, self.leader_epoch, self.endpoint = leader_id, leader_epoch, endpoint
        return news

    def address(self) -> NodeAddress | None:
        """The leader's address for an error that sends a caller there; None where it is not known."""
        if self.endpoint is None:
            return None
        return NodeAddress(self.leader_id, self.endpoint, leader_epoch=self.leader_epoch)
