"""RemoteLogPartitionValue, versions 0 to 0. Generated from RemoteLogPartitionValue.json of Tidelog by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_compact_string,
    skip_tags,
    write_compact_string,
)
from tidelog.types import LeaderEpoch

_r_iiqi = Struct(">iiqi").unpack_from
_w_iiqi = Struct(">iiqi").pack


class RemoteLogPartitionValue(Structure):
    """The message."""

    __slots__ = ("topic_name", "leader_epoch", "node_id", "log_start_offset", "log_start_epoch")
    __match_args__ = ("topic_name", "leader_epoch", "node_id", "log_start_offset", "log_start_epoch")

    def __init__(
        self,
        topic_name: str,
        leader_epoch: LeaderEpoch,
        node_id: int,
        log_start_offset: int,
        log_start_epoch: int,
    ) -> None:
        # Name of the topic: part of the keys of its objects.
        self.topic_name: Final = topic_name
        # The newest leader epoch that has registered.
        self.leader_epoch: Final = leader_epoch
        # Its leader.
        self.node_id: Final = node_id
        # The log start with which a leader has deleted segments.
        self.log_start_offset: Final = log_start_offset
        # Leader epoch of the record there; -1: no leader has deleted segments.
        self.log_start_epoch: Final = log_start_epoch


def _read_remote_log_partition_value_0(data: Data, at: int) -> tuple[RemoteLogPartitionValue, int]:
    topic_name, at = read_compact_string(data, at)
    leader_epoch, node_id, log_start_offset, log_start_epoch = _r_iiqi(data, at)
    at += 20
    at = skip_tags(data, at)
    return RemoteLogPartitionValue(
        topic_name=topic_name,
        leader_epoch=leader_epoch,
        node_id=node_id,
        log_start_offset=log_start_offset,
        log_start_epoch=log_start_epoch,
    ), at


def _write_remote_log_partition_value_0(out: Output, value: RemoteLogPartitionValue) -> None:
    write_compact_string(out, value.topic_name)
    out += _w_iiqi(value.leader_epoch, value.node_id, value.log_start_offset, value.log_start_epoch)
    out.append(0)


REMOTE_LOG_PARTITION_VALUE: Final = MessageCodec(
    RemoteLogPartitionValue,
    1,
    readers={0: _read_remote_log_partition_value_0},
    writers={0: _write_remote_log_partition_value_0},
)
