"""Prometheus' alert rules, from the alerts of the metrics: as a file, and as an object for Prometheus' operator."""

from __future__ import annotations

import json
from textwrap import indent
from typing import Final

from node.observability.metrics import TABLES

_HEAD: Final = "# Made by `make monitoring` from node/observability/*_families.py: change it there.\n"
_OBJECT: Final = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tidelog
  labels: {app.kubernetes.io/name: tidelog}
spec:
"""


def alert_rules() -> str:
    """The file of rules."""
    return _HEAD + _groups()


def prometheus_rule() -> str:
    """The same rules as an object of Kubernetes."""
    return _HEAD + _OBJECT + indent(_groups(), "  ")


def _groups() -> str:
    """A group for each section of docs/metrics.md that has alerts."""
    groups = []
    for table in TABLES:
        rules = [
            _rule(
                {
                    "alert": alert.name,
                    "expr": alert.expr,
                    "for": f"{round(alert.minutes * 60)}s",
                },
                severity="critical" if alert.is_critical else "warning",
                summary=alert.summary,
                description=metric.action,
                command=alert.command,
                metric=metric.name,
            )
            for metric in table.metrics
            for alert in metric.alerts
        ]
        if rules:
            groups.append(f"  - name: {json.dumps('Tidelog: ' + table.title)}\n    rules:\n" + "".join(rules))
    return "groups:\n" + "".join(groups)


def _rule(fields: dict[str, str], *, severity: str, summary: str, description: str, command: str, metric: str) -> str:
    """One rule. Text of JSON is text of YAML."""
    first, *others = (f"{name}: {json.dumps(value)}\n" for name, value in fields.items())
    lines = [f"      - {first}", *(f"        {line}" for line in others)]
    lines += [
        f"        labels: {{severity: {severity}}}\n",
        "        annotations:\n",
        f"          summary: {json.dumps(summary)}\n",
        f"          description: {json.dumps(description)}\n",
        f"          command: {json.dumps(command)}\n",
        f"          runbook: {json.dumps(f'docs/metrics.md, {metric}')}\n",
    ]
    return "".join(lines)
