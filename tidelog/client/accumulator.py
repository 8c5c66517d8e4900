"""Producer queues: collect records into batches, one queue per partition, and account for their memory.

Invariants:
  1. A record joins the last batch of its partition's queue or opens a new batch behind it. The order within a
     partition is the order of the calls.
  2. A batch stays within `batch_bytes` unless a single record is larger.
  3. The memory of all batches without an outcome stays within `buffer_bytes`; the core has the sum.
Not here: when a batch is sent and what its answer means (producer_core.py). The sender calls `encode`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from tidelog.client.delivery import Outcome
from tidelog.client.sequences import PLAIN, Series, Stamp
from tidelog.errors import InvalidRecord, TidelogError
from tidelog.records import RecordBatchBuilder, set_producer
from tidelog.records.v2.record import Header
from tidelog.types import NO_LEADER_EPOCH, NO_NODE, Codec, LeaderEpoch, Millis, NodeId, TopicId, TopicPartition

RECORD_BYTES: Final = 24
"""Maximum overhead of the format for a record without headers: six varints and one byte of attributes."""
HEADER_BYTES_EACH: Final = 10
"""Maximum overhead of the format for one record header."""
OBJECT_BYTES: Final = 200
"""Python's object overhead for one waiting record (a tuple, two bytes headers, two integers)."""

Headers: TypeAlias = tuple[Header, ...]
Waiting: TypeAlias = tuple[bytes | None, bytes | None, Millis, Headers]
"""A record before it is encoded: key, value, timestamp, headers."""


@dataclass(slots=True, eq=False, repr=False)
class PendingBatch:
    """Records of one partition that are sent together and share one outcome."""

    batch_id: int
    queue: PartitionQueue
    created_ms: Millis
    expires_ms: Millis
    outcome: Outcome = field(init=False)
    records: list[Waiting] = field(default_factory=list)
    size: int = 0
    """Upper bound of the encoded size of the records, uncompressed."""
    sealed: bool = False
    """The batch takes no more records."""
    full: bool = False
    """Sealed because the next record did not fit."""
    hurried: bool = False
    """The batch does not linger."""
    attempts: int = 0
    """Number of times the batch was given to a node's stream."""
    attempts_elsewhere: int = 0
    """How many of these were made before the present leader was elected; the backoff does not count them."""
    cause: TidelogError | None = None
    """Error of the last attempt."""
    unknown_cause: TidelogError | None = None
    """Why it is unknown whether an earlier attempt was written; kept regardless of the answers to later attempts."""
    attempt: Attempt | None = None
    """The attempt whose answer decides; None while no stream has the batch."""
    finished: bool = False
    stamp: Stamp = PLAIN
    place: int = -1
    """Position among the numbered batches of the partition."""
    encoded: bytes = b""
    """The batch as it is sent; empty before `encode`."""
    _encoded_with: Stamp = PLAIN

    def __post_init__(self) -> None:
        self.outcome = Outcome(self.queue.topic_partition)

    @property
    def last_start_ms(self) -> Millis:
        """The latest time at which another attempt may begin."""
        failure = self.queue.failure
        # A batch that was queued after the failure may begin until it expires: else no attempt might end the failure.
        if failure is None or self.unknown_cause is not None or self.created_ms >= failure.at:
            return self.expires_ms
        # The batch is certainly not written yet. An attempt without time for its answer would make that unknown.
        return Millis(self.expires_ms - failure.needed_ms)

    @property
    def count(self) -> int:
        """Number of records that the batch writes to the log."""
        return self.outcome.records - len(self.outcome.left_out)

    @property
    def memory(self) -> int:
        """Bytes of the producer's memory that the batch uses."""
        return self.size + OBJECT_BYTES * self.outcome.records

    @property
    def follows_open(self) -> bool:
        """Whether a batch before this one, of those that have begun, may still be written with its present numbers."""
        queue = self.queue
        if queue.begun[0] is self or queue.series is None:
            return False
        before = queue.begun[: queue.begun.index(self)]
        return not queue.series.broken or any(
            one.attempt is not None or one.unknown_cause is not None for one in before
        )

    def encode(self, codec: Codec, level: int | None) -> None:
        """Build `encoded`, once, however often the batch is sent. Raises the builder's errors."""
        stamp = self.stamp
        if not self.encoded:
            builder = RecordBatchBuilder(
                codec,
                level=level,
                producer_id=stamp.producer_id,
                producer_epoch=stamp.epoch,
                base_sequence=stamp.sequence,
                is_transactional=self.queue.is_transactional,
            )
            builder.extend(self.records)
            self.encoded = builder.build()
            self.records = []
        elif self._encoded_with != stamp:  # renumbered: the records stay as they are encoded
            batch = bytearray(self.encoded)
            set_producer(
                batch,
                0,
                producer_id=stamp.producer_id,
                producer_epoch=stamp.epoch,
                base_sequence=stamp.sequence,
            )
            self.encoded = bytes(batch)
        self._encoded_with = stamp

    def faulty(self, codec: Codec, level: int | None, error: Exception) -> dict[int, TidelogError]:
        """Return the records that cannot be encoded, by index, with their errors, after `encode` raised `error`. If
        each record can be encoded alone, return all of them with `error`."""
        errors: dict[int, TidelogError] = {}
        for index, record in enumerate(self.records):
            try:
                builder = RecordBatchBuilder(codec, level=level)
                builder.extend([record])
                builder.build()
            except Exception as own:  # noqa: BLE001 - raised to the sender of the record
                errors[index] = _not_encoded(self.queue.topic_partition, own)
        return errors or dict.fromkeys(range(len(self.records)), _not_encoded(self.queue.topic_partition, error))

    def leave_out(self, faulty: Mapping[int, TidelogError]) -> None:
        """Remove these records from the batch. Their senders get the errors together with the batch's outcome."""
        self.outcome.left_out = dict(faulty)
        self.records = [record for index, record in enumerate(self.records) if index not in faulty]

    def drop(self) -> None:
        """Release the content: the batch has its outcome."""
        self.records, self.encoded = [], b""


