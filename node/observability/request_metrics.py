"""Metrics of requests by API, collected from their meters when the metrics are read.

Not here: counting (meters/request_meter.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from node.runtime.request_meter import BOUNDS_MS, RequestMeter, RequestMeters

_BOUNDS: Final = (*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf")
_SECONDS: Final = 1e-9


class RequestCollector(Collector):
    """Collects from all meters. An API without requests has no samples."""

    def __init__(self, meters: RequestMeters) -> None:
        self._meters = meters

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        meters = [meter for meter in self._meters if _is_used(meter)]
        yield _by_label(
            CounterMetricFamily(
                "tidelog_requests", "Requests answered: calls, and messages of streams", labels=("method", "outcome")
            ),
            ((meter, {"ok": meter.answered, **meter.failed} if meter.answered else meter.failed) for meter in meters),
        )
        yield _by_label(
            CounterMetricFamily(
                "tidelog_request_errors", "Errors in answers, of requests and entries", labels=("method", "error")
            ),
            ((meter, meter.errors) for meter in meters),
        )
        seconds = HistogramMetricFamily(
            "tidelog_request_seconds", "Time from the arrival of a request to its answer", labels=("method",)
        )
        for meter in meters:
            counts = [float(count) for count in accumulate(meter.times)]
            spent_ns = meter.queue_ns + meter.local_ns + meter.remote_ns
            seconds.add_metric((meter.api,), list(zip(_BOUNDS, counts, strict=True)), spent_ns * _SECONDS)
        yield seconds
        yield _by_label(
            CounterMetricFamily(
                "tidelog_request_phase_seconds", "Time of requests by its parts", labels=("method", "phase")
            ),
            ((meter, _phases(meter)) for meter in meters),
        )
        received = CounterMetricFamily("tidelog_request_bytes", "Bytes of requests", labels=("method",))
        sent = CounterMetricFamily("tidelog_response_bytes", "Bytes of answers", labels=("method",))
        open_now = GaugeMetricFamily("tidelog_streams_open", "Streams open now", labels=("method",))
        for meter in meters:
            received.add_metric((meter.api,), meter.request_bytes)
            sent.add_metric((meter.api,), meter.response_bytes)
            if meter.streams_open or meter.streams_ended:
                open_now.add_metric((meter.api,), meter.streams_open)
        yield received
        yield sent
        yield open_now
        yield _by_label(
            CounterMetricFamily("tidelog_streams_ended", "Streams that ended", labels=("method", "outcome")),
            ((meter, meter.streams_ended) for meter in meters),
        )


def _is_used(meter: RequestMeter) -> bool:
    return bool(meter.request_bytes or meter.answered or meter.failed or meter.streams_open or meter.streams_ended)


def _phases(meter: RequestMeter) -> dict[str, float]:
    parts = {"queue": meter.queue_ns, "local": meter.local_ns, "remote": meter.remote_ns, "send": meter.send_ns}
    return {phase: spent * _SECONDS for phase, spent in parts.items()}


def _by_label(
    family: CounterMetricFamily, samples: Iterable[tuple[RequestMeter, dict[str, int] | dict[str, float]]]
) -> CounterMetricFamily:
    for meter, values in samples:
        for label, value in values.items():
            family.add_metric((meter.api, label), value)
    return family
