"""What reading along a log costs, beside a bare `pread` of the same bytes of the same file.

One thread, page cache, processor time, as suite_storage.py has it: log and `pread` take turns, each reads the whole
file from its beginning to its end, and each counts with its best turn. The log looks up nothing but its first offset:
a reader goes on where it stopped, as followers and consumers do. Every read checks the chain of batch headers; a chunk
ends with the last whole batch in it, so that the log makes a few more reads than `pread` for the same bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from bench.figure import Figure, Run
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_reader import LogRead
from tidelog.types import LeaderEpoch, Offset

CHUNK_BYTES: Final = 1 << 20
LOG_BYTES: Final = 128 << 20
ROUNDS: Final = 20


def reading(run: Run, log: Log, batch: bytes, name: str, target: float | None) -> Iterator[Figure]:
    """log: an empty one of a single segment. batch: what to fill it with; name: how large those are."""
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
    """Processor time of reading all of it, as a node does: without waiting for the disk."""
    offset, end, size = Offset(0), log.log_end_offset, 0
    begun = time.thread_time()
    while offset < end:
        read = log.try_fetch(offset, CHUNK_BYTES, FetchIsolation.LOG_END)
        while not isinstance(read, LogRead):  # the kernel is writing that page just now
            read.run()
            read = log.try_fetch(offset, CHUNK_BYTES, FetchIsolation.LOG_END, read)
        size += len(read.records)
        offset = read.next_offset
    taken = time.thread_time() - begun
    assert size == log.size, "every byte is read once"
    return taken


def read_raw(log: Log) -> float:
    """Processor time of the same bytes by nothing but the system's call."""
    fd = os.open(log.active.path, os.O_RDONLY)
    begun = time.thread_time()
    for position in range(0, log.size, CHUNK_BYTES):
        os.pread(fd, CHUNK_BYTES, position)
    taken = time.thread_time() - begun
    os.close(fd)
    return taken
