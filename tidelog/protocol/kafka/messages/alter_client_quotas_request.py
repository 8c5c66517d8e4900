"""AlterClientQuotasRequest, versions 0 to 1. Generated from AlterClientQuotasRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
_r_dt = Struct(">d?").unpack_from


class EntityData(Structure):
    """A structure of AlterClientQuotasRequest."""

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


class OpData(Structure):
    """A structure of AlterClientQuotasRequest."""

    __slots__ = ("key", "value", "remove")
    __match_args__ = ("key", "value", "remove")

    def __init__(
        self,
        key: str,
        value: float,
        remove: bool,
    ) -> None:
        # The quota configuration key.
        self.key: Final = key
        # The value to set, otherwise ignored if the value is to be removed.
        self.value: Final = value
        # Whether the quota configuration value should be removed, otherwise set.
        self.remove: Final = remove


class EntryData(Structure):
    """A structure of AlterClientQuotasRequest."""

    __slots__ = ("entity", "ops")
    __match_args__ = ("entity", "ops")

    def __init__(
        self,
        entity: tuple[EntityData, ...],
        ops: tuple[OpData, ...],
    ) -> None:
        # The quota entity to alter.
        self.entity: Final = entity
        # An individual quota configuration entry to alter.
        self.ops: Final = ops


class AlterClientQuotasRequest(Structure):
    """The message."""

    __slots__ = ("entries", "validate_only")
    __match_args__ = ("entries", "validate_only")

    def __init__(
        self,
        entries: tuple[EntryData, ...],
        validate_only: bool,
    ) -> None:
        # The quota configuration entries to alter.
        self.entries: Final = entries
        # Whether the alteration should be validated, but not performed.
        self.validate_only: Final = validate_only


def _read_entity_data_0(data: Data, at: int) -> tuple[EntityData, int]:
    entity_type, at = read_string(data, at)
    entity_name, at = read_nullable_string(data, at)
    return EntityData(entity_type=entity_type, entity_name=entity_name), at


def _read_op_data_0(data: Data, at: int) -> tuple[OpData, int]:
    key, at = read_string(data, at)
    value, remove = _r_dt(data, at)
    at += 9
    return OpData(key=key, value=value, remove=remove), at


def _read_entry_data_0(data: Data, at: int) -> tuple[EntryData, int]:
    entity, at = read_array(data, at, read_length, _read_entity_data_0)
    ops, at = read_array(data, at, read_length, _read_op_data_0)
    return EntryData(entity=entity, ops=ops), at


def _read_alter_client_quotas_request_0(data: Data, at: int) -> tuple[AlterClientQuotasRequest, int]:
    entries, at = read_array(data, at, read_length, _read_entry_data_0)
    (validate_only,) = _r_t(data, at)
    at += 1
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only), at


def _read_entity_data_1(data: Data, at: int) -> tuple[EntityData, int]:
    entity_type, at = read_compact_string(data, at)
    entity_name, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return EntityData(entity_type=entity_type, entity_name=entity_name), at


def _read_op_data_1(data: Data, at: int) -> tuple[OpData, int]:
    key, at = read_compact_string(data, at)
    value, remove = _r_dt(data, at)
    at += 9
    at = skip_tags(data, at)
    return OpData(key=key, value=value, remove=remove), at


def _read_entry_data_1(data: Data, at: int) -> tuple[EntryData, int]:
    entity, at = read_array(data, at, read_compact_length, _read_entity_data_1)
    ops, at = read_array(data, at, read_compact_length, _read_op_data_1)
    at = skip_tags(data, at)
    return EntryData(entity=entity, ops=ops), at


def _read_alter_client_quotas_request_1(data: Data, at: int) -> tuple[AlterClientQuotasRequest, int]:
    entries, at = read_array(data, at, read_compact_length, _read_entry_data_1)
    (validate_only,) = _r_t(data, at)
    at += 1
    at = skip_tags(data, at)
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only), at


ALTER_CLIENT_QUOTAS_REQUEST: Final = MessageCodec(
    AlterClientQuotasRequest,
    49,
    readers={0: _read_alter_client_quotas_request_0, 1: _read_alter_client_quotas_request_1},
    writers={},
    flexible_from=1,
)
