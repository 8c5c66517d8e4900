"""Messages of tests, as bytes and as values."""

from __future__ import annotations

from typing import Any

from node.requests.fetch_session import FetchSession
from tidelog.client.accumulator import PendingBatch
from tidelog.record_exchange import FetchedPartition, ProduceBatch
from tidelog.types import Buffer, Codec, LeaderEpoch, Offset


def encoded_batch(batch: PendingBatch) -> bytes:
    """A batch of the producer's queues as it is sent."""
    batch.encode(Codec.NONE, None)
    return batch.encoded


def sent(records: Buffer = b"", *, correlation_id: int = 0, partition: int = 0) -> ProduceBatch:
    """A batch of a request whose topic does not matter."""
    return ProduceBatch(b"", partition, records, correlation_id=correlation_id)


def fetched(**fields: Any) -> FetchedPartition:
    """The answer to a fetch; what a test does not name is 0."""
    zero = Offset(0)
    return FetchedPartition(b"", 0, LeaderEpoch(0), zero, zero, zero, preferred_read_replica=0)._replace(**fields)


def collected(session: FetchSession, enough: int = 1 << 20, *, read: bool = False) -> list[FetchedPartition]:
    """The answers that are due. read: those to fetches whose records were read from disk."""
    answers: list[FetchedPartition] = []
    (session.collect_read if read else session.collect)(answers, enough)
    return answers
