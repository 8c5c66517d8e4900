"""The state machine of one partition of `__transaction_state`.

Invariants:
  1. The state is the last record of each transactional id: a replay gives what the machine had that wrote the records.
  2. A transaction is decided once, by its Prepare record; its markers are written only after that is committed.
  3. The epoch of a producer id never decreases, and an epoch that was fenced commits nothing more.
  4. Every Prepare record is followed by a Complete record once its markers are reported as written. A coordinator that
     loads a Prepare record asks for the markers again.

Effects: WriteMarkers. Out of scope: writing the markers (node/coordinators/transactions/), producer ids (a request that
needs one is answered with ProducerIdNeeded), bytes (transaction_records.py).
Source: KIP-98, KIP-360, KIP-588, KIP-664, KIP-890; Kafka's TransactionCoordinator and TransactionStateManager.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from replication.controller.image import EMPTY, ClusterImage
from replication.coordination.coordinator_machine import Decision, Instant, TransactionalProducer
from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.transaction_records import TransactionLogKey, TransactionLogValue, TransactionState
from replication.coordination.transaction_requests import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    DescribeTransactions,
    EndTxn,
    InitTransactionalProducer,
    InitWithProducerId,
    ListTransactions,
    LocalHeld,
    LocalHold,
    MarkersRefused,
    MarkersWritten,
    TransactionToVerify,
)
from replication.coordination.transactions import adding, describing, ending, initializing, steps
from replication.coordination.transactions.commit_holds import CommitHolds
from replication.coordination.transactions.deadlines import OpenTransactions
from replication.coordination.transactions.partitions import partitions_of
from replication.coordination.transactions.transaction_config import TransactionConfig
from replication.coordination.transactions.transaction_states import (
    IDLE_STATES,
    PREPARED_STATES,
    TRANSITIONS,
    TransactionCause,
)
from tidelog.errors import InvalidTransactionTimeout, TidelogError, UnreadableCoordinatorRecord
from tidelog.types import INT32_MAX, TRANSACTIONS_TOPIC, Millis, Offset, ProducerId

NO_TIMEOUT_MS: Final = INT32_MAX
"""Timeout of a transaction that Kafka leaves open for a two-phase commit (KIP-939)."""

_AT_ONCE: Final = 500
"""Transactions that time out, or ids that expire, in one tick; the others follow in the next ones."""


class TransactionMachine:
    """The transactional ids of one partition. Implements CoordinatorMachine."""

    def __init__(self, config: TransactionConfig) -> None:
        self._config = config
        self.values: OrderedDict[str, TransactionLogValue] = OrderedDict()  # the last changed one is last
        self._open = OpenTransactions()
        self._holds = CommitHolds()
        self._image = EMPTY
        self._coordinator_epoch = -1
        self._now: Instant | None = None  # None: replay has not ended
        self._next_abort_round, self._next_expiry_round = Millis(0), Millis(0)

    # --- records ------------------------------------------------------------------------------------------------

    def apply(
        self,
        record: CoordinatorRecord[TransactionLogKey, TransactionLogValue],
        offset: Offset,
        producer: TransactionalProducer | None,
        /,
    ) -> None:
        """Apply a record. Raises UnreadableCoordinatorRecord if no coordinator writes such a record."""
        transactional_id, value = record.key.transactional_id, record.value
        if producer is not None:
            raise UnreadableCoordinatorRecord(
                f"{TRANSACTIONS_TOPIC}: the record of {transactional_id!r} at offset {offset} is in a transaction, "
                f"and no coordinator writes such records; restore the partition from another replica"
            )
        if value is None:
            self.values.pop(transactional_id, None)
            self._open.end(transactional_id)
            return
        if value.transaction_status in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
            raise UnreadableCoordinatorRecord(
                f"{TRANSACTIONS_TOPIC}: the record of {transactional_id!r} at offset {offset} has state "
                f"{value.transaction_status.name}, which is never written; restore the partition from another replica"
            )
        self.values[transactional_id] = value
        self.values.move_to_end(transactional_id)
        if value.transaction_status in IDLE_STATES:
            self._open.end(transactional_id)
        elif value.transaction_status in PREPARED_STATES:
            self._open.decide(transactional_id, value.transaction_start_timestamp_ms)
        else:
            deadline = None if self._now is None else self._timeout_of(value, self._now)
            self._open.begin(transactional_id, value.transaction_start_timestamp_ms, deadline)

    def apply_marker(self, producer: TransactionalProducer, /, *, committed: bool) -> None:
        """Nothing of this partition belongs to a transaction, so a marker ends nothing."""

    def loaded(self, image: ClusterImage, coordinator_epoch: int, now: Instant, /) -> Sequence[Decision[Any]]:
        """Start the timeouts of open transactions, from their start times, and ask for the markers of decided ones."""
        self._image, self._coordinator_epoch, self._now = image, coordinator_epoch, now
        decisions: list[Decision[Any]] = []
        for transactional_id, value in self.values.items():
            if value.transaction_status is TransactionState.ONGOING:
                start = value.transaction_start_timestamp_ms
                self._open.begin(transactional_id, start, self._timeout_of(value, now))
            elif value.transaction_status in PREPARED_STATES:
                decisions.append(self._continued(transactional_id, value, now))
        return decisions

    # --- requests and events ------------------------------------------------------------------------------------

    def handle(self, request: Any, now: Instant, /) -> Decision[Any]:
        """Decide on a request of transaction_requests.py, or on MarkersWritten or MarkersRefused."""
        self._now = now
        fresh: ProducerId | None = None
        if isinstance(request, InitWithProducerId):
            request, fresh = request.request, request.fresh
        try:
            match request:
                case InitTransactionalProducer():
                    return self._initialize(request, fresh, now)
                case EndTxn():
                    return self._end(request, fresh, now)
                case AddPartitionsToTxn():
                    return adding.add_partitions(self.values.get(request.transactional_id), request, self._image, now)
                case AddOffsetsToTxn():
                    return adding.add_offsets(self.values.get(request.transactional_id), request, self._image, now)
                case TransactionToVerify():
                    return adding.verify(self.values.get(request.transactional_id), request, self._image, now)
                case MarkersWritten():
                    value = self.values.get(request.markers.transactional_id)
                    return ending.complete(value, request, self._coordinator_epoch, now)
                case MarkersRefused():
                    raise request.error
                case ListTransactions() | DescribeTransactions():
                    return self._describe(request, now)
                case LocalHold():
                    return Decision(LocalHeld(self._holds.step(request, now), self._completing(request.topics)))
                case _:
                    raise TypeError(f"{type(request).__name__} is no request to a transaction coordinator")
        except TidelogError as error:
            return Decision(error)

    def on_image(self, image: ClusterImage, now: Instant, /) -> Sequence[Decision[Any]]:
        """Topics and partitions that can be added from now on."""
        self._image, self._now = image, now
        return ()

    # --- time ---------------------------------------------------------------------------------------------------

    def tick(self, now: Instant, /) -> Sequence[Decision[Any]]:
        """Abort transactions whose timeout has passed, and remove expired transactional ids."""
        self._now = now
        decisions: list[Decision[Any]] = []
        earliest = self._open.earliest()
        if earliest is not None and earliest <= now.monotonic_ms and self._next_abort_round <= now.monotonic_ms:
            due = self._open.due(now.monotonic_ms, _AT_ONCE)
            if len(due) < _AT_ONCE:  # the round ends
                self._next_abort_round = Millis(now.monotonic_ms + self._config.abort_timed_out_interval_ms)
            decisions.extend(self._timed_out(name, now) for name in due)
        expiry = self._first_expiry(now)
        if expiry is not None and expiry <= now.monotonic_ms and self._next_expiry_round <= now.monotonic_ms:
            names = self._expired(now)
            if len(names) <= _AT_ONCE:
                self._next_expiry_round = Millis(now.monotonic_ms + self._config.remove_expired_interval_ms)
            if names:
                decisions.append(Decision(None, tuple(steps.record(name, None) for name in names[:_AT_ONCE])))
        return decisions

    def deadline(self) -> Millis | None:
        """Monotonic time of the next timeout or expiry."""
        if self._now is None:
            return None
        earliest, expiry = self._open.earliest(), self._first_expiry(self._now)
        times = []
        if earliest is not None:
            times.append(max(earliest, self._next_abort_round))
        if expiry is not None:
            times.append(max(expiry, self._next_expiry_round))
        return min(times, default=None)

    # --- for metrics --------------------------------------------------------------------------------------------

    def sizes(self) -> Mapping[str, int]:
        """The transactional ids."""
        return {"transactional_id": len(self.values)}

    @property
    def open_transactions(self) -> int:
        """Transactions that are open, or decided and not complete."""
        return len(self._open)

    def oldest_open_start(self) -> Millis | None:
        """Wall time at which the oldest of them began; None if there is none."""
        return self._open.oldest_start()

    # ------------------------------------------------------------------------------------------------------------

    def _initialize(self, request: InitTransactionalProducer, fresh: ProducerId | None, now: Instant) -> Decision[Any]:
        timeout_max = self._config.transaction_max_timeout_ms
        if not 1 <= request.transaction_timeout_ms <= timeout_max:
            raise InvalidTransactionTimeout(
                f"the transaction timeout of {request.transactional_id!r} is {request.transaction_timeout_ms} ms; use "
                f"1 to {timeout_max} ms, or raise transaction.max.timeout.ms of the nodes"
            )
        value = self.values.get(request.transactional_id)
        return initializing.initialize(value, request, fresh, self._coordinator_epoch, now)

    def _completing(self, topics: Collection[str]) -> int:
        """Committed transactions with these topics whose markers are not reported as written."""
        prepared = (self.values[name] for name in self._open)
        return sum(
            value.transaction_status is TransactionState.PREPARE_COMMIT
            and any(each.topic in topics for each in partitions_of(value))
            for value in prepared
        )

    def _end(self, request: EndTxn, fresh: ProducerId | None, now: Instant) -> Decision[Any]:
        value = self.values.get(request.transactional_id)
        if request.committed and value is not None and value.transaction_status is TransactionState.ONGOING:
            # Without this a transaction may be below the end of one partition of a topic snapshot, and not of another.
            self._holds.ensure_free(request.transactional_id, partitions_of(value), now)
        return ending.end(value, request, fresh, self._coordinator_epoch, now)

    def _describe(self, request: ListTransactions | DescribeTransactions, now: Instant) -> Decision[Any]:
        if isinstance(request, ListTransactions):
            return describing.list_transactions(self.values, request, now)
        return describing.describe_transactions(self.values, request, self._coordinator_epoch)

    def _timed_out(self, transactional_id: str, now: Instant) -> Decision[None]:
        aborted = steps.aborted_by_coordinator(self.values[transactional_id], TransactionCause.TIMED_OUT, now)
        markers = steps.markers_of(transactional_id, aborted, self._coordinator_epoch)
        notice = (
            f"the transaction of {transactional_id!r} (producer {aborted.producer_id}) is aborted: it was open for "
            f"longer than its timeout of {aborted.transaction_timeout_ms} ms"
        )
        return Decision(None, (steps.record(transactional_id, aborted),), effects=(markers,), notice=notice)

    def _continued(self, transactional_id: str, value: TransactionLogValue, now: Instant) -> Decision[None]:
        """A transaction that a former coordinator decided and did not complete. Kafka records an abort of nothing in
        two steps, so there may be no partition to mark."""
        markers = steps.markers_of(transactional_id, value, self._coordinator_epoch)
        if markers.partitions:
            return Decision(None, effects=(markers,))
        return Decision(None, (steps.record(transactional_id, steps.completed(value, now)),))

    def _expired(self, now: Instant) -> list[str]:
        """The expired ids, one more than are removed at once if there are more."""
        names: list[str] = []
        for transactional_id, value in self.values.items():
            if self._expires(value) > now.wall_ms or len(names) > _AT_ONCE:
                break  # they are in the order of their last change
            if (value.transaction_status, TransactionCause.EXPIRED) in TRANSITIONS:
                names.append(transactional_id)
        return names

    def _expires(self, value: TransactionLogValue) -> int:
        return value.transaction_last_update_timestamp_ms + self._config.transactional_id_expiration_ms

    def _first_expiry(self, now: Instant) -> Millis | None:
        """Monotonic time."""
        if not self.values:
            return None
        first = next(iter(self.values.values()))
        return Millis(self._expires(first) - now.wall_ms + now.monotonic_ms)

    @staticmethod
    def _timeout_of(value: TransactionLogValue, now: Instant) -> Millis | None:
        """The monotonic time at which an open transaction times out. A clock that was set back makes it wait for one
        timeout at most."""
        if value.transaction_timeout_ms == NO_TIMEOUT_MS:
            return None
        left = value.transaction_start_timestamp_ms + value.transaction_timeout_ms - now.wall_ms
        return Millis(now.monotonic_ms + min(left, value.transaction_timeout_ms))
