"""ConsumerGroupMemberMetadataValue, versions 0 to 0. Generated from ConsumerGroupMemberMetadataValue.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    check_tag,
    read_array,
    read_bytes,
    read_compact_length,
    read_compact_string,
    read_nullable_compact_string,
    read_nullable_structure,
    read_tag,
    read_tag_count,
    skip_tags,
    write_array,
    write_bytes,
    write_compact_length,
    write_compact_string,
    write_nullable_structure,
    write_tags,
)

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack


class ClassicProtocol(Structure):
    """A structure of ConsumerGroupMemberMetadataValue."""

    __slots__ = ("name", "metadata")
    __match_args__ = ("name", "metadata")

    def __init__(
        self,
        name: str,
        metadata: bytes,
    ) -> None:
        # The protocol name.
        self.name: Final = name
        # The protocol metadata.
        self.metadata: Final = metadata


class ClassicMemberMetadata(Structure):
    """A structure of ConsumerGroupMemberMetadataValue."""

    __slots__ = ("session_timeout_ms", "supported_protocols")
    __match_args__ = ("session_timeout_ms", "supported_protocols")

    def __init__(
        self,
        session_timeout_ms: int,
        supported_protocols: tuple[ClassicProtocol, ...],
    ) -> None:
        # The session timeout if the consumer uses the classic protocol.
        self.session_timeout_ms: Final = session_timeout_ms
        # The list of protocols that the member supports if the consumer uses the classic protocol.
        self.supported_protocols: Final = supported_protocols


class ConsumerGroupMemberMetadataValue(Structure):
    """The message."""

    __slots__ = (
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "rebalance_timeout_ms",
        "server_assignor",
        "classic_member_metadata",
    )
    __match_args__ = (
        "instance_id",
        "rack_id",
        "client_id",
        "client_host",
        "subscribed_topic_names",
        "subscribed_topic_regex",
        "rebalance_timeout_ms",
        "server_assignor",
        "classic_member_metadata",
    )

    def __init__(
        self,
        instance_id: str | None,
        rack_id: str | None,
        client_id: str,
        client_host: str,
        subscribed_topic_names: tuple[str, ...],
        subscribed_topic_regex: str | None,
        rebalance_timeout_ms: int,
        server_assignor: str | None,
        classic_member_metadata: ClassicMemberMetadata | None = None,
    ) -> None:
        # The (optional) instance id.
        self.instance_id: Final = instance_id
        # The (optional) rack id.
        self.rack_id: Final = rack_id
        # The client id.
        self.client_id: Final = client_id
        # The client host.
        self.client_host: Final = client_host
        # The list of subscribed topic names.
        self.subscribed_topic_names: Final = subscribed_topic_names
        # The subscribed topic regular expression.
        self.subscribed_topic_regex: Final = subscribed_topic_regex
        # The rebalance timeout.
        self.rebalance_timeout_ms: Final = rebalance_timeout_ms
        # The server assignor to use; or null if not used.
        self.server_assignor: Final = server_assignor
        # The classic member metadata which includes the supported protocols of the consumer if it uses the classic
        # protocol. The metadata is null if the consumer uses the consumer protocol.
        self.classic_member_metadata: Final = classic_member_metadata


def _read_classic_protocol_0(data: Data, at: int) -> tuple[ClassicProtocol, int]:
    name, at = read_compact_string(data, at)
    metadata, at = read_bytes(data, at, read_compact_length)
    at = skip_tags(data, at)
    return ClassicProtocol(name=name, metadata=metadata), at


def _read_classic_member_metadata_0(data: Data, at: int) -> tuple[ClassicMemberMetadata, int]:
    (session_timeout_ms,) = _r_i(data, at)
    at += 4
    supported_protocols, at = read_array(data, at, read_compact_length, _read_classic_protocol_0)
    at = skip_tags(data, at)
    return ClassicMemberMetadata(session_timeout_ms=session_timeout_ms, supported_protocols=supported_protocols), at


def _read_consumer_group_member_metadata_value_0(data: Data, at: int) -> tuple[ConsumerGroupMemberMetadataValue, int]:
    instance_id, at = read_nullable_compact_string(data, at)
    rack_id, at = read_nullable_compact_string(data, at)
    client_id, at = read_compact_string(data, at)
    client_host, at = read_compact_string(data, at)
    subscribed_topic_names, at = read_array(data, at, read_compact_length, read_compact_string)
    subscribed_topic_regex, at = read_nullable_compact_string(data, at)
    (rebalance_timeout_ms,) = _r_i(data, at)
    at += 4
    server_assignor, at = read_nullable_compact_string(data, at)
    classic_member_metadata: ClassicMemberMetadata | None = None
    tag_count, at = read_tag_count(data, at)
    for _ in range(tag_count):
        tag, at, end = read_tag(data, at)
        if tag == 0:
            classic_member_metadata, at = read_nullable_structure(data, at, _read_classic_member_metadata_0)
        else:
            at = end
        check_tag(tag, at, end)
    return ConsumerGroupMemberMetadataValue(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=subscribed_topic_names,
        subscribed_topic_regex=subscribed_topic_regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=server_assignor,
        classic_member_metadata=classic_member_metadata,
    ), at


def _write_classic_protocol_0(out: Output, value: ClassicProtocol) -> None:
    write_compact_string(out, value.name)
    write_bytes(out, value.metadata, write_compact_length)
    out.append(0)


def _write_classic_member_metadata_0(out: Output, value: ClassicMemberMetadata) -> None:
    out += _w_i(value.session_timeout_ms)
    write_array(out, value.supported_protocols, write_compact_length, _write_classic_protocol_0)
    out.append(0)


def _write_consumer_group_member_metadata_value_0(out: Output, value: ConsumerGroupMemberMetadataValue) -> None:
    write_compact_string(out, value.instance_id)
    write_compact_string(out, value.rack_id)
    write_compact_string(out, value.client_id)
    write_compact_string(out, value.client_host)
    write_array(out, value.subscribed_topic_names, write_compact_length, write_compact_string)
    write_compact_string(out, value.subscribed_topic_regex)
    out += _w_i(value.rebalance_timeout_ms)
    write_compact_string(out, value.server_assignor)
    tags: list[tuple[int, Output]] = []
    if value.classic_member_metadata is not None:
        tagged = Output()
        write_nullable_structure(tagged, value.classic_member_metadata, _write_classic_member_metadata_0)
        tags.append((0, tagged))
    write_tags(out, tags)


CONSUMER_GROUP_MEMBER_METADATA_VALUE: Final = MessageCodec(
    ConsumerGroupMemberMetadataValue,
    5,
    readers={0: _read_consumer_group_member_metadata_value_0},
    writers={0: _write_consumer_group_member_metadata_value_0},
)
