"""Grafana's dashboards (cluster, node, topic, group, Spark query), with a panel for each metric of their tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from node.observability import (
    cluster_families,
    coordinator_families,
    disk_families,
    partition_families,
    process_families,
    request_families,
    tier_families,
)
from node.observability.metric_text import Metric, MetricTable
from tidelog.values import dataclass

SCHEMA_VERSION: Final = 39
"""Of Grafana 10, which later versions convert."""

PANEL_WIDTH: Final = 8
PANEL_HEIGHT: Final = 7
COLUMNS: Final = 24

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_INSTANCE: Final = "instance"
"""The label that Prometheus gives to each node."""


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

    title: str
    description: str
    unit: str
    """In Grafana's terms."""
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    uid: str
    title: str
    tables: tuple[MetricTable[Any], ...]
    variables: tuple[tuple[str, str], ...] = ()
    """The labels by which it is filtered, each with a metric that has all values."""
    sums: bool = False
    """Whether metrics without labels of a source are part of it (`Metric.is_sum`), and others are not, in a table that
    has both."""
    more: tuple[tuple[str, tuple[Panel, ...]], ...] = ()
    """Further rows: a title, and panels."""

    def rows(self) -> Iterator[tuple[str, tuple[Panel, ...]]]:
        """A title, and panels."""
        for table in self.tables:
            is_mixed = len({metric.is_sum for metric in table.metrics}) > 1
            metrics = [each for each in table.metrics if not is_mixed or each.is_sum == self.sums]
            yield table.title, tuple(_panel(table, metric, self.variables) for metric in metrics)
        yield from self.more


def _panel(table: MetricTable[Any], metric: Metric[Any], variables: tuple[tuple[str, str], ...]) -> Panel:
    labels = (_INSTANCE, *table.labels_of(metric))
    chosen = [f'{name}=~"${name}"' for name, _ in variables if name in labels]
    if metric.name.startswith("process_"):
        chosen.append('job="tidelog"')
    where = "{" + ",".join(chosen) + "}" if chosen else ""
    by = ", ".join(labels)
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    targets: tuple[Target, ...]
    match metric.type:
        case "histogram":
            rates = f"sum by ({by}, le) (rate({metric.name}_bucket{where}[$__rate_interval]))"
            targets = tuple(
                Target(f"histogram_quantile({quantile}, {rates})", f"{name} {legend}")
                for quantile, name in ((0.5, "median"), (0.99, "99 %"))
            )
        case "counter":
            targets = (Target(f"sum by ({by}) (rate({metric.name}{where}[$__rate_interval]))", legend),)
        case _:
            scale = " * 1000" if metric.measured_in == "seconds since 1970" else ""
            targets = (Target(f"sum by ({by}) ({metric.name}{where}){scale}", legend),)
    title = metric.name.removeprefix("tidelog_").removesuffix("_total").replace("_", " ")
    return Panel(title, f"{metric.help.rstrip('.')}. What to do: {metric.action}.", _unit(metric), targets)


def _unit(metric: Metric[Any]) -> str:
    match metric.type, metric.measured_in:
        case "counter", "bytes":
            return "Bps"
        case "counter", "seconds":
            return "percentunit"
        case "counter", _:
            return "cps"
        case _, "seconds":
            return "s"
        case _, "bytes":
            return "bytes"
        case _, "seconds since 1970":
            return "dateTimeAsIso"
        case _, "0 to 1":
            return "percentunit"
        case _:
            return "short"


def _of_spark(title: str, gauge: str, unit: str, text: str) -> Panel:
    """A gauge of Spark's MetricsReporter. Spark's PrometheusServlet makes one name of the application, `driver`, the
    source `spark.streaming.QUERY` and the gauge, with `_` for all but letters and digits."""
    name = f"metrics_.*driver_spark_streaming_(.*)_{gauge}_Value"
    expr = f'label_replace({{__name__=~"{name}"}}, "query", "$1", "__name__", "{name}")'
    return Panel(title, text, unit, (Target(expr, "{{query}}"),))


