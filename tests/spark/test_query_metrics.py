"""The metrics of a streaming query that the dashboard of Spark shows are those that Spark writes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from node.observability.monitoring.dashboards import DASHBOARDS, dashboard_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.integration]


def shown() -> list[str]:
    """The patterns of names in the panels that show what Spark says."""
    (board,) = (each for each in DASHBOARDS if each.uid == "tidelog-spark")
    panels = json.loads(dashboard_text(board))["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [found[1] for query in queries if (found := re.search(r'__name__=~"([^"]+)"', query))]


def written(spark: SparkSession) -> str:
    """What a PrometheusServlet of this session would serve; it is not on by default."""
    jvm: Any = spark._jvm
    metrics = jvm.org.apache.spark.metrics

    def value(of: str, name: str, thing: Any) -> Any:
        """A field of an object on which py4j can call nothing: methods have types of libraries that PySpark lacks."""
        field = jvm.java.lang.Class.forName(of).getDeclaredField(name)
        field.setAccessible(True)
        return field.get(thing)

    system = value("org.apache.spark.SparkEnv", "metricsSystem", spark.sparkContext._jsc.sc().env())
    registry = value("org.apache.spark.metrics.MetricsSystem", "registry", system)
    return str(metrics.sink.PrometheusServlet(jvm.java.util.Properties(), registry).getMetricsSnapshot(None))


def test_every_panel_finds_its_metric_and_the_name_of_the_query(spark: SparkSession) -> None:
    """A query with a watermark and state. Apart from the first seconds of a session it takes 3 s."""
    from pyspark.sql import functions

    spark.conf.set("spark.sql.streaming.metricsEnabled", "true")
    seconds = functions.window("timestamp", "1 second")
    counts = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second").groupBy(seconds).count()
    query = counts.writeStream.queryName("dash-board").format("noop").outputMode("update").start()
    try:
        while query.isActive and "watermark" not in (query.lastProgress or {"eventTime": ()})["eventTime"]:
            query.awaitTermination(0.05)  # type: ignore[arg-type]  # Spark takes fractions
        lines = written(spark).splitlines()
    finally:
        query.stop()
        spark.conf.unset("spark.sql.streaming.metricsEnabled")
    names = [line.partition("{")[0] for line in lines]
    found = [[match[1] for name in names if (match := re.fullmatch(pattern, name))] for pattern in shown()]
    assert found == [["dash_board"]] * 6
