"""ConsumerGroupRegularExpressionKey, versions 0 to 0. Generated from ConsumerGroupRegularExpressionKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_string,
    write_string,
)


class ConsumerGroupRegularExpressionKey(Structure):
    """The message."""

    __slots__ = ("group_id", "regular_expression")
    __match_args__ = ("group_id", "regular_expression")

    def __init__(
        self,
        group_id: str,
        regular_expression: str,
    ) -> None:
        # The group id.
        self.group_id: Final = group_id
        # The regular expression.
        self.regular_expression: Final = regular_expression


def _read_consumer_group_regular_expression_key_0(data: Data, at: int) -> tuple[ConsumerGroupRegularExpressionKey, int]:
    group_id, at = read_string(data, at)
    regular_expression, at = read_string(data, at)
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regular_expression), at


def _write_consumer_group_regular_expression_key_0(out: Output, value: ConsumerGroupRegularExpressionKey) -> None:
    write_string(out, value.group_id)
    write_string(out, value.regular_expression)


CONSUMER_GROUP_REGULAR_EXPRESSION_KEY: Final = MessageCodec(
    ConsumerGroupRegularExpressionKey,
    16,
    readers={0: _read_consumer_group_regular_expression_key_0},
    writers={0: _write_consumer_group_regular_expression_key_0},
)