class Failure(NamedTuple):
    """A failed attempt of a partition whose batch is sent again."""

    cause: TidelogError
    at: Millis
    needed_ms: int
    """The time that the next attempt must have for its answer: as much as the pause before it."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition in order, and its leader as far as it is known."""

    topic_partition: TopicPartition
    batches: deque[PendingBatch] = field(default_factory=deque)
    """Batches never given to a stream; all but the last one are sealed."""
    begun: list[PendingBatch] = field(default_factory=list)
    """Batches given to a node's stream at least once and still without an outcome; in order, all before `batches`."""
    series: Series | None = None
    """Numbering of an idempotent producer's batches; None if batches are sent without idempotence."""
    former_series: Series | None = None
    """The numbering used before the queue switched to sending without idempotence."""
    idempotent: bool = False
    """Whether to send with idempotence; `series` follows as soon as no batch is in flight."""
    is_transactional: bool = False
    """Whether each batch belongs to a transaction."""
    queued_bytes: int = 0
    topic_id: TopicId | None = None
    leader: NodeId = NO_NODE
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    lookup_pending: bool = False
    """A leader lookup is pending."""
    next_lookup_ms: Millis = Millis(0)
    """Earliest time of the next leader lookup, unless an event makes one necessary."""
    retry_ms: Millis = Millis(0)
    """No batch is sent before this time."""
    failure: Failure | None = None
    """The last failed attempt since the last acknowledgement."""
    alarm_ms: Millis | None = None
    """Latest time at which the core handles the queue again."""

    def switch(self) -> None:
        """Switch between sending with and without idempotence. Used sequence numbers are not reused."""
        self.series, self.former_series = (
            (self.former_series or Series(), None) if self.idempotent else (None, self.series)
        )


@dataclass(slots=True, eq=False)
class Attempt:
    """One try to append a batch: the batch was given to a node's stream."""

    attempt_id: int
    """Never reused, so that a late answer is attributed correctly."""
    batch: PendingBatch
    node: NodeId
    leader_epoch: LeaderEpoch
    give_up_ms: Millis
    """Time at which the attempt counts as lost."""
    lookup_ms: Millis
    """Time of a leader lookup, even if nothing failed."""
    sent_ms: Millis | None = None
    """Time at which the batch was handed to the network. From then on only an answer shows whether it was written."""
    has_place: bool = True
    """Whether the batch counts as under way to the node."""
    follows_open: bool = False
    """An earlier batch had no outcome when this one was sent, so it may still arrive."""

    @property
    def sent(self) -> bool:
        """Whether the batch may be in the log."""
        return self.sent_ms is not None


def record_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of the encoded size of a record."""
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
    """Return the headers as (str, bytes | None) pairs. Raises TypeError for another type, InvalidRecord for a name that
    cannot be encoded as UTF-8."""
    if isinstance(headers, Mapping | str | bytes | bytearray | memoryview) or not isinstance(headers, Iterable):
        hint = ": pass its items()" if isinstance(headers, Mapping) else f": {headers!r}"
        raise TypeError(
            f"headers must be (name, value) pairs, for example a list of them, not {type(headers).__name__}{hint}"
        )
    checked = []
    for pair in headers:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"a record header must be a (name, value) pair, not {type(pair).__name__}: {pair!r}")
        name, content = pair
        if not isinstance(name, str):
            raise TypeError(f"the name of a record header must be a str, not {type(name).__name__}: {name!r}")
        try:
            name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as cause:
            raise InvalidRecord(f"the name of a record header {name!r} cannot be encoded as UTF-8") from cause
        checked.append((name, as_bytes("the value of a record header", content)))
    return tuple(checked)


def as_bytes(what: str, data: object) -> bytes | None:
    """Return the bytes of a bytes-like object, or None for None. Raises TypeError for other types, including str."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"{what} must be bytes or None, not {type(data).__name__}: encode it first")


def _not_encoded(topic_partition: TopicPartition, cause: Exception) -> TidelogError:
    if isinstance(cause, TidelogError):
        return cause
    error = InvalidRecord(
        f"a record for {topic_partition} cannot be encoded ({cause!r}) although its fields were checked: this is a "
        "defect of the producer, please report it. The record was not sent; the others are sent."
    )
    error.__cause__ = cause
    return error
