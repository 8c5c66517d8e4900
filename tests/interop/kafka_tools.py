"""Apache Kafka's own classes, run on this machine's Java from the jars that `make interop` has fetched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LIBS = "TIDELOG_KAFKA_LIBS"
"""The variable that names the directory with the jars."""
_JVM = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8")
_LOGGING = Path(__file__).parent / "log4j2.properties"
_ARGUMENT_BYTES_MAX = 100_000
"""Linux takes up to 128 KiB in one argument."""


def find_java() -> str:
    """The Java of JAVA_HOME, otherwise the first one of the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin/java") if home else shutil.which("java") or "java"


def java_command(main: str, *arguments: str, libs: Path | None = None) -> list[str]:
    """The command that runs a class of Kafka's. libs: a directory with other jars."""
    logging = f"-Dlog4j2.configurationFile={_LOGGING}"
    return [find_java(), *_JVM, logging, "-cp", f"{libs or os.environ[LIBS]}/*", main, *arguments]


@dataclass(frozen=True, slots=True)
class Dumped:
    """What DumpLogSegments printed: of each file, line by line, and what it complains of, on its error output."""

    files: dict[str, list[str]]
    complaints: list[str]


def run(main: str, *arguments: str, cwd: Path | None = None, is_silent: bool = False) -> tuple[str, str]:
    """Run a tool to its end. Returns both outputs; fails where it does. is_silent: without its log, which is part of
    the output."""
    command = java_command(main, *arguments)
    if is_silent:
        command.insert(1, "-Dtidelog.log.level=off")
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout, done.stderr


def dump_log_segments(directory: Path, paths: Iterable[str], *options: str) -> Dumped:
    """Let DumpLogSegments read files, many in one JVM. paths: below the directory."""
    printed: dict[str, list[str]] = {}
    complaints: list[str] = []
    for group in _in_groups(paths):
        output, errors = run("kafka.tools.DumpLogSegments", *options, "--files", ",".join(group), cwd=directory)
        lines: list[str] = []
        for line in output.split("\n"):
            if line.startswith("Dumping "):
                lines = printed.setdefault(line.removeprefix("Dumping "), [])
            elif line:
                lines.append(line)
        complaints += [line.replace(f"{directory}/", "") for line in errors.splitlines()]
        missing = set(group) - set(printed)
        assert not missing, output[-3000:]
    return Dumped(printed, complaints)


def _in_groups(paths: Iterable[str]) -> list[Sequence[str]]:
    groups: list[list[str]] = [[]]
    size = 0
    for path in paths:
        if size + len(path) > _ARGUMENT_BYTES_MAX:
            groups.append([])
            size = 0
        groups[-1].append(path)
        size += len(path) + 1
    return [group for group in groups if group]
