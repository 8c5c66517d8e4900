"""OpenTelemetry for Tidelog's clients: trace context in the headers of records, and metrics. Needs the extra
`opentelemetry`.

    Producer(..., interceptors=[ProducerTracing()])   a span "create TOPIC" for each record, its context in the headers
    with processing(record): ...                      a span "process TOPIC" whose parent is that one
    observe(producer), observe(consumer)              what `metrics()` returns, as instruments

The context has W3C's form (`traceparent`, `tracestate`, `baggage`) unless the program sets another global propagator.
Names are those of OpenTelemetry's conventions for messaging and of its bridge for Kafka's Java clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Span, SpanKind, TracerProvider

from tidelog.client.client_metrics import ConsumerMetrics, Metrics, ProducerMetrics
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.client.outgoing_record import OutgoingRecord
from tidelog.client.record_hooks import ProducerInterceptor
from tidelog.records.v2.record import Header

LIBRARY: Final = "tidelog"


class _Headers(Setter[dict[str, str]], Getter[tuple[Header, ...]]):
    """Reads and writes the headers of records."""

    def set(self, carrier: dict[str, str], key: str, value: str) -> None:
        carrier[key] = value

    def get(self, carrier: tuple[Header, ...], key: str) -> list[str] | None:
        found = [value.decode("utf-8", "replace") for name, value in carrier if name == key and value is not None]
        return found or None

    def keys(self, carrier: tuple[Header, ...]) -> list[str]:
        return [name for name, _ in carrier]


_HEADERS: Final = _Headers()


class ProducerTracing(ProducerInterceptor):
    """Writes the context of a span into the headers of each record. The span is a child of the present one. It ends at
    once: it stands for the record, and what reads the record continues it."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer(LIBRARY, tracer_provider=tracer_provider)

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Return the record with the context of its span in the headers, in place of one that it had."""
        attributes = {**_attributes(record.topic), "messaging.operation.type": "create"}
        with self._tracer.start_as_current_span(
            f"create {record.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        ):
            carrier: dict[str, str] = {}
            propagate.inject(carrier, setter=_HEADERS)
        kept = tuple(header for header in record.headers if header[0] not in carrier)
        return record._replace(headers=(*kept, *((name, value.encode()) for name, value in carrier.items())))


def context_of(record: ConsumerRecord) -> Context:
    """Return the trace context in the headers of a record; the present one if there is none."""
    return propagate.extract(record.headers, getter=_HEADERS)


@contextmanager
def processing(record: ConsumerRecord, tracer_provider: TracerProvider | None = None) -> Iterator[Span]:
    """Within this context a span for the processing of the record is the present one. Its parent is the span that sent
    the record. An exception that leaves the block is recorded in it."""
    tracer = trace.get_tracer(LIBRARY, tracer_provider=tracer_provider)
    attributes = {
        **_attributes(record.topic),
        "messaging.operation.type": "process",
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }
    with tracer.start_as_current_span(
        f"process {record.topic}", context_of(record), kind=SpanKind.CONSUMER, attributes=attributes
    ) as span:
        yield span


def _attributes(topic: str) -> dict[str, str | int]:
    return {"messaging.system": "kafka", "messaging.destination.name": topic}


class Measured(Protocol):
    """A producer or a consumer, asynchronous or synchronous."""

    def metrics(self) -> Metrics:
        """Return what the client counts."""
        ...


def observe(client: Measured, *, client_id: str = "", meter_provider: MeterProvider | None = None) -> None:
    """Make instruments of what `client.metrics()` returns: `kafka.producer.record_send_total` and so on, counters for
    totals and gauges for the rest, with the attributes `topic` and `partition` where they belong. They are read
    whenever the program's meter provider collects, also after the client was closed. client_id: the attribute
    `client-id`."""
    meter = metrics.get_meter(LIBRARY, meter_provider=meter_provider)
    is_producer = "producer-metrics" in client.metrics()
    prefix, names = ("kafka.producer", _PRODUCER) if is_producer else ("kafka.consumer", _CONSUMER)
    for name in sorted(names):
        make = meter.create_observable_counter if name.endswith("-total") else meter.create_observable_gauge
        make(f"{prefix}.{name.replace('-', '_')}", [_reader(client, name, client_id)])


def _reader(client: Measured, name: str, client_id: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def read(_: CallbackOptions) -> Iterator[Observation]:
        found = [(group, values[name]) for group, values in client.metrics().items() if name in values]
        parts = [each for each in found if "." in each[0]]
        for group, value in parts or found:  # not the sum and its parts: a backend would add them
            if not math.isnan(value):
                yield Observation(value, {"client-id": client_id, **_place(group, name)})

    return read


def _place(group: str, name: str) -> dict[str, str | int]:
    """The topic, and for a lag the partition, in the name of a group of metrics."""
    _, _, place = group.partition(".")
    if not place:
        return {}
    if name != "records-lag":
        return {"topic": place}
    topic, _, partition = place.rpartition("-")
    return {"topic": topic, "partition": int(partition)}


_PRODUCER: Final = frozenset(ProducerMetrics().report(0, 0, 0)["producer-metrics"])
_CONSUMER: Final = frozenset(
    {name for values in ConsumerMetrics().report({}).values() for name in values} | {"records-lag"}
)
