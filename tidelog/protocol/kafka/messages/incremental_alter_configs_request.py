"""IncrementalAlterConfigsRequest, versions 0 to 1. Generated from IncrementalAlterConfigsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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


class AlterableConfig(Structure):
    """A structure of IncrementalAlterConfigsRequest."""

    __slots__ = ("name", "config_operation", "value")
    __match_args__ = ("name", "config_operation", "value")

    def __init__(
        self,
        name: str,
        config_operation: int,
        value: str | None,
    ) -> None:
        # The configuration key name.
        self.name: Final = name
        # The type (Set, Delete, Append, Subtract) of operation.
        self.config_operation: Final = config_operation
        # The value to set for the configuration key.
        self.value: Final = value


class AlterConfigsResource(Structure):
    """A structure of IncrementalAlterConfigsRequest."""

    __slots__ = ("resource_type", "resource_name", "configs")
    __match_args__ = ("resource_type", "resource_name", "configs")

    def __init__(
        self,
        resource_type: int,
        resource_name: str,
        configs: tuple[AlterableConfig, ...],
    ) -> None:
        # The resource type.
        self.resource_type: Final = resource_type
        # The resource name.
        self.resource_name: Final = resource_name
        # The configurations.
        self.configs: Final = configs


class IncrementalAlterConfigsRequest(Structure):
    """The message."""

    __slots__ = ("resources", "validate_only")
    __match_args__ = ("resources", "validate_only")

    def __init__(
        self,
        resources: tuple[AlterConfigsResource, ...],
        validate_only: bool,
    ) -> None:
        # The incremental updates for each resource.
        self.resources: Final = resources
        # True if we should validate the request, but not change the configurations.
        self.validate_only: Final = validate_only


def _read_alterable_config_0(data: Data, at: int) -> tuple[AlterableConfig, int]:
    name, at = read_string(data, at)
    (config_operation,) = _r_b(data, at)
    at += 1
    value, at = read_nullable_string(data, at)
    return AlterableConfig(name=name, config_operation=config_operation, value=value), at


def _read_alter_configs_resource_0(data: Data, at: int) -> tuple[AlterConfigsResource, int]:
    (resource_type,) = _r_b(data, at)
    at += 1
    resource_name, at = read_string(data, at)
    configs, at = read_array(data, at, read_length, _read_alterable_config_0)
    return AlterConfigsResource(resource_type=resource_type, resource_name=resource_name, configs=configs), at


def _read_incremental_alter_configs_request_0(data: Data, at: int) -> tuple[IncrementalAlterConfigsRequest, int]:
    resources, at = read_array(data, at, read_length, _read_alter_configs_resource_0)
    (validate_only,) = _r_t(data, at)
    at += 1
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only), at


def _read_alterable_config_1(data: Data, at: int) -> tuple[AlterableConfig, int]:
    name, at = read_compact_string(data, at)
    (config_operation,) = _r_b(data, at)
    at += 1
    value, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return AlterableConfig(name=name, config_operation=config_operation, value=value), at


def _read_alter_configs_resource_1(data: Data, at: int) -> tuple[AlterConfigsResource, int]:
    (resource_type,) = _r_b(data, at)
    at += 1
    resource_name, at = read_compact_string(data, at)
    configs, at = read_array(data, at, read_compact_length, _read_alterable_config_1)
    at = skip_tags(data, at)
    return AlterConfigsResource(resource_type=resource_type, resource_name=resource_name, configs=configs), at


def _read_incremental_alter_configs_request_1(data: Data, at: int) -> tuple[IncrementalAlterConfigsRequest, int]:
    resources, at = read_array(data, at, read_compact_length, _read_alter_configs_resource_1)
    (validate_only,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only), at


INCREMENTAL_ALTER_CONFIGS_REQUEST: Final = MessageCodec(
    IncrementalAlterConfigsRequest,
    44,
    readers={0: _read_incremental_alter_configs_request_0, 1: _read_incremental_alter_configs_request_1},
    writers={},
    flexible_from=1,
)
