"""Checks of what Spark needs on this machine: Java, PySpark, pyarrow and the Python that Spark starts for data sources.

Facts (Spark 4.2 and 4.3): the JVM starts `$PYSPARK_DRIVER_PYTHON`, else `$PYSPARK_PYTHON`, else `python3`, from its own
environment, to find and to plan Python data sources, and executors run a program of the same name or path; if that
Python has no package `pyspark_tidelog`, Spark says DATA_SOURCE_NOT_FOUND. Java is `$JAVA_HOME/bin/java`, else `java`.
Not here: a session (spark_session.py).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import tidelog

JAVA_MIN: Final = 17
PYSPARK_MIN: Final = (4, 2)
PYARROW_MIN: Final = (18,)
INSTALL: Final = "pip install 'tidelog[spark]'"
COMMAND_S: Final = 60
"""How long `java -version` and a Python that only prints versions may take on a busy machine."""

REPORT: Final = """
import importlib.metadata as metadata, json, platform, socket, sys
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
report = {"host": socket.gethostname(), "executable": sys.executable, "python": platform.python_version()}
report |= {"pyspark": version("pyspark"), "pyarrow": version("pyarrow"), "tidelog": None, "failure": ""}
report["pyspark_file"] = getattr(sys.modules.get("pyspark"), "__file__", None) or ""
try:
    import tidelog
    report["tidelog"] = tidelog.__version__
    import pyspark_tidelog
except Exception as error:
    report["failure"] = f"{type(error).__name__}: {error}"
"""
"""Sets `report` to the versions of a Python, to the file of PySpark if that is imported already, and to why it cannot
load the data source. It needs nothing but Python."""


@dataclass(frozen=True, slots=True)
class SparkFinding:
    """The result of one check."""

    what: str
    """The subject of the check."""
    found: str
    """What was found."""
    advice: str = ""
    """What to do; empty if nothing has to be done."""

    @property
    def is_good(self) -> bool:
        """Whether nothing has to be done."""
        return not self.advice


def environment() -> Iterator[SparkFinding]:
    """Check this machine, on which the driver would run."""
    yield SparkFinding("tidelog", f"{tidelog.__version__}, Python {_own_python()} ({sys.executable})")
    yield java()
    yield package("pyspark", PYSPARK_MIN)
    yield package("pyarrow", PYARROW_MIN)
    yield source_python()


def java() -> SparkFinding:
    """The Java that Spark runs."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {JAVA_MIN} or newer (Debian: apt install openjdk-17-jre-headless)"
    if program is None or not Path(program).is_file():
        if home:
            return SparkFinding(
                "Java", f"JAVA_HOME is {home}, which has no bin/java", f"correct JAVA_HOME, or {advice}"
            )
        return SparkFinding("Java", "there is no java in PATH, and JAVA_HOME is not set", advice)
    text, failure = _output(program, "-version")
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', text)
    if version is None:
        return SparkFinding("Java", f"{program} does not tell its version ({failure or text.strip()[:200]})", advice)
    found = f"{version[0].removeprefix('version ').strip(chr(34))} ({program})"
    if int(version[1]) < JAVA_MIN:
        return SparkFinding("Java", found, f"Spark 4 needs Java {JAVA_MIN}: {advice}, and set JAVA_HOME to it")
    return SparkFinding("Java", found)


def package(name: str, least: tuple[int, ...]) -> SparkFinding:
    """A package of this Python, and whether it has at least this version."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return SparkFinding(name, "not installed", INSTALL)
    return SparkFinding(name, version, _upgrade(name, version, least))


def _upgrade(name: str, version: str, least: tuple[int, ...]) -> str:
    """The advice for a package whose version is too old; else empty."""
    if tuple(int(part) for part in re.findall(r"\d+", version)[: len(least)]) >= least:
        return ""
    needed = ".".join(map(str, least))
    return f"it must be {needed} or newer: pip install --upgrade '{name}>={needed}'"


def source_python() -> SparkFinding:
    """The Python that Spark starts for data sources, and whether that has the same packages as this one."""
    what = "Python of data sources"
    variable = next((name for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON") if os.environ.get(name)), None)
    name = os.environ[variable] if variable else "python3"
    origin = f"{variable}={name}" if variable else "python3 of PATH"
    ours = f"export PYSPARK_PYTHON={sys.executable}"
    if variable == "PYSPARK_DRIVER_PYTHON":
        ours += ", and unset PYSPARK_DRIVER_PYTHON, which wins"
    program = shutil.which(name)
    if program is None:
        return SparkFinding(what, f"{origin}: there is no such program", f"{ours}, before Spark starts")
    text, failure = _output(program, "-c", f"{REPORT}\nprint(json.dumps(report))")
    try:
        report = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        return SparkFinding(what, f"{origin} is not a Python ({failure or text[:200]})", f"{ours}, before Spark starts")
    found = f"{report['python']} ({report['executable']}), {origin}"
    if report["pyspark"] is not None and (advice := _upgrade("pyspark", report["pyspark"], PYSPARK_MIN)):
        return SparkFinding(what, f"{found}: it has PySpark {report['pyspark']}", f"{advice}, for {program}")
    trouble = mismatch(report)
    if not trouble:
        return SparkFinding(what, found)
    active = "activate the virtual environment of tidelog, or " if variable is None else ""
    return SparkFinding(
        what,
        f"{found}: {trouble}",
        f"{active}{ours}, before Spark starts (else DATA_SOURCE_NOT_FOUND). "
        "`tidelog job` does that itself where none of the two is set",
    )


def mismatch(report: dict[str, Any]) -> str:
    """Why a Python cannot run the source or its tasks, according to its report; empty if it can."""
    if report["tidelog"] is None:
        return f"it has no tidelog ({report['failure']})"
    if report["tidelog"] != tidelog.__version__:
        return f"it has tidelog {report['tidelog']}, this command {tidelog.__version__}"
    if report["python"].split(".")[:2] != _own_python().split(".")[:2]:
        return f"it is Python {report['python']}, the driver's is {_own_python()}"
    return f"it cannot load the source: {report['failure']}" if report["failure"] else ""


def _own_python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _output(*command: str) -> tuple[str, str]:
    """The output of a program, and the reason if it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=COMMAND_S, check=False, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", str(error)
    return done.stdout or done.stderr, f"exit code {done.returncode}" if done.returncode else ""
