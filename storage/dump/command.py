"""`python -m storage.dump PATH...`: shows the contents of a log's files, checks them, and reports what is wrong.

A path is a file, a partition directory or a whole log directory. Everything is opened read-only and nothing is locked,
so it may be the directory of a running node: a write in progress appears as a torn tail at worst. Exit code: 0 without
damage, 1 with damage, 2 for an invalid path or option.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from storage.dump.dump_events import DumpFinding, LogSummed, Severity, damage
from storage.dump.json_lines import JsonWriter
from storage.dump.text import TextWriter
from storage.dump.walk import NotFound, dump
from storage.files.file_system import Files
from storage.files.os_files import OsFiles

Writer: TypeAlias = JsonWriter | TextWriter
"""The output of a dump."""


def show(files: Files, paths: Sequence[str], writer: Writer, *, records: bool = False, brief: bool = False) -> int:
    """Dump these paths. Returns the number of damage findings. Raises NotFound.

    records: show records too. brief: show only findings and sums.
    """
    found = dict.fromkeys(Severity, 0)
    for path in paths:
        try:
            for event in dump(files, path, records=records):
                if isinstance(event, DumpFinding):
                    found[event.severity] += 1
                if not brief or isinstance(event, DumpFinding | LogSummed):
                    writer.event(event)
        except OSError as error:
            found[Severity.DAMAGE] += 1
            where = str(error.filename or path)
            writer.event(damage(where, f"it cannot be read: {error.strerror}", "check the permissions, then the disk"))
    writer.end(found[Severity.DAMAGE], found[Severity.NOTE])
    return found[Severity.DAMAGE]


def main(
    arguments: Sequence[str] | None = None,
    write: Callable[[str], object] | None = None,
    *,
    prog: str = "python -m storage.dump",
) -> int:
    """Run the command. write: takes the text; None: standard output. Returns the exit code. Raises SystemExit(2) for
    invalid arguments."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Show and check the files of logs: Tidelog's and Apache Kafka's. Opens everything read-only.",
    )
    parser.add_argument("paths", metavar="PATH", nargs="+", help="a file, a partition directory or a log directory")
    parser.add_argument("--records", action="store_true", help="show every record too")
    parser.add_argument("--findings", action="store_true", help="show only findings and sums")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, bytes in hex")
    options = parser.parse_args(arguments)
    if options.records and options.findings:
        parser.error("--records and --findings exclude each other: choose one")
    write = write or sys.stdout.write
    writer: Writer = JsonWriter(write) if options.json else TextWriter(write)
    try:
        return 1 if show(OsFiles(), options.paths, writer, records=options.records, brief=options.findings) else 0
    except NotFound as error:
        parser.error(str(error))


def run() -> int:
    """Run the command as a process. Returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for a terminal that does not have every character
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe: do not flush to it
        os._exit(0)
    return code
