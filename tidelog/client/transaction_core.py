"""Transaction core: when a transaction of a producer begins and how it ends. Pure: calls in, effects
out. The states are drawn in docs/client.md.

Invariants:
  1. A transaction is reported as committed only after the coordinator has confirmed it, and as aborted only if it is
     certain that it is not committed. Otherwise its outcome is TransactionOutcomeUnknown.
  2. Once a request to commit may have been applied, only the answer to the same request decides: repeating EndTxn is
     idempotent, because each transaction has its own epoch (KIP-890). An abort is never requested then.
  3. After a failure in a transaction, only its end is requested.
  4. One call is under way at a time.
  5. The coordinator decides whether the producer is fenced: a producer whose epoch is refused requests its next epoch
     with the present one, and only the newest producer gets it (KIP-360, KIP-588).
Not here: records (transactional_core.py), the calls themselves (transactions.py).
Source: KIP-98, KIP-360, KIP-447, KIP-588, KIP-890; Kafka's TransactionManager, which ends in a fatal error more often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, TypeAlias

from tidelog.client.group_metadata import GroupMetadata
from tidelog.client.group_offsets import OffsetCommitted
from tidelog.client.retries import backoff_ms
from tidelog.errors import (
    ConcurrentTransactions,
    ConnectionFailed,
    InvalidProducerEpoch,
    InvalidTxnState,
    ProducerFenced,
    RebalanceInProgress,
    RequestTimedOut,
    Retry,
    StaleMemberEpoch,
    TidelogError,
    TransactionAbortable,
    TransactionAborted,
    TransactionOutcomeUnknown,
    UnknownTopicOrPartition,
)
from tidelog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Millis, ProducerId, TopicPartition

CONCURRENT_MS: Final = 20
"""First pause after ConcurrentTransactions: the coordinator completes the last transaction in some milliseconds."""

IDLE_MS: Final = 10_000
"""After such a pause the producer id is requested again before the next transaction: the coordinator may have removed
the transactional id (`transactional.id.expiration.ms`). No transaction is open that this could end."""

UNKNOWN_TOPIC_MS: Final = 3_000
"""How long the offset of an unknown partition is sent again: a node may not have applied a new topic yet."""

_SURELY_NOT_COMMITTED: Final = (InvalidTxnState, TransactionAbortable)
"""Answers to a commit by which the transaction of this epoch has no writes, or was aborted."""


@dataclass(frozen=True, slots=True)
class TransactionPolicy:
    """Options of a transactional producer; limits in milliseconds."""

    transactional_id: str
    transaction_timeout_ms: int
    """Also the limit of a commit."""
    max_block_ms: int
    """Limit of all other calls of the application."""
    retry_backoff_ms: int
    retry_backoff_ms_max: int


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """An open transaction whose producer has left it: all its records and offsets are written, and no more are added.
    `Admin.end_prepared_transaction` commits or aborts it, from any process. Its timeout, and the next producer of the
    transactional id, abort it."""

    transactional_id: str
    producer_id: ProducerId
    epoch: int


# --- calls ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AskProducerId:
    """InitProducerId. producer_id, epoch: the present ones; -1 for a new producer."""

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
    """TxnOffsetCommit: commit offsets of a group with the transaction."""

    producer_id: ProducerId
    epoch: int
    group: GroupMetadata
    """The identity of the committer at the first attempt."""
    offsets: Mapping[TopicPartition, OffsetCommitted]
    has_member: bool = False
    """The committer is a member: each attempt carries its present epoch, and fails if it has lost these partitions."""


Call: TypeAlias = AskProducerId | AskEnd | AskOffsets


# --- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Make the call after a pause, and report its answer or failure to the core; at the latest at `until`."""

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
    """The application's call has ended. error: the one that it raises, or None."""

    error: TidelogError | None = None


TransactionEffect: TypeAlias = Ask | Opened | RecordsRefused | Done


# --- states -----------------------------------------------------------------------------------------------------


