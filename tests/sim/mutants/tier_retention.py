"""Planted bugs in the remote tier: coordinators, deletions, retention, lost epochs, transactions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from node.coordinators.object_remover import ObjectRemover
from node.replicas.replica import Replica
from node.runtime.work import run_in
from node.tiering import tiered_partition
from node.tiering.tiered_partition import TieredPartition
from replication.coordination.tiering import remote_log
from replication.coordination.tiering.remote_log import RemoteLog
from replication.coordination.tiering.remote_log_machine import RemoteLogMachine
from storage.log import remote_retention
from storage.log.segment_copy import SegmentCopy
from tests.sim import tier_retention_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.tiering.remote_segment import RemoteSegmentId
from tidelog.tiering.remote_segment_reader import RemoteSegmentReader
from tidelog.tiering.segment_manifest import parse_key
from tidelog.types import Buffer, Millis, Offset

# --- coordinators -----------------------------------------------------------------------------------------------------


def removals_end_with_their_coordinator(patch: Patch) -> None:
    """A coordinator does not ask again for the removals that the one before it has not seen the end of."""

    def loaded(self: Any, *args: Any) -> Any:
        load(self, *args)
        return ()

    load = RemoteLogMachine.loaded
    patch.setattr(RemoteLogMachine, "loaded", loaded)


def copies_under_way_are_not_loaded(patch: Patch) -> None:
    """A coordinator knows no copy that began with the one before it."""

    def loaded(self: Any, *args: Any) -> Any:
        for known in self._partitions.values():
            if known.copying is not None:
                known.segments.remove(known.copying)
        return load(self, *args)

    load = RemoteLogMachine.loaded
    patch.setattr(RemoteLogMachine, "loaded", loaded)


def failed_removals_count(patch: Patch) -> None:
    """A segment is forgotten although the store has not answered."""

    async def removed(self: Any, effect: Any) -> bool:
        await remove(self, effect)
        return True

    remove = ObjectRemover._removed
    patch.setattr(ObjectRemover, "_removed", removed)


def leaders_remove_objects_themselves(patch: Patch) -> None:
    """A leader removes the objects of segments that it wants to be deleted before the coordinator knows of it."""

    async def ask_later(self: Any) -> None:
        store, start = self._services.store, self.log.log_start_offset

        def remove() -> None:
            for each in store.list(""):
                name = parse_key(each.key)
                if name is not None and name.start_offset < start - 1:
                    store.delete(each.key)

        if self._deleting:
            await run_in(self._services.executor, remove)
        await delete(self)

    delete = TieredPartition._delete
    patch.setattr(TieredPartition, "_delete", ask_later)


def segments_of_deleted_topics_stay(patch: Patch) -> None:
    """The coordinator does not delete segments of topics that are gone."""
    patch.setattr(RemoteLogMachine, "_note_gone", lambda _: None)


# --- copies -----------------------------------------------------------------------------------------------------------


def copies_share_an_id(patch: Patch) -> None:
    """Each attempt to copy a segment has the same id."""

    def described(self: Any, copy: Any) -> Any:
        return replace(describe(self, copy), segment_id=RemoteSegmentId(UUID(int=copy.start_offset + 1)))

    describe = TieredPartition._described
    patch.setattr(TieredPartition, "_described", described)


def damaged_segments_are_copied(patch: Patch) -> None:
    """A segment is copied as its file is."""

    def as_it_is(self: Any, _indexes: object) -> Iterator[Buffer]:
        yield self._before[-1].file.pread(self.size, 0)

    patch.setattr(SegmentCopy, "_log", as_it_is)


def a_leader_copies_without_asking_first(patch: Patch) -> None:
    """A new leader does not take over what is in the tier."""
    patch.setattr(RemoteLog, "load", lambda *_: ())


def undecided_segments_are_copied(patch: Patch) -> None:
    """Copies do not wait for the ends of transactions."""
    patch.setattr(tiered_partition, "copy_limit", lambda log: min(log.high_watermark, log.durable_offset))


# --- retention --------------------------------------------------------------------------------------------------------


def segments_are_deleted_before_the_log_starts_later(patch: Patch) -> None:
    """Expired segments are deleted while the log start is below them."""

    def move(self: Any, offset: Offset) -> None:
        self._deleting += [each.segment_id for each in self._remote if each.end_offset <= offset]

    patch.setattr(TieredPartition, "_move_log_start", move)


def local_retention_deletes_remote_segments(patch: Patch) -> None:
    """Remote segments expire by `local.retention.bytes`."""

    def expiry(segments: Any, config: Any, **options: Any) -> Any:
        local = replace(config, remote_storage=False, retention_bytes=config.local_bytes)
        return expired(segments, local, **options)

    expired = remote_retention.remote_expiry
    patch.setattr(tiered_partition, "remote_expiry", expiry)


def remote_segments_expire_too_early(patch: Patch) -> None:
    """Remote segments expire an hour too early."""

    def expiry(segments: Any, config: Any, *, now: int, **options: Any) -> Any:
        return expired(segments, config, now=Millis(now + 3_600_000), **options)

    expired = remote_retention.remote_expiry
    patch.setattr(tiered_partition, "remote_expiry", expiry)


# --- lost epochs ------------------------------------------------------------------------------------------------------


def any_segment_is_believed(patch: Patch) -> None:
    """Leader epochs of remote segments are not compared with those of the log."""
    for module in (remote_log, tiered_partition):
        patch.setattr(module, "believed", lambda *_: True)


def segments_of_a_lost_epoch_stay(patch: Patch) -> None:
    """Segments that a leader does not believe are not deleted."""

    def load_and_keep(self: Any, *args: Any) -> tuple[()]:
        load(self, *args)
        return ()

    load = RemoteLog.load
    patch.setattr(RemoteLog, "load", load_and_keep)


def lost_segments_are_not_held(patch: Patch) -> None:
    """Segments that a leader does not believe are deleted at once."""
    patch.setattr(TieredPartition, "_hold", lambda *_: None)


def a_follower_stops_at_a_lost_segment(patch: Patch) -> None:
    """A follower waits for its high watermark to pass a segment that it never gets."""
    patch.setattr(tiered_partition, "refuted", lambda *_: False)


# --- takeovers --------------------------------------------------------------------------------------------------------


def new_leaders_forget_what_they_knew(patch: Patch) -> None:
    """A new leader reads nothing from the store before it has listed all segments."""
    patch.setattr(Replica, "_remote_still_believed", lambda _: None)


def what_a_follower_knew_counts_as_all(patch: Patch) -> None:
    """A new leader takes what it knew as a follower for all that is in the tier."""

    def believed_and_whole(self: Any) -> Any:
        known = believed(self)
        if known is not None:
            known.is_whole = True
        return known

    believed = Replica._remote_still_believed
    patch.setattr(Replica, "_remote_still_believed", believed_and_whole)


# --- transactions -----------------------------------------------------------------------------------------------------


def transactions_that_go_on_are_not_looked_for(patch: Patch) -> None:
    """A read of a segment takes only the aborted transactions that end in it."""
    patch.setattr(RemoteSegmentReader, "leaves_open", lambda *_: False)


def aborted_transactions_are_not_copied(patch: Patch) -> None:
    """Objects have no transaction index."""
    patch.setattr(SegmentCopy, "_aborted", lambda _: b"")


COORDINATORS: Final = "tier, coordinators"
COPIES: Final = "tier, copies"
RETENTION: Final = "tier, retention"
EPOCHS: Final = "tier, lost epochs"
TAKEOVERS: Final = "tier, takeovers"
TRANSACTIONS: Final = "tier, transactions"
ABORTED: Final = "was given offset 0, of one that is aborted"

MUTANTS: Final = (
    Mutant(
        removals_end_with_their_coordinator,
        COORDINATORS,
        stories.coordinator_dies_while_objects_are_removed,
        "the objects are removed",
    ),
    Mutant(
        copies_under_way_are_not_loaded,
        COORDINATORS,
        stories.coordinator_dies_during_an_upload,
        "it was copied once|is copied beside",
    ),
    Mutant(
        failed_removals_count,
        COORDINATORS,
        stories.removals_are_repeated,
        "is forgotten, and its object is in the store",
    ),
    Mutant(
        leaders_remove_objects_themselves,
        COORDINATORS,
        stories.retention_counts_both_tiers,
        "is removed, and its segment is COPY_SEGMENT_FINISHED",
    ),
    Mutant(
        segments_of_deleted_topics_stay,
        COORDINATORS,
        stories.topic_is_deleted_during_an_upload,
        "all segments are forgotten",
    ),
    Mutant(copies_share_an_id, COPIES, stories.late_upload_is_an_orphan, "is uploaded again"),
    Mutant(
        damaged_segments_are_copied,
        COPIES,
        stories.damaged_segment_is_not_copied,
        "other records than those that are committed",
    ),
    Mutant(
        a_leader_copies_without_asking_first,
        COPIES,
        stories.follower_knows_fewer_copies,
        "each segment once|no remote segment of orders-0 has",
    ),
    Mutant(
        undecided_segments_are_copied,
        TRANSACTIONS,
        stories.aborted_transaction_in_the_tier,
        "nothing is copied while it is undecided",
    ),
    Mutant(
        segments_are_deleted_before_the_log_starts_later,
        RETENTION,
        stories.retention_counts_both_tiers,
        "is deleted, but no log starts behind",
    ),
    Mutant(
        local_retention_deletes_remote_segments,
        RETENTION,
        stories.retention_counts_both_tiers,
        "is gone, and nothing allows that",
    ),
    Mutant(
        remote_segments_expire_too_early,
        RETENTION,
        stories.retention_by_age,
        "is gone, and nothing allows that",
    ),
    Mutant(any_segment_is_believed, EPOCHS, stories.segments_of_a_lost_epoch, "no remote segment has offset|lost"),
    Mutant(
        segments_of_a_lost_epoch_stay,
        EPOCHS,
        stories.segments_of_a_lost_epoch,
        "what was lost is not in the tier",
    ),
    Mutant(lost_segments_are_not_held, EPOCHS, stories.segments_of_a_lost_epoch, "lost segments are kept"),
    Mutant(
        lost_segments_are_not_held, EPOCHS, stories.empty_replica_is_elected_by_mistake, "is kept for a while|copies"
    ),
    Mutant(a_follower_stops_at_a_lost_segment, EPOCHS, stories.segments_of_a_lost_epoch, "lost segments are kept"),
    Mutant(new_leaders_forget_what_they_knew, TAKEOVERS, stories.new_leader_reads_what_it_knew, "is read"),
    Mutant(
        what_a_follower_knew_counts_as_all,
        TAKEOVERS,
        stories.new_leader_reads_what_it_knew,
        "a later segment may have it",
    ),
    Mutant(
        what_a_follower_knew_counts_as_all,
        TAKEOVERS,
        stories.new_leader_knew_segments_that_are_deleted,
        "RemoteObjectMissing|it waits",
    ),
    Mutant(
        transactions_that_go_on_are_not_looked_for,
        TRANSACTIONS,
        stories.aborted_transaction_in_the_tier,
        ABORTED,
    ),
    Mutant(aborted_transactions_are_not_copied, TRANSACTIONS, stories.aborted_transaction_in_the_tier, ABORTED),
)
