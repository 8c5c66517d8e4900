"""The coordinator of one partition of an internal topic, in one leader epoch of this node.

Requests wait in an inbox until all applied records are committed. Then `work` decides on the requests in order, applies
each decision to the machine at once, appends the records of all decisions together, and keeps answers and effects until
the high watermark has passed these records. Nothing here waits for the disk.

Invariants:
  1. The machine has applied exactly the records of the log, in its order, plus those of decisions that `work` is about
     to append. If that cannot be kept (an append failed), the machine is dropped, and loaded again from the log.
     Records of a transaction are appended first: the log may refuse their producer.
  2. An answer or effect is released in the leader epoch of its decision, after all records that the machine had applied
     by then were committed. Otherwise the request fails: with RequestTimedOut if its records were appended, because the
     next leader may have them, else with an error by which nothing was done.
  3. A request that changes nothing is answered from the state only while the node has a lease of the controller:
     otherwise another node may have a newer state (node/controller/controller_lease.py).
  4. Nothing is decided while too few replicas are in sync. Requests are refused then, and the machine is dropped, so
     that sessions and timeouts start again afterwards. Decisions without a request (after a new image, or a timer)
     wait.
Not here: reading the partition (coordinator_loading.py), when to work (runtime.py), the decisions
(replication/coordination/).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from node.coordinators.coordinator_figures import CoordinatorMeter
from node.coordinators.coordinator_log import NoticeLog
from node.coordinators.coordinator_spec import CoordinatorSpec
from node.coordinators.coordinator_state import TRANSITIONS, CoordinatorCause, CoordinatorState
from node.coordinators.record_batches import EncodedDecision, batches_of, encoded, fits
from node.replicas.leader_replica import LeaderReplica
from node.replicas.replica import Replica
from replication.controller.image import ClusterImage
from replication.coordination.coordinator_machine import CoordinatorMachine, Decision, Instant, TransactionalProducer
from storage.append_info import LogAppendInfo, Origin
from storage.log.log import Log
from storage.producers.verification import UNVERIFIED, TransactionCheck
from tidelog.clock import Clock
from tidelog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    OutOfOrderSequenceNumber,
    RecordTooLarge,
    RequestTimedOut,
    TidelogError,
)
from tidelog.records import EndTxnMarker, RecordBatch, decode_control
from tidelog.records.v2.batch import CONTROL_BIT
from tidelog.records.v2.header import peek_header
from tidelog.types import Acks, Buffer, Millis, Offset, PartitionIndex
from tidelog.values import dataclass

_log = logging.getLogger("node.coordinators")

RETRY_MS: Final = 250
"""Interval at which a suspended coordinator checks whether appends are possible again."""

DEFECT_RETRY_MS: Final = 10_000
"""Pause before a coordinator is loaded again after a defect."""

REQUESTS_PER_TURN: Final = 100
"""Limit of the requests that are decided in one turn of the loop."""

TURN_MS: Final = 5
"""After this time the further requests wait for the next turn of the loop."""

_S, _C = CoordinatorState, CoordinatorCause

_OF_PRODUCER: Final = (InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber)
"""Refusals of a producer by the log. Its records are appended before they are applied, so the machine need not be
dropped."""


@dataclass(slots=True)
class _Request:
    """A request that is not decided yet."""

    asked: Any
    give_up: Millis
    """Monotonic time at which it is refused."""
    answer: asyncio.Future[Any]
    check: TransactionCheck
    """The check of the append of its decision."""
    needs_lease: bool
    """If the request changes nothing, it is answered only with a lease (invariant 3)."""


@dataclass(slots=True)
class _Outcome:
    """A decision that was applied, but must not be seen before everything below `end` is committed."""

    decision: Decision[Any]
    to: asyncio.Future[Any] | None
    """The future of the caller; None for a decision without a request."""
    end: Offset = Offset(-1)


class PartitionCoordinator:
    """The coordinator of one partition."""

    def __init__(
        self,
        kind: CoordinatorSpec,
        replica: Replica,
        leader: LeaderReplica,
        *,
        clock: Clock,
        why_no_lease: Callable[[], str],
        commit_ms_max: int,
        wake: Callable[[PartitionCoordinator], None],
        refused: Callable[[PartitionIndex, str], None],
        notices: NoticeLog,
        meter: CoordinatorMeter,
    ) -> None:
        """leader: the role of the replica.
        why_no_lease: see CoordinatorRuntime.
        commit_ms_max: how long a request waits for its commit.
        wake: requests a call of `work`.
        refused: called with the reason of a suspension when the first request is refused because of it.
        notices: the log of notices of decisions."""
        self.kind = kind
        self.name = replica.name
        self._replica = replica
        self.leader_epoch = leader.core.leader_epoch
        self.state = CoordinatorState.LOADING
        self.retry_at: Millis | None = None
        """When a suspended coordinator checks again whether appends are possible."""
        self._leader, self._clock, self._commit_ms_max = leader, clock, commit_ms_max
        self._why_no_lease = why_no_lease
        self._wake, self._refused, self._notices, self._meter = wake, refused, notices, meter
        self._unreported: str | None = None
        """Why the coordinator is suspended, until the first request is refused because of it."""
        self._postponed_to: Millis | None = None
        """While too few replicas are in sync: when to check again whether decisions without a request are possible."""
        self._refusal: TidelogError | None = None
        """Why no requests are served, while the partition is unreadable or the coordinator suspended."""
        self._machine: CoordinatorMachine[Any, Any] | None = None
        self._image: ClusterImage | None = None
        """An image that the machine has not seen yet."""
        self._requests: deque[_Request] = deque()
        self._decided: list[EncodedDecision] = []
        """Decisions of this turn that were applied and are not yet appended."""
        self._undelivered: list[_Outcome] = []
        """The outcomes of this turn, in order, also those of decisions without records."""
        self._outcomes: deque[_Outcome] = deque()
        """Outcomes whose position is not yet committed, in order."""
        self._applied_to = Offset(0)
        """End of the records that the machine has applied."""
        self._has_appended = False
        """A batch was appended since the last outcomes left `_undelivered`: it may contain their records."""
        leader.observer = self

    def __str__(self) -> str:
        return f"{self.kind.name} coordinator {self.name}"

    @property
    def log(self) -> Log:
        """The log of the partition. It may move to another log directory."""
        return self._replica.log

    @property
    def partition(self) -> PartitionIndex:
        """The partition of the internal topic."""
        return self.name.partition

    @property
    def ended(self) -> bool:
        """True once this node no longer leads the partition in this epoch."""
        return self.state is _S.ENDED

    def sizes(self) -> Mapping[str, int]:
        """As CoordinatorMachine.sizes; empty without a machine."""
        return {} if self._machine is None else self._machine.sizes()

    @property
    def deadline(self) -> Millis | None:
        """When `tick` must be called; None if it need not be."""
        if self.retry_at is not None:
            return self.retry_at
        due = self._postponed_to
        if due is None and self._machine is not None:
            due = self._machine.deadline()
        if not self._requests:
            return due
        give_up = self._requests[0].give_up
        return give_up if due is None else min(due, give_up)

    @property
    def undelivered(self) -> int:
        """Decisions that wait for their commit."""
        return len(self._outcomes)

    # --- requests ---

    def submit(
        self, asked: Any, check: TransactionCheck = UNVERIFIED, *, needs_lease: bool = True
    ) -> asyncio.Future[Any]:
        """A future of the answer. needs_lease: False for an event of the node itself, whose answer stays on the node.

        Raises CoordinatorLoadInProgress, CoordinatorNotAvailable, UnreadableCoordinatorRecord, NotCoordinator; the
        future raises these and the errors of decisions, and RequestTimedOut if the change was appended and may be
        committed or not."""
        if self.state is not _S.ACTIVE:
            raise self._why_inactive()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        give_up = Millis(self._clock.monotonic_ms() + self._commit_ms_max)
        self._requests.append(_Request(asked, give_up, answer, check, needs_lease))
        self._wake(self)
        return answer

    def _why_inactive(self) -> TidelogError:
        if self.state is _S.LOADING:
            return CoordinatorLoadInProgress(f"the {self} is being loaded on this node; try again after a pause")
        if self._refusal is not None:
            self._report()
            return _again(self._refusal)
        return NotCoordinator(f"this node no longer runs the {self}: look the coordinator up again")

    def image_changed(self, image: ClusterImage) -> None:
        """Pass the image to the machine in a later turn of the loop, which only that takes."""
        if self.state is _S.ACTIVE:
            self._image = image
            self._wake(self)

    # --- the machine ---

    def loaded(self, machine: CoordinatorMachine[Any, Any], image: ClusterImage) -> None:
        """Use the machine, which has applied the log up to its end."""
        self._move(_C.LOADED)
        self._machine, self._applied_to = machine, self.log.log_end_offset
        if not self._can_append():
            return
        self._decide(lambda now: machine.loaded(image, self.leader_epoch, now))

    def unreadable(self, error: TidelogError) -> None:
        """Refuse all requests until another leader epoch."""
        self._refusal = error
        self._move(_C.RECORD_UNREADABLE)

    def suspend(self, why: str, retry_ms: int = RETRY_MS) -> None:
        """Drop the machine, and answer all requests. why: for the log and the callers. retry_ms: the pause before the
        next attempt."""
        self._meter.suspensions += 1
        self._unreported = why
        self._refusal = CoordinatorNotAvailable(f"the {self} cannot append at the moment: {why}")
        self._move(_C.APPEND_FAILED)
        self.retry_at = Millis(self._clock.monotonic_ms() + retry_ms)
        if self._drop(self._refusal):
            self._report()
        self._wake(self)

    def _report(self) -> None:
        if self._unreported is not None:
            why, self._unreported = self._unreported, None
            self._refused(self.partition, why)

    def defect_found(self, defect: Exception) -> None:
        """Suspend the coordinator after an exception of the machine, whose state is then unknown; it is loaded again
        after a pause."""
        _log.error("%s: a defect", self, exc_info=defect)
        if self.state in (_S.ACTIVE, _S.LOADING):
            self.suspend(f"a defect in its state machine: {defect!r}", DEFECT_RETRY_MS)

    def end(self, refusal: TidelogError) -> None:
        """End the coordinator with the leadership. refusal: of the requests that were not decided."""
        self._move(_C.LEADERSHIP_ENDED)
        self._leader.observer, self.retry_at, self._refusal, self._unreported = None, None, None, None
        self._drop(refusal)

    def _drop(self, refusal: TidelogError) -> bool:
        """Drop the machine and everything that depends on it. Returns True if a request was refused."""
        self._machine, self._image, self._postponed_to = None, None, None
        self._decided.clear()
        waiting = [(request.answer, False) for request in self._requests]
        waiting += [(each.to, bool(each.decision.records)) for each in self._outcomes if each.to is not None]
        waiting += [
            (each.to, bool(each.decision.records) and self._has_appended)
            for each in self._undelivered
            if each.to is not None
        ]
        self._requests.clear()
        self._outcomes.clear()
        self._undelivered.clear()
        self._has_appended = False
        for answer, is_appended in waiting:
            _refuse(answer, self._unknown(refusal.message) if is_appended else _again(refusal))
        self.kind.unloaded(self.partition)
        return bool(waiting)

    def _unknown(self, why: str) -> TidelogError:
        """The error of a request whose change was appended, and may be committed or not."""
        return RequestTimedOut(
            f"the {self} has appended the change, and does not know whether it will be committed, try again: {why}"
        )

    def _move(self, cause: CoordinatorCause) -> None:
        self.state = TRANSITIONS[self.state, cause]

    # --- work ---

    def work(self) -> bool:
        """Decide on waiting requests, within limits, and append. Returns True if some are left for the next turn."""
        if self.state is not _S.ACTIVE:
            return False
        if self._image is not None and not self._postpones():
            image, self._image = self._image, None
            self._decide(lambda now: self._loaded_machine.on_image(image, now))
        elif self._has_work and self._can_append():
            self._decide_requests()
            if self._machine is not None:
                self._append()
        return self._has_work or (self._image is not None and self._postponed_to is None)

    @property
    def _has_work(self) -> bool:
        """True if requests wait, all applied records are committed, and appends are not held. Until then no answer
        could be released, and the requests that arrive meanwhile share the next batch: a busy partition has one batch
        for each commit."""
        return bool(self._requests) and self._applied_to <= self.log.high_watermark and not self._leader.is_held

    def tick(self) -> bool:
        """Handle deadlines that have passed. Returns True if the partition must be loaded again."""
        now = self._clock.monotonic_ms()
        if self.retry_at is not None:
            return now >= self.retry_at and self._resumes(now)
        self._refuse_late(now)
        if self._postponed_to is not None:
            if now < self._postponed_to:
                return False
            self._postponed_to = None
            if self._image is not None:
                self._wake(self)
        due = None if self._machine is None else self._machine.deadline()
        if due is not None and now >= due and not self._postpones():
            self._decide(self._loaded_machine.tick)
        return False

    def _refuse_late(self, now: Millis) -> None:
        """Refuse requests that have waited too long for the commit of an earlier change."""
        while self._requests and self._requests[0].give_up <= now:
            waited = (
                f"the {self} has not decided on the request: it waits for the commit of an earlier change, which the "
                f"in-sync replicas have not confirmed within {self._commit_ms_max} ms; try again"
            )
            _refuse(self._requests.popleft().answer, CoordinatorNotAvailable(waited))

    def _resumes(self, now: Millis) -> bool:
        if self._why_not_enough() is not None:
            self.retry_at = Millis(now + RETRY_MS)
            return False
        self.retry_at, self._refusal, self._unreported = None, None, None
        self._move(_C.APPENDS_POSSIBLE)
        return True

    @property
    def _loaded_machine(self) -> CoordinatorMachine[Any, Any]:
        assert self._machine is not None, "an active coordinator has a machine"
        return self._machine

    def _why_not_enough(self) -> str | None:
        """Why appends are impossible; None if enough replicas are in sync, and appends are not held."""
        if self._leader.is_held:  # its batch would not be in the log yet when the decision is taken for appended
            return "its log moves to another log directory in this moment"
        try:
            self._leader.core.ensure_enough(Acks.ALL)
        except NotEnoughReplicas as error:
            return error.message
        return None

    def _can_append(self) -> bool:
        """False if too few replicas are in sync; then the coordinator is suspended."""
        why = self._why_not_enough()
        if why is not None:
            self.suspend(why)
        return why is None

    def _postpones(self) -> bool:
        """True if appends are impossible or held: decisions without a request wait, and the machine stays."""
        is_enough = self._why_not_enough() is None
        self._postponed_to = None if is_enough else Millis(self._clock.monotonic_ms() + RETRY_MS)
        return not is_enough

    def _decide(self, decisions: Callable[[Instant], Sequence[Decision[Any]]]) -> None:
        """Apply and append decisions without a request."""
        for decision in decisions(self._instant()):
            try:
                self._take(decision, None, UNVERIFIED, needs_lease=False)
            except TidelogError as error:
                _log.error("%s: a decision was dropped: %s", self, error.message)
            if self._machine is None:
                return
        self._append()

    def _decide_requests(self) -> None:
        machine, now = self._loaded_machine, self._instant()
        for _ in range(min(REQUESTS_PER_TURN, len(self._requests))):
            request = self._requests.popleft()
            if request.answer.done():
                continue  # the caller does not wait any more
            self._meter.requests += 1
            try:
                self._take(
                    machine.handle(request.asked, now), request.answer, request.check, needs_lease=request.needs_lease
                )
            except Exception as error:  # noqa: BLE001 - nothing was applied
                _refuse(request.answer, error)
            # A transactional append may have suspended the coordinator: the machine is gone, the requests are answered.
            if self.state is not _S.ACTIVE or self._clock.monotonic_ms() - now.monotonic_ms >= TURN_MS:
                return

    def _take(
        self, decision: Decision[Any], to: asyncio.Future[Any] | None, check: TransactionCheck, *, needs_lease: bool
    ) -> None:
        """Apply a decision. If it raises, nothing was applied: the log refuses the records, or they are malformed."""
        if decision.records:
            records = encoded([self.kind.encode(record) for record in decision.records], decision.producer)
            self._ensure_fits(records)
            if decision.producer is None:
                self._decided.append(records)
            elif not self._append_decided() or not self._append_batches([records], check, _OF_PRODUCER):
                return  # the coordinator was suspended, and every request was answered
            self._apply(decision)
        if needs_lease and not decision.records:
            decision = replace(decision, answer=self._unless_replaced(decision.answer))
        self._undelivered.append(_Outcome(decision, to))

    def _unless_replaced(self, answer: Any) -> Any:
        """The answer or, without a lease, the error of a coordinator that may have been replaced. A change needs no
        lease: the in-sync replicas would not confirm it. A session that the request has renewed stays renewed."""
        why = self._why_no_lease()
        if not why:
            return answer
        return CoordinatorNotAvailable(
            f"the {self} cannot tell whether its state is the newest: {why}. Look the coordinator up again; if this "
            "lasts, check the connections of its node to the controller, and the metadata quorum"
        )

    def _apply(self, decision: Decision[Any]) -> None:
        machine = self._loaded_machine
        try:
            for record in decision.records:
                machine.apply(record, Offset(-1), decision.producer)
        except Exception as defect:
            self.defect_found(defect)
            raise

    def _ensure_fits(self, decision: EncodedDecision) -> None:
        bytes_max = self._batch_bytes_max
        if not fits(decision, bytes_max):
            raise RecordTooLarge(
                f"the change needs {len(decision.records)} records of up to {decision.size} bytes together, and "
                f"max.message.bytes of {self.name.topic} is {bytes_max}: raise it, or divide the request"
            )

    @property
    def _batch_bytes_max(self) -> int:
        limit = self.log.rules.batch_bytes_max
        return self.log.config.segment_bytes if limit is None else min(limit, self.log.config.segment_bytes)

    def _instant(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.wall_ms())

    # --- append and commit ---

    def _append(self) -> None:
        """Append the decisions of this turn, and release committed outcomes."""
        if not self._append_decided():
            return  # every request was answered
        for outcome in self._undelivered:
            outcome.end = self._applied_to
        self._outcomes.extend(self._undelivered)
        self._undelivered.clear()
        self._has_appended = False
        self.committed(self.log.high_watermark)

    def _append_decided(self) -> bool:
        """Append the decisions of this turn. If that fails, the machine is dropped: it has applied records that the log
        lacks. Returns False if the coordinator is no longer active."""
        decided, self._decided = self._decided, []
        return self._append_batches(decided, UNVERIFIED, ())

    def _append_batches(
        self, decisions: list[EncodedDecision], check: TransactionCheck, refusals: tuple[type[TidelogError], ...]
    ) -> bool:
        """Append decisions; any failure but `refusals`, which are raised, suspends the coordinator. Returns False if it
        is not active any more."""
        for batch in batches_of(decisions, self._batch_bytes_max, self._clock.wall_ms()):
            try:
                self._produce(batch, check)
            except refusals:
                raise
            except TidelogError as error:
                if self.state is _S.ACTIVE:
                    self.suspend(error.message)
            if self.state is not _S.ACTIVE:
                return False
        return self.state is _S.ACTIVE

    def _produce(self, batch: bytes, check: TransactionCheck) -> None:
        self._leader.produce(
            batch,
            origin=Origin.COORDINATOR,
            acks=Acks.ALL,
            deadline=Millis(self._clock.monotonic_ms() + self._commit_ms_max),
            done=self._acknowledged,
            check=check,
        )
        self._has_appended = True
        self._meter.batches += 1

    def _acknowledged(self, info: LogAppendInfo | None, error: TidelogError | None) -> None:
        """Handle the outcome of an append. A commit was reported to `committed` before."""
        if error is None or self.state is not _S.ACTIVE:
            return
        if info is None or not isinstance(error, RequestTimedOut):
            self.suspend(error.message)
            return
        late = f"the in-sync replicas have not confirmed it within {self._commit_ms_max} ms"
        for outcome in self._outcomes:
            if outcome.to is not None and outcome.end <= info.last_offset + 1:
                _refuse(outcome.to, self._unknown(late))

    def appended(self, records: Buffer, info: LogAppendInfo) -> None:
        """As `LeaderObserver.appended`: an own batch, or a transaction marker."""
        if self._machine is None or info.duplicate:
            return  # the replay reads it
        # Also for an own batch, whose records were applied when they were decided.
        self._applied_to = Offset(info.last_offset + 1)
        header = peek_header(records)
        if header is None or not header.attributes & CONTROL_BIT:
            return
        try:
            for record in RecordBatch(records, header=header).records():
                marker = decode_control(record)
                if isinstance(marker, EndTxnMarker):
                    producer = TransactionalProducer(header.producer_id, header.producer_epoch)
                    self._machine.apply_marker(producer, committed=marker.committed)
        except Exception as defect:  # noqa: BLE001 - the append of the marker is not affected
            self.defect_found(defect)
        self._wake(self)

    def committed(self, high_watermark: Offset) -> None:
        """As `LeaderObserver.committed`: release committed outcomes."""
        outcomes = self._outcomes
        while outcomes and outcomes[0].end <= high_watermark:
            outcome = outcomes.popleft()
            decision = outcome.decision
            if outcome.to is not None:
                _answer(outcome.to, decision.answer)
            if decision.notice:
                self._notices.write(self, decision.notice, self._clock.monotonic_ms())
            for effect in decision.effects:
                try:
                    self.kind.carry_out(self.partition, effect)
                except Exception as defect:  # noqa: BLE001 - the commit is not affected
                    self.defect_found(defect)
                    return
        if self._requests:
            self._wake(self)


def _again(error: TidelogError) -> TidelogError:
    """The same error for another caller: an exception keeps the traceback of each place where it was raised."""
    return type(error)(error.message)


def _answer(to: asyncio.Future[Any], answer: Any) -> None:
    if isinstance(answer, TidelogError):
        _refuse(to, answer)
    elif not to.done():
        to.set_result(answer)


def _refuse(to: asyncio.Future[Any], error: Exception) -> None:
    if not to.done():
        to.set_exception(error)
