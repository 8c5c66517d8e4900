"""DeleteTopicsResponse, versions 1 to 6. Generated from DeleteTopicsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    not_null,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_uh = Struct(">16sh").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class DeletableTopicResult(Structure):
    """A structure of DeleteTopicsResponse."""

    __slots__ = ("name", "error_code", "topic_id", "error_message")
    __match_args__ = ("name", "error_code", "topic_id", "error_message")

    def __init__(
        self,
        name: str | None,
        error_code: int,
        topic_id: UUID = NO_UUID,
        error_message: str | None = None,
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The deletion error, or 0 if the deletion succeeded.
        self.error_code: Final = error_code
        # The unique topic ID.
        self.topic_id: Final = topic_id
        # The error message, or null if there was no error.
        self.error_message: Final = error_message


class DeleteTopicsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "responses")
    __match_args__ = ("throttle_time_ms", "responses")

    def __init__(
        self,
        throttle_time_ms: int,
        responses: tuple[DeletableTopicResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The results for each topic we tried to delete.
        self.responses: Final = responses


def _write_deletable_topic_result_1(out: Output, value: DeletableTopicResult) -> None:
    write_string(out, not_null(value.name, "DeletableTopicResult.name"))
    out += _w_h(value.error_code)


def _write_delete_topics_response_1(out: Output, value: DeleteTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_length, _write_deletable_topic_result_1)


def _write_deletable_topic_result_4(out: Output, value: DeletableTopicResult) -> None:
    write_compact_string(out, not_null(value.name, "DeletableTopicResult.name"))
    out += _w_h(value.error_code)
    out.append(0)


def _write_delete_topics_response_4(out: Output, value: DeleteTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_compact_length, _write_deletable_topic_result_4)
    out.append(0)


def _write_deletable_topic_result_5(out: Output, value: DeletableTopicResult) -> None:
    write_compact_string(out, not_null(value.name, "DeletableTopicResult.name"))
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_delete_topics_response_5(out: Output, value: DeleteTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_compact_length, _write_deletable_topic_result_5)
    out.append(0)


def _write_deletable_topic_result_6(out: Output, value: DeletableTopicResult) -> None:
    write_compact_string(out, value.name)
    out += _w_uh(value.topic_id.bytes, value.error_code)
    write_compact_string(out, value.error_message)
    out.append(0)


def _write_delete_topics_response_6(out: Output, value: DeleteTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.responses, write_compact_length, _write_deletable_topic_result_6)
    out.append(0)


DELETE_TOPICS_RESPONSE: Final = MessageCodec(
    DeleteTopicsResponse,
    20,
    readers={},
    writers={
        1: _write_delete_topics_response_1,
        2: _write_delete_topics_response_1,
        3: _write_delete_topics_response_1,
        4: _write_delete_topics_response_4,
        5: _write_delete_topics_response_5,
        6: _write_delete_topics_response_6,
    },
    flexible_from=4,
)
