"""DescribeClientQuotasResponse, versions 0 to 1. Generated from DescribeClientQuotasResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_d = Struct(">d").pack
_w_ih = Struct(">ih").pack


class EntityData(Structure):
    """A structure of DescribeClientQuotasResponse."""

    __slots__ = ("entity_type", "entity_name")
    __match_args__ = ("entity_type", "entity_name")

    def __init__(
        self,
        entity_type: str,
        entity_name: str | None,
    ) -> None:
        # The entity type.
        self.entity_type: Final = entity_type
        # The entity name, or null if the default.
        self.entity_name: Final = entity_name


class ValueData(Structure):
    """A structure of DescribeClientQuotasResponse."""

    __slots__ = ("key", "value")
    __match_args__ = ("key", "value")

    def __init__(
        self,
        key: str,
        value: float,
    ) -> None:
        # The quota configuration key.
        self.key: Final = key
        # The quota configuration value.
        self.value: Final = value


class EntryData(Structure):
    """A structure of DescribeClientQuotasResponse."""

    __slots__ = ("entity", "values")
    __match_args__ = ("entity", "values")

    def __init__(
        self,
        entity: tuple[EntityData, ...],
        values: tuple[ValueData, ...],
    ) -> None:
        # The quota entity description.
        self.entity: Final = entity
        # The quota values for the entity.
        self.values: Final = values


class DescribeClientQuotasResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "error_message", "entries")
    __match_args__ = ("throttle_time_ms", "error_code", "error_message", "entries")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        error_message: str | None,
        entries: tuple[EntryData, ...] | None,
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or `0` if the quota description succeeded.
        self.error_code: Final = error_code
        # The error message, or `null` if the quota description succeeded.
        self.error_message: Final = error_message
        # A result entry.
        self.entries: Final = entries


def _write_entity_data_0(out: Output, value: EntityData) -> None:
    write_string(out, value.entity_type)
    write_string(out, value.entity_name)


def _write_value_data_0(out: Output, value: ValueData) -> None:
    write_string(out, value.key)
    out += _w_d(value.value)


def _write_entry_data_0(out: Output, value: EntryData) -> None:
    write_array(out, value.entity, write_length, _write_entity_data_0)
    write_array(out, value.values, write_length, _write_value_data_0)


def _write_describe_client_quotas_response_0(out: Output, value: DescribeClientQuotasResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_string(out, value.error_message)
    write_array(out, value.entries, write_length, _write_entry_data_0)


def _write_entity_data_1(out: Output, value: EntityData) -> None:
    write_compact_string(out, value.entity_type)
    write_compact_string(out, value.entity_name)
    out.append(0)


def _write_value_data_1(out: Output, value: ValueData) -> None:
    write_compact_string(out, value.key)
    out += _w_d(value.value)
    out.append(0)


def _write_entry_data_1(out: Output, value: EntryData) -> None:
    write_array(out, value.entity, write_compact_length, _write_entity_data_1)
    write_array(out, value.values, write_compact_length, _write_value_data_1)
    out.append(0)


def _write_describe_client_quotas_response_1(out: Output, value: DescribeClientQuotasResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.entries, write_compact_length, _write_entry_data_1)
    out.append(0)


DESCRIBE_CLIENT_QUOTAS_RESPONSE: Final = MessageCodec(
    DescribeClientQuotasResponse,
    48,
    readers={},
    writers={0: _write_describe_client_quotas_response_0, 1: _write_describe_client_quotas_response_1},
    flexible_from=1,
)
