"""The cost of sequential reads of a log, compared with a bare `pread` of the same bytes of the same file.

One thread, page cache, processor time, as in suite_storage.py: log and `pread` take turns, each reads the whole file
from start to end, and each counts with its best turn. The log looks up only its first offset: a reader continues at its
last position, as followers and consumers do. Every read verifies the chain of batch headers. A chunk ends with its last
whole batch, so the log makes slightly more reads than `pread` for the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from bench.figure import Figure, Run
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from tidelog.types import LeaderEpoch, Offset

CHUNK_BYTES: Final = 1 << 20
LOG_BYTES: Final = 128 << 20
ROUNDS: Final = 20


def reading(run: Run, log: Log, batch: bytes, name: str, target: float | None) -> Iterator[Figure]:
    """log: an empty one of a single segment. batch: its content. name: the size of the batches."""
    while log.size < LOG_BYTES // (8 if run.quick else 1):
        log.append(batch, assign_offsets=True, leader_epoch=LeaderEpoch(0))
    raw, ours = [], []
    for _ in range(3 if run.quick else ROUNDS):
        raw.append(read_raw(log))
        ours.append(read_log(log))
    yield Figure(
        f"reading chunks of 1 MiB of batches of {name}, against raw pread",
        log.size / 1e6 / min(ours),
        "MB/s",
        log.size / 1e6 / min(raw),
        target=target,
    )
    log.close()


def read_log(log: Log) -> float:
    """Processor time to read the whole log as a node does: without waiting for the disk."""
    offset, end, size = Offset(0), log.log_end_offset, 0
    begun = time.thread_time()
    while offset < end:
        read = log.try_fetch(offset, CHUNK_BYTES, FetchIsolation.LOG_END)
        while not isinstance(read, LogRead):  # the kernel is writing that page at the moment
            read.run()
            read = log.try_fetch(offset, CHUNK_BYTES, FetchIsolation.LOG_END, read)
        size += len(read.records)
        offset = read.next_offset
    taken = time.thread_time() - begun
    assert size == log.size, "every byte is read once"
    return taken


def read_raw(log: Log) -> float:
    """Processor time of the bare system calls for the same bytes."""
    fd = os.open(log.active.path, os.O_RDONLY)
    begun = time.thread_time()
    for position in range(0, log.size, CHUNK_BYTES):
        os.pread(fd, CHUNK_BYTES, position)
    taken = time.thread_time() - begun
    os.close(fd)
    return taken
