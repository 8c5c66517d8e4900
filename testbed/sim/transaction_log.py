"""The committed log of one partition of `__transaction_state`, replayed, with the rules of transactions.

  - The states of a transactional id follow each other as KIP-98 and KIP-890 allow; a decision is never changed.
  - The epoch of a producer id never goes back.
  - Each marker in a partition was decided before: the record of its decision is committed.
  - A transaction is recorded as complete only when its markers are committed in all its partitions.

Invariants: this replay shares no code with the coordinator's. Not here: bytes (internal_logs.py), records of the
transactions (coordinated_transactions.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from replication.coordination.transaction_records import TransactionLogValue, TransactionRecord
from replication.coordination.transaction_records import TransactionState as State
from testbed.sim.commit_attempts import Place
from testbed.sim.ledger import Violation

PREPARED: Final = {State.PREPARE_COMMIT: True, State.PREPARE_ABORT: False}
"""By state: whether the decision is to commit."""

_IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
FORMER: Final = {
    State.EMPTY: _IDLE,
    State.ONGOING: _IDLE | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset({State.ONGOING, State.PREPARE_COMMIT}),
    # With KIP-890 an abort of nothing raises the epoch, also if nothing is open.
    State.PREPARE_ABORT: _IDLE | {State.ONGOING, State.PREPARE_EPOCH_FENCE, State.PREPARE_ABORT},
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
    State.DEAD: _IDLE,
    State.PREPARE_EPOCH_FENCE: frozenset({State.ONGOING}),
}
"""By state: the states before it. Source: KIP-98 and KIP-890, states of a transaction."""

Marker = tuple[int, int]
"""Producer id and epoch."""


def places_of(value: TransactionLogValue) -> list[Place]:
    """The partitions of a transaction."""
    return [
        (topic.topic, int(partition))
        for topic in value.transaction_partitions or ()
        for partition in topic.partition_ids
    ]


class Decisions:
    """The decided transactions of all transaction logs."""

    def __init__(self) -> None:
        self._decided: dict[Marker, bool] = {}
        self._aborted_by_hand: set[tuple[Place, int]] = set()

    def decided(self, marker: Marker, *, committed: bool) -> None:
        """The record of a decision is committed."""
        self._decided[marker] = committed

    def of(self, marker: Marker) -> bool | None:
        """Whether the decision is to commit; None if there is none."""
        return self._decided.get(marker)

    def aborts_by_hand(self, place: Place, producer_id: int) -> None:
        """An operator aborts a hanging transaction of a partition (KIP-664)."""
        self._aborted_by_hand.add((place, producer_id))

    def written(self, place: Place, marker: Marker, *, committed: bool) -> None:
        """A marker is committed in a partition. Raises Violation if nobody decided that."""
        if (place, marker[0]) in self._aborted_by_hand and not committed:
            return
        decision = self._decided.get(marker)
        what = "commit" if committed else "abort"
        if decision is None:
            raise Violation(
                f"{place[0]}-{place[1]}: a marker ({what}) of producer {marker[0]} in epoch {marker[1]} is committed, "
                f"and no committed record of a coordinator decides that"
            )
        if decision is not committed:
            raise Violation(
                f"{place[0]}-{place[1]}: a marker ({what}) of producer {marker[0]} in epoch {marker[1]} is committed, "
                f"but its coordinator decided otherwise"
            )


class TransactionLog:
    """The transactional ids of one partition of `__transaction_state`.

    has_marker: whether the marker is committed in that partition, or the partition does not exist.
    """

    def __init__(self, name: str, decisions: Decisions, *, has_marker: Callable[[Place, Marker], bool]) -> None:
        self.name = name
        self.states: dict[str, TransactionLogValue] = {}
        self._decisions, self._has_marker = decisions, has_marker

    def replayed(self, record: TransactionRecord) -> None:
        """Apply a committed record. Raises Violation."""
        transactional_id, value = record.key.transactional_id, record.value
        before = self.states.get(transactional_id)
        if value is None:
            self._may_be_removed(transactional_id, before)
            self.states.pop(transactional_id, None)
            return
        self._follows(transactional_id, before, value)
        self.states[transactional_id] = value
        marker = int(value.producer_id), value.producer_epoch
        if value.transaction_status in PREPARED:
            self._decisions.decided(marker, committed=PREPARED[value.transaction_status])
        elif value.transaction_status in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT) and before is not None:
            self._is_marked_everywhere(transactional_id, before)

    def _may_be_removed(self, transactional_id: str, before: TransactionLogValue | None) -> None:
        if before is not None and before.transaction_status not in _IDLE | {State.DEAD}:
            raise Violation(f"{self.name}: {transactional_id} is removed in state {before.transaction_status.name}")

    def _follows(self, transactional_id: str, before: TransactionLogValue | None, value: TransactionLogValue) -> None:
        state = value.transaction_status
        if before is None:
            if state is not State.EMPTY:
                raise Violation(f"{self.name}: {transactional_id} begins in state {state.name}")
            return
        name = f"{self.name}: {transactional_id} goes from {before.transaction_status.name} to {state.name}"
        if before.transaction_status not in FORMER[state]:
            raise Violation(name)
        if value.producer_id == before.producer_id and value.producer_epoch < before.producer_epoch:
            raise Violation(f"{name}, and back from epoch {before.producer_epoch} to {value.producer_epoch}")
        if state is before.transaction_status and state in PREPARED and places_of(value) != places_of(before):
            raise Violation(f"{name} with other partitions")
        if state is before.transaction_status is State.ONGOING and not set(places_of(before)) <= set(places_of(value)):
            raise Violation(f"{name}, and loses partitions")
        began = state in PREPARED and before.transaction_status is State.ONGOING
        if began and set(places_of(value)) != set(places_of(before)):
            raise Violation(f"{name} with other partitions")

    def _is_marked_everywhere(self, transactional_id: str, prepared: TransactionLogValue) -> None:
        marker = int(prepared.producer_id), prepared.producer_epoch
        for place in places_of(prepared):
            if not self._has_marker(place, marker):
                raise Violation(
                    f"{self.name}: {transactional_id} is complete, but {place[0]}-{place[1]} has no marker of producer "
                    f"{marker[0]} in epoch {marker[1]}"
                )
