"""Records on their way into batches: one queue per partition, one account of the memory they take.

Kept true:
  1. A record joins the last batch of its partition's queue or opens a new one behind it: order within a partition is
     the order of the calls.
  2. A batch stays within `batch_bytes` unless a single record alone is larger.
  3. `Memory.used` is the sum over all batches that have no outcome yet, and is what `buffer_bytes` bounds.
Left to others: when a batch is sent, and what its fate means (producer_core.py); turning it into bytes (encode here is
called by whoever sends).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidelog.client.delivery import Outcome
from tidelog.client.sequences import PLAIN, Series, Stamp
from tidelog.errors import InvalidRecord, TidelogError
from tidelog.records import RecordBatchBuilder, set_producer
from tidelog.records.v2.record import Header
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
        "_encoded",
        "attempt",
        "attempts",
        "attempts_elsewhere",
        "batch_id",
        "cause",
        "created_ms",
        "doubt",
        "expires_ms",
        "finished",
        "outcome",
        "place",
        "queue",
        "records",
        "sealed",
        "size",
        "stamp",
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
        self.attempts_elsewhere = 0
        """How many of these were before the present leader led: they say nothing of how busy that one is."""
        self.cause: TidelogError | None = None
        """Why the last attempt failed."""
        self.doubt: TidelogError | None = None
        """Why nobody could tell about an earlier attempt; stays, whatever later attempts are told."""
        self.attempt: Attempt | None = None
        """The attempt that decides: None while no stream has the batch."""
        self.finished = False
        self.stamp = PLAIN
        self.place = -1
        """Its place among the numbered batches of the partition."""
        self._encoded: tuple[Stamp, bytes] | None = None

    @property
    def count(self) -> int:
        """How many records it takes to the log."""
        return self.outcome.records - len(self.outcome.left_out)

    @property
    def memory(self) -> int:
        """Its share of the producer's memory."""
        return self.size + OBJECT_BYTES * self.outcome.records

    def encode(self, codec: Codec, level: int | None) -> bytes:
        """The record batch, made once however often it is sent. Raises what the builder raises."""
        stamp = self.stamp
        if self._encoded is None:
            builder = RecordBatchBuilder(
                codec,
                level=level,
                producer_id=stamp.producer_id,
                producer_epoch=stamp.epoch,
                base_sequence=stamp.sequence,
            )
            builder.extend(self.records)
            self._encoded = stamp, builder.build()
            self.records = []
        elif self._encoded[0] != stamp:  # numbered anew
            batch = bytearray(self._encoded[1])
            set_producer(
                batch,
                0,
                producer_id=stamp.producer_id,
                producer_epoch=stamp.epoch,
                base_sequence=stamp.sequence,
            )
            self._encoded = stamp, bytes(batch)
        return self._encoded[1]

    def faulty(self, codec: Codec, level: int | None, error: Exception) -> dict[int, TidelogError]:
        """Why `encode` raised `error`: the records that no batch can be made of, by their index, and what is wrong with
        each; all of them where each alone is well."""
        found: dict[int, TidelogError] = {}
        for index, record in enumerate(self.records):
            try:
                builder = RecordBatchBuilder(codec, level=level)
                builder.extend([record])
                builder.build()
            except Exception as own:  # noqa: BLE001 - raised to the sender of the record
                found[index] = _not_encoded(self.queue.topic_partition, own)
        return found or dict.fromkeys(range(len(self.records)), _not_encoded(self.queue.topic_partition, error))

    def leave_out(self, faulty: Mapping[int, TidelogError]) -> None:
        """Go on without these records; their senders get the errors with the outcome of the others."""
        self.outcome.left_out = dict(faulty)
        self.records = [record for index, record in enumerate(self.records) if index not in faulty]

    def drop(self) -> None:
        """It has its outcome: nothing of its content is needed any more."""
        self.records, self._encoded = [], None


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition in order, and what is known of its leader."""

    topic_partition: TopicPartition
    batches: deque[PendingBatch] = field(default_factory=deque)
    """Waiting ones, those that were begun not among them; only the last may be open."""
    begun: list[PendingBatch] = field(default_factory=list)
    """Given to a node's stream at least once, and without an outcome; in order, and all before `batches`."""
    series: Series | None = None
    """The numbers of an idempotent producer's batches; None: sent without idempotence."""
    laid_by: Series | None = None
    """The numbers used before it was sent without."""
    idempotent: bool = False
    """How it is to be written to; `series` follows when nothing is under way."""
    queued_bytes: int = 0
    topic_id: TopicId | None = None
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    leader_sought: bool = False
    """A lookup of the leader was asked for and has not been answered."""
    look_ms: Millis = Millis(0)
    """The leader is not looked up again before this time, unless something new happens."""
    retry_ms: Millis = Millis(0)
    """Nothing is sent before this time."""
    alarm_ms: Millis | None = None
    """When the core looks at the queue again, at the latest."""

    @property
    def depth(self) -> int:
        """Batches without an outcome."""
        return len(self.begun) + len(self.batches)

    @property
    def open_batch(self) -> PendingBatch | None:
        """The batch that still takes records."""
        if self.batches and not self.batches[-1].sealed:
            return self.batches[-1]
        return None


@dataclass(slots=True, eq=False)
class Attempt:
    """One try to have a batch appended: it was given to a node's stream."""

    attempt_id: int
    """Never used again: an answer names it, however late it comes."""
    batch: PendingBatch
    node: NodeId
    leader_epoch: LeaderEpoch
    give_up_ms: Millis
    """When its answer counts as not coming."""
    ask_ms: Millis
    """When the leader is looked up although nothing failed."""
    sent_ms: Millis | None = None
    """When it was handed to the network: from there on nobody can tell without an answer."""
    follows_open: bool = False
    """When it was sent, an earlier batch had no outcome yet: that one may be missing, rather than lost."""

    @property
    def sent(self) -> bool:
        """Whether it may be in the log."""
        return self.sent_ms is not None


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


def checked_headers(headers: object) -> Headers:
    """Headers as (str, bytes | None) pairs. Raises TypeError for anything else, InvalidRecord for a name that UTF-8
    cannot write."""
    if isinstance(headers, Mapping | str | bytes | bytearray | memoryview) or not isinstance(headers, Iterable):
        hint = ": pass its items()" if isinstance(headers, Mapping) else f": {headers!r}"
        raise TypeError(
            f"headers are (name, value) pairs, for example a list of them, not {type(headers).__name__}{hint}"
        )
    checked = []
    for pair in headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a record header is a (name, value) pair, not {type(pair).__name__}: {pair!r}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a record header is a str, not {type(name).__name__}: {name!r}")
        try:
            name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as cause:
            raise InvalidRecord(f"the name of a record header {name!r}: UTF-8 cannot write it") from cause
        checked.append((name, as_bytes("the value of a record header", content)))
    return tuple(checked)


def as_bytes(what: str, data: object) -> bytes | None:
    """Bytes of a bytes-like object, None of None. Raises TypeError for anything else, str above all."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{what} is bytes or None, not {type(data).__name__}: encode it first")


def _not_encoded(topic_partition: TopicPartition, cause: Exception) -> TidelogError:
    if isinstance(cause, TidelogError):
        return cause
    error = InvalidRecord(
        f"a record for {topic_partition} cannot be encoded ({cause!r}), although its fields were checked: this is a "
        "defect of the producer, please report it. The record was not sent, others are."
    )
    error.__cause__ = cause
    return error
