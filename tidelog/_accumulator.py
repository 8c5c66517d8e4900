"""Records on their way into batches: one queue per partition, one account of the memory they take.

Kept true:
  1. A record joins the last batch of its partition's queue or opens a new one behind it: order within a partition is
     the order of the calls.
  2. A batch stays within `batch_bytes` unless a single record alone is larger.
  3. `Memory.used` is the sum over all batches that have no outcome yet, and is what `buffer_bytes` bounds.
Left to others: when a batch is sent, and what its fate means (_producer_core.py); turning it into bytes (encode here is
called by whoever sends).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.delivery import Outcome
from tidelog.errors import TidelogError
from tidelog.records import RecordBatchBuilder
from tidelog.records.record import Header
from tidelog.types import NO_LEADER_EPOCH, NO_NODE, Codec, LeaderEpoch, Millis, NodeId, TopicId, TopicPartition

RECORD_BYTES: Final = 24
"""Most that the format adds to key and value of a record without headers: six varints and one byte of attributes."""
HEADER_BYTES_EACH: Final = 10
"""Most that the format adds to name and value of one record header."""
OBJECT_BYTES: Final = 200
"""What Python's objects for one waiting record take beside its bytes (a tuple, two bytes headers, two integers)."""

Headers: TypeAlias = tuple[Header, ...]
Waiting: TypeAlias = tuple[bytes | None, bytes | None, Millis, Headers]
"""A record on its way: key, value, timestamp, headers."""


@dataclass(slots=True)
class Memory:
    """Bytes that records without an outcome take."""

    used: int = 0


class PendingBatch:
    """Records of one partition that share one fate."""

    __slots__ = (
        "attempts",
        "batch_id",
        "cause",
        "created_ms",
        "doubt",
        "encoded",
        "expires_ms",
        "outcome",
        "queue",
        "records",
        "sealed",
        "size",
    )

    def __init__(self, batch_id: int, queue: PartitionQueue, created_ms: Millis, expires_ms: Millis) -> None:
        self.batch_id = batch_id
        self.queue = queue
        self.created_ms = created_ms
        self.expires_ms = expires_ms
        self.outcome = Outcome(queue.topic_partition)
        self.records: list[Waiting] = []
        self.size = 0
        """Most bytes that the records can take, uncompressed."""
        self.sealed = False
        self.attempts = 0
        """How often it has been given to a node's stream."""
        self.cause: TidelogError | None = None
        """Why the last attempt failed."""
        self.doubt: TidelogError | None = None
        """Why nobody could tell about an earlier attempt; stays, whatever later attempts are told."""
        self.encoded: bytes | None = None

    @property
    def memory(self) -> int:
        """Its share of the producer's memory."""
        return self.size + OBJECT_BYTES * self.outcome.records

    def encode(self, codec: Codec, level: int | None) -> bytes:
        """The record batch, made once however often it is sent. Raises what the builder raises."""
        if self.encoded is None:
            builder = RecordBatchBuilder(codec, level=level)
            builder.extend(self.records)
            self.encoded = builder.build()
            self.records = []
        return self.encoded


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition in order, and what is known of its leader."""

    topic_partition: TopicPartition
    batches: deque[PendingBatch] = field(default_factory=deque)
    """Waiting ones, the one in flight not among them; only the last may be open."""
    in_flight: InFlight | None = None
    queued_bytes: int = 0
    topic_id: TopicId | None = None
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    leader_sought: bool = False
    """A lookup of the leader was asked for and has not been answered."""
    retry_ms: Millis = Millis(0)
    """Nothing is sent before this time."""
    alarm_ms: Millis | None = None
    """When the core looks at the queue again, at the latest."""

    @property
    def open_batch(self) -> PendingBatch | None:
        """The batch that still takes records."""
        if self.batches and not self.batches[-1].sealed:
            return self.batches[-1]
        return None


@dataclass(slots=True, eq=False)
class InFlight:
    """The one batch of a partition that a node's stream has been given."""

    batch: PendingBatch
    node: NodeId
    leader_epoch: LeaderEpoch
    give_up_ms: Millis
    """When its answer counts as not coming."""
    ask_ms: Millis
    """When the leader is looked up although nothing failed."""
    sent: bool = False
    """Handed to the network: from here on nobody can tell without an answer."""


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Most bytes that a record takes in a batch."""
    size = RECORD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        size += HEADER_BYTES_EACH + len(name.encode("utf-8", "surrogateescape"))
        if content is not None:
            size += len(content)
    return size


def checked_headers(headers: Iterable[Header]) -> Headers:
    """Headers as (str, bytes | None) pairs. Raises TypeError for anything else."""
    checked = []
    for pair in headers:
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a record header is a str, not {type(name).__name__}: {name!r}")
        checked.append((name, as_bytes("the value of a record header", content)))
    return tuple(checked)


def as_bytes(what: str, data: object) -> bytes | None:
    """Bytes of a bytes-like object, None of None. Raises TypeError for anything else, str above all."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{what} is bytes or None, not {type(data).__name__}: encode it first")
