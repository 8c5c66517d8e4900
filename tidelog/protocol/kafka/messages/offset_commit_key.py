"""OffsetCommitKey, versions 0 to 0. Generated from OffsetCommitKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_string,
    write_string,
)
from tidelog.types import PartitionIndex

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack


class OffsetCommitKey(Structure):
    """The message."""

    __slots__ = ("group", "topic", "partition")
    __match_args__ = ("group", "topic", "partition")

    def __init__(
        self,
        group: str,
        topic: str,
        partition: PartitionIndex,
    ) -> None:
        # The consumer group id.
        self.group: Final = group
        # The topic name.
        self.topic: Final = topic
        # The topic partition index.
        self.partition: Final = partition


def _read_offset_commit_key_0(data: Data, at: int) -> tuple[OffsetCommitKey, int]:
    group, at = read_string(data, at)
    topic, at = read_string(data, at)
    (partition,) = _r_i(data, at)
    at += 4
    return OffsetCommitKey(group=group, topic=topic, partition=partition), at


def _write_offset_commit_key_0(out: Output, value: OffsetCommitKey) -> None:
    write_string(out, value.group)
    write_string(out, value.topic)
    out += _w_i(value.partition)


OFFSET_COMMIT_KEY: Final = MessageCodec(
    OffsetCommitKey,
    1,
    readers={0: _read_offset_commit_key_0},
    writers={0: _write_offset_commit_key_0},
)
