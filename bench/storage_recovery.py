"""The cost of recovery: the log of a killed process is read from its start, and every byte is verified.

One thread, page cache, processor time, as in suite_storage.py. The bare limit reads the same files into one buffer and
computes one checksum per MiB.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.figure import Figure, Run
from storage.files.os_files import OsFiles
from storage.log.log import Log
from storage.recovery.loaded import Known
from storage.recovery.loading import load_log
from tidelog.records import RecordBatch, crc32c
from tidelog.types import LeaderEpoch

LOG_BYTES: Final = 512 << 20
CHUNK_BYTES: Final = 1 << 20
ROUNDS: Final = 5


def recoveries(run: Run, log: Log, batch: bytes) -> Iterator[Figure]:
    """log: an empty one with page-cache durability, of several segments when full. batch: its content."""
    size = fill(log, batch, LOG_BYTES // (16 if run.quick else 1))
    log.release()
    raw, scan = [], []
    for _ in range(2 if run.quick else ROUNDS):
        raw.append(read_raw(log))
        scan.append(recover(log, size))
    yield Figure("recovery scan of 256 KiB batches", size / 1e6 / min(scan), "MB/s", target=1000)
    yield Figure(
        "recovery scan of 256 KiB batches, against reading and checksums",
        size / 1e6 / min(scan),
        "MB/s",
        size / 1e6 / min(raw),
    )


def fill(log: Log, batch: bytes, size: int) -> int:
    """Append until the log has about that size. Returns its size."""
    assert RecordBatch(batch).base_offset == 0, "a producer's batch"
    while log.size < size:
        log.append(batch, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    return log.size


def recover(log: Log, size: int) -> float:
    """Processor time of one recovery of the whole log."""
    begun = time.thread_time()
    loaded = load_log(OsFiles(), log.path, log.config, log.directory.clock, random.Random(1), Known())
    taken = time.thread_time() - begun
    assert loaded.log_end == log.log_end_offset, loaded.notes
    assert sum(segment.size for segment in loaded.segments) == size
    for segment in loaded.segments:
        segment.close()
    return taken


def read_raw(log: Log) -> float:
    """Processor time of the minimum that a recovery must do."""
    buffer = memoryview(bytearray(CHUNK_BYTES))
    begun = time.thread_time()
    for segment in log.segments:
        with Path(segment.path).open("rb", buffering=0) as file:
            while read := file.readinto(buffer):
                crc32c(buffer[:read])
    return time.thread_time() - begun