class TransactionalState(Enum):
    """State of a transactional producer."""

    NEW = "without a producer id, or with one that must be requested again"
    STARTING = "waiting for its producer id"
    READY = "without an open transaction"
    OPEN = "open"
    ABORT_ONLY = "open, and can only be aborted"
    COMMITTING = "being committed"
    ABORTING = "being aborted"
    PREPARED = "left to another process, which ends it"
    FAILED = "failed"


class TransactionalCause(Enum):
    """Cause of a transition."""

    BEGIN = "the application opens a transaction"
    BEGIN_AFTER_PAUSE = "the same, so late that the coordinator may have forgotten the transactional id"
    IDENTIFIED = "the coordinator has given producer id and epoch"
    NOT_IDENTIFIED = "the coordinator refuses, or does not answer in time"
    PART_FAILED = "a record or the offsets of the transaction failed"
    COMMIT = "the block ends"
    ABORT = "an exception leaves the block, or the application aborts"
    PREPARE = "the application leaves the transaction to another process"
    NOTHING_WRITTEN = "the coordinator does not know the transaction: no record and no offset was sent"
    ENDED = "the coordinator has committed or aborted"
    NOT_COMMITTED = "the coordinator certainly did not commit"
    NOT_CONFIRMED = "the coordinator did not confirm the abort, which is certain anyway"
    OUTCOME_UNKNOWN = "it is unknown whether the coordinator has committed"
    FENCED = "a newer producer has the transactional id"


TRANSITIONS: Final = {
    (TransactionalState.NEW, TransactionalCause.BEGIN): TransactionalState.STARTING,
    (TransactionalState.STARTING, TransactionalCause.IDENTIFIED): TransactionalState.OPEN,
    (TransactionalState.STARTING, TransactionalCause.NOT_IDENTIFIED): TransactionalState.NEW,
    (TransactionalState.STARTING, TransactionalCause.FENCED): TransactionalState.FAILED,
    (TransactionalState.READY, TransactionalCause.BEGIN): TransactionalState.OPEN,
    (TransactionalState.READY, TransactionalCause.BEGIN_AFTER_PAUSE): TransactionalState.STARTING,
    (TransactionalState.OPEN, TransactionalCause.PART_FAILED): TransactionalState.ABORT_ONLY,
    (TransactionalState.OPEN, TransactionalCause.COMMIT): TransactionalState.COMMITTING,
    (TransactionalState.OPEN, TransactionalCause.ABORT): TransactionalState.ABORTING,
    (TransactionalState.OPEN, TransactionalCause.PREPARE): TransactionalState.PREPARED,
    (TransactionalState.OPEN, TransactionalCause.NOTHING_WRITTEN): TransactionalState.READY,
    (TransactionalState.OPEN, TransactionalCause.FENCED): TransactionalState.FAILED,
    (TransactionalState.ABORT_ONLY, TransactionalCause.ABORT): TransactionalState.ABORTING,
    (TransactionalState.ABORT_ONLY, TransactionalCause.NOTHING_WRITTEN): TransactionalState.READY,
    (TransactionalState.COMMITTING, TransactionalCause.ENDED): TransactionalState.READY,
    (TransactionalState.COMMITTING, TransactionalCause.NOT_COMMITTED): TransactionalState.NEW,
    (TransactionalState.COMMITTING, TransactionalCause.OUTCOME_UNKNOWN): TransactionalState.FAILED,
    (TransactionalState.COMMITTING, TransactionalCause.FENCED): TransactionalState.FAILED,
    (TransactionalState.ABORTING, TransactionalCause.ENDED): TransactionalState.READY,
    (TransactionalState.ABORTING, TransactionalCause.NOT_CONFIRMED): TransactionalState.NEW,
    (TransactionalState.ABORTING, TransactionalCause.FENCED): TransactionalState.FAILED,
}


def needs_lookup(error: TidelogError) -> bool:
    """Whether the coordinator may be another node now."""
    return error.retry is Retry.ELSEWHERE or isinstance(error, ConnectionFailed | RequestTimedOut)


@dataclass(slots=True)
class _RepeatedCall:
    """A call to a coordinator that is repeated until it is answered."""

    call: Call
    begun: Millis
    until: Millis
    failures: int = 0
    may_be_applied: bool = False
    """An attempt without an answer may have been applied."""


