"""DeleteTopicsRequest, versions 1 to 6. Generated from DeleteTopicsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_string,
    skip_tags,
    uuid_of,
)

_r_u = Struct(">16s").unpack_from
_r_i = Struct(">i").unpack_from


class DeleteTopicState(Structure):
    """A structure of DeleteTopicsRequest."""

    __slots__ = ("name", "topic_id")
    __match_args__ = ("name", "topic_id")

    def __init__(
        self,
        name: str | None,
        topic_id: UUID,
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The unique topic ID.
        self.topic_id: Final = topic_id


class DeleteTopicsRequest(Structure):
    """The message."""

    __slots__ = ("timeout_ms", "topics", "topic_names")
    __match_args__ = ("timeout_ms", "topics", "topic_names")

    def __init__(
        self,
        timeout_ms: int,
        topics: tuple[DeleteTopicState, ...] = (),
        topic_names: tuple[str, ...] = (),
    ) -> None:
        # The length of time in milliseconds to wait for the deletions to complete.
        self.timeout_ms: Final = timeout_ms
        # The name or topic ID of the topic.
        self.topics: Final = topics
        # The names of the topics to delete.
        self.topic_names: Final = topic_names


def _read_delete_topics_request_1(data: Data, at: int) -> tuple[DeleteTopicsRequest, int]:
    topic_names, at = read_array(data, at, read_length, read_string)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    return DeleteTopicsRequest(topic_names=topic_names, timeout_ms=timeout_ms), at


def _read_delete_topics_request_4(data: Data, at: int) -> tuple[DeleteTopicsRequest, int]:
    topic_names, at = read_array(data, at, read_compact_length, read_compact_string)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return DeleteTopicsRequest(topic_names=topic_names, timeout_ms=timeout_ms), at


def _read_delete_topic_state_6(data: Data, at: int) -> tuple[DeleteTopicState, int]:
    name, at = read_nullable_compact_string(data, at)
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    at = skip_tags(data, at)
    return DeleteTopicState(name=name, topic_id=topic_id), at


def _read_delete_topics_request_6(data: Data, at: int) -> tuple[DeleteTopicsRequest, int]:
    topics, at = read_array(data, at, read_compact_length, _read_delete_topic_state_6)
    (timeout_ms,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), at


DELETE_TOPICS_REQUEST: Final = MessageCodec(
    DeleteTopicsRequest,
    20,
    readers={
        1: _read_delete_topics_request_1,
        2: _read_delete_topics_request_1,
        3: _read_delete_topics_request_1,
        4: _read_delete_topics_request_4,
        5: _read_delete_topics_request_4,
        6: _read_delete_topics_request_6,
    },
    writers={},
    flexible_from=4,
)
