"""`report.json`: the configuration, the machine, the measurements and the findings of a run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

import tidelog
from examples.demo.analysis import Result
from examples.demo.check import Findings
from examples.demo.meter import Latency, Meter
from examples.demo.session import java
from examples.demo.story import PARTITIONS, REPLICAS, Plan, Story
from examples.demo.tier import Tier

PACKAGES = ("grpcio", "protobuf", "pyspark", "pyarrow", "psutil")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run."""

    source: str
    plan: Plan
    story: Story
    meter: Meter
    findings: Findings
    analysis: Sequence[Result]
    planted_loss: bool
    seconds: float
    tier: Tier | None = None
    """None without a remote tier."""

    @property
    def faults(self) -> list[str]:
        """Why the run failed; empty if it passed."""
        faults = self.findings.faults
        if self.story.failed:
            faults.append(f"{self.story.failed} records failed, the first with: {self.story.failure}")
        if self.findings.acknowledged != self.story.sent - self.story.failed:
            faults.append(f"{self.story.sent} records were sent, {self.findings.acknowledged} are in the ledger")
        if self.tier is not None:
            faults += self.tier.faults
        return faults

    @property
    def steady(self) -> Latency | None:
        """Latency before the kill."""
        return self.meter.latency(end=self.story.at("killed"))

    @property
    def disturbed(self) -> Latency | None:
        """Latency from the kill until every partition acknowledges again."""
        return self.meter.latency(self.story.at("killed"), self.story.at("recovered"))

    @property
    def steady_throughput(self) -> float:
        """Acknowledgements per second before the kill."""
        return self.meter.throughput(self.story.at("load"), self.story.at("killed"))


def as_json(run: Run) -> dict[str, Any]:
    """The report: plain values, times in seconds since the demo began unless the name says otherwise."""
    story, meter, findings = run.story, run.meter, run.findings
    failover = story.failover
    assert failover is not None
    return {
        "verdict": "failed" if run.faults else "passed",
        "faults": run.faults,
        "planted_loss": run.planted_loss,
        "seconds": round(run.seconds, 1),
        "input": {"source": run.source, "keys": story.keys, "value_bytes": story.value_bytes},
        "counts": {"sent": story.sent, "failed": story.failed, **_without(asdict(findings), "examples")},
        "examples": list(findings.examples),
        "failover": {
            "node": story.killed_node,
            "partitions": list(story.killed_partitions),
            "seconds": round(failover.seconds, 3),
            "seconds_by_partition": {
                str(partition): round(at - failover.killed_at, 3)
                for partition, at in sorted(failover.recovered_at.items())
            },
            "heal_seconds": round(story.at("healed") - story.at("restarted"), 3),
        },
        "controller_failover": _controller_failover(story),
        "throughput": {
            "asked_per_second": run.plan.records_per_second,
            "before_the_kill_per_second": round(run.steady_throughput, 1),
            "whole_load_per_second": round(meter.throughput(story.at("load"), story.at("stopped")), 1),
        },
        "latency_ms": {
            "before_the_kill": _rounded(run.steady),
            "during_failover": _rounded(run.disturbed),
            "after_healing": _rounded(meter.latency(story.at("healed"))),
            "all": _rounded(meter.latency()),
        },
        "cluster": {
            "nodes": 3,
            "topic": {"partitions": PARTITIONS, "replicas": REPLICAS, **run.plan.configs},
            "acks": "all",
        },
        "tier": None if run.tier is None else asdict(run.tier),
        "machine": machine(),
        "versions": versions(),
        "marks": [{"name": mark.name, "at": round(mark.at, 3), "text": mark.text} for mark in story.marks],
        "timeline": [_rounded(sample) for sample in meter.timeline],
        "analysis": [asdict(result) for result in run.analysis],
    }


def _controller_failover(story: Story) -> dict[str, Any] | None:
    failover = story.controller_failover
    if failover is None:
        return None
    return {"node": story.controller, "seconds": round(failover.seconds, 3)}


def write(run: Run, path: Path) -> None:
    path.write_text(json.dumps(as_json(run), indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """The machine on which the demo ran."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_mib": psutil.virtual_memory().total >> 20,
    }


def versions() -> dict[str, str]:
    """Versions of all programs and libraries in use."""
    found = {"tidelog": tidelog.__version__, "python": platform.python_version(), "java": _java_version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def _java_version() -> str:
    command = java()
    assert command is not None, "the demo requires Java"
    finished = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30, check=False)
    return (finished.stderr or finished.stdout).partition("\n")[0]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _rounded(values: Any) -> dict[str, Any] | None:
    if values is None:
        return None
    fields = asdict(values)
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in fields.items()}


def _without(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}
