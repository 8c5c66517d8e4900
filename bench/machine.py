"""The machine of a measurement, without its name: processor, cores, memory."""

from __future__ import annotations

import datetime as dt
import os
import platform
from pathlib import Path

import psutil


def today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def description() -> str:
    """`AMD EPYC, 2 cores shared by process, 23 GiB, Linux, Python 3.11`."""
    cores = len(os.sched_getaffinity(0))
    memory = psutil.virtual_memory().total / 2**30
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{_processor()}, {cores} cores{how_shared()}, {memory:.0f} GiB, {platform.system()}, Python {python}"


def how_shared(switch: Path = Path("/proc/sys/kernel/sched_autogroup_enabled")) -> str:
    """How processes that want more than there is share it. By thread, a program of many threads gets the most: three
    nodes with a thread each against four clients whose twelve threads spin had 0.45 of Kafka's rate, by process 1.5."""
    if not switch.exists():
        return ""
    return " shared by process" if switch.read_text(encoding="ascii").strip() == "1" else " shared by thread"


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()
