"""Trace context travels in the headers of records, and OpenTelemetry reads the metrics of clients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from tests.client.memory_cluster import cluster_in_a_thread, memory_cluster
from tests.client.numbered_records import P0
from tidelog import sync
from tidelog.client.consumer import Consumer
from tidelog.client.producer import Producer
from tidelog.opentelemetry import ProducerTracing, observe, processing


class Traced:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traced() -> Iterator[Traced]:
    spans = Traced()
    yield spans
    spans.provider.shutdown()


async def test_what_processes_a_record_continues_the_trace_of_what_sent_it(traced: Traced) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap, interceptors=[ProducerTracing(traced.provider)]) as producer:
            with traced.provider.get_tracer("program").start_as_current_span("request") as request:
                await producer.send("orders", b"0", headers=[("h", b"1"), ("traceparent", b"an old one")])
                await (await producer.enqueue_many("orders", [b"1"]))
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            records = await consumer.poll(2, timeout=10)
            with pytest.raises(ZeroDivisionError), processing(records[0], traced.provider):
                _ = 1 / 0
    headers = dict(records[0].headers)
    assert [name for name, _ in records[0].headers] == ["h", "traceparent"]
    assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-0[13]", headers["traceparent"] or b"")
    created, of_many = traced.named("create orders")
    (processed,) = traced.named("process orders")
    trace_id = request.get_span_context().trace_id
    assert {span.context.trace_id for span in (created, of_many, processed)} == {trace_id}
    assert created.kind is SpanKind.PRODUCER
    assert processed.kind is SpanKind.CONSUMER
    assert created.parent is not None
    assert created.parent.span_id == request.get_span_context().span_id
    assert processed.parent is not None
    assert processed.parent.span_id == created.context.span_id
    assert dict(processed.attributes or {})["messaging.kafka.offset"] == 0
    assert [event.name for event in processed.events] == ["exception"]


async def test_a_record_without_context_begins_a_trace(traced: Traced) -> None:
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with Producer(cluster.bootstrap) as producer:
            await producer.send("orders", b"0", headers=[("traceparent", None), ("other", b"\xff")])
        async with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([P0])
            (record,) = await consumer.poll(1, timeout=10)
            with processing(record, traced.provider):
                pass
    assert traced.named("process orders")[0].parent is None


def points(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """The values of each instrument with their attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]  # type: ignore[union-attr]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def test_metrics_are_instruments() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with cluster_in_a_thread() as cluster:
        for topic in ("orders", "payments"):
            cluster.create(topic)
        with (
            sync.Producer(cluster.bootstrap) as producer,
            sync.Consumer(cluster.bootstrap) as consumer,
        ):
            observe(producer, client_id="p", meter_provider=provider)
            observe(consumer, meter_provider=provider)
            producer.send_many("orders", [b"0", b"1"])
            producer.send("payments", b"2")
            consumer.assign([("orders", 0)])
            assert len(consumer.poll(1, timeout=10)) == 1
            found = points(reader)
        after = points(reader)
    sent = [({"client-id": "p", "topic": "orders"}, 2), ({"client-id": "p", "topic": "payments"}, 1)]
    assert found["kafka.producer.record_send_total"] == after["kafka.producer.record_send_total"] == sent
    assert found["kafka.producer.buffer_total_bytes"] == [({"client-id": "p"}, 64 * 1024 * 1024)]
    assert found["kafka.consumer.records_lag"] == [({"client-id": "", "topic": "orders", "partition": 0}, 1)]
    assert found["kafka.consumer.records_consumed_total"] == [({"client-id": "", "topic": "orders"}, 2)]
    assert found["kafka.consumer.assigned_partitions"][0][1] == 1
    assert "kafka.producer.batch_size_avg" in found
