"""Events and effects of the transaction core, as values. Times are monotonic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidelog.client.group_metadata import GroupMetadata
from tidelog.client.group_offsets import OffsetCommitted
from tidelog.errors import TidelogError
from tidelog.types import Millis, ProducerId, TopicPartition


@dataclass(frozen=True, slots=True)
class TransactionPolicy:
    """transactional_id: of the producer. Limits in milliseconds; max_block_ms: of a call of the application, except for
    a commit, whose limit is transaction_timeout_ms."""

    transactional_id: str
    transaction_timeout_ms: int
    max_block_ms: int
    retry_backoff_ms: int
    retry_backoff_ms_max: int


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """An open transaction whose producer has left it: all its records and offsets are written, and nothing more is
    added. `Admin.end_prepared_transaction` ends it, from any process; otherwise its timeout does, or the next producer
    of the transactional id, and both abort it."""

    transactional_id: str
    producer_id: ProducerId
    epoch: int


# --- calls ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskProducerId:
    """InitProducerId. producer_id, epoch: those that the producer has; -1 for a new producer."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True)
class AskEnd:
    """EndTxn: commit or abort the transaction of this epoch."""

    producer_id: ProducerId
    epoch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class AskOffsets:
    """TxnOffsetCommit: commit offsets of a group with the transaction. group: of a member, as of the first attempt.
    has_member: each attempt asks the member for its present epoch; it fails if the member has lost what it read."""

    producer_id: ProducerId
    epoch: int
    group: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetCommitted]
    has_member: bool = False


Call: TypeAlias = AskProducerId | AskEnd | AskOffsets


# --- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BeginTransaction:
    """The application opens a transaction."""

    at: Millis


@dataclass(frozen=True, slots=True)
class AddOffsets:
    """The application commits offsets of a group with the open transaction. has_member: as in AskOffsets."""

    group: GroupMetadata
    offsets: Mapping[TopicPartition, OffsetCommitted]
    at: Millis
    has_member: bool = False


@dataclass(frozen=True, slots=True)
class CommitTransaction:
    """All records of the transaction are acknowledged: commit it. has_written: there are any."""

    has_written: bool
    at: Millis


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """Abort the open transaction. has_written: a record may have reached a leader."""

    has_written: bool
    at: Millis


@dataclass(frozen=True, slots=True)
class PrepareTransaction:
    """Leave the open transaction to another process, which ends it. has_written: a record may have reached a leader."""

    has_written: bool


@dataclass(frozen=True, slots=True)
class RecordsFailed:
    """Records of the open transaction are not acknowledged, or were never queued: it cannot be committed."""

    error: TidelogError
    at: Millis


@dataclass(frozen=True, slots=True)
class Identified:
    """Answer to AskProducerId and AskEnd: producer id and epoch of the next transaction."""

    producer_id: ProducerId
    epoch: int
    at: Millis


@dataclass(frozen=True, slots=True)
class OffsetsAdded:
    """Answer to AskOffsets."""

    at: Millis


@dataclass(frozen=True, slots=True)
class CallFailed:
    """The call was refused or not answered. is_applied: None if it may have been applied, otherwise False."""

    error: TidelogError
    is_applied: bool | None
    at: Millis


TransactionEvent: TypeAlias = (
    BeginTransaction
    | AddOffsets
    | CommitTransaction
    | AbortTransaction
    | PrepareTransaction
    | RecordsFailed
    | Identified
    | OffsetsAdded
    | CallFailed
)


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Make the call after a pause, and answer with Identified, OffsetsAdded or CallFailed; at the latest at `until`."""

    call: Call
    pause_ms: int
    until: Millis


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction is open: accept records."""

    producer_id: ProducerId
    epoch: int


@dataclass(frozen=True, slots=True)
class RecordsRefused:
    """The transaction accepts no more records; those without an outcome get this error."""

    reason: TidelogError


@dataclass(frozen=True, slots=True)
class Done:
    """The application's call has ended. error: what it raises."""

    error: TidelogError | None = None


TransactionEffect: TypeAlias = Ask | Opened | RecordsRefused | Done
