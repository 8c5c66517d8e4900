"""What the system counts for this process, under the names that Prometheus' client libraries give it.

Prometheus' own library for Python would do it too. It brings an HTTP server and a client: 3 MiB of an idle node.
Source: proc_pid_stat(5) and proc_stat(5); the standard metrics of processes in Prometheus' guide for client libraries.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class ProcessUsage(NamedTuple):
    """The usage of this process at one time."""

    virtual_bytes: int
    resident_bytes: int
    started_s: float
    """Seconds since 1970."""
    cpu_s: float
    """User and system time of all threads."""
    open_files: int
    files_max: float
    """Infinite if there is no limit."""


def process_usage(proc: Path = Path("/proc")) -> ProcessUsage | None:
    """Read /proc: about 0.1 ms, and more with thousands of open files. None where the system does not tell (not Linux):
    all other metrics are served there too."""
    with suppress(OSError):
        return _read(proc)
    return None


def _read(proc: Path) -> ProcessUsage:
    # The name of the program, in parentheses, may have spaces: the fields are counted from its end (the third one).
    fields = (proc / "self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    user, system, started, virtual, resident = (int(fields[number - 3]) for number in (14, 15, 22, 23, 24))
    ticks, limit = os.sysconf("SC_CLK_TCK"), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return ProcessUsage(
        virtual,
        resident * os.sysconf("SC_PAGE_SIZE"),
        _booted_s(proc) + started / ticks,
        (user + system) / ticks,
        sum(1 for _ in (proc / "self/fd").iterdir()),
        float("inf") if limit == resource.RLIM_INFINITY else limit,
    )


def _booted_s(proc: Path) -> int:
    """When the machine was booted, in seconds since 1970."""
    with (proc / "stat").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
