"""Metrics of client quotas and of the limits of open calls: who waits, how often, and for how long.

The labels name quotas as they are configured, never a client that only a default holds for: clients choose their ids.
The log names those (node/quotas/throttle_log.py).
Not here: rates and waits (node/quotas/).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from node.quotas.open_calls import OpenCalls
from node.quotas.throttle import Quotas

NAMED_MAX: Final = 20
"""Entities whose waits are read."""

_DEFAULT: Final = "(default)"


class QuotaCollector(Collector):
    """Collects from the quotas and limits that the listeners of a node share."""

    def __init__(self, quotas: Quotas, calls: OpenCalls) -> None:
        self._quotas, self._calls = quotas, calls

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        quotas = self._quotas
        exceeded = CounterMetricFamily(
            "tidelog_quota_exceeded", "Charges that exceeded a client quota", labels=("quota",)
        )
        seconds = CounterMetricFamily(
            "tidelog_quota_throttle_seconds", "Waits that followed from exceeded quotas", labels=("quota",)
        )
        for quota, totals in quotas.limits.totals.items():
            exceeded.add_metric((quota.value,), totals.exceeded)
            seconds.add_metric((quota.value,), totals.wait_ms / 1_000)
        yield exceeded
        yield seconds
        named = GaugeMetricFamily(
            "tidelog_quota_wait_seconds",
            f"How long the clients of a quota must wait now, the longest wait; of the {NAMED_MAX} longest waits",
            labels=("quota", "user", "client_id"),
        )
        longest: dict[tuple[str, str, str], int] = {}
        for each in quotas.limits.throttled(NAMED_MAX):
            labels = each.quota.value, _label(each.named.user), _label(each.named.client_id)
            longest.setdefault(labels, each.wait_ms)
        for labels, wait_ms in longest.items():
            named.add_metric(labels, wait_ms / 1_000)
        yield named
        yield GaugeMetricFamily(
            "tidelog_quota_waiting", "Calls and streams that wait because of a quota", value=quotas.waiting
        )
        yield GaugeMetricFamily(
            "tidelog_quota_entities", "Users and client ids whose use is tracked", value=quotas.limits.tracked
        )
        yield CounterMetricFamily(
            "tidelog_calls_refused",
            "Calls and streams refused by a limit of open calls per address or principal",
            value=self._calls.refused,
        )


def _label(name: str | None) -> str:
    return "" if name is None else name or _DEFAULT
