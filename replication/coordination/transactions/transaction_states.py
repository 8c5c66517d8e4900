"""States of a transactional id and the transitions between them: the table that the coordinator obeys.

`TRANSITIONS` is complete: any other move is a defect and fails a lookup. The diagram in docs/transactions.md is drawn
from it. A transactional id begins in EMPTY, by the first InitProducerId. Kafka's PREPARE_EPOCH_FENCE exists in memory
only and has no place here: fencing leads from ONGOING to PREPARE_ABORT in one step. DEAD is never written: a tombstone
takes its place.
Source: KIP-98, KIP-890; Kafka's TransactionState.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from replication.coordination.transaction_records import TransactionState


class TransactionCause(Enum):
    """Cause of a transition."""

    INITIALIZED = "InitProducerId: a producer starts, or continues after an error (KIP-360)"
    PRODUCER_ID_REPLACED = "the epochs of the producer id are used up, and its holder continues with another id"
    PARTITIONS_ADDED = "partitions were added: by the producer (version 1), or by their leaders (version 2)"
    COMMIT_REQUESTED = "EndTxn: commit"
    ABORT_REQUESTED = "EndTxn: abort"
    FENCED = "InitProducerId while a transaction is open: that transaction is aborted first"
    TIMED_OUT = "the transaction is open for longer than its timeout"
    MARKERS_WRITTEN = "the markers are committed in all partitions of the transaction"
    EXPIRED = "nothing has changed the transactional id for `transactional.id.expiration.ms`"


_State = TransactionState
_Cause = TransactionCause

IDLE_STATES: Final = (_State.EMPTY, _State.COMPLETE_COMMIT, _State.COMPLETE_ABORT)
"""States without an open transaction."""

PREPARED_STATES: Final = (_State.PREPARE_COMMIT, _State.PREPARE_ABORT)
"""States in which the outcome is decided, and markers are being written."""

TRANSITIONS: Final[Mapping[tuple[TransactionState, TransactionCause], TransactionState]] = {
    **{(idle, _Cause.INITIALIZED): _State.EMPTY for idle in IDLE_STATES},
    **{(idle, _Cause.PARTITIONS_ADDED): _State.ONGOING for idle in IDLE_STATES},
    # Version 2: an abort raises the epoch although nothing is open, so that a late first write is fenced.
    **{(idle, _Cause.ABORT_REQUESTED): _State.PREPARE_ABORT for idle in IDLE_STATES},
    **{(idle, _Cause.EXPIRED): _State.DEAD for idle in IDLE_STATES},
    (_State.COMPLETE_ABORT, _Cause.PRODUCER_ID_REPLACED): _State.EMPTY,
    (_State.ONGOING, _Cause.PARTITIONS_ADDED): _State.ONGOING,
    (_State.ONGOING, _Cause.COMMIT_REQUESTED): _State.PREPARE_COMMIT,
    (_State.ONGOING, _Cause.ABORT_REQUESTED): _State.PREPARE_ABORT,
    (_State.ONGOING, _Cause.FENCED): _State.PREPARE_ABORT,
    (_State.ONGOING, _Cause.TIMED_OUT): _State.PREPARE_ABORT,
    (_State.PREPARE_COMMIT, _Cause.MARKERS_WRITTEN): _State.COMPLETE_COMMIT,
    (_State.PREPARE_ABORT, _Cause.MARKERS_WRITTEN): _State.COMPLETE_ABORT,
}
"""Next state by state and cause."""

STATE_NAMES: Final[Mapping[TransactionState, str]] = {
    _State.EMPTY: "Empty",
    _State.ONGOING: "Ongoing",
    _State.PREPARE_COMMIT: "PrepareCommit",
    _State.PREPARE_ABORT: "PrepareAbort",
    _State.COMPLETE_COMMIT: "CompleteCommit",
    _State.COMPLETE_ABORT: "CompleteAbort",
    _State.DEAD: "Dead",
    _State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""Kafka's names, as requests and answers have them."""
