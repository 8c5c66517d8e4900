"""DescribeClientQuotas and AlterClientQuotas of Kafka's protocol (KIP-546).

Not here: quotas of addresses (`ip`), which Tidelog does not have: none are described, and none can be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from node.api.admin_requests import (
    AlterQuotasOneByOne,
    ChangedParts,
    ClientQuota,
    DescribeClientQuotasAnswer,
    DescribeClientQuotasRequest,
)
from node.api.table import ADMIN_ALTER_QUOTAS_ONE_BY_ONE, ADMIN_DESCRIBE_CLIENT_QUOTAS
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from replication.controller.events import QuotaAlteration, QuotaChange
from tidelog.errors import InvalidRequest, TidelogError, UnsupportedVersion
from tidelog.protocol.kafka.messages import alter_client_quotas_request as to_alter
from tidelog.protocol.kafka.messages import alter_client_quotas_response as altered
from tidelog.protocol.kafka.messages import describe_client_quotas_request as asked
from tidelog.protocol.kafka.messages import describe_client_quotas_response as described
from tidelog.types import QuotaEntity
from tidelog.values import dataclass

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_IP: Final = "ip"

_EXACT, _DEFAULT, _SPECIFIED = range(3)
"""How a component of a filter matches."""


# --- DescribeClientQuotas ---


@dataclass(frozen=True, slots=True)
class _Filter:
    """What a request selects. A name of None: the default."""

    names: Mapping[str, str | None]
    """By type of entity."""
    specified: frozenset[str]
    """Types of which an entity must have a name or the default."""
    strict: bool
    """Whether an entity must have no other types."""

    def selects(self, entity: QuotaEntity) -> bool:
        """Whether the entity has all of it."""
        own = _parts(entity)
        if self.strict and len(own) != len(self.names) + len(self.specified):
            return False
        return own.keys() >= self.specified and all(
            kind in own and own[kind] == name for kind, name in self.names.items()
        )


def _parts(entity: QuotaEntity) -> dict[str, str | None]:
    """The names of an entity by type, in Kafka's form: None for the default."""
    both = {_USER: entity.user, _CLIENT_ID: entity.client_id}
    return {kind: name or None for kind, name in both.items() if name is not None}


def _filter(message: asked.DescribeClientQuotasRequest) -> _Filter:
    """Raises InvalidRequest, UnsupportedVersion."""
    names: dict[str, str | None] = {}
    specified = set[str]()
    for component in message.components:
        kind, match = component.entity_type, component.match
        if kind in names or kind in specified:
            raise InvalidRequest(f"the filter names the type {kind!r} twice: name it once")
        if kind not in (_USER, _CLIENT_ID, _IP):
            raise UnsupportedVersion(
                f"quotas belong to no entity of type {kind[:80]!r}: name the type {_USER} or {_CLIENT_ID}"
            )
        if (match is None) is (component.match_type == _EXACT):
            raise InvalidRequest(
                f"the filter of {kind} has match type {component.match_type} and {'no' if match is None else 'a'} "
                f"name: give a name with an exact match ({_EXACT}), and none with {_DEFAULT} or {_SPECIFIED}"
            )
        if component.match_type == _SPECIFIED:
            specified.add(kind)
        elif component.match_type in (_EXACT, _DEFAULT):
            names[kind] = match
        else:
            raise InvalidRequest(
                f"the filter of {kind} has the unknown match type {component.match_type}: use {_EXACT} (exact), "
                f"{_DEFAULT} (default) or {_SPECIFIED} (any)"
            )
    if _IP in (kinds := names.keys() | specified) and len(kinds) > 1:
        raise InvalidRequest(
            f"a filter names {_IP} together with {_USER} or {_CLIENT_ID}, and no entity has both: ask for each by "
            "itself"
        )
    return _Filter(names, frozenset(specified), message.strict)


def _read_describe(message: asked.DescribeClientQuotasRequest, _version: int) -> DescribeClientQuotasRequest:
    _filter(message)
    return DescribeClientQuotasRequest(None, None)  # of all: `_write_described` selects


