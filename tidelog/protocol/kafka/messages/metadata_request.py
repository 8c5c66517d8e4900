"""MetadataRequest, versions 0 to 13. Generated from MetadataRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final
from uuid import UUID

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    NO_UUID,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_array,
    read_nullable_compact_string,
    read_string,
    skip_tags,
    uuid_of,
)

_r_u = Struct(">16s").unpack_from
_r_t = Struct(">?").unpack_from
_r_tt = Struct(">??").unpack_from
_r_ttt = Struct(">???").unpack_from


class MetadataRequestTopic(Structure):
    """A structure of MetadataRequest."""

    __slots__ = ("name", "topic_id")
    __match_args__ = ("name", "topic_id")

    def __init__(
        self,
        name: str | None,
        topic_id: UUID = NO_UUID,
    ) -> None:
        # The topic name.
        self.name: Final = name
        # The topic id.
        self.topic_id: Final = topic_id


class MetadataRequest(Structure):
    """The message."""

    __slots__ = (
        "topics",
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )
    __match_args__ = (
        "topics",
        "allow_auto_topic_creation",
        "include_cluster_authorized_operations",
        "include_topic_authorized_operations",
    )

    def __init__(
        self,
        topics: tuple[MetadataRequestTopic, ...] | None,
        allow_auto_topic_creation: bool = True,
        include_cluster_authorized_operations: bool = False,
        include_topic_authorized_operations: bool = False,
    ) -> None:
        # The topics to fetch metadata for.
        self.topics: Final = topics
        # If this is true, the broker may auto-create topics that we requested which do not already exist, if it is
        # configured to do so.
        self.allow_auto_topic_creation: Final = allow_auto_topic_creation
        # Whether to include cluster authorized operations.
        self.include_cluster_authorized_operations: Final = include_cluster_authorized_operations
        # Whether to include topic authorized operations.
        self.include_topic_authorized_operations: Final = include_topic_authorized_operations


def _read_metadata_request_topic_0(data: Data, at: int) -> tuple[MetadataRequestTopic, int]:
    name, at = read_string(data, at)
    return MetadataRequestTopic(name=name), at


def _read_metadata_request_0(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_array(data, at, read_length, _read_metadata_request_topic_0)
    return MetadataRequest(topics=topics), at


def _read_metadata_request_1(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_nullable_array(data, at, read_length, _read_metadata_request_topic_0)
    return MetadataRequest(topics=topics), at


def _read_metadata_request_4(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_nullable_array(data, at, read_length, _read_metadata_request_topic_0)
    (allow_auto_topic_creation,) = _r_t(data, at)
    at += 1
    return MetadataRequest(topics=topics, allow_auto_topic_creation=allow_auto_topic_creation), at


def _read_metadata_request_8(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_nullable_array(data, at, read_length, _read_metadata_request_topic_0)
    allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations = _r_ttt(
        data, at
    )
    at += 3
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_cluster_authorized_operations=include_cluster_authorized_operations,
        include_topic_authorized_operations=include_topic_authorized_operations,
    ), at


def _read_metadata_request_topic_9(data: Data, at: int) -> tuple[MetadataRequestTopic, int]:
    name, at = read_compact_string(data, at)
    at = skip_tags(data, at)
    return MetadataRequestTopic(name=name), at


def _read_metadata_request_9(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_nullable_array(data, at, read_compact_length, _read_metadata_request_topic_9)
    allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations = _r_ttt(
        data, at
    )
    at += 3
    at = skip_tags(data, at)
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_cluster_authorized_operations=include_cluster_authorized_operations,
        include_topic_authorized_operations=include_topic_authorized_operations,
    ), at


def _read_metadata_request_topic_10(data: Data, at: int) -> tuple[MetadataRequestTopic, int]:
    (topic_id,) = _r_u(data, at)
    at += 16
    topic_id = uuid_of(topic_id)
    name, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return MetadataRequestTopic(topic_id=topic_id, name=name), at


def _read_metadata_request_10(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_nullable_array(data, at, read_compact_length, _read_metadata_request_topic_10)
    allow_auto_topic_creation, include_cluster_authorized_operations, include_topic_authorized_operations = _r_ttt(
        data, at
    )
    at += 3
    at = skip_tags(data, at)
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_cluster_authorized_operations=include_cluster_authorized_operations,
        include_topic_authorized_operations=include_topic_authorized_operations,
    ), at


def _read_metadata_request_11(data: Data, at: int) -> tuple[MetadataRequest, int]:
    topics, at = read_nullable_array(data, at, read_compact_length, _read_metadata_request_topic_10)
    allow_auto_topic_creation, include_topic_authorized_operations = _r_tt(data, at)
    at += 2
    at = skip_tags(data, at)
    return MetadataRequest(
        topics=topics,
        allow_auto_topic_creation=allow_auto_topic_creation,
        include_topic_authorized_operations=include_topic_authorized_operations,
    ), at


METADATA_REQUEST: Final = MessageCodec(
    MetadataRequest,
    3,
    readers={
        0: _read_metadata_request_0,
        1: _read_metadata_request_1,
        2: _read_metadata_request_1,
        3: _read_metadata_request_1,
        4: _read_metadata_request_4,
        5: _read_metadata_request_4,
        6: _read_metadata_request_4,
        7: _read_metadata_request_4,
        8: _read_metadata_request_8,
        9: _read_metadata_request_9,
        10: _read_metadata_request_10,
        11: _read_metadata_request_11,
        12: _read_metadata_request_11,
        13: _read_metadata_request_11,
    },
    writers={},
    flexible_from=9,
)
