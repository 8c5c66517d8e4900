"""Messages of tests, as bytes and as values."""

from __future__ import annotations

from typing import Any

from tidelog.protocol import wire
from tidelog.record_exchange import FetchedPartition, ProduceBatch
from tidelog.types import Buffer, LeaderEpoch, Offset


def bytes_of(message: Any) -> bytes:
    """The message as it is sent: a protobuf message, or a value of `tidelog/record_exchange.py`."""
    return wire.writer(type(message))(message)


def sent(records: Buffer = b"", *, correlation_id: int = 0, partition: int = 0) -> ProduceBatch:
    """A batch of a request whose topic does not matter."""
    return ProduceBatch(b"", partition, records, correlation_id=correlation_id)


def fetched(**fields: Any) -> FetchedPartition:
    """The answer to a fetch; what a test does not name is 0."""
    zero = Offset(0)
    return FetchedPartition(b"", 0, LeaderEpoch(0), zero, zero, zero, preferred_read_replica=0)._replace(**fields)
