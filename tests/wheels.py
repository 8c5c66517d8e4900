"""Builds the wheel from the sources, installs it in an environment of its own, and runs what it brings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("tidelog", "pyspark_tidelog", "storage", "replication", "node", "testbed", "proto")


def environment_of_a_user(**environment: str) -> dict[str, str]:
    """The variables of this process without those that lead to a checkout or to a cluster."""
    return {**{k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "TIDELOG"))}, **environment}


def completed(*command: str | Path, cwd: Path, typed: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended, with what it wrote."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment_of_a_user(**environment),
        input=typed,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that must succeed; what it complained of is shown where it does not."""
    done = completed(*command, cwd=cwd, **environment)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(directory: Path, root: Path = ROOT, **environment: str) -> Path:
    """Builds in a copy, so that nothing of a checkout (old builds, compiled files) reaches the wheel. root: of the
    sources."""
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(root / name, source / name)
    for name in SOURCES:
        if (root / name).exists():
            shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.c"))
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index")
    run(*pip, "--wheel-dir", directory, source, cwd=directory, **environment)
    (wheel,) = directory.glob("*.whl")
    return wheel


def install_alone(wheel: Path, directory: Path) -> Path:
    """Python of a new environment that holds this wheel and nothing else."""
    run(sys.executable, "-m", "venv", "--without-pip", directory, cwd=wheel.parent)
    python = directory / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index")
    run(*pip, wheel, cwd=wheel.parent)
    return python
