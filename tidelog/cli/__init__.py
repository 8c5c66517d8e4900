"""The `tidelog` command: tables and progress for people, `--json` for scripts, and reliable exit codes.

0: success. 1: rejected or failed, with one sentence on standard error. 2: wrong command line. 130: interrupted.
"""

from __future__ import annotations

import os
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when grpc is imported; we print the errors ourselves
    try:
        from tidelog.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich", "click"):
            raise
        sys.stderr.write(f"tidelog: the command line needs {missing.name}: pip install 'tidelog[cli]'\n")
        return 1
    return run(arguments)
