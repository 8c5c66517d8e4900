"""The `tidelog` command: tables and progress for people, `--json` for scripts, and reliable exit codes.

0: success, also if the reader of standard output closed the pipe before the end: it has what it wanted. 1: rejected or
failed, with one sentence on standard error. 2: wrong command line. 130: interrupted. 143: ended by
SIGTERM.
"""

from __future__ import annotations

import os
import sys

from tidelog.cli.interrupts import quiet_interrupts


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when grpc is imported; we print the errors ourselves
    try:
        with quiet_interrupts():  # nearly every import of a command is in here
            from tidelog.standard_streams import protect_standard_streams

            protect_standard_streams()
            from tidelog.cli.app import run
    except ModuleNotFoundError as missing:
        if missing.name not in ("rich", "click"):
            raise
        sys.stderr.write(f"tidelog: the command line needs {missing.name}: pip install 'tidelog[cli]'\n")
        return 1
    return run(arguments)
