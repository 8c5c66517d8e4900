"""How much of a partition a replica has, as the controller asks for it before an unclean election."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from node.requests.types.api import Api
from tidelog.types import DirectoryId, LeaderEpoch, Offset


@dataclass(frozen=True, slots=True)
class ReplicaLogInfoRequest:
    """look_ms: how long the node may read a damaged log to find the lost offsets; then the report is less precise."""

    topic_id: bytes
    partition: int
    look_ms: int


@dataclass(frozen=True, slots=True)
class ReplicaLogInfo:
    """last_epoch: leader epoch of the last record; -1: none. log_end_offset: one past that record. directory_id: the
    log directory; None: there is no log yet. lost: the offsets that cannot be read, as text; empty: none."""

    last_epoch: LeaderEpoch
    log_end_offset: Offset
    directory_id: DirectoryId | None = None
    lost: str = ""


DATA_GET_REPLICA_LOG_INFO: Final = Api("Data.GetReplicaLogInfo", ReplicaLogInfoRequest, ReplicaLogInfo)
