"""Rules for client quotas: entities, types, limits and their number (KIP-546).

Not here: their effect (node/quotas/).
"""

from __future__ import annotations

import math
from typing import Final

from replication.controller.events import AlterClientQuotas, QuotaAlteration, QuotaChange
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import ClientQuotaRecord
from tidelog.errors import InvalidRequest
from tidelog.types import QuotaEntity, QuotaType, QuotaValue

ENTITIES_MAX: Final = 10_000
"""Entities with quotas in a cluster: a node looks them up by name, and an answer lists all of them."""
ENTRIES_MAX: Final = 1_000
"""Entities of one request: this bounds its atomic batch to less than 1 MiB."""
NAME_BYTES_MAX: Final = 255
"""Bytes of a user or a client id, in UTF-8. Longer client ids are cut by the listener."""
LIMIT_MAX: Final = 2.0**53
"""Up to here every whole number is exact."""

_KEYS: Final = tuple(quota.value for quota in QuotaType)


def of_change(image: ClusterImage, request: AlterClientQuotas) -> tuple[ClientQuotaRecord, ...]:
    """The records of the change; none where it changes nothing. Raises InvalidRequest."""
    if len(request.entries) > ENTRIES_MAX:
        raise InvalidRequest(
            f"the request changes the quotas of {len(request.entries)} entities: at most {ENTRIES_MAX} are allowed, "
            "split it into several requests"
        )
    entities = [entry.entity for entry in request.entries]
    records = [_record_of(image, entry) for entry in request.entries]
    if len(set(entities)) < len(entities):
        raise InvalidRequest("a request changes the quotas of an entity twice: name each entity once")
    left = {entity for record in records if record is not None for entity in [record.entity] if not record.values}
    named = {record.entity for record in records if record is not None and record.values}
    total = len((image.quotas.keys() | named) - left)
    if total > max(ENTITIES_MAX, len(image.quotas)):
        raise InvalidRequest(
            f"quotas of {total} entities: a cluster may have {ENTITIES_MAX}; remove some, or use the default of a user "
            "or client id"
        )
    return tuple(record for record in records if record is not None)


def _record_of(image: ClusterImage, entry: QuotaAlteration) -> ClientQuotaRecord | None:
    """The new quotas of the entity; None: unchanged."""
    _ensure_entity(entry.entity)
    before = image.quotas.get(entry.entity, ())
    limits = {value.key: value.value for value in before}
    if len({change.key for change in entry.changes}) < len(entry.changes):
        raise InvalidRequest(f"a quota of {entry.entity} is changed twice in one request: name it only once")
    for change in entry.changes:
        _ensure_change(entry.entity, change)
        if change.value is None:
            limits.pop(change.key, None)
        else:
            limits[change.key] = change.value
    after = tuple(QuotaValue(key, limits[key]) for key in sorted(limits))
    return None if after == before else ClientQuotaRecord(entry.entity, after)


def _ensure_entity(entity: QuotaEntity) -> None:
    if entity.user is None and entity.client_id is None:
        raise InvalidRequest("a quota needs a user or a client id, or the default of one of them: name it")
    for what, name in (("user", entity.user), ("client id", entity.client_id)):
        if name is not None and (size := len(name.encode())) > NAME_BYTES_MAX:
            raise InvalidRequest(
                f"the {what} {name[:40]!r}... of a quota has {size} bytes: at most {NAME_BYTES_MAX} are allowed"
            )


def _ensure_change(entity: QuotaEntity, change: QuotaChange) -> None:
    if change.key not in _KEYS:
        raise InvalidRequest(f"unknown quota {change.key[:80]!r} of {entity}; valid quotas: {', '.join(_KEYS)}")
    if change.value is not None and not (math.isfinite(change.value) and 0 < change.value <= LIMIT_MAX):
        raise InvalidRequest(
            f"{change.key} of {entity} cannot be {change.value}: use a number above 0 and at most 2^53, or remove the "
            "quota"
        )
