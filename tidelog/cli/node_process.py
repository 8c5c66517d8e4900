"""`tidelog-node --config FILE`: one node as a process, from an installed wheel or a checkout."""

from __future__ import annotations

import sys

from tidelog.cli.server_packages import server_module
from tidelog.errors import UnsupportedVersion


def main() -> int:
    """Run the node that the command line names; return its exit code."""
    try:
        process = server_module("node.process.process")
    except UnsupportedVersion as error:
        sys.stderr.write(f"tidelog-node: {error.message}\n")
        return 1
    code: int = process.main()
    return code
