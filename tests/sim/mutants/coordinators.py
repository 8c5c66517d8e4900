"""The runtime of coordinators and the coordinators of transactions, breaking a rule of commits, fencing or markers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node.coordinators import coordinator_loading
from node.coordinators.partition_coordinator import PartitionCoordinator
from node.coordinators.runtime import CoordinatorRuntime
from node.coordinators.transactions.marker_sender import MarkerSender
from node.coordinators.transactions.transaction_verifier import TransactionVerifier
from node.process import metadata_node
from replication.controller.sessions import lease_ms
from replication.coordination.coordinator_machine import Decision, TransactionalProducer
from replication.coordination.transaction_requests import VerifiedTransaction
from replication.coordination.transactions import adding, deadlines, ending, identities, initializing, steps
from replication.coordination.transactions.transaction_machine import TransactionMachine
from tests.sim import coordinator_stories as stories
from tests.sim import group_stories
from tests.sim.lease_stories import silent_coordinator_tells_no_old_offset
from tests.sim.mutants.mutant import Mutant, Patch
from tests.sim.pipeline_stories import workers_are_killed
from tidelog.client.transaction_core import Done, TransactionCore
from tidelog.errors import ProducerFenced, TidelogError, TransactionOutcomeUnknown

# --- the runtime ----------------------------------------------------------------------------------------------------

EVERYTHING = 1 << 62


def _deliver_at_once(patch: Patch, *, answers: bool, effects: bool) -> None:
    append = PartitionCoordinator._append

    def appending(self: Any) -> None:
        early = list(self._undelivered)
        if self._append_decided():
            for outcome in early:
                decision = outcome.decision
                if answers and outcome.to is not None and not outcome.to.done():
                    if isinstance(decision.answer, TidelogError):
                        outcome.to.set_exception(decision.answer)
                    else:
                        outcome.to.set_result(decision.answer)
                if effects:
                    for effect in decision.effects:
                        self.kind.carry_out(self.partition, effect)
                    outcome.decision = replace(decision, effects=())
            append(self)

    patch.setattr(PartitionCoordinator, "_append", appending)


def coordinators_answer_before_the_commit(patch: Patch) -> None:
    """A coordinator answers as soon as it has appended its decision."""
    _deliver_at_once(patch, answers=True, effects=False)


def markers_are_sent_before_the_decision_is_committed(patch: Patch) -> None:
    """A coordinator has markers written as soon as it has appended its decision."""
    _deliver_at_once(patch, answers=False, effects=True)


def the_end_of_the_log_is_not_loaded(patch: Patch) -> None:
    """A coordinator loads its partition up to the batch before the last one."""
    replay = coordinator_loading._Replay._replay

    async def all_but_the_last(self: Any, batch: Any) -> None:
        if batch.next_offset < self._log.log_end_offset:
            await replay(self, batch)

    patch.setattr(coordinator_loading._Replay, "_replay", all_but_the_last)


def markers_are_not_loaded(patch: Patch) -> None:
    """A coordinator of groups that is loaded passes over the markers in its partition."""
    replay = coordinator_loading._Replay._replay

    async def without_markers(self: Any, batch: Any) -> None:
        if not batch.is_control:
            await replay(self, batch)

    patch.setattr(coordinator_loading._Replay, "_replay", without_markers)


def markers_do_not_reach_the_coordinator(patch: Patch) -> None:
    """A coordinator of groups does not see the markers that its own leader appends."""
    appended = PartitionCoordinator.appended

    def without_markers(self: Any, records: Any, info: Any) -> None:
        machine, self._machine = self._machine, None if records[22] & 0x20 else self._machine
        if self._machine is None and machine is not None:
            self._applied_to = type(self._applied_to)(info.last_offset + 1)
        else:
            appended(self, records, info)
        self._machine = machine

    patch.setattr(PartitionCoordinator, "appended", without_markers)


def loading_never_begins(patch: Patch) -> None:
    """A coordinator whose leadership begins while another one is loaded is never loaded."""
    began = CoordinatorRuntime.leadership_began

    def once(self: Any, partition: Any, key: Any) -> None:
        began(self, partition, key)
        if self._replicas.registry.by_key[key].leader_epoch > 0:
            self._to_load.get_nowait()

    patch.setattr(CoordinatorRuntime, "leadership_began", once)


def coordinators_answer_without_a_lease(patch: Patch) -> None:
    """A coordinator answers what changes nothing however long the controller has not been heard from."""
    patch.setattr(PartitionCoordinator, "_unless_replaced", lambda _self, answer: answer)


def an_unconfirmed_controller_grants_leases(patch: Patch) -> None:
    """A controller that has not heard from the voters grants leases as long as any other."""
    patch.setattr(metadata_node, "lease_ms", lambda session_ms, beat_ms, _unconfirmed: lease_ms(session_ms, beat_ms, 0))


# --- producers ------------------------------------------------------------------------------------------------------


def a_new_instance_gets_the_same_epoch(patch: Patch) -> None:
    """A producer that starts does not fence the one before it."""

    def same(value: Any, expected: Any, fresh: Any) -> TransactionalProducer:
        del expected, fresh
        return TransactionalProducer(value.producer_id, value.producer_epoch)

    aborted = steps.aborted_by_coordinator

    def without_epoch(value: Any, cause: Any, now: Any) -> Any:
        return aborted(value, cause, now).replace(producer_epoch=value.producer_epoch, client_transaction_version=0)

    patch.setattr(initializing, "_next", same)
    patch.setattr(steps, "aborted_by_coordinator", without_epoch)


def a_new_instance_continues_the_open_transaction(patch: Patch) -> None:
    """A producer that starts gets its epoch while the transaction of the one before it is open."""
    initialize = initializing.initialize

    def without_abort(value: Any, request: Any, fresh: Any, coordinator_epoch: Any, now: Any) -> Any:
        if value is None or value.transaction_status.name != "ONGOING":
            return initialize(value, request, fresh, coordinator_epoch, now)
        producer = TransactionalProducer(value.producer_id, value.producer_epoch + 1)
        after = value.replace(producer_epoch=producer.producer_epoch)
        return Decision(producer, (steps.record(request.transactional_id, after),))

    patch.setattr(initializing, "initialize", without_abort)


def any_instance_ends_the_transaction(patch: Patch) -> None:
    """EndTxn is accepted with the epoch of an older instance."""
    end = ending.end

    def with_the_current_epoch(value: Any, request: Any, *rest: Any) -> Any:
        if value is not None and value.transaction_status.name == "ONGOING":
            request = replace(request, producer_id=value.producer_id, producer_epoch=value.producer_epoch)
        return end(value, request, *rest)

    patch.setattr(ending, "end", with_the_current_epoch)


def a_transaction_keeps_the_epoch_of_the_last(patch: Patch) -> None:
    """The end of a transaction does not raise the epoch, as before KIP-890."""
    end = steps.ended

    def without_epoch(value: Any, now: Any, **how: Any) -> Any:
        return end(value, now, **how).replace(producer_epoch=value.producer_epoch, client_transaction_version=0)

    patch.setattr(steps, "ended", without_epoch)


def a_timeout_raises_no_epoch(patch: Patch) -> None:
    """The coordinator aborts a transaction that has timed out, and its producer may continue in its epoch."""
    aborted = steps.aborted_by_coordinator

    def without_epoch(value: Any, cause: Any, now: Any) -> Any:
        return aborted(value, cause, now).replace(producer_epoch=value.producer_epoch, client_transaction_version=0)

    patch.setattr(steps, "aborted_by_coordinator", without_epoch)


# --- decisions ------------------------------------------------------------------------------------------------------


def a_repeated_request_gets_what_it_asks_for(patch: Patch) -> None:
    """A request to commit is answered as committed although the coordinator has aborted the transaction."""

    def repeated(value: Any, request: Any, fresh: Any, now: Any) -> Any:
        del request, fresh, now
        return Decision(identities.current(value))

    patch.setattr(ending, "_repeated", repeated)


def transactions_never_time_out(patch: Patch) -> None:
    """A transaction stays open until its producer ends it."""
    patch.setattr(deadlines.OpenTransactions, "due", lambda *_: [])
    patch.setattr(deadlines.OpenTransactions, "earliest", lambda *_: None)


def loaded_transactions_have_no_timeout(patch: Patch) -> None:
    """A coordinator enforces the timeouts of the transactions that it has begun itself."""
    loaded = TransactionMachine.loaded

    def without_timeouts(self: Any, image: Any, coordinator_epoch: Any, now: Any) -> Any:
        timeout_of, self._timeout_of = self._timeout_of, lambda *_: None
        try:
            return loaded(self, image, coordinator_epoch, now)
        finally:
            self._timeout_of = timeout_of

    patch.setattr(TransactionMachine, "loaded", without_timeouts)


def decided_transactions_are_not_completed_by_a_successor(patch: Patch) -> None:
    """A coordinator that is loaded does not write the markers of decisions that it finds."""
    patch.setattr(TransactionMachine, "_continued", lambda *_: Decision(None))


def a_successor_aborts_what_was_decided(patch: Patch) -> None:
    """A coordinator that is loaded aborts every transaction that is not complete."""
    continued = TransactionMachine._continued

    def aborting(self: Any, transactional_id: Any, value: Any, now: Any) -> Any:
        decision = continued(self, transactional_id, value, now)
        effects: tuple[Any, ...] = decision.effects
        effects = tuple(replace(each, committed=False) for each in effects)
        return replace(decision, effects=effects)

    patch.setattr(TransactionMachine, "_continued", aborting)


def a_transaction_is_complete_with_its_first_marker(patch: Patch) -> None:
    """The coordinator records a transaction as complete when one of its partitions has its marker."""
    written = MarkerSender._written

    def first(self: Any, marker: Any) -> None:
        marker.transaction.missing.intersection_update({marker.partition})
        written(self, marker)

    patch.setattr(MarkerSender, "_written", first)


def a_partition_without_a_leader_needs_no_marker(patch: Patch) -> None:
    """A marker counts as written where there is no leader to write it."""
    failed = MarkerSender._failed

    def gives_up(self: Any, marker: Any, why: str) -> None:
        failed(self, marker, why)
        if "no leader" in why:
            self._written(marker)

    patch.setattr(MarkerSender, "_failed", gives_up)


def a_marker_is_sent_once(patch: Patch) -> None:
    """A marker whose request failed is not sent again."""

    async def never(self: Any, markers: Any) -> None:
        del self, markers

    patch.setattr(MarkerSender, "_route_later", never)


# --- partitions of transactions -------------------------------------------------------------------------------------


def leaders_ignore_the_coordinator(patch: Patch) -> None:
    """A leader appends the first batch of a transaction whatever the coordinator says (before KIP-890)."""
    verify = TransactionVerifier.verify

    async def verified(self: Any, transaction: Any, partition: Any, begin: Any, deadline: Any) -> Any:
        try:
            return await verify(self, transaction, partition, begin, deadline)
        except TidelogError:
            return begin()

    patch.setattr(TransactionVerifier, "verify", verified)


def the_coordinator_adds_no_partition(patch: Patch) -> None:
    """The coordinator confirms a leader's partition and does not add it to the transaction."""
    verify = adding.verify

    def without_record(*given: Any) -> Any:
        return replace(verify(*given), records=())

    patch.setattr(adding, "verify", without_record)


