"""CreateTopicsResponse, versions 2 to 7. Generated from CreateTopicsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    NO_UUID,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
    write_tags,
)

_w_uh = Struct(">16sh").pack
_w_tbt = Struct(">?b?").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack
_w_ih = Struct(">ih").pack


class CreatableTopicConfigs(Structure):
    """A structure of CreateTopicsResponse."""

    __slots__ = ("name", "value", "read_only", "config_source", "is_sensitive")
    __match_args__ = ("name", "value", "read_only", "config_source", "is_sensitive")

    def __init__(
        self,
        name: str,
        value: str | None,
        read_only: bool,
        config_source: int,
        is_sensitive: bool,
    ) -> None:
        # The configuration name.
        self.name: Final = name
        # The configuration value.
        self.value: Final = value
        # True if the configuration is read-only.
        self.read_only: Final = read_only
        # The configuration source.
        self.config_source: Final = config_source
        # True if this configuration is sensitive.
        self.is_sensitive: Final = is_sensitive


class CreatableTopicResult(Structure):
    """A structure of CreateTopicsResponse."""

    __slots__ = (
        "name",
        "error_code",
        "error_message",
        "topic_id",
        "topic_config_error_code",
        "num_partitions",
        "replication_factor",
        "configs",
    )
    __match_args__ = (
        "name",
        "error_code",
        "error_message",
        "topic_id",
        "topic_config_error_code",
        "num_partitions",
        "replication_factor",
        "configs",
    )

    def __init__(
        self,
        name: str,
        error_code: int,
        error_message: str | None,
        topic_id: UUID = NO_UUID,
        topic_config_error_code: int = 0,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: tuple[CreatableTopicConfigs, ...] | None = (),
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The error message, or null if there was no error.
        self.error_message: Final = error_message
        # The unique topic ID.
        self.topic_id: Final = topic_id
        # Optional topic config error returned if configs are not returned in the response.
        self.topic_config_error_code: Final = topic_config_error_code
        # Number of partitions of the topic.
        self.num_partitions: Final = num_partitions
        # Replication factor of the topic.
        self.replication_factor: Final = replication_factor
        # Configuration of the topic.
        self.configs: Final = configs


class CreateTopicsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "topics")
    __match_args__ = ("throttle_time_ms", "topics")

    def __init__(
        self,
        throttle_time_ms: int,
        topics: tuple[CreatableTopicResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # Results for each topic we tried to create.
        self.topics: Final = topics


def _write_creatable_topic_result_2(out: Output, value: CreatableTopicResult) -> None:
    write_string(out, value.name)
    out += _w_h(value.error_code)
    write_string(out, value.error_message)


def _write_create_topics_response_2(out: Output, value: CreateTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_length, _write_creatable_topic_result_2)


def _write_creatable_topic_configs_5(out: Output, value: CreatableTopicConfigs) -> None:
    write_compact_string(out, value.name)
    write_compact_string(out, value.value)
    out += _w_tbt(value.read_only, value.config_source, value.is_sensitive)
    out.append(0)


def _write_creatable_topic_result_5(out: Output, value: CreatableTopicResult) -> None:
    write_compact_string(out, value.name)
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_ih(value.num_partitions, value.replication_factor)
    write_array(out, value.configs, write_compact_length, _write_creatable_topic_configs_5)
    tags: list[tuple[int, Output]] = []
    if value.topic_config_error_code != 0:
        tagged = Output()
        tagged += _w_h(value.topic_config_error_code)
        tags.append((0, tagged))
    write_tags(out, tags)


def _write_create_topics_response_5(out: Output, value: CreateTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_creatable_topic_result_5)
    out.append(0)


def _write_creatable_topic_result_7(out: Output, value: CreatableTopicResult) -> None:
    write_compact_string(out, value.name)
    out += _w_uh(value.topic_id.bytes, value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_ih(value.num_partitions, value.replication_factor)
    write_array(out, value.configs, write_compact_length, _write_creatable_topic_configs_5)
    tags: list[tuple[int, Output]] = []
    if value.topic_config_error_code != 0:
        tagged = Output()
        tagged += _w_h(value.topic_config_error_code)
        tags.append((0, tagged))
    write_tags(out, tags)


def _write_create_topics_response_7(out: Output, value: CreateTopicsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.topics, write_compact_length, _write_creatable_topic_result_7)
    out.append(0)


CREATE_TOPICS_RESPONSE: Final = MessageCodec(
    CreateTopicsResponse,
    19,
    readers={},
    writers={
        2: _write_create_topics_response_2,
        3: _write_create_topics_response_2,
        4: _write_create_topics_response_2,
        5: _write_create_topics_response_5,
        6: _write_create_topics_response_5,
        7: _write_create_topics_response_7,
    },
    flexible_from=5,
)
