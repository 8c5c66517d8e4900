"""Shows the contents of a log's files, checks them, and reports what is wrong.

A path is a file, a partition directory or a whole log directory. Everything is opened read-only and nothing is locked,
so it may be the directory of a running node: a write in progress appears as a torn tail at worst.
Not here: the command line (tidelog/cli/log_commands.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from storage.dump.dump_events import DumpFinding, LogSummed, Severity, damage
from storage.dump.json_lines import JsonWriter
from storage.dump.text import TextWriter
from storage.dump.walk import dump
from storage.files.os_files import OsFiles


def show(
    paths: Iterable[str],
    write: Callable[[str], object],
    *,
    records: bool = False,
    brief: bool = False,
    as_json: bool = False,
) -> int:
    """Dump these paths. Returns the number of damage findings. Raises NotFound.

    write: takes the text. records: show records too. brief: show only findings and sums. as_json: one object per line.
    """
    files = OsFiles()
    writer: JsonWriter | TextWriter = JsonWriter(write) if as_json else TextWriter(write)
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
