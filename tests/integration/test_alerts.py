"""Prometheus' alert rules, tested with `promtool test rules` on what real nodes say while some of them fail.

Each phase of the run is scraped; for Prometheus it lasts `PHASE_MIN` minutes, so that every rule has its time.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from node.process.local_cluster import LocalCluster
from tests.node.monitoring_files import ALERTS
from tests.node.promtool import needs_promtool, promtool

pytestmark = [pytest.mark.integration, pytest.mark.deep, needs_promtool]

PHASE_MIN = 40
"""Longer than a rule waits, but for those that tell what is wrong for hours."""

FOR_HOURS = {"TidelogDiskFillsUp"}
"""Rules about the disk of the machine on which the test runs."""


class Series:
    """What Prometheus would have stored."""

    def __init__(self) -> None:
        self._phases: list[dict[str, float]] = []

    def add(self, *scrapes: dict[str, float]) -> None:
        """A phase, with the samples of all nodes."""
        self._phases.append({name: value for scrape in scrapes for name, value in scrape.items()})

    def text(self) -> list[dict[str, str]]:
        """In promtool's notation: the value of each phase, once a minute; `_` for none."""
        names = sorted({name for phase in self._phases for name in phase})
        return [{"series": name, "values": " ".join(self._values(name))} for name in names]

    def _values(self, name: str) -> list[str]:
        return [f"{phase[name]}+0x{PHASE_MIN - 1}" if name in phase else f"_x{PHASE_MIN}" for phase in self._phases]


def scrape(cluster: LocalCluster, number: int) -> dict[str, float]:
    """The samples of a node as Prometheus stores them, with `up`."""
    node = cluster.nodes[number]
    target = {"instance": f"node-{number}", "job": "tidelog"}
    if not node.running:
        return {_named("up", target): 0.0}
    with urllib.request.urlopen(f"http://{node.metrics}/metrics", timeout=5) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    found = {_named(each.name, each.labels | target): each.value for family in families for each in family.samples}
    return found | {_named("up", target): 1.0}


def _named(name: str, labels: dict[str, str]) -> str:
    return name + "{" + ",".join(f"{label}={json.dumps(value)}" for label, value in sorted(labels.items())) + "}"


def of(cluster: LocalCluster, name: str) -> float:
    """The sum of a metric without own labels over all running nodes."""
    return sum(
        value for number in range(3) for each, value in scrape(cluster, number).items() if each.startswith(f"{name}{{")
    )


def firing(home: Path, series: Series, phases: int) -> list[set[str]]:
    """The alerts that fire at the end of each phase."""
    ends = [f"{(phase + 1) * PHASE_MIN - 1}m" for phase in range(phases)]
    expr = 'count by (alertname) (ALERTS{alertstate="firing"} or vector(0))'
    test = {
        "interval": "1m",
        "input_series": series.text(),
        "promql_expr_test": [{"expr": expr, "eval_time": at} for at in ends],
    }
    file = home / "rules_test.yaml"
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))
    said = promtool("test", "rules", str(file))
    # It says what it got where that is not what was expected, here nothing: the sample of `vector(0)` always is.
    parts = re.split(r"expr: .*, time: ", said.stdout + said.stderr)[1:]
    assert len(parts) == phases, said.stdout + said.stderr
    return [set(re.findall(r'alertname=\\?"(\w+)', part)) for part in parts]


def test_alerts_fire_for_what_failed_and_not_before(tmp_path: Path) -> None:
    """Takes 12 s: three nodes are started, two of them killed and started again. tests/node/test_monitoring.py tests
    each rule by itself."""
    series = Series()
    with LocalCluster(tmp_path, nodes=3) as cluster:
        cluster.wait_healthy()
        cluster.create_topic("orders", partitions=3, replicas=3, **{"min.insync.replicas": "2"})
        cluster.wait_healthy()
        series.add(*(scrape(cluster, number) for number in range(3)))

        cluster.kill(2)
        cluster.wait_until(lambda: of(cluster, "tidelog_under_replicated") >= 3, within_s=10, what="it is noticed")
        series.add(*(scrape(cluster, number) for number in range(3)))

        cluster.kill(1)
        cluster.wait_until(lambda: of(cluster, "tidelog_active_controller") == 0, within_s=10, what="it is noticed")
        series.add(*(scrape(cluster, number) for number in range(3)))

        cluster.start_node(1)
        cluster.start_node(2)
        cluster.wait_healthy()
        series.add(*(scrape(cluster, number) for number in range(3)))
    healthy, one_down, two_down, healed = (each - FOR_HOURS for each in firing(tmp_path, series, 4))
    assert healthy == set()
    assert {"TidelogNodeDown", "TidelogFencedNodes", "TidelogUnderReplicated"} <= one_down
    assert not {"TidelogNoController", "TidelogUnderMinIsr", "TidelogOfflinePartitions"} & one_down
    assert {"TidelogNodeDown", "TidelogNoController"} <= two_down
    assert healed == set()
