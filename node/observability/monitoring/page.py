"""The page docs/metrics.md: every family with its labels, type, unit, meaning and what to do, and every alert."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from node.observability.metric_text import Metric, MetricTable
from node.observability.metrics import TABLES

_INTRODUCTION: Final = """\
# Metrics

`GET /metrics` on `metrics.listener` ([configuration.md](configuration.md)), in Prometheus' text format. Each node
tells what it knows: sums over all nodes are of the cluster. What a node does not know has no sample; a counter begins
at 0 with each start of the process.

This page, the [alert rules](../deploy/monitoring/prometheus/tidelog-alerts.yaml) and the dashboards beside them are
made from one table, `node/observability/*_families.py`, with `make monitoring`.
[operations.md](operations.md#monitoring) says how they are used, and
[its table](operations.md#what-to-do-when) has the longer answers to what is wrong.
"""

_HEAD: Final = ("name", "labels", "type", "unit", "meaning", "what to do")


def page() -> str:
    """The whole page."""
    sections = [_section(table) for table in TABLES]
    return "\n".join([_INTRODUCTION, *sections, _alerts()])


def _section(table: MetricTable[Any]) -> str:
    return f"## {table.title}\n\n" + _table(_HEAD, (_row(table, metric) for metric in table.metrics))


def _row(table: MetricTable[Any], metric: Metric[Any]) -> tuple[str, ...]:
    labels = ", ".join(table.labels_of(metric))
    return f"`{metric.name}`", labels, metric.type, metric.measured_in, metric.help.rstrip("."), metric.action


def _alerts() -> str:
    rows = (
        (
            f"`{alert.name}`",
            "critical" if alert.is_critical else "warning",
            _in_words(alert.summary),
            f"`{alert.command}`",
            f"`{alert.expr}`".replace("|", "\\|"),
            f"{alert.minutes:g} min" if alert.minutes else "at once",
            f"`{metric.name}`",
        )
        for table in TABLES
        for metric in table.metrics
        for alert in metric.alerts
    )
    return (
        "## Alerts\n\nThe next command is the annotation `command` of the alert; what to do then stands at the metric, "
        "and in the annotation `description`. Critical: act at once; warning: within a day. On Kubernetes, commands "
        "run in the pod of any node ([operations.md](operations.md#commands-in-the-cluster)).\n\n"
        + _table(("alert", "severity", "meaning", "next command", "when", "for", "metric"), rows)
    )


def _in_words(summary: str) -> str:
    """The summary without Prometheus' placeholders: the name of a label, or N for the value."""
    named = re.sub(r"{{ \$labels\.(\w+) }}", lambda match: match[1].upper(), summary)
    return re.sub(r"{{ \$value[^}]*}}", "N", named)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))
