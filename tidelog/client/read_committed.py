"""Read-committed filtering: drops the batches of aborted transactions.

Invariants: an aborted batch is replaced by an empty one with the same offsets, so that position and epoch move over it.
Not here: the list of aborted transactions (sent by the node), control batches, which are never returned (consumer.py).
Source: KIP-98; Kafka's Fetcher.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from tidelog.errors import InvalidConfig
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import AbortedStart
from tidelog.records import RecordBatch, empty_batch
from tidelog.types import NO_PRODUCER_ID, Isolation

IsolationName: TypeAlias = Literal["read_uncommitted", "read_committed"]
IsolationLevel: TypeAlias = IsolationName | Isolation

LEVELS: Final = {
    Isolation.READ_UNCOMMITTED: data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED,
    Isolation.READ_COMMITTED: data_pb2.ISOLATION_LEVEL_READ_COMMITTED,
}


def isolation_of(value: IsolationLevel) -> Isolation:
    """ "read_uncommitted" or "read_committed". Raises InvalidConfig."""
    if isinstance(value, Isolation):
        return value
    try:
        return {isolation.name.lower(): isolation for isolation in Isolation}[value]
    except (KeyError, TypeError):
        raise InvalidConfig(f'isolation={value!r}: use "read_uncommitted" or "read_committed"') from None


def hide_aborted(batches: Sequence[RecordBatch], aborted: Iterable[AbortedStart]) -> tuple[RecordBatch, ...]:
    """Return the batches of one answer, those of aborted transactions without their records.

    aborted: every aborted transaction with records in the answer. Raises OffsetsNotMonotonic for a corrupt batch.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    if not waiting:
        return tuple(batches)
    open_now: set[int] = set()
    shown = []
    for batch in batches:
        while waiting and waiting[-1].first_offset <= batch.last_offset:
            open_now.add(waiting.pop().producer_id)
        if batch.producer_id > NO_PRODUCER_ID and batch.is_control:
            open_now.discard(batch.producer_id)
        hidden = batch.is_transactional and not batch.is_control and batch.producer_id in open_now
        shown.append(RecordBatch(empty_batch(batch)) if hidden else batch)
    return tuple(shown)