class TransactionCore:
    """State of one transactional producer."""

    def __init__(self, policy: TransactionPolicy, rng: Random) -> None:
        self.policy = policy
        self.state = TransactionalState.NEW
        self.failure: TidelogError | None = None
        """Why the open transaction cannot be committed, or why the producer has failed."""
        self._rng = rng
        self._producer_id, self._epoch = ProducerId(NO_PRODUCER_ID), NO_PRODUCER_EPOCH
        self._identified_at = Millis(0)
        """When the coordinator last confirmed the producer."""
        self._question: _RepeatedCall | None = None
        self._has_offsets = False
        """Offsets may have been added to the open transaction."""

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return self._question is not None

    @property
    def identity(self) -> tuple[ProducerId, int]:
        """The present producer id and epoch; NO_PRODUCER_ID before the first transaction."""
        return self._producer_id, self._epoch

    @property
    def has_failed(self) -> bool:
        """Whether the producer must end."""
        return self.state is TransactionalState.FAILED

    # --- calls of the application -------------------------------------------------------------------------------
    # These raise InvalidTxnState, or the reason why the producer has failed, if the state does not allow the call;
    # nothing has changed then.

    def begin(self, at: Millis) -> list[TransactionEffect]:
        """Open a transaction."""
        self._ensure(TransactionalState.NEW, TransactionalState.READY)
        is_ready = self.state is TransactionalState.READY
        if is_ready and at - self._identified_at < IDLE_MS:
            return self._open(TransactionalCause.BEGIN)
        self._move(TransactionalCause.BEGIN_AFTER_PAUSE if is_ready else TransactionalCause.BEGIN)
        return self._ask(AskProducerId(self._producer_id, self._epoch), at, self.policy.max_block_ms)

    def add_offsets(
        self,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetCommitted],
        at: Millis,
        *,
        has_member: bool = False,
    ) -> list[TransactionEffect]:
        """Commit offsets of a group with the open transaction. has_member: as in AskOffsets."""
        self._ensure(TransactionalState.OPEN)
        self._has_offsets = True
        call = AskOffsets(self._producer_id, self._epoch, group, offsets, has_member)
        return self._ask(call, at, self.policy.max_block_ms)

    def commit(self, at: Millis, *, has_written: bool) -> list[TransactionEffect]:
        """Commit the transaction: all its records are acknowledged. has_written: there are any."""
        self._ensure(TransactionalState.OPEN)
        return self._end(TransactionalCause.COMMIT, at, has_written=has_written)

    def abort(self, at: Millis, *, has_written: bool) -> list[TransactionEffect]:
        """Abort the open transaction. has_written: a record may have reached a leader."""
        self._ensure(TransactionalState.OPEN, TransactionalState.ABORT_ONLY)
        return self._end(TransactionalCause.ABORT, at, has_written=has_written)

    def prepare(self, *, has_written: bool) -> list[TransactionEffect]:
        """Leave the open transaction to another process, which ends it. has_written: as for `abort`."""
        self._ensure(TransactionalState.OPEN)
        if not has_written and not self._has_offsets:
            raise InvalidTxnState(f"the transaction of {self._name} has neither records nor offsets: send some first")
        self._move(TransactionalCause.PREPARE)
        return [Done()]

    def _open(self, cause: TransactionalCause) -> list[TransactionEffect]:
        self._move(cause)
        self.failure, self._has_offsets = None, False
        return [Opened(self._producer_id, self._epoch), Done()]

    def _end(self, cause: TransactionalCause, at: Millis, *, has_written: bool) -> list[TransactionEffect]:
        """Request the end of the transaction. The coordinator does not know a transaction without records and
        offsets."""
        committed = cause is TransactionalCause.COMMIT
        effects: list[TransactionEffect] = [] if committed else [RecordsRefused(self._aborted())]
        if not has_written and not self._has_offsets:
            self._move(TransactionalCause.NOTHING_WRITTEN)
            return [*effects, Done()]
        self._move(cause)
        limit_ms = self.policy.transaction_timeout_ms if committed else self.policy.max_block_ms
        return [*effects, *self._ask(AskEnd(self._producer_id, self._epoch, committed), at, limit_ms)]

    def prepared(self) -> PreparedTransaction:
        """Return the transaction that was prepared, for the process that ends it."""
        assert self.state is TransactionalState.PREPARED, "it was prepared"
        return PreparedTransaction(self.policy.transactional_id, self._producer_id, self._epoch)

    def _ensure(self, *states: TransactionalState) -> None:
        if self.state not in states or self.is_busy:
            raise self.refusal()

    def reason(self) -> TidelogError | None:
        """Return the error of calls after the open transaction or the producer has failed; None if neither has."""
        if self.state is TransactionalState.FAILED:
            assert self.failure is not None, "a producer fails for a reason"
            again = type(self.failure)(self.failure.message)
            again.__cause__ = self.failure.__cause__
            return again
        return self._aborted() if self.state is TransactionalState.ABORT_ONLY else None

    def refusal(self) -> TidelogError:
        """Return the error of a call that the state does not allow."""
        reason = self.reason()
        if reason is not None:
            return reason
        if self.state is TransactionalState.PREPARED:
            return InvalidTxnState(
                f"the producer {self._name} has left its transaction to another process: close it; a new producer with "
                "the same transactional id would abort that transaction"
            )
        if self.state in (TransactionalState.NEW, TransactionalState.READY):
            return InvalidTxnState(f"the producer {self._name} has no open transaction: open one with transaction()")
        return InvalidTxnState(
            f"the producer {self._name} has a transaction that is {self.state.value}, and it has one at a time: leave "
            "the block of that one first, or create another producer with another transactional id"
        )

    # --- what happened ------------------------------------------------------------------------------------------

    def records_failed(self, error: TidelogError) -> list[TransactionEffect]:
        """Note that records were not acknowledged, or never queued. The open transaction can only be aborted; if the
        producer is fenced, the producer has failed."""
        if self.state is not TransactionalState.OPEN:
            return []
        if isinstance(error, ProducerFenced):
            return self._fail(TransactionalCause.FENCED, self._fenced(error))
        self._move(TransactionalCause.PART_FAILED)
        self.failure = error
        return [RecordsRefused(self._aborted())]

    def identified(self, producer_id: ProducerId, epoch: int, at: Millis) -> list[TransactionEffect]:
        """Handle the answer to AskProducerId or AskEnd: producer id and epoch of the next transaction."""
        self._question, self._identified_at = None, at
        self._producer_id, self._epoch = producer_id, epoch
        if self.state is TransactionalState.STARTING:
            return self._open(TransactionalCause.IDENTIFIED)
        self._move(TransactionalCause.ENDED)
        return [Done()]

    def offsets_added(self) -> list[TransactionEffect]:
        """Handle the answer to AskOffsets."""
        self._question = None
        return [Done(self.reason())]

    def call_failed(self, error: TidelogError, is_applied: bool | None, at: Millis) -> list[TransactionEffect]:
        """Handle a refusal, or a missing answer. is_applied: None if the call may have been applied, otherwise
        False."""
        question = self._question
        assert question is not None, "one call is under way"
        question.failures += 1
        question.may_be_applied = question.may_be_applied or is_applied is None
        if self._can_help(question.call, error):
            pause_ms = self._pause_ms(error, question.failures)
            until = question.until
            if isinstance(error, UnknownTopicOrPartition):  # a misspelled topic must not cost the whole timeout
                until = min(until, Millis(question.begun + UNKNOWN_TOPIC_MS))
            if at + pause_ms < until:
                return [Ask(question.call, pause_ms, question.until)]
        self._question = None
        match question.call:
            case AskProducerId():
                return self._not_identified(error)
            case AskOffsets():
                effects = self.records_failed(error)
                return [*effects, Done(self.reason())]
            case AskEnd(committed=True):
                return self._not_committed(error, question)
            case AskEnd():
                return self._not_aborted(error)

    def _can_help(self, call: Call, error: TidelogError) -> bool:
        """Whether the same call can succeed later."""
        if error.retry is Retry.NEVER:
            return False
        if not isinstance(call, AskOffsets):
            return True
        # The offsets of a member that has lost partitions belong to their next owner: only an abort is left.
        if self.state is not TransactionalState.OPEN or isinstance(error, RebalanceInProgress):
            return False
        return call.has_member or not isinstance(error, StaleMemberEpoch)

    def _not_identified(self, error: TidelogError) -> list[TransactionEffect]:
        if isinstance(error, ProducerFenced | InvalidProducerEpoch):
            return [*self._fail(TransactionalCause.FENCED, self._fenced(error)), Done(self.failure)]
        self._move(TransactionalCause.NOT_IDENTIFIED)
        return [Done(error)]

    def _not_committed(self, error: TidelogError, question: _RepeatedCall) -> list[TransactionEffect]:
        if question.may_be_applied and not isinstance(error, _SURELY_NOT_COMMITTED):
            unknown = TransactionOutcomeUnknown(
                f"it is unknown whether the transaction of {self._name} (producer id {self._producer_id}, epoch "
                f"{self._epoch}) was committed: {error.message} Create a new producer with the same transactional id: "
                "its first transaction begins after this one has ended. Offsets that were committed with the "
                "transaction then tell whether it was: continue from the group's committed offsets. "
                "`tidelog txn describe` shows the state of the transactional id."
            )
            unknown.__cause__ = error
            return [*self._fail(TransactionalCause.OUTCOME_UNKNOWN, unknown), Done(unknown)]
        if isinstance(error, ProducerFenced):
            return [*self._fail(TransactionalCause.FENCED, self._fenced(error)), Done(self.failure)]
        self.failure = error
        self._move(TransactionalCause.NOT_COMMITTED)
        aborted = self._aborted()
        return [RecordsRefused(aborted), Done(aborted)]

    def _not_aborted(self, error: TidelogError) -> list[TransactionEffect]:
        """End an abort that the coordinator has not confirmed."""
        # The abort is certain nevertheless: no commit was requested, and the coordinator aborts when the producer
        # requests its next epoch, or at the transaction's timeout.
        if isinstance(error, ProducerFenced):
            return [*self._fail(TransactionalCause.FENCED, self._fenced(error)), Done()]
        self._move(TransactionalCause.NOT_CONFIRMED)
        return [Done()]

    # --- helpers ------------------------------------------------------------------------------------------------

    def _ask(self, call: Call, at: Millis, limit_ms: int) -> list[TransactionEffect]:
        self._question = _RepeatedCall(call, at, Millis(at + limit_ms))
        return [Ask(call, 0, self._question.until)]

    def _fail(self, cause: TransactionalCause, error: TidelogError) -> list[TransactionEffect]:
        """Fail for good: the producer cannot be used any more."""
        self._move(cause)
        self.failure = error
        return [RecordsRefused(error)]

    def _move(self, cause: TransactionalCause) -> None:
        self.state = TRANSITIONS[self.state, cause]

    def _aborted(self) -> TransactionAborted:
        cause = self.failure
        why = "" if cause is None else f", because a part of it failed: {cause.message}"
        error = TransactionAborted(
            f"the transaction of {self._name} is aborted{why}. Nothing of it is visible to read_committed consumers. "
            "Run it again, from the input on"
        )
        error.__cause__ = cause
        return error

    def _fenced(self, cause: TidelogError) -> ProducerFenced:
        error = ProducerFenced(
            f"the producer {self._name} is fenced: a newer producer with the same transactional id has started, or "
            f"`tidelog txn abort` was called ({cause.message}). Its open transaction is aborted. Close this producer; "
            "if no other is to run, create a new one"
        )
        error.__cause__ = cause
        return error

    @property
    def _name(self) -> str:
        return repr(self.policy.transactional_id)

    def _pause_ms(self, error: TidelogError, failures: int) -> int:
        first = CONCURRENT_MS if isinstance(error, ConcurrentTransactions) else self.policy.retry_backoff_ms
        return backoff_ms(failures, self._rng, first=first, most=self.policy.retry_backoff_ms_max)
