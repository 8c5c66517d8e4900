"""`tidelog spark check` names what is wrong with Java, PySpark and Python, and what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyspark
import pytest

import tidelog
from node.process.local_cluster import LocalCluster
from tidelog.cli.spark_environment import mismatch, package

pytestmark = [pytest.mark.spark, pytest.mark.integration]

ROOT = Path(__file__).resolve().parents[2]


def checked(tmp_path: Path, *arguments: str, **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Run the command in a directory of its own, as Spark puts that of the driver on the path of its workers. Returns
    the exit code and the findings by name."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "PYTHONPATH", "SPARK_HOME")
    }
    (tmp_path / "work").mkdir(exist_ok=True)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tidelog.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "spark", "check", "--json", *arguments],
        env={**kept, **variables},
        cwd=tmp_path / "work",
        capture_output=True,
        timeout=280,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    assert document["good"] == (done.returncode == 0)
    return done.returncode, {finding["what"]: finding for finding in document["findings"]}


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def sane(**more: str) -> Mapping[str, str]:
    return {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), **more}


def spark_with_an_archive(path: Path) -> Path:
    """A Spark with PySpark in pyspark.zip for its workers, as installed by pip: `make` removes that from its own
    environment."""
    installed = Path(pyspark.__file__).parent
    library = path / "python" / "lib"
    library.mkdir(parents=True)
    for name in ("bin", "jars"):
        (path / name).symlink_to(installed / name)
    for each in (installed / "python" / "lib").glob("py4j-*.zip"):
        (library / each.name).symlink_to(each)
    with ZipFile(library / "pyspark.zip", "w") as archive:
        for each in (*installed.rglob("*.py"), *installed.rglob("*.json")):
            archive.write(each, each.relative_to(installed.parent))
    return path


@pytest.mark.deep
def test_a_machine_that_has_everything_passes_and_reaches_the_cluster(tmp_path: Path) -> None:
    """Takes some 20 s: it starts a cluster and a Spark of its own, whose Python workers import all modules again."""
    spark_home = spark_with_an_archive(tmp_path / "spark")
    with LocalCluster(tmp_path / "cluster", 1) as cluster:
        cluster.wait_healthy()
        code, found = checked(tmp_path, "--bootstrap", cluster.bootstrap, **sane(SPARK_HOME=str(spark_home)))
    assert code == 0, found
    assert found["session"]["found"] == f"Spark {metadata.version('pyspark')} on local[2]"
    assert "with 1 node" in found["cluster"]["found"]
    (executor,) = (finding for what, finding in found.items() if what.startswith("executor on"))
    assert f"tidelog {tidelog.__version__}, PySpark {metadata.version('pyspark')}" in executor["found"]
    assert "which imports PySpark from pyspark.zip: slow to start" in executor["found"]


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    """An old Java, a Python without tidelog, no cluster."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    program(tmp_path / "bin" / "java", "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    code, found = checked(
        tmp_path,
        "--bootstrap",
        "127.0.0.1:1",
        PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        PYSPARK_PYTHON=str(bare),
    )
    assert code == 1
    assert found["Java"]["found"] == f"11.0.2 ({tmp_path / 'bin' / 'java'})"
    assert "needs Java 17: install Java 17 or newer" in found["Java"]["advice"]
    assert "it has no tidelog (ModuleNotFoundError" in found["Python of data sources"]["found"]
    assert f"export PYSPARK_PYTHON={sys.executable}" in found["Python of data sources"]["advice"]
    assert "DATA_SOURCE_NOT_FOUND" in found["Python of data sources"]["advice"]
    assert "no node of the cluster answered" in found["cluster"]["found"]
    assert "session" not in found, "a session would fail for the same reasons"


