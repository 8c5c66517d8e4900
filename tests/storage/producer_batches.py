"""Batches of idempotent and transactional producers in a log."""

from __future__ import annotations

import random

from storage.append_info import LogAppendInfo, Origin
from tests.storage.workbench import NOW, Bench
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch
from tidelog.types import LeaderEpoch


def from_producer(
    producer: int, sequence: int, count: int = 1, *, epoch: int = 0, txn: bool = False, at: int = NOW, size: int = 5
) -> bytes:
    """A batch as an idempotent producer sends it."""
    builder = RecordBatchBuilder(
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn
    )
    for _ in range(count):
        builder.append(key=b"k", value=b"v" * size, timestamp=at)
    return builder.build()


class Sender:
    """Producers that number their batches, on one log."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.next: dict[int, int] = {}

    def send(self, producer: int, count: int = 1, *, txn: bool = False, size: int = 5) -> LogAppendInfo:
        sequence = self.next.get(producer, 0)
        self.next[producer] = sequence + count
        return append(self.bench, from_producer(producer, sequence, count, txn=txn, size=size))

    def end(self, producer: int, *, commit: bool, coordinator: int = 0) -> int:
        return end(self.bench, producer, commit=commit, coordinator=coordinator)


def append(bench: Bench, data: bytes, origin: Origin = Origin.CLIENT) -> LogAppendInfo:
    return bench.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0), origin=origin)


def end(bench: Bench, producer: int, *, commit: bool, epoch: int = 0, coordinator: int = 0) -> int:
    marker = control_batch(
        EndTxnMarker(committed=commit, coordinator_epoch=coordinator),
        timestamp=NOW,
        producer_id=producer,
        producer_epoch=epoch,
    )
    return append(bench, marker, Origin.COORDINATOR).last_offset


def commit_all(bench: Bench) -> None:
    bench.log.advance_high_watermark(bench.log.log_end_offset)


def eventful(bench: Bench, seed: int = 3, steps: int = 120) -> Sender:
    """Transactions of four producers, some open, some aborted, over several segments."""
    rng, sender, opened = random.Random(seed), Sender(bench), set[int]()
    for _ in range(steps):
        producer = rng.randrange(1, 5)
        if producer in opened and rng.random() < 0.3:
            sender.end(producer, commit=rng.random() < 0.4)
            opened.discard(producer)
        else:
            txn = producer in opened or rng.random() < 0.7
            opened |= {producer} if txn else set()
            sender.send(producer, rng.randrange(1, 4), txn=txn, size=rng.randrange(60))
    commit_all(bench)
    return sender