def _entry(quota: ClientQuota) -> described.EntryData:
    return described.EntryData(
        tuple(described.EntityData(kind, name) for kind, name in _parts(quota.entity).items()),
        tuple(described.ValueData(each.key, each.value) for each in quota.values),
    )


def _write_described(
    message: asked.DescribeClientQuotasRequest, answer: DescribeClientQuotasAnswer, _version: int
) -> described.DescribeClientQuotasResponse:
    wanted = _filter(message)
    entries = tuple(_entry(each) for each in answer.entries if wanted.selects(each.entity))
    return described.DescribeClientQuotasResponse(0, code_of(None), None, entries)


def _refuse_describe(
    _message: asked.DescribeClientQuotasRequest, error: TidelogError, _version: int
) -> described.DescribeClientQuotasResponse:
    return described.DescribeClientQuotasResponse(0, code_of(error), error.message, None)


DESCRIBE_CLIENT_QUOTAS: Final = KafkaApi(
    range(2),
    asked.DESCRIBE_CLIENT_QUOTAS_REQUEST,
    described.DESCRIBE_CLIENT_QUOTAS_RESPONSE,
    ADMIN_DESCRIBE_CLIENT_QUOTAS,
    _read_describe,
    _write_described,
    _refuse_describe,
)


# --- AlterClientQuotas ---


def _entity(entry: to_alter.EntryData) -> QuotaEntity | InvalidRequest:
    """The entity of an entry, or why there cannot be such an entity."""
    names = {each.entity_type: each.entity_name for each in entry.entity}
    other = next((kind for kind in names if kind not in (_USER, _CLIENT_ID)), None)
    if other is not None:
        what = "addresses (ip)" if other == _IP else f"the type {other[:80]!r}"
        return InvalidRequest(f"{what} cannot have quotas: set those of {_USER} or {_CLIENT_ID}; nothing was changed")
    if len(names) < len(entry.entity):
        return InvalidRequest("an entity names one type twice: name each type once; nothing was changed")
    empty = next((kind for kind, name in names.items() if name == ""), None)
    if empty is not None:
        return InvalidRequest(
            f"the name of the {empty} is empty: give its name, or no name (null) for the default; nothing was changed"
        )
    user, client_id = ((names[kind] or "") if kind in names else None for kind in (_USER, _CLIENT_ID))
    return QuotaEntity(user, client_id)


def _read_alter(message: to_alter.AlterClientQuotasRequest, _version: int) -> AlterQuotasOneByOne:
    entities = ((_entity(entry), entry.ops) for entry in message.entries)
    return AlterQuotasOneByOne(
        tuple(
            QuotaAlteration(entity, tuple(QuotaChange(op.key, None if op.remove else op.value) for op in ops))
            for entity, ops in entities
            if isinstance(entity, QuotaEntity)
        ),
        message.validate_only,
    )


def _outcome(entry: to_alter.EntryData, error: TidelogError | None) -> altered.EntryData:
    own = _entity(entry)
    shown = own if isinstance(own, InvalidRequest) else error
    return altered.EntryData(
        code_of(shown),
        None if shown is None else shown.message,
        tuple(altered.EntityData(each.entity_type, each.entity_name) for each in entry.entity),
    )


def _write_altered(
    message: to_alter.AlterClientQuotasRequest, answer: ChangedParts, _version: int
) -> altered.AlterClientQuotasResponse:
    errors = (part.error for part in answer.parts)
    return altered.AlterClientQuotasResponse(
        0,
        tuple(
            _outcome(entry, next(errors) if isinstance(_entity(entry), QuotaEntity) else None)
            for entry in message.entries
        ),
    )


def _refuse_alter(
    message: to_alter.AlterClientQuotasRequest, error: TidelogError, _version: int
) -> altered.AlterClientQuotasResponse:
    return altered.AlterClientQuotasResponse(0, tuple(_outcome(entry, error) for entry in message.entries))


ALTER_CLIENT_QUOTAS: Final = KafkaApi(
    range(2),
    to_alter.ALTER_CLIENT_QUOTAS_REQUEST,
    altered.ALTER_CLIENT_QUOTAS_RESPONSE,
    ADMIN_ALTER_QUOTAS_ONE_BY_ONE,
    _read_alter,
    _write_altered,
    _refuse_alter,
)
