"""Flink's Kafka connector writes a topic exactly once from another one, though it is killed in the middle."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.interop.kafka_tools import find_java
from tests.kafka_ecosystem.programs import (
    BUILT,
    HERE,
    Failed,
    committed,
    documented,
    outcome,
    running,
    wait_until,
    write,
)
from tests.kafka_suites.suite import Effort, Nodes, Outcome, Suite

JARS: Final = BUILT / "flink"
_PROGRAM: Final = "UpperCase"
_PLACE: Final = "// EXAMPLE: the suite puts it here."
_MODULES: Final = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in ("lang", "util", "util.concurrent")]
"""What its serializers reach into."""


def _missing() -> str:
    if not JARS.is_dir():
        return "its jars are not fetched: `make kafka-ecosystem` does, with Maven"
    return "" if shutil.which("javac") else "there is no Java compiler (Debian: openjdk-17-jdk-headless)"


def _compiled(cluster: Nodes, home: Path) -> Path:
    """The directory of the compiled program, which has the example of the document. Raises Failed."""
    example = documented("Flink's Kafka connector", "java").replace("localhost:9092", cluster.kafka_bootstrap)
    source = home / f"{_PROGRAM}.java"
    source.write_text((HERE / source.name).read_text(encoding="utf-8").replace(_PLACE, example), encoding="utf-8")
    done = subprocess.run(
        ["javac", "-cp", f"{JARS}/*", "-d", str(home), str(source)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"the example does not compile: {done.stderr[-2000:]}")
    return home


def _command(classes: Path, checkpoints: Path) -> list[str]:
    """Continues from the newest checkpoint, if there is one."""
    path = os.pathsep.join((f"{JARS}/*", str(classes)))
    newest = max(checkpoints.glob("*/chk-*/_metadata"), key=lambda each: each.stat().st_mtime, default=None)
    last = [] if newest is None else [f"file://{newest.parent}"]
    return [find_java(), "-Xmx768m", *_MODULES, "-cp", path, _PROGRAM, f"file://{checkpoints}", *last]


def _run(cluster: Nodes, home: Path, effort: Effort) -> Iterator[Outcome]:
    yield outcome("source and exactly-once sink, killed in the middle", lambda: _copy(cluster, home, effort))


def _copy(cluster: Nodes, home: Path, effort: Effort) -> None:
    values = [f"record-{number}" for number in range(effort.records)]
    half = len(values) // 2
    classes, checkpoints, log = _compiled(cluster, home), home / "checkpoints", home / "flink.log"
    checkpoints.mkdir()

    write(cluster, "orders", values[:half])
    with running(_command(classes, checkpoints), log) as process:
        wait_until(lambda: bool(committed(cluster, "loud")), process, log)
        write(cluster, "orders", values[half:])
        process.kill()
    with running(_command(classes, checkpoints), log) as process:
        wait_until(lambda: len(committed(cluster, "loud")) >= len(values), process, log)
    found = [row.value for row in committed(cluster, "loud")]
    if sorted(found) != sorted(value.upper() for value in values):
        raise Failed(f"{len(values)} records, {len(found)} written, {len(set(found))} distinct")


FLINK: Final = Suite("flink", _missing, _run, ("orders", "loud"))
