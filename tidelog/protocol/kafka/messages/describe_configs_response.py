"""DescribeConfigsResponse, versions 1 to 4. Generated from DescribeConfigsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_tbt = Struct(">?b?").pack
_w_b = Struct(">b").pack
_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class DescribeConfigsSynonym(Structure):
    """A structure of DescribeConfigsResponse."""

    __slots__ = ("name", "value", "source")
    __match_args__ = ("name", "value", "source")

    def __init__(
        self,
        name: str,
        value: str | None,
        source: int,
    ) -> None:
        # The synonym name.
        self.name: Final = name
        # The synonym value.
        self.value: Final = value
        # The synonym source.
        self.source: Final = source


class DescribeConfigsResourceResult(Structure):
    """A structure of DescribeConfigsResponse."""

    __slots__ = (
        "name",
        "value",
        "read_only",
        "config_source",
        "is_sensitive",
        "synonyms",
        "config_type",
        "documentation",
    )
    __match_args__ = (
        "name",
        "value",
        "read_only",
        "config_source",
        "is_sensitive",
        "synonyms",
        "config_type",
        "documentation",
    )

    def __init__(
        self,
        name: str,
        value: str | None,
        read_only: bool,
        config_source: int,
        is_sensitive: bool,
        synonyms: tuple[DescribeConfigsSynonym, ...],
        config_type: int = 0,
        documentation: str | None = "",
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
        # The synonyms for this configuration key.
        self.synonyms: Final = synonyms
        # The configuration data type. Type can be one of the following values - BOOLEAN, STRING, INT, SHORT, LONG,
        # DOUBLE, LIST, CLASS, PASSWORD.
        self.config_type: Final = config_type
        # The configuration documentation.
        self.documentation: Final = documentation


class DescribeConfigsResult(Structure):
    """A structure of DescribeConfigsResponse."""

    __slots__ = ("error_code", "error_message", "resource_type", "resource_name", "configs")
    __match_args__ = ("error_code", "error_message", "resource_type", "resource_name", "configs")

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        resource_type: int,
        resource_name: str,
        configs: tuple[DescribeConfigsResourceResult, ...],
    ) -> None:
        # The error code, or 0 if we were able to successfully describe the configurations.
        self.error_code: Final = error_code
        # The error message, or null if we were able to successfully describe the configurations.
        self.error_message: Final = error_message
        # The resource type.
        self.resource_type: Final = resource_type
        # The resource name.
        self.resource_name: Final = resource_name
        # Each listed configuration.
        self.configs: Final = configs


class DescribeConfigsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "results")
    __match_args__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int,
        results: tuple[DescribeConfigsResult, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The results for each resource.
        self.results: Final = results


def _write_describe_configs_synonym_1(out: Output, value: DescribeConfigsSynonym) -> None:
    write_string(out, value.name)
    write_string(out, value.value)
    out += _w_b(value.source)


def _write_describe_configs_resource_result_1(out: Output, value: DescribeConfigsResourceResult) -> None:
    write_string(out, value.name)
    write_string(out, value.value)
    out += _w_tbt(value.read_only, value.config_source, value.is_sensitive)
    write_array(out, value.synonyms, write_length, _write_describe_configs_synonym_1)


def _write_describe_configs_result_1(out: Output, value: DescribeConfigsResult) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_string(out, value.resource_name)
    write_array(out, value.configs, write_length, _write_describe_configs_resource_result_1)


def _write_describe_configs_response_1(out: Output, value: DescribeConfigsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_describe_configs_result_1)


def _write_describe_configs_resource_result_3(out: Output, value: DescribeConfigsResourceResult) -> None:
    write_string(out, value.name)
    write_string(out, value.value)
    out += _w_tbt(value.read_only, value.config_source, value.is_sensitive)
    write_array(out, value.synonyms, write_length, _write_describe_configs_synonym_1)
    out += _w_b(value.config_type)
    write_string(out, value.documentation)


def _write_describe_configs_result_3(out: Output, value: DescribeConfigsResult) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_string(out, value.resource_name)
    write_array(out, value.configs, write_length, _write_describe_configs_resource_result_3)


def _write_describe_configs_response_3(out: Output, value: DescribeConfigsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_length, _write_describe_configs_result_3)


def _write_describe_configs_synonym_4(out: Output, value: DescribeConfigsSynonym) -> None:
    write_compact_string(out, value.name)
    write_compact_string(out, value.value)
    out += _w_b(value.source)
    out.append(0)


def _write_describe_configs_resource_result_4(out: Output, value: DescribeConfigsResourceResult) -> None:
    write_compact_string(out, value.name)
    write_compact_string(out, value.value)
    out += _w_tbt(value.read_only, value.config_source, value.is_sensitive)
    write_array(out, value.synonyms, write_compact_length, _write_describe_configs_synonym_4)
    out += _w_b(value.config_type)
    write_compact_string(out, value.documentation)
    out.append(0)


def _write_describe_configs_result_4(out: Output, value: DescribeConfigsResult) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    out += _w_b(value.resource_type)
    write_compact_string(out, value.resource_name)
    write_array(out, value.configs, write_compact_length, _write_describe_configs_resource_result_4)
    out.append(0)


def _write_describe_configs_response_4(out: Output, value: DescribeConfigsResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.results, write_compact_length, _write_describe_configs_result_4)
    out.append(0)


DESCRIBE_CONFIGS_RESPONSE: Final = MessageCodec(
    DescribeConfigsResponse,
    32,
    readers={},
    writers={
        1: _write_describe_configs_response_1,
        2: _write_describe_configs_response_1,
        3: _write_describe_configs_response_3,
        4: _write_describe_configs_response_4,
    },
    flexible_from=4,
)
