"""CreatePartitionsResponse, versions 0 to 3. Generated from CreatePartitionsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class CreatePartitionsTopicResult(Structure):
    """A structure of CreatePartitionsResponse."""

    __slots__ = ("name", "error_code", "error_message")
    __match_args__ = ("name", "error_code", "error_message")

    def __init__(
        self,
        name: str,
        error_code: int,
        error_message: str | None,
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The result error, or zero if there was no error.
        self.error_code: Final = error_code
        # The result message, or null if there was no error.
        self.error_message: Final = error_message


class CreatePartitionsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results")
    __match_args__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[CreatePartitionsTopicResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The partition creation results for each topic.
        self.results: Final = results


def _write_create_partitions_topic_result_0(out: Output, value: CreatePartitionsTopicResult) -> None:
    write_string(out, value.name)
    out += _w_h(value.error_code)
    write_string(out, value.error_message)


def _write_create_partitions_response_0(out: Output, value: CreatePartitionsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_create_partitions_topic_result_0)


def _write_create_partitions_topic_result_2(out: Output, value: CreatePartitionsTopicResult) -> None:
    write_compact_string(out, value.name)
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_create_partitions_response_2(out: Output, value: CreatePartitionsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_create_partitions_topic_result_2)
    out.append(0)


CREATE_PARTITIONS_RESPONSE: Final = MessageCodec(
    CreatePartitionsResponse,
    37,
    readers={},
    writers={
        0: _write_create_partitions_response_0,
        1: _write_create_partitions_response_0,
        2: _write_create_partitions_response_2,
        3: _write_create_partitions_response_2,
    },
    flexible_from=2,
)
