"""RemoteLogPartitionKey, versions 0 to 0. Generated from RemoteLogPartitionKey.json of Tidelog by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    uuid_of,
)
from tidelog.types import PartitionIndex

_r_ui = Struct(">16si").unpack_from
_w_ui = Struct(">16si").pack


class RemoteLogPartitionKey(Structure):
    """The message."""

    __slots__ = ("topic_id", "partition")
    __match_args__ = ("topic_id", "partition")

    def __init__(
        self,
        topic_id: UUID,
        partition: PartitionIndex,
    ) -> None:
        # The topic.
        self.topic_id: Final = topic_id
        # The partition.
        self.partition: Final = partition


def _read_remote_log_partition_key_0(data: Data, at: int) -> tuple[RemoteLogPartitionKey, int]:
    topic_id, partition = _r_ui(data, at)
    at += 20
    topic_id = uuid_of(topic_id)
    return RemoteLogPartitionKey(topic_id=topic_id, partition=partition), at


def _write_remote_log_partition_key_0(out: Output, value: RemoteLogPartitionKey) -> None:
    out += _w_ui(value.topic_id.bytes, value.partition)


REMOTE_LOG_PARTITION_KEY: Final = MessageCodec(
    RemoteLogPartitionKey,
    1,
    readers={0: _read_remote_log_partition_key_0},
    writers={0: _write_remote_log_partition_key_0},
)
