"""State of the metadata quorum on a node: the vote on disk, and the known leader in memory.

Invariants: the file is replaced as a whole, durably. The view never returns to an older epoch.
Not here: when a vote must be on disk (replication/raft/quorum.py, driver.py).
Source: the `quorum-state` file of KRaft (KIP-595, KIP-853), with the same name, fields and directory; `lostEnd` is an
addition, present only after damage.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from replication.raft.epoch_limits import EPOCH_LAST, EPOCH_MAX
from replication.raft.log_view import MetadataLogView
from replication.raft.roles import QuorumState
from storage.files.file_system import Files, read_file, write_file
from tidelog.errors import CorruptLog
from tidelog.types import INT32_MAX, INT64_MAX, NO_NODE, DirectoryId, Endpoint, LeaderEpoch, NodeAddress, NodeId, Offset

QUORUM_STATE: Final = "quorum-state"
DATA_VERSION: Final = 1

LOST_MS: Final = 3_000
"""Longer than an undisturbed election: a node that has not heard from a leader for this long reports that there is
none."""


def read_state(files: Files, directory: str) -> QuorumState:
    """The state in the metadata log's directory; the initial one if there is no file. Raises CorruptLog, OSError."""
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
            NodeId(_number(fields, "leaderId", NO_NODE, INT32_MAX)),
            NodeId(_number(fields, "votedId", NO_NODE, INT32_MAX)),
            None if voted_directory.int == 0 else DirectoryId(voted_directory),
            Offset(_number({"lostEnd": 0, **fields}, "lostEnd", 0, INT64_MAX)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLog(
            f"{path} cannot be read ({error}): this node does not know how it voted. Restore the directory, or start "
            f"the node with an empty one"
        ) from error


def _number(fields: Mapping[str, Any], name: str, least: int, most: int) -> int:
    """An integer field within bounds. Raises ValueError, KeyError, TypeError."""
    number = int(fields[name])
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, not within {least} to {most}")
    return number


def ensure_usable(state: QuorumState, log: MetadataLogView, directory: str) -> None:
    """Raise CorruptLog if the epoch of the vote or of the log lies in the reserve: no election is possible after it."""
    found = max(state.leader_epoch, log.last_epoch)
    if found >= EPOCH_LAST:
        raise CorruptLog(
            f"the metadata quorum in {directory} is in epoch {found}, the last usable one is {EPOCH_LAST}: no leader "
            "can be elected any more. The cause is a faulty or hostile message, not an election. Stop all nodes of the "
            "cluster and run `tidelog quorum reset-epoch` on the first log directory of each: docs/operations.md"
        )


def write_state(files: Files, directory: str, state: QuorumState) -> None:
    """Replace the state file durably. Raises OSError."""
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
    """Record durably that the log, which ended at `end`, is emptied. Raises CorruptLog, OSError."""
    state = read_state(files, directory)
    write_state(files, directory, replace(state, lost_end=max(state.lost_end, end)))


def _encode_id(value: UUID) -> str:
    """Kafka's text form of a UUID: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def _decode_id(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(f"{text}=="))


def new_cluster_id(random_bits: int) -> str:
    """A cluster id from 128 random bits."""
    return _encode_id(UUID(int=random_bits, version=4))


class QuorumView:
    """The leader of the metadata quorum as known to this node. The leader is the active controller, or becomes it
    soon."""

    def __init__(
        self,
        node_id: NodeId,
        *,
        silence_ms: Callable[[], int] = int,
        unconfirmed_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        """silence_ms: returns the milliseconds since a leader was last heard from. unconfirmed_ms: since a majority of
        the voters confirmed that this node leads; None if it does not."""
        self.node_id = node_id
        self.silence_ms, self.unconfirmed_ms = silence_ms, unconfirmed_ms
        self.leader_id = NO_NODE
        self.leader_epoch = LeaderEpoch(-1)
        self.endpoint: Endpoint | None = None
        """The leader's address; None if it is this node or unknown."""

    @property
    def is_lost(self) -> bool:
        """Whether no leader was heard from for longer than an election takes."""
        return self.silence_ms() > LOST_MS

    @property
    def leads(self) -> bool:
        """Whether this node is the leader."""
        return self.leader_id == self.node_id

    def show(self, leader_id: NodeId, leader_epoch: LeaderEpoch, endpoint: Endpoint | None) -> bool:
        """Set the leader (-1: unknown) of the newest epoch. Returns True if anything changed."""
        assert leader_epoch >= self.leader_epoch, "the leader epoch decreased"
        endpoint = None if leader_id == self.node_id else endpoint
        changed = (leader_id, leader_epoch, endpoint) != (self.leader_id, self.leader_epoch, self.endpoint)
        self.leader_id, self.leader_epoch, self.endpoint = leader_id, leader_epoch, endpoint
        return changed

    def address(self) -> NodeAddress | None:
        """The leader's address for an error that redirects a caller; None if unknown."""
        if self.endpoint is None:
            return None
        return NodeAddress(self.leader_id, self.endpoint, leader_epoch=self.leader_epoch)
