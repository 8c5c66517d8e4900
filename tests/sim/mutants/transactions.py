"""Leaders and cleaners that break a rule of transactions: fencing, coordinators, decided offsets."""

from __future__ import annotations

from typing import Any, Final

from node.replicas import follower_replica
from replication.partition.follower import PartitionFollower
from replication.partition.follower_events import NOTHING_HELD, Answered
from replication.partition.isr import InSyncSet
from storage.directory import log_cleaner
from storage.directory.cleanable import measure
from storage.producers import producer_entry, producer_state
from tests.sim import transaction_stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.types import INT64_MAX, Offset


def a_fenced_producer_is_accepted(patch: Patch) -> None:
    """The epoch of a producer is not compared with the newest one that has written."""
    patch.setattr(producer_entry.ProducerState, "ensure_epoch", lambda *_: None)


def any_coordinator_decides(patch: Patch) -> None:
    """The marker of a replaced coordinator is accepted."""

    def after(self: Any, *given: Any) -> Any:
        return after_marker(self._replace(coordinator_epoch=-1), *given)

    after_marker = producer_entry.ProducerState._after_marker
    patch.setattr(producer_entry.ProducerState, "_after_marker", after)


def undecided_records_are_compacted(patch: Patch) -> None:
    """Compaction stops at the high watermark, not at the last stable offset."""

    def measure_log(log: Any, now: Any) -> Any:
        return measure(
            log.segments,
            log.config,
            now=now,
            log_start=log.log_start_offset,
            log_end=log.log_end_offset,
            cleaned=log.directory.claims.cleaned(log.topic_partition),
            limit=min(log.high_watermark, log.recovery_point),
        )

    patch.setattr(log_cleaner, "measure_log", measure_log)


def open_transactions_are_forgotten(patch: Patch) -> None:
    """A loaded log does not contain the open transactions of its last snapshot."""

    def load(self: Any, up_to: Any) -> Any:
        found = loaded(self, up_to)
        self.open_transactions = {}
        return found

    loaded = producer_state.ProducerStateManager.load
    patch.setattr(producer_state.ProducerStateManager, "load", load)


def a_marker_that_compaction_removed_is_not_missed(patch: Patch) -> None:
    """A follower appends over a gap in the leader's log while it has an open transaction."""
    patch.setattr(follower_replica, "unended_transaction", lambda *_: None)


def what_is_open_again_is_believed(patch: Patch) -> None:
    """A follower that fetches a transaction again believes the ones before it, which may be open again."""
    agree = InSyncSet.agree

    def agreed(self: Any, fetch: Any) -> None:
        before = self.positions(fetch.replica)
        goes_back = before is not None and fetch.next_offset < before.log_end
        agree(self, fetch)
        if goes_back:
            self.positions(fetch.replica).held_from = Offset(0)

    patch.setattr(InSyncSet, "agree", agreed)


def a_truncation_that_failed_is_taken_as_done(patch: Patch) -> None:
    """A follower that was to fetch a transaction again believes it from then on, although its log failed."""
    handle = PartitionFollower.handle

    def handled(self: Any, event: Any) -> Any:
        return handle(
            self, event._replace(unended=None) if isinstance(event, Answered) and self._began_again else event
        )

    patch.setattr(PartitionFollower, "handle", handled)


def each_stream_begins_to_hold_again(patch: Patch) -> None:
    """The markers that were kept for a follower on an earlier stream do not count as kept."""
    agree = InSyncSet.agree

    def agreed(self: Any, fetch: Any) -> None:
        before = self.positions(fetch.replica)
        if before is not None and before.session != fetch.session:
            before.held_from = NOTHING_HELD
        agree(self, fetch)

    patch.setattr(InSyncSet, "agree", agreed)


def all_markers_count_as_held(patch: Patch) -> None:
    """A leader says that it has kept all markers for each follower, also for one whose node is fenced."""
    patch.setattr(InSyncSet, "held_from", lambda *_: Offset(0))


def markers_go_before_followers_have_them(patch: Patch) -> None:
    """Compaction does not ask how far the followers have fetched."""
    patch.setattr(InSyncSet, "first_unfetched", lambda self: INT64_MAX)


MUTANTS: Final = (
    Mutant(
        each_stream_begins_to_hold_again,
        "transactions",
        transaction_stories.stream_breaks_among_overlapping_transactions,
        "it fetched its log",
    ),
    Mutant(
        all_markers_count_as_held,
        "transactions, found",
        transaction_stories.marker_goes_while_the_replica_is_fenced,
        "was given offset 0, of one that is aborted",
    ),
    Mutant(
        a_fenced_producer_is_accepted,
        "fencing",
        transaction_stories.fenced_producer_continues,
        "after the marker of epoch 1",
    ),
    Mutant(
        any_coordinator_decides,
        "fencing",
        transaction_stories.replaced_coordinator_is_late,
        "a marker of coordinator epoch 0 is committed",
    ),
    Mutant(
        undecided_records_are_compacted,
        "S10, transactions",
        transaction_stories.compaction_stops_at_an_open_transaction,
        "is missing, below|is not what was committed|the first value",
    ),
    Mutant(
        a_marker_that_compaction_removed_is_not_missed,
        "transactions, found",
        transaction_stories.marker_is_gone_when_the_replica_returns,
        "was given offset 0, of one that is aborted",
    ),
    Mutant(
        what_is_open_again_is_believed,
        "transactions",
        transaction_stories.transactions_overlap_where_the_replica_returns,
        "was given offset 0, of one that is aborted",
    ),
    Mutant(
        a_truncation_that_failed_is_taken_as_done,
        "transactions",
        transaction_stories.disk_is_full_when_the_replica_returns,
        "was given offset 0, of one that is aborted",
    ),
    Mutant(
        markers_go_before_followers_have_them,
        "transactions",
        transaction_stories.marker_is_kept_between_two_fetches,
        "was given offset 0, of one that is aborted",
    ),
    Mutant(
        open_transactions_are_forgotten,
        "transactions",
        transaction_stories.transactions_outlive_all_processes,
        "open",
    ),
)
