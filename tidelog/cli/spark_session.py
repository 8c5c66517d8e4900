"""A short Spark session that loads the source on the driver and collects the versions of executors.

It runs in its own process (`python -m tidelog.cli.spark_session`), because a session writes to the terminal and ends
only with its process. The data source that is defined here is pickled by value: executors without tidelog can run it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.cli.spark_environment import INSTALL, REPORT, SparkFinding, mismatch

PREFIX: Final = "tidelog-spark-check "
"""The beginning of the line with the result: Spark and Java print other lines."""
TASKS_MIN: Final = 8
CONNECT_S: Final = 10
ZIP: Final = "pyspark.zip"


@dataclass(frozen=True, slots=True)
class SessionReport:
    """The result of the session."""

    spark: str
    """The version of Spark's JVM."""
    source: str
    """Why the source could not be loaded; empty if it could."""
    executors: list[dict[str, Any]] = field(default_factory=list)
    """A report of each Python that ran tasks, with the nodes that it cannot reach."""


def session_findings(master: str, nodes: Sequence[str], *, timeout_s: int) -> Iterator[SparkFinding]:
    """Start a session and check what it reports. master: Spark's master, for example local[2]; empty: that of
    spark-defaults.conf. nodes: host:port of the nodes that executors must reach."""
    where = master or "the master of spark-defaults.conf"
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tidelog.cli.spark_session", master, *nodes],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            text=True,
        )
    except subprocess.TimeoutExpired:
        yield SparkFinding("session", f"{where}: not done within {timeout_s} s", "check that executors are free")
        return
    line = next((line for line in done.stdout.splitlines() if line.startswith(PREFIX)), None)
    if line is None:
        yield SparkFinding("session", f"{where}: {_last_lines(done.stderr)}", "correct what Spark says")
        return
    found = SessionReport(**json.loads(line.removeprefix(PREFIX)))
    yield SparkFinding("session", f"Spark {found.spark} on {where}")
    if found.source:
        yield SparkFinding(
            "source", found.source, "see what the Python of data sources lacks; docs/spark.md has each error"
        )
    else:
        yield SparkFinding("source", 'format("tidelog") is found on the driver')
    for report in found.executors:
        yield _executor(report)


def _executor(report: dict[str, Any]) -> SparkFinding:
    what = f"executor on {report['host']}"
    found = (
        f"tidelog {report['tidelog']}, PySpark {report['pyspark']}, pyarrow {report['pyarrow']}, "
        f"Python {report['python']} ({report['executable']})"
    )
    if ZIP in report["pyspark_file"]:
        found += f", which imports PySpark from {ZIP}: slow to start (docs/spark.md, Tasks)"
    if trouble := mismatch(report):
        return SparkFinding(what, f"{found}: {trouble}", f"install the driver's versions there: {INSTALL}")
    if report["unreachable"]:
        advice = "open the network to these addresses, which nodes advertise (advertised.listeners)"
        return SparkFinding(what, f"{found}: cannot connect to {', '.join(report['unreachable'])}", advice)
    return SparkFinding(what, found)


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:]) or "it ended without a message"


def run(master: str, nodes: Sequence[str]) -> SessionReport:
    """Start the session in this process. Its data source runs in the same Python as the source `tidelog` would."""
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    builder = SparkSession.builder.appName("tidelog spark check").config("spark.ui.enabled", "false")
    spark = (builder.master(master) if master else builder).getOrCreate()
    script = REPORT

    class VersionsReader(DataSourceReader):
        def partitions(self) -> Sequence[InputPartition]:
            return [InputPartition(index) for index in range(tasks)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str]]:  # noqa: ARG002 - Spark's signature
            import socket

            found: dict[str, Any] = {}
            exec(script, found)  # noqa: S102 - the text above: executors need not have this module
            unreachable = []
            for node in nodes:
                host, _, port = node.rpartition(":")
                try:
                    socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
                except OSError as error:
                    unreachable.append(f"{node} ({error})")
            yield (json.dumps({**found["report"], "unreachable": unreachable}),)

    class VersionsSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "tidelog_versions"

        def schema(self) -> str:
            return "report string"

        def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
            return VersionsReader()

    tasks = max(TASKS_MIN, 2 * spark.sparkContext.defaultParallelism)
    spark.dataSource.register(VersionsSource)
    reports = sorted({row.report for row in spark.read.format("tidelog_versions").load().collect()})
    return SessionReport(spark.version, _failure_of_source(spark), [json.loads(report) for report in reports])


def _failure_of_source(spark: Any) -> str:
    """Why the source cannot be loaded; empty if it can. Loading it needs no node: it connects when a query runs."""
    options = {"tidelog.bootstrap.servers": "127.0.0.1:1", "subscribe": "any"}
    try:
        spark.read.format("tidelog").options(**options).load()
    except Exception as error:  # noqa: BLE001 - Spark's many kinds; the text is the finding
        return str(error).strip().splitlines()[0]
    return ""


def main(arguments: Sequence[str]) -> None:
    """Print one line with the report. arguments: the master, which may be empty, and nodes."""
    report = run(arguments[0], arguments[1:])
    document = {"spark": report.spark, "source": report.source, "executors": report.executors}
    os.write(1, f"\n{PREFIX}{json.dumps(document)}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1:])
