"""The end of the demo: Spark reads and verifies all records; the findings are printed and reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from examples.analytics.streams import Places
from examples.demo import analysis, chart, report
from examples.demo.analysis import Result
from examples.demo.check import Findings, check, first_occurrences, plant_loss, stream_committed
from examples.demo.meter import Failover, Latency
from examples.demo.progress import Progress
from examples.demo.session import session
from examples.demo.story import COUNTS_TOPIC, TOPIC


def read_back(
    bootstrap: str,
    ledger_path: Path,
    scratch: Path,
    *,
    of_lines: bool,
    picture: Path,
    planted_loss: bool,
    step: Callable[[str], None],
) -> tuple[Findings, list[Result]]:
    """Read all that is committed by a stream of Spark, compare it with the ledger, analyse it by streams."""
    with session(scratch) as spark:
        step(f"Spark {spark.version} is up")
        ledger = spark.read.parquet(str(ledger_path)).cache()
        committed = stream_committed(spark, bootstrap, TOPIC, scratch)
        if planted_loss:
            committed = plant_loss(committed, ledger)
        committed = committed.cache()
        step(f"Spark has read {committed.count():,} committed records")
        findings = check(ledger, committed)
        step(f"checked {findings.acknowledged:,} acknowledged records against them")
        records = first_occurrences(committed)
        results = [] if of_lines else list(analysis.of_telemetry(records))
        step("streaming queries count what the records say, in windows of time")
        places = Places(bootstrap, TOPIC, COUNTS_TOPIC, scratch)
        results += analysis.of_streams(spark, places, picture)
    return findings, results


def print_verdict(run: report.Run, progress: Progress) -> None:
    """For a person: the analysis, the measurements, the verdict."""
    for result in run.analysis:
        progress.table(result.title, result.columns, result.rows)
    story, findings, failover = run.story, run.findings, run.story.failover
    assert failover is not None
    progress.table(
        "What was measured",
        ("", ">"),
        [
            ("records sent / acknowledged / read", f"{story.sent:,} / {findings.acknowledged:,} / {findings.read:,}"),
            ("duplicates", f"{findings.duplicates:,}"),
            (
                f"failover: node {story.killed_node}, partitions {_listed(story.killed_partitions)}",
                f"{failover.seconds:.2f} s",
            ),
            (f"failover: node {story.controller}, the active controller", _seconds(story.controller_failover)),
            ("back in sync after the restart", f"{story.at('healed') - story.at('restarted'):.2f} s"),
            ("throughput before the kill", f"{run.steady_throughput:,.0f} records/s"),
            ("latency before the kill, p50 / p99 / max", _latency(run.steady)),
            ("latency during the failover, p50 / p99 / max", _latency(run.disturbed)),
        ],
    )
    if run.tier is not None:
        progress.table("The two tiers", ("", ">"), run.tier.rows())
    for example in findings.examples:
        progress.say(f"  {example}")
    if run.planted_loss:
        progress.say("one acknowledged record was kept from the check on purpose (--plant-loss)")
    if run.faults:
        progress.say(f"FAILED after {run.seconds:.0f} s: {'; '.join(run.faults)}", style="bold red")
    else:
        progress.say(
            f"PASSED after {run.seconds:.0f} s: every one of {findings.acknowledged:,} acknowledged records was read "
            f"at its offset with its bytes, each of {story.keys:,} keys in order and without a copy",
            style="bold green",
        )


def save(run: report.Run, directory: Path) -> None:
    """For a program, and for the wall."""
    report.write(run, directory / "report.json")
    chart.draw(run.story, run.meter.timeline, directory / "failover.png")


def _latency(latency: Latency | None) -> str:
    if latency is None:
        return "-"
    return f"{latency.p50_ms:,.1f} / {latency.p99_ms:,.1f} / {latency.max_ms:,.1f} ms"


def _seconds(failover: Failover | None) -> str:
    return "-" if failover is None else f"{failover.seconds:.2f} s"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