def any_epoch_adds_partitions(patch: Patch) -> None:
    """A leader's partition is confirmed whatever the state of the transaction and the epoch of the producer."""
    verify = adding.verify

    def confirm(value: Any, request: Any, image: Any, now: Any) -> Any:
        decision = verify(value, request, image, now)
        answer = decision.answer
        if isinstance(answer, VerifiedTransaction) and any(each.error is not None for each in answer.partitions):
            return Decision(replace(answer, partitions=tuple(replace(each, error=None) for each in answer.partitions)))
        return decision

    patch.setattr(adding, "verify", confirm)


# --- the producer ---------------------------------------------------------------------------------------------------


def an_unknown_outcome_is_reported_as_aborted(patch: Patch) -> None:
    """A producer that gets no answer to its commit says that the transaction is aborted."""
    not_committed = TransactionCore._not_committed

    def guess(self: Any, error: Any, question: Any) -> Any:
        effects = not_committed(self, error, question)
        if isinstance(self.failure, TransactionOutcomeUnknown):
            return [*effects[:-1], Done(self._aborted())]
        return effects

    patch.setattr(TransactionCore, "_not_committed", guess)


def a_fenced_producer_starts_again(patch: Patch) -> None:
    """A producer that is fenced asks for another epoch, and fences its successor."""
    fail = TransactionCore._fail

    def again(self: Any, cause: Any, error: Any) -> Any:
        if not isinstance(error, ProducerFenced):
            return fail(self, cause, error)
        effects = fail(self, cause, error)
        self._producer_id, self._epoch, self.failure = -1, -1, None
        self.state = type(self.state).NEW
        return effects

    patch.setattr(TransactionCore, "_fail", again)


