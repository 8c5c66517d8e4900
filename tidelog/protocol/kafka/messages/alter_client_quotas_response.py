"""AlterClientQuotasResponse, versions 0 to 1. Generated from AlterClientQuotasResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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

_w_h = Struct(">h").pack
_w_i = Struct(">i").pack


class EntityData(Structure):
    """A structure of AlterClientQuotasResponse."""

    __slots__ = ("entity_type", "entity_name")
    __match_args__ = ("entity_type", "entity_name")

    def __init__(
        self,
        entity_type: str,
        entity_name: str | None,
    ) -> None:
        # The entity type.
        self.entity_type: Final = entity_type
        # The name of the entity, or null if the default.
        self.entity_name: Final = entity_name


class EntryData(Structure):
    """A structure of AlterClientQuotasResponse."""

    __slots__ = ("error_code", "error_message", "entity")
    __match_args__ = ("error_code", "error_message", "entity")

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        entity: tuple[EntityData, ...],
    ) -> None:
        # The error code, or `0` if the quota alteration succeeded.
        self.error_code: Final = error_code
        # The error message, or `null` if the quota alteration succeeded.
        self.error_message: Final = error_message
        # The quota entity to alter.
        self.entity: Final = entity


class AlterClientQuotasResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "entries")
    __match_args__ = ("throttle_time_ms", "entries")

    def __init__(
        self,
        throttle_time_ms: int,
        entries: tuple[EntryData, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The quota configuration entries to alter.
        self.entries: Final = entries


def _write_entity_data_0(out: Output, value: EntityData) -> None:
    write_string(out, value.entity_type)
    write_string(out, value.entity_name)


def _write_entry_data_0(out: Output, value: EntryData) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    write_array(out, value.entity, write_length, _write_entity_data_0)


def _write_alter_client_quotas_response_0(out: Output, value: AlterClientQuotasResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.entries, write_length, _write_entry_data_0)


def _write_entity_data_1(out: Output, value: EntityData) -> None:
    write_compact_string(out, value.entity_type)
    write_compact_string(out, value.entity_name)
    out.append(0)


def _write_entry_data_1(out: Output, value: EntryData) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_array(out, value.entity, write_compact_length, _write_entity_data_1)
    out.append(0)


def _write_alter_client_quotas_response_1(out: Output, value: AlterClientQuotasResponse) -> None:
    out += _w_i(value.throttle_time_ms)
    write_array(out, value.entries, write_compact_length, _write_entry_data_1)
    out.append(0)


ALTER_CLIENT_QUOTAS_RESPONSE: Final = MessageCodec(
    AlterClientQuotasResponse,
    49,
    readers={},
    writers={0: _write_alter_client_quotas_response_0, 1: _write_alter_client_quotas_response_1},
    flexible_from=1,
)
