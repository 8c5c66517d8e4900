"""`tidelog-node --config FILE`: one node as a process. `tidelog-probe`: whether a node is alive or ready.

Both run from an installed wheel or a checkout.
"""

from __future__ import annotations

import sys

from tidelog.cli.interrupts import quiet_interrupts
from tidelog.cli.server_packages import server_module
from tidelog.errors import UnsupportedVersion
from tidelog.standard_streams import ReaderGone, protect_standard_streams


def main() -> int:
    """Run the node that the command line names; return its exit code."""
    return _run("tidelog-node", "node.process.process")


def probe() -> int:
    """Query the health of the node that the command line names; return the exit code."""
    protect_standard_streams()
    try:
        try:
            return _run("tidelog-probe", "node.process.probe")
        finally:
            sys.stdout.flush()
    except ReaderGone:  # standard output gets the answer of a healthy node only: the node is healthy
        return 0


def _run(command: str, module: str) -> int:
    try:
        with quiet_interrupts():
            process = server_module(module)
    except UnsupportedVersion as error:
        sys.stderr.write(f"{command}: {error.message}\n")
        return 1
    code: int = process.main()
    return code
