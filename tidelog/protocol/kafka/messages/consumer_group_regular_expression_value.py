"""ConsumerGroupRegularExpressionValue, versions 0 to 0. Generated from ConsumerGroupRegularExpressionValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    skip_tags,
    write_array,
    write_compact_length,
    write_compact_string,
)
from tidelog.types import Millis

_r_qq = Struct(">qq").unpack_from
_w_qq = Struct(">qq").pack


class ConsumerGroupRegularExpressionValue(Structure):
    """The message."""

    __slots__ = ("topics", "version", "timestamp")
    __match_args__ = ("topics", "version", "timestamp")

    def __init__(
        self,
        topics: tuple[str, ...],
        version: int,
        timestamp: Millis,
    ) -> None:
        self.topics: Final = topics
        self.version: Final = version
        self.timestamp: Final = timestamp


def _read_consumer_group_regular_expression_value_0(
    data: Data, at: int
) -> tuple[ConsumerGroupRegularExpressionValue, int]:
    topics, at = read_array(data, at, read_compact_length, read_compact_string)
    version, timestamp = _r_qq(data, at)
    at += 16
    at = skip_tags(data, at)
    return ConsumerGroupRegularExpressionValue(topics=topics, version=version, timestamp=timestamp), at


def _write_consumer_group_regular_expression_value_0(out: Output, value: ConsumerGroupRegularExpressionValue) -> None:
    write_array(out, value.topics, write_compact_length, write_compact_string)
    out += _w_qq(value.version, value.timestamp)
    out.append(0)


CONSUMER_GROUP_REGULAR_EXPRESSION_VALUE: Final = MessageCodec(
    ConsumerGroupRegularExpressionValue,
    16,
    readers={0: _read_consumer_group_regular_expression_value_0},
    writers={0: _write_consumer_group_regular_expression_value_0},
)
