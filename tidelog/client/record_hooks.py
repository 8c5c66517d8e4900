"""What a producer does with a record of the program before it is checked and queued: interceptors, then serializers.

Invariants: the order of the records stays. An interceptor that raises is logged, and the record continues as it was
(KIP-42). A serializer that raises refuses the record before it is queued.
Not here: the functions themselves (serialization.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

from tidelog.client.accumulator import checked_headers
from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.delivery import Delivery, OnDelivery
from tidelog.client.many_records import RecordColumns, checked_columns, ensure_even
from tidelog.client.outgoing_record import OutgoingRecord
from tidelog.client.serialization import SERIALIZERS, Convert, SerializationFailed, convert_of, converted
from tidelog.errors import InvalidConfig
from tidelog.records.v2.record import Header

_log = logging.getLogger("tidelog.client")


class ProducerInterceptor:
    """Sees each record of a producer (KIP-42). Derive from it and override what is needed. The methods run where the
    producer's do, and must return at once."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record to send: `record._replace(...)`, with the same topic and partition."""
        return record

    def on_acknowledgement(self, record: OutgoingRecord, delivery: Delivery) -> None:
        """Called when the outcome of a record is known: `delivery.exception()`, `delivery.result()`."""


class RecordHooks:
    """The interceptors and serializers of a producer."""

    def __init__(
        self, interceptors: tuple[ProducerInterceptor, ...], key: Convert | None, value: Convert | None
    ) -> None:
        self._interceptors, self._key, self._value = interceptors, key, value

    def intercept(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return what the interceptors make of a record."""
        for each in self._interceptors:
            try:
                changed = each.on_send(record)
                if changed[:1] != record[:1] or changed.partition != record.partition:
                    raise ValueError("an interceptor cannot change the topic or the partition of a record")
                record = changed._replace(headers=checked_headers(changed.headers))
            except Exception as error:  # noqa: BLE001 - whatever the program's function raises
                _log.error("on_send of %r failed; the record is sent as it was", each, exc_info=error)
        return record

    def serialize(self, record: OutgoingRecord) -> tuple[Any, Any, list[Header]]:
        """Return the value and the key of a record as bytes, and its headers. Raises SerializationFailed."""
        headers = list(record.headers)
        # The key first, as in Kafka's clients: the serializer of a value may refer to it.
        key = _serialized(self._key, record.key, "key", record.topic, headers)
        return _serialized(self._value, record.value, "value", record.topic, headers), key, headers

    def prepare(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Iterable[Header],
        partition: int | None,
        timestamp: int | None,
        on_delivery: OnDelivery | None,
    ) -> tuple[Any, Any, list[Header], int | None, OnDelivery | None]:
        """Return value, key, headers, timestamp and `on_delivery` of a record to queue. Raises SerializationFailed,
        TypeError, InvalidRecord."""
        record = self.intercept(OutgoingRecord(topic, value, key, checked_headers(headers), partition, timestamp))
        called = on_delivery
        if self._interceptors:

            def called(delivery: Delivery) -> None:
                self.acknowledge(record, delivery)
                if on_delivery is not None:
                    on_delivery(delivery)

        return *self.serialize(record), record.timestamp, called

    def columns_of(
        self,
        topic: str,
        values: Iterable[Any],
        keys: Iterable[Any] | None,
        headers: Iterable[Iterable[Header]] | None,
        partition: int | None,
        timestamp: int | Iterable[int | None] | None,
    ) -> RecordColumns:
        """The same for many records: see `checked_columns`."""
        value_list = list(values)
        columns = {
            "keys": [None] * len(value_list) if keys is None else list(keys),
            "headers": [()] * len(value_list) if headers is None else [checked_headers(each) for each in headers],
            "timestamps": list(timestamp) if isinstance(timestamp, Iterable) else [timestamp] * len(value_list),
        }
        for name, column in columns.items():
            ensure_even(name, len(column), len(value_list))
        records = [
            self.intercept(OutgoingRecord(topic, value, key, pairs, partition, time))
            for value, key, pairs, time in zip(value_list, *columns.values(), strict=True)
        ]
        serialized = [self.serialize(record) for record in records]
        checked = checked_columns(
            [value for value, _, _ in serialized],
            [key for _, key, _ in serialized],
            [added for _, _, added in serialized],
            partition,
            [record.timestamp for record in records],
        )
        if self._interceptors:
            checked.outgoing = records
        return checked

    def follow(self, columns: RecordColumns, queued: BatchDelivery) -> None:
        """Call the interceptors when the outcomes of the queued records are known: the first ones of the columns."""
        for record, delivery in zip(columns.outgoing, queued, strict=False):
            delivery.add_done_callback(partial(self.acknowledge, record))

    def acknowledge(self, record: OutgoingRecord, delivery: Delivery) -> None:
        """Call the interceptors with the outcome of a record."""
        for each in self._interceptors:
            try:
                each.on_acknowledgement(record, delivery)
            except Exception as error:  # noqa: BLE001 - whatever the program's function raises
                _log.error("on_acknowledgement of %r failed", each, exc_info=error)


def hooks_of(interceptors: object, key_serializer: object, value_serializer: object) -> RecordHooks | None:
    """Return the hooks of a producer with these options; None if there is nothing to do. Raises InvalidConfig."""
    key = convert_of("key_serializer", key_serializer, SERIALIZERS)
    value = convert_of("value_serializer", value_serializer, SERIALIZERS)
    if isinstance(interceptors, ProducerInterceptor) or not isinstance(interceptors, Iterable):
        raise InvalidConfig(f"interceptors={interceptors!r}: use a list of objects of classes of ProducerInterceptor")
    given = tuple(interceptors)
    for each in given:
        if not isinstance(each, ProducerInterceptor):
            raise InvalidConfig(f"interceptors: {each!r} is no ProducerInterceptor: derive its class from that one")
    return RecordHooks(given, key, value) if given or key is not None or value is not None else None


def _serialized(
    convert: Convert | None, value: Any, field: Literal["key", "value"], topic: str, headers: list[Header]
) -> Any:
    if convert is None:
        return value
    try:
        data = converted(convert, value, topic, field, headers)
    except Exception as error:
        raise SerializationFailed(
            f"the {field} of a record for topic {topic!r} cannot be serialized: {type(error).__name__}: {error}"
        ) from error
    if data is not None and not isinstance(data, bytes | bytearray | memoryview):
        raise SerializationFailed(
            f"the {field}_serializer returned {type(data).__name__} for topic {topic!r}: it must return bytes or None"
        )
    return data
