"""Batches of transactions, and a log with offsets that readers get no record for."""

from __future__ import annotations

from tests.client.memory_cluster import MemoryPartition
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch


def data(producer: int, count: int = 1, *, txn: bool = True, base: int = 0) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=txn
    )
    for _ in range(count):
        builder.append(key=None, value=b"v", timestamp=1)
    return builder.build()


def marker(producer: int, *, commit: bool = False, base: int = 0) -> bytes:
    end = EndTxnMarker(committed=commit, coordinator_epoch=0)
    return control_batch(end, timestamp=1, producer_id=producer, producer_epoch=0, base_offset=base)


def fill(partition: MemoryPartition) -> None:
    """Offsets 0 and 2 outside of transactions, 1 and 5 aborted, 3 committed, 8 open."""
    for batch in (
        data(1, txn=False),
        data(2),
        data(2, txn=False),
        data(3),
        marker(3, commit=True),
        data(2),
        marker(2),
        data(2, txn=False),
        data(4),
        data(1, txn=False),
    ):
        partition.append(batch)
    partition.aborted, partition.open_since = [(2, 1)], 8