def test_a_virtual_environment_that_is_not_active_is_found(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "python3", f'exec {sys.base_prefix}/bin/python3 -S -E "$@"')
    code, found = checked(tmp_path, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert code == 1
    assert "python3 of PATH: it has no tidelog" in found["Python of data sources"]["found"]
    assert "activate the virtual environment of tidelog, or export" in found["Python of data sources"]["advice"]


@pytest.mark.parametrize(
    ("variables", "what", "said"),
    [
        ({"PYSPARK_DRIVER_PYTHON": "no-such-notebook"}, "found", "PYSPARK_DRIVER_PYTHON=no-such-notebook: there is no"),
        ({"PYSPARK_DRIVER_PYTHON": "no-such-notebook"}, "advice", "unset PYSPARK_DRIVER_PYTHON, which wins"),
        ({"PYSPARK_PYTHON": "/bin/true"}, "found", "is not a Python"),
        ({"PYSPARK_PYTHON": "/bin/false"}, "found", "is not a Python (exit code 1)"),
    ],
)
def test_what_spark_would_start_instead_of_python_is_named(
    tmp_path: Path, variables: dict[str, str], what: str, said: str
) -> None:
    code, found = checked(tmp_path, **sane(**variables))
    assert code == 1
    assert said in found["Python of data sources"][what]


def test_a_pyspark_that_is_too_old_is_named_and_no_virtual_environment(tmp_path: Path) -> None:
    report = {"executable": "python3", "python": "3.11.0", "pyspark": "4.0.1", "tidelog": tidelog.__version__}
    old = program(tmp_path / "bin" / "python3", f"echo '{json.dumps({**report, 'failure': 'ImportError'})}'")
    code, found = checked(tmp_path, PATH=f"{old.parent}:{os.environ['PATH']}")
    assert code == 1
    assert "it has PySpark 4.0.1" in found["Python of data sources"]["found"]
    advice = found["Python of data sources"]["advice"]
    assert advice == f"it must be 4.2 or newer: pip install --upgrade 'pyspark>=4.2', for {old}"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "does not tell its version (exit code 3)"),
        ("echo 'java version \"1.8.0_292\"' >&2", "1.8.0_292 ("),
    ],
)
def test_a_java_that_spark_cannot_use_is_named(tmp_path: Path, script: str, said: str) -> None:
    program(tmp_path / "jdk" / "bin" / "java", script)
    _, found = checked(tmp_path, **sane(JAVA_HOME=str(tmp_path / "jdk")))
    assert said in found["Java"]["found"]
    assert "install Java 17" in found["Java"]["advice"]


def test_a_missing_java_is_named(tmp_path: Path) -> None:
    _, found = checked(tmp_path, **sane(JAVA_HOME="/no-such-directory"))
    assert found["Java"]["found"] == "JAVA_HOME is /no-such-directory, which has no bin/java"


def test_a_missing_or_an_old_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert package("no-such-package", (1,)).advice == "pip install 'tidelog[spark]'"
    for version, is_good in (("4.1.2", False), ("4.2.0", True), ("4.10.0.dev1", True), ("5.0", True)):
        monkeypatch.setattr(metadata, "version", lambda name, version=version: version)
        assert package("pyspark", (4, 2)).is_good == is_good
    assert "pip install --upgrade 'pyspark>=9'" in package("pyspark", (9,)).advice


def test_an_executor_with_other_versions_is_named() -> None:
    def report(**other: Any) -> dict[str, Any]:
        python = ".".join(map(str, sys.version_info[:3]))
        return {"tidelog": tidelog.__version__, "python": python, "failure": "", **other}

    assert mismatch(report()) == ""
    assert "it has tidelog 0.0.1" in mismatch(report(tidelog="0.0.1"))
    assert "it is Python 3.9.1, the driver's is" in mismatch(report(python="3.9.1"))
    assert "cannot load the source: ImportError: x" in mismatch(report(failure="ImportError: x"))


def test_a_session_that_does_not_start_says_what_spark_says(tmp_path: Path) -> None:
    code, found = checked(tmp_path, "--master", "nonsense", **sane())
    assert code == 1
    assert "nonsense" in found["session"]["found"]
    assert found["session"]["advice"]
