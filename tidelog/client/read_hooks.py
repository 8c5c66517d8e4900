"""What a consumer does with records before it returns them: deserializers, then interceptors.

Invariants: a record that cannot be deserialized is not returned, and the position does not move over it; the records of
its partition before it are returned first. An interceptor that raises is logged, and the records are returned as they
were (KIP-42).
Not here: the functions themselves (serialization.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Literal

from tidelog.client.consumer_record import ConsumerRecord
from tidelog.client.serialization import Convert, DeserializationFailed, converted
from tidelog.errors import InvalidConfig

_log = logging.getLogger("tidelog.client")


class ConsumerInterceptor:
    """Sees the records of a consumer before the program does (KIP-42). Derive from it and override what is needed. The
    methods run where the consumer's do, and must return at once."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records for the program. Those that are left out count as returned."""
        return records


class ReadHooks:
    """The deserializers and interceptors of a consumer."""

    def __init__(
        self, interceptors: tuple[ConsumerInterceptor, ...], key: Convert | None, value: Convert | None
    ) -> None:
        self._interceptors, self._key, self._value = interceptors, key, value

    def deserialize(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records before the first one that cannot be deserialized. Raises DeserializationFailed if that is
        the first of all."""
        if self._key is None and self._value is None:
            return records
        found: list[ConsumerRecord] = []
        for record in records:
            try:
                found.append(self._deserialized(record))
            except DeserializationFailed:
                if not found:
                    raise
                break
        return found

    def intercept(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return what the interceptors make of records."""
        for each in self._interceptors:
            if not records:
                break
            try:
                records = list(each.on_consume(records))
            except Exception as error:  # noqa: BLE001 - whatever the program's function raises
                _log.error("on_consume of %r failed; the records are returned as they were", each, exc_info=error)
        return records

    def _deserialized(self, record: ConsumerRecord) -> ConsumerRecord:
        return record._replace(
            key=_object(self._key, record.key, "key", record),
            value=_object(self._value, record.value, "value", record),
        )


def read_hooks_of(interceptors: object, key: Convert | None, value: Convert | None) -> ReadHooks | None:
    """Return the hooks; None if there is nothing to do. Raises InvalidConfig."""
    if isinstance(interceptors, ConsumerInterceptor) or not isinstance(interceptors, Iterable):
        raise InvalidConfig(f"interceptors={interceptors!r}: use a list of objects of classes of ConsumerInterceptor")
    given = tuple(interceptors)
    for each in given:
        if not isinstance(each, ConsumerInterceptor):
            raise InvalidConfig(f"interceptors: {each!r} is no ConsumerInterceptor: derive its class from that one")
    return ReadHooks(given, key, value) if given or key is not None or value is not None else None


def _object(convert: Convert | None, data: Any, field: Literal["key", "value"], record: ConsumerRecord) -> Any:
    if convert is None:
        return data
    try:
        return converted(convert, data, record.topic, field, list(record.headers))
    except Exception as error:
        raise DeserializationFailed(
            f"the {field} of {record.topic_partition} at offset {record.offset} cannot be deserialized: "
            f"{type(error).__name__}: {error}. Poll again if the cause can pass, as a registry that does not answer; "
            f"seek to offset {record.offset + 1} to skip the record"
        ) from error
