"""The files that are made from the table of metrics: docs/metrics.md, and those in deploy/monitoring.

`python -m tests.node.monitoring_files` writes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from node.observability.monitoring.alert_rules import alert_rules, prometheus_rule
from node.observability.monitoring.dashboards import DASHBOARDS, dashboard_text
from node.observability.monitoring.page import page

ROOT: Final = Path(__file__).resolve().parents[2]
MONITORING: Final = ROOT / "deploy" / "monitoring"
ALERTS: Final = MONITORING / "prometheus" / "tidelog-alerts.yaml"
RULE: Final = ALERTS.with_name("tidelog-rule.yaml")


def generated() -> dict[Path, str]:
    """The text of each file."""
    boards = {MONITORING / "grafana" / f"{each.uid}.json": dashboard_text(each) for each in DASHBOARDS}
    return {ROOT / "docs" / "metrics.md": page(), ALERTS: alert_rules(), RULE: prometheus_rule(), **boards}


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
