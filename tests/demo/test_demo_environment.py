"""`make demo` in a fresh clone installs what the demo imports, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_demo_installs_what_nodes_clients_and_the_spark_source_need() -> None:
    """Development tools took longer to install than the demo takes to run."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(line for name in ("arrow", "cli", "server", "spark", "tiering") for line in extras[name]),
    ]
    names = {re.split("[>=;]", line)[0].lower() for line in needed if not line.startswith("tidelog[")}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    listed = re.search("^DEMO_PACKAGES := (.*)$", makefile, re.MULTILINE)
    assert listed is not None
    without_uses = {"crcmod"}  # the replacement of crc32c, which is there; it has no wheel
    assert set(listed[1].split()) == names - without_uses | {"matplotlib"}