_SPARK: Final = (
    _of_spark("input rate", "inputRate_total", "rowsps", "Rows a second that arrive at the sources of a query."),
    _of_spark(
        "processing rate",
        "processingRate_total",
        "rowsps",
        "Rows a second that it processes; below the input rate it falls back.",
    ),
    _of_spark("batch duration", "latency", "ms", "Time of its last batch."),
    _of_spark("event time watermark", "eventTime_watermark", "dateTimeAsIso", "Its watermark."),
    _of_spark("state rows", "states_rowsTotal", "short", "Rows in its state; grows without end without a watermark."),
    _of_spark("state memory", "states_usedBytes", "bytes", "Memory of its state."),
)

DASHBOARDS: Final = (
    Dashboard(
        "tidelog-cluster",
        "Tidelog: cluster",
        (
            cluster_families.CLUSTER,
            cluster_families.NODE,
            partition_families.PARTITIONS,
            partition_families.ISR_CHANGES,
            cluster_families.CONTROLLER,
            cluster_families.QUORUM,
        ),
        sums=True,
    ),
    Dashboard(
        "tidelog-node",
        "Tidelog: node",
        (
            request_families.REQUESTS,
            process_families.LOOP,
            process_families.PROCESS,
            process_families.MEMORY,
            process_families.GARBAGE,
            disk_families.OFFLINE,
            disk_families.DIRECTORY,
            disk_families.WORK,
            disk_families.UPKEEP,
            disk_families.EXECUTORS,
            request_families.LISTENERS,
            request_families.QUOTAS,
            request_families.AUDIT,
            request_families.SASL,
            request_families.CERTIFICATES,
            coordinator_families.COORDINATORS,
            coordinator_families.TRANSACTIONS,
            tier_families.TIER,
        ),
        ((_INSTANCE, "tidelog_ready"),),
    ),
    Dashboard(
        "tidelog-topic",
        "Tidelog: topic",
        (partition_families.TOPICS, partition_families.PARTITIONS),
        (("topic", "tidelog_topic_bytes_in_total"),),
    ),
    Dashboard(
        "tidelog-group",
        "Tidelog: group",
        (coordinator_families.GROUPS, coordinator_families.GROUP_OFFSETS, coordinator_families.GROUP_LIMITS),
        (("group", "tidelog_group_members"),),
    ),
    Dashboard(
        "tidelog-spark",
        "Tidelog: Spark query",
        (coordinator_families.GROUPS, coordinator_families.GROUP_OFFSETS),
        (("group", "tidelog_group_members"),),
        more=(("Spark (spark.sql.streaming.metricsEnabled, PrometheusServlet)", _SPARK),),
    ),
)


def dashboard_text(dashboard: Dashboard) -> str:
    """The file that Grafana reads."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, charts in dashboard.rows():
        row = {"type": "row", "title": title, "collapsed": False, "panels": []}
        panels.append({"id": len(panels) + 1, **row, "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top}})
        top += 1
        across = COLUMNS // PANEL_WIDTH
        for number, chart in enumerate(charts):
            place = {"x": number % across * PANEL_WIDTH, "y": top + number // across * PANEL_HEIGHT}
            grid = {"h": PANEL_HEIGHT, "w": PANEL_WIDTH, **place}
            panels.append({"id": len(panels) + 1, **_chart(chart), "gridPos": grid})
        top += -(-len(charts) // across) * PANEL_HEIGHT
    found = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["tidelog"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_DATASOURCE_VARIABLE, *(_variable(*each) for each in dashboard.variables)]},
        "panels": panels,
    }
    return json.dumps(found, indent=1) + "\n"


def _chart(panel: Panel) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + number), "datasource": _DATASOURCE, "expr": each.expr, "legendFormat": each.legend}
        for number, each in enumerate(panel.targets)
    ]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "custom": {"fillOpacity": 5}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets,
    }


_DATASOURCE_VARIABLE: Final = {
    "name": "datasource",
    "type": "datasource",
    "query": "prometheus",
    "label": "data source",
}


def _variable(label: str, metric: str) -> dict[str, Any]:
    return {
        "name": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": f"label_values({metric}, {label})", "refId": "values"},
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }
