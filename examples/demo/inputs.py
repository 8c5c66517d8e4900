"""Real input: live telemetry of this machine, or the lines of a file. An endless stream of keyed values.

A file that ends before the demo does is read again from its start: the sequence numbers of its keys continue.
Left to others: how fast it is read (load.py), what it means (analysis.py).
"""

from __future__ import annotations

import gzip
import json
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

import psutil

FILE_KEYS: Final = 64
"""How many keys the lines of a file are spread over: some for each partition, so that order per key means something."""
LINE_BYTES_MAX: Final = 256 << 10
"""A longer line becomes several records: far below `max.message.bytes`, whatever the file is."""
GZIP_MAGIC: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Item:
    """One record to be sent: its key and its value."""

    key: str
    value: bytes


def telemetry() -> Iterator[Item]:
    """What psutil reports, repeatedly: a record per core and per process, with core or process as key.

    Processor time is recorded as the sum since the start of core or process (seconds), so that the load between any two
    records can be computed from these two alone.
    """
    attributes = ["pid", "name", "cpu_times", "memory_info", "num_threads", "status"]
    titles: dict[psutil.Process, str] = {}
    while True:
        for core, spent in enumerate(psutil.cpu_times(percpu=True)):
            idle = spent.idle + getattr(spent, "iowait", 0.0)
            yield _json(f"core-{core}", kind="core", at=_now(), busy_seconds=round(sum(spent[:8]) - idle, 2))
        for process in psutil.process_iter(attributes):
            seen = process.info
            spent, memory = seen["cpu_times"], seen["memory_info"]
            if process not in titles:
                titles[process] = _title(process, seen["name"])
            yield _json(
                f"process-{seen['pid']}",
                kind="process",
                at=_now(),
                name=titles[process],
                busy_seconds=round(spent.user + spent.system, 2) if spent else None,
                rss_bytes=memory.rss if memory else None,
                threads=seen["num_threads"],
                status=seen["status"],
            )


def file_lines(path: Path) -> Iterator[Item]:
    """The lines of a text file, plain or gzip, without their line ends; spread over keys by line number.

    Raises ValueError where it cannot be read, is damaged gzip, or has no lines.
    """
    while True:
        lines = 0
        try:
            with _opened(path) as source:
                while line := source.readline(LINE_BYTES_MAX):
                    yield Item(f"{path.name}:{lines % FILE_KEYS}", line.rstrip(b"\r\n"))
                    lines += 1
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is damaged gzip ({error}): name a whole file with INPUT=") from error
        except OSError as error:
            raise ValueError(f"{path} cannot be read ({error.strerror}): name a file with INPUT=") from error
        if lines == 0:
            raise ValueError(f"{path} has no lines: name a file that has some with INPUT=")


def title(name: str, command: Sequence[str]) -> str:
    """The name of a process, and for an interpreter what it runs. Other arguments are omitted as private."""
    if command[1:2] == ["-m"] and len(command) > 2:
        return f"{name} -m {command[2]}"
    script = command[1] if len(command) > 1 else ""
    return f"{name} {Path(script).name}" if script.endswith((".py", ".jar", ".sh")) else name


def _title(process: psutil.Process, name: str) -> str:
    try:
        return title(name, process.cmdline())
    except psutil.Error:  # gone, or not ours to ask
        return name


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as raw:
        packed = raw.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if packed else path.open("rb")


def _now() -> int:
    return time.time_ns() // 1_000_000


def _json(key: str, **fields: object) -> Item:
    return Item(key, json.dumps(fields, separators=(",", ":")).encode())
