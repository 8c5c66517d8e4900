"""DescribeClientQuotasRequest, versions 0 to 1. Generated from DescribeClientQuotasRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
)

_r_t = Struct(">?").unpack_from
_r_b = Struct(">b").unpack_from


class ComponentData(Structure):
    """A structure of DescribeClientQuotasRequest."""

    __slots__ = ("entity_type", "match_type", "match")
    __match_args__ = ("entity_type", "match_type", "match")

    def __init__(
        self,
        entity_type: str,
        match_type: int,
        match: str | None,
    ) -> None:
        # The entity type that the filter component applies to.
        self.entity_type: Final = entity_type
        # How to match the entity {0 = exact name, 1 = default name, 2 = any specified name}.
        self.match_type: Final = match_type
        # The string to match against, or null if unused for the match type.
        self.match: Final = match


class DescribeClientQuotasRequest(Structure):
    """The message."""

    __slots__ = ("components", "strict")
    __match_args__ = ("components", "strict")

    def __init__(
        self,
        components: tuple[ComponentData, ...],
        strict: bool,
    ) -> None:
        # Filter components to apply to quota entities.
        self.components: Final = components
        # Whether the match is strict, i.e. should exclude entities with unspecified entity types.
        self.strict: Final = strict


def _read_component_data_0(data: Data, at: int) -> tuple[ComponentData, int]:
    entity_type, at = read_string(data, at)
    (match_type,) = _r_b(data, at)
    at += 1
    match, at = read_nullable_string(data, at)
    return ComponentData(entity_type=entity_type, match_type=match_type, match=match), at


def _read_describe_client_quotas_request_0(data: Data, at: int) -> tuple[DescribeClientQuotasRequest, int]:
    components, at = read_array(data, at, read_length, _read_component_data_0)
    (strict,) = _r_t(data, at)
    at += 1
    return DescribeClientQuotasRequest(components=components, strict=strict), at


def _read_component_data_1(data: Data, at: int) -> tuple[ComponentData, int]:
    entity_type, at = read_compact_string(data, at)
    (match_type,) = _r_b(data, at)
    at += 1
    match, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return ComponentData(entity_type=entity_type, match_type=match_type, match=match), at


def _read_describe_client_quotas_request_1(data: Data, at: int) -> tuple[DescribeClientQuotasRequest, int]:
    components, at = read_array(data, at, read_compact_length, _read_component_data_1)
    (strict,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return DescribeClientQuotasRequest(components=components, strict=strict), at


DESCRIBE_CLIENT_QUOTAS_REQUEST: Final = MessageCodec(
    DescribeClientQuotasRequest,
    48,
    readers={0: _read_describe_client_quotas_request_0, 1: _read_describe_client_quotas_request_1},
    writers={},
    flexible_from=1,
)
