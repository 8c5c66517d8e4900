"""DescribeConfigsRequest, versions 1 to 4. Generated from DescribeConfigsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_nullable_array,
    read_string,
    skip_tags,
)

_r_t = Struct(">?").unpack_from
_r_tt = Struct(">??").unpack_from
_r_b = Struct(">b").unpack_from


class DescribeConfigsResource(Structure):
    """A structure of DescribeConfigsRequest."""

    __slots__ = ("resource_type", "resource_name", "configuration_keys")
    __match_args__ = ("resource_type", "resource_name", "configuration_keys")

    def __init__(
        self,
        resource_type: int,
        resource_name: str,
        configuration_keys: tuple[str, ...] | None,
    ) -> None:
        # The resource type.
        self.resource_type: Final = resource_type
        # The resource name.
        self.resource_name: Final = resource_name
        # The configuration keys to list, or null to list all configuration keys.
        self.configuration_keys: Final = configuration_keys


class DescribeConfigsRequest(Structure):
    """The message."""

    __slots__ = ("resources", "include_synonyms", "include_documentation")
    __match_args__ = ("resources", "include_synonyms", "include_documentation")

    def __init__(
        self,
        resources: tuple[DescribeConfigsResource, ...],
        include_synonyms: bool,
        include_documentation: bool = False,
    ) -> None:
        # The resources whose configurations we want to describe.
        self.resources: Final = resources
        # True if we should include all synonyms.
        self.include_synonyms: Final = include_synonyms
        # True if we should include configuration documentation.
        self.include_documentation: Final = include_documentation


def _read_describe_configs_resource_1(data: Data, at: int) -> tuple[DescribeConfigsResource, int]:
    (resource_type,) = _r_b(data, at)
    at += 1
    resource_name, at = read_string(data, at)
    configuration_keys, at = read_nullable_array(data, at, read_length, read_string)
    return DescribeConfigsResource(
        resource_type=resource_type, resource_name=resource_name, configuration_keys=configuration_keys
    ), at


def _read_describe_configs_request_1(data: Data, at: int) -> tuple[DescribeConfigsRequest, int]:
    resources, at = read_array(data, at, read_length, _read_describe_configs_resource_1)
    (include_synonyms,) = _r_t(data, at)
    at += 1
    return DescribeConfigsRequest(resources=resources, include_synonyms=include_synonyms), at


def _read_describe_configs_request_3(data: Data, at: int) -> tuple[DescribeConfigsRequest, int]:
    resources, at = read_array(data, at, read_length, _read_describe_configs_resource_1)
    include_synonyms, include_documentation = _r_tt(data, at)
    at += 2
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=include_synonyms, include_documentation=include_documentation
    ), at


def _read_describe_configs_resource_4(data: Data, at: int) -> tuple[DescribeConfigsResource, int]:
    (resource_type,) = _r_b(data, at)
    at += 1
    resource_name, at = read_compact_string(data, at)
    configuration_keys, at = read_nullable_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return DescribeConfigsResource(
        resource_type=resource_type, resource_name=resource_name, configuration_keys=configuration_keys
    ), at


def _read_describe_configs_request_4(data: Data, at: int) -> tuple[DescribeConfigsRequest, int]:
    resources, at = read_array(data, at, read_compact_length, _read_describe_configs_resource_4)
    include_synonyms, include_documentation = _r_tt(data, at)
    at += 2
    at = skip_tags(data, at)
    return DescribeConfigsRequest(
        resources=resources, include_synonyms=include_synonyms, include_documentation=include_documentation
    ), at


DESCRIBE_CONFIGS_REQUEST: Final = MessageCodec(
    DescribeConfigsRequest,
    32,
    readers={
        1: _read_describe_configs_request_1,
        2: _read_describe_configs_request_1,
        3: _read_describe_configs_request_3,
        4: _read_describe_configs_request_4,
    },
    writers={},
    flexible_from=4,
)