def offsets_are_not_sent(patch: Patch) -> None:
    """A producer does not send the offsets of its transaction."""
    patch.setattr(TransactionCore, "add_offsets", lambda _self, *_call, **_options: [Done()])


TOLD = "was told that"
NOT_COMPLETE = r"payments is COMPLETE_\w+, not"

MUTANTS = (
    Mutant(
        coordinators_answer_before_the_commit,
        "coordinators",
        group_stories.commit_is_not_replicated,
        f"{TOLD} offset|was answered that the followers do not have",
    ),
    Mutant(
        markers_are_sent_before_the_decision_is_committed,
        "coordinators",
        stories.decision_is_not_replicated,
        "no committed record of a coordinator decides that",
    ),
    Mutant(
        the_end_of_the_log_is_not_loaded,
        "coordinators",
        stories.coordinator_dies_before_the_markers,
        "payments goes from PREPARE_COMMIT to|payments is COMPLETE_COMMIT, not",
    ),
    Mutant(
        markers_are_not_loaded,
        "coordinators",
        stories.aborted_offsets_do_not_count,
        "the next member reads everything|has left",
    ),
    Mutant(
        markers_do_not_reach_the_coordinator,
        "coordinators",
        stories.offsets_are_committed_with_the_records,
        "the next member has the partition",
    ),
    Mutant(
        loading_never_begins,
        "coordinators",
        group_stories.coordinator_is_killed_while_reconciling,
        "partitions are shared",
    ),
    Mutant(
        coordinators_answer_without_a_lease,
        "coordinators",
        silent_coordinator_tells_no_old_offset,
        "a coordinator that was replaced answers with the offset 1",
    ),
    Mutant(
        an_unconfirmed_controller_grants_leases,
        "coordinators",
        silent_coordinator_tells_no_old_offset,
        "a coordinator that was replaced answers with the offset 2",
    ),
    Mutant(
        a_new_instance_gets_the_same_epoch,
        "KIP-98",
        stories.newer_instance_fences_the_older,
        "b'new' to orders-0: acknowledged, but b'old' is committed",
    ),
    Mutant(
        a_new_instance_continues_the_open_transaction,
        "KIP-98",
        stories.newer_instance_fences_the_older,
        "decided by a marker of",
    ),
    Mutant(
        any_instance_ends_the_transaction,
        "KIP-98",
        stories.commit_of_a_fenced_instance,
        f"{TOLD}|the old instance is fenced|decided by a marker of|is committed, and its client",
    ),
    Mutant(
        a_transaction_keeps_the_epoch_of_the_last,
        "KIP-890",
        stories.late_end_of_a_transaction,
        f"{TOLD}",
    ),
    Mutant(
        a_timeout_raises_no_epoch,
        "KIP-890",
        stories.timed_out_transaction_continues,
        "is committed, and elsewhere|decided by a marker|its client was told|assert",
    ),
    Mutant(
        a_repeated_request_gets_what_it_asks_for,
        "KIP-890",
        stories.timeout_races_a_commit,
        TOLD,
    ),
    Mutant(transactions_never_time_out, "KIP-98", stories.dead_producer_is_aborted, "payments is COMPLETE_ABORT, not"),
    Mutant(
        loaded_transactions_have_no_timeout,
        "KIP-98",
        stories.dead_producer_is_aborted_by_the_next_coordinator,
        "payments is COMPLETE_ABORT, not",
    ),
    Mutant(
        decided_transactions_are_not_completed_by_a_successor,
        "KIP-98",
        stories.coordinator_dies_before_the_markers,
        "payments is COMPLETE_COMMIT, not",
    ),
    Mutant(
        a_successor_aborts_what_was_decided,
        "KIP-98",
        stories.coordinator_dies_before_the_markers,
        "but its coordinator decided otherwise",
    ),
    Mutant(
        a_transaction_is_complete_with_its_first_marker,
        "KIP-98",
        stories.marker_waits_for_a_leader,
        "is complete, but orders-. has no marker",
    ),
    Mutant(
        a_partition_without_a_leader_needs_no_marker,
        "KIP-98",
        stories.marker_waits_for_a_leader,
        "is complete, but orders-. has no marker|complete without a marker",
    ),
    Mutant(
        a_marker_is_sent_once,
        "KIP-98",
        stories.marker_waits_for_a_leader,
        "every transaction has ended",
    ),
    Mutant(
        leaders_ignore_the_coordinator,
        "KIP-890",
        stories.late_write_hangs_no_transaction,
        "a transaction hangs",
    ),
    Mutant(
        the_coordinator_adds_no_partition,
        "KIP-890",
        stories.transactions_over_several_partitions,
        "told another outcome than it asked for",
    ),
    Mutant(any_epoch_adds_partitions, "KIP-890", stories.late_write_hangs_no_transaction, "a transaction hangs"),
    Mutant(
        an_unknown_outcome_is_reported_as_aborted,
        "KIP-98",
        stories.coordinator_cannot_be_reached,
        "its client was told that it is aborted",
    ),
    Mutant(
        a_fenced_producer_starts_again,
        "KIP-588",
        stories.newer_instance_fences_the_older,
        "the old instance was not fenced",
    ),
    Mutant(offsets_are_not_sent, "KIP-447", workers_are_killed, "has two committed results"),
)
"""The planted bugs of coordinators and of transactional producers."""
