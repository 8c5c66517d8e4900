"""The commands of docs/security.md, "From certificates to records", run as they are written there: from an empty
directory to a record that an application has written and read."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from node.process.free_ports import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(150)]

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "security.md"
PORTS = ("93", "94")
"""The ends of the ports that the document uses: of clients, of nodes."""


def commands_below(heading: str) -> str:
    """The commands of a section, with free ports instead of those that the document uses."""
    below = DOCUMENT.read_text(encoding="utf-8").split(f"\n### {heading}\n", 1)[1]
    section = re.split(r"^##+ ", below, flags=re.MULTILINE)[0]
    text = "".join(re.findall(r"^```sh\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    free = iter(free_ports(3 * len(PORTS)))
    for end in PORTS:
        own = [next(free) for _ in range(3)]
        text = text.replace(f"9${{n}}{end}", f"$(echo {' '.join(map(str, own))} | cut -d' ' -f$((n + 1)))")
        for node, port in enumerate(own):
            text = text.replace(f":9{node}{end}", f":{port}")
    return text


@pytest.mark.parametrize(
    "heading",
    [
        "With certificates",
        pytest.param("With users and passwords", marks=pytest.mark.deep),
        pytest.param("From plain text to TLS", marks=pytest.mark.deep),
    ],
)
def test_an_application_writes_and_reads_after_the_documented_commands(heading: str, tmp_path: Path) -> None:
    """All commands of a section of the document, most of them processes that import the client."""
    commands = commands_below(heading)
    assert not re.search(r":9[012]9[34]", commands)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TIDELOG_")}
    environment["PATH"] = f"{programs(tmp_path / 'bin')}:{environment['PATH']}"
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    with (tmp_path / "said").open("wb") as said:
        shell = subprocess.Popen(
            ["bash", "-e", "-c", f"trap 'kill $(jobs -p); wait' EXIT\n{commands}"],
            cwd=tmp_path,
            env=environment,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(120)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    output = (tmp_path / "said").read_text()
    logs = "\n".join(path.read_text() for path in tmp_path.glob("secured/*.log"))
    assert code == 0, output + logs
    assert "\nfirst order\n" in output
    assert "\nhealthy\n" in output
    assert "no permissions" not in logs


def programs(directory: Path) -> Path:
    """The programs that an installation has."""
    directory.mkdir()
    for name, module in (("tidelog", "tidelog.cli"), ("tidelog-node", "tidelog.cli.node_process")):
        program = directory / name
        program.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
        program.chmod(0o755)
    return directory
