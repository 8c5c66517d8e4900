"""The cost of a clean start with many partitions: time and retained memory, in its own process.

The bare limit lists each partition directory and gets the size of each file in it. One log is written and closed
cleanly; the others are copies of it under their own names. Processor time would omit the work of the file system on
names, so the figure is clock time, the best of a few rounds.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from uuid import UUID

from bench.figure import Better, Figure, Run
from storage.checkpoints.checkpoint_file import RECOVERY_POINT_CHECKPOINT, encode_offsets
from storage.directory.log_directory import LogDirectory
from storage.files.os_files import OsFiles
from storage.log_config import LogConfig
from tidelog.records import Record, build_batch
from tidelog.types import LeaderEpoch, Millis, Offset, PartitionIndex, TopicId, TopicPartition

PARTITIONS: Final = 1000
SEGMENTS: Final = 5
ROUNDS: Final = 3
CONFIG: Final = LogConfig(segment_bytes=100_000)
NOW: Final = Millis(1_700_000_000_000)
KIB: Final = 1024


class SystemClock:
    """The wall clock."""

    def wall_ms(self) -> Millis:
        return Millis(time.time_ns() // 1_000_000)


def starts(run: Run) -> Iterator[Figure]:
    """A clean start of 1,000 partitions of 5 segments."""
    partitions = PARTITIONS // (20 if run.quick else 1)
    path = run.scratch / "start"
    make(path, partitions)
    measured = [start_elsewhere(path) for _ in range(ROUNDS)]
    raw = min(look(path) for _ in range(ROUNDS))
    seconds = min(found["seconds"] for found in measured) * PARTITIONS / partitions
    memory = min(found["bytes"] for found in measured) / partitions / KIB
    name = f"clean start of {PARTITIONS} partitions of {SEGMENTS} segments"
    yield Figure(name, seconds, "s", target=3, better=Better.LESS)
    yield Figure(
        f"{name}, against asking for their names and sizes",
        seconds,
        "s",
        raw * PARTITIONS / partitions,
        better=Better.LESS,
    )
    yield Figure("memory of a partition after a clean start", memory, "KiB", target=40, better=Better.LESS)


def open_directory(path: Path) -> LogDirectory:
    return LogDirectory(str(path), files=OsFiles(), clock=SystemClock(), rng=random.Random(1))


def make(path: Path, partitions: int) -> None:
    """Create a log directory as a clean stop leaves it."""
    directory = open_directory(path)
    log = directory.create_log(name(0), TopicId(UUID(int=1)), CONFIG)
    batch = build_batch([Record(Offset(number), NOW, None, b"v" * 100) for number in range(10)])
    while len(log.segments) < SEGMENTS or log.active.size < CONFIG.segment_bytes // 2:
        log.append(batch, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    end = log.log_end_offset
    directory.close_clean()
    for number in range(1, partitions):
        shutil.copytree(path / str(name(0)), path / str(name(number)))
    offsets = {name(number): Offset(end) for number in range(partitions)}
    (path / RECOVERY_POINT_CHECKPOINT).write_bytes(encode_offsets(offsets))


def name(number: int) -> TopicPartition:
    return TopicPartition("orders", PartitionIndex(number))


def look(path: Path) -> float:
    """Seconds to list every directory and get the size of every file."""
    began = time.perf_counter()
    with os.scandir(path) as directories:
        for directory in directories:
            if directory.is_dir():
                with os.scandir(directory) as files:
                    for file in files:
                        file.stat()
    return time.perf_counter() - began


def start_elsewhere(path: Path) -> dict[str, float]:
    """One clean start and clean stop in a new process. Returns its seconds and the bytes of memory that it took."""
    command = [sys.executable, "-m", "bench.storage_start", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE")


def main() -> None:
    """Start in the directory given as the argument, print the cost, stop cleanly."""
    path = Path(sys.argv[1])
    before, began = resident(), time.perf_counter()
    directory = open_directory(path)
    logs = directory.load_logs(lambda _name, _id: CONFIG)
    seconds, after = time.perf_counter() - began, resident()
    assert directory.identity.was_clean, "the last stop was clean"
    assert not directory.notes, directory.notes[:3]
    assert all(len(log.segments) == SEGMENTS for log in logs.values())
    sys.stdout.write(json.dumps({"seconds": seconds, "bytes": after - before}))
    directory.close_clean()


if __name__ == "__main__":
    main()
