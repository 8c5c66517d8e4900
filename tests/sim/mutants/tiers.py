"""Planted bugs in the remote tier: copies, local segments, reads."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final
from uuid import UUID

from node.replicas.remote_reads import RemoteReads, RemoteTicket
from node.replicas.replica import Replica
from node.tiering import tiered_partition
from node.tiering.remote_log_client import RemoteLogClient
from node.tiering.tiered_partition import TieredPartition
from replication.coordination.coordinator_machine import Decision
from replication.coordination.remote_log_requests import BeginCopy, SegmentPlace
from replication.coordination.tiering.remote_log import RemoteLog
from replication.coordination.tiering.remote_log_machine import RemoteLogMachine
from storage.log import log_start, retention
from storage.log.directory_claims import DirectoryClaims
from tests.sim import tier_stories as stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.errors import OffsetOutOfRange
from tidelog.tiering.remote_errors import ObjectStoreUnavailable
from tidelog.tiering.remote_segment import RemoteSegmentId
from tidelog.tiering.segment_manifest import segment_key
from tidelog.tiering.segment_object import SegmentObjectBuilder
from tidelog.types import Offset

# --- copies -----------------------------------------------------------------------------------------------------------


def uploads_without_an_answer_count(patch: Patch) -> None:
    """A copy is finished although the store has not answered, and it is not read back."""

    def upload(self: Any, topic: str, segment: Any, copy: Any) -> Any:
        builder = SegmentObjectBuilder(segment, copy.contents())
        with suppress(ObjectStoreUnavailable):
            self._services.store.put(segment_key(topic, segment), builder.parts())
        return builder.finished()

    patch.setattr(TieredPartition, "_upload", upload)


def uploads_begin_before_they_are_known(patch: Patch) -> None:
    """A leader uploads a segment without telling the coordinator first."""

    async def change_all_but_one(self: Any, request: Any) -> None:
        if not isinstance(request, BeginCopy):
            await change(self, request)

    change = RemoteLogClient.change
    patch.setattr(RemoteLogClient, "change", change_all_but_one)


def uncommitted_segments_are_copied(patch: Patch) -> None:
    """Closed segments are copied once they are durable on the leader."""
    patch.setattr(tiered_partition, "copy_limit", lambda log: log.durable_offset)


def leader_epochs_are_not_compared(patch: Patch) -> None:
    """The coordinator serves leaders of any epoch."""

    def begin(self: Any, leader: Any, now: Any) -> Any:
        known = self._partitions.get(leader.key)
        if known is not None and leader.leader_epoch < known.leader_epoch:
            known.leader_epoch = leader.leader_epoch - 1
        return began(self, leader, now)

    began = RemoteLogMachine._begin
    patch.setattr(RemoteLogMachine, "_begin", begin)
    patch.setattr(RemoteLogMachine, "_led", lambda self, leader: self._partitions[leader.key])


def copies_of_dead_leaders_stay(patch: Patch) -> None:
    """A copy that a leader has not finished is not deleted when the next one begins."""
    patch.setattr(RemoteLogMachine, "_delete", staticmethod(lambda *_: Decision(None)))


def a_copy_that_replaced_another_is_passed_over(patch: Patch) -> None:
    """A follower looks for new segments behind all that began where its copied log ends."""
    last = RemoteSegmentId(UUID(int=(1 << 128) - 1))
    patch.setattr(RemoteLog, "next_place", property(lambda self: SegmentPlace(self.copied_end, last)))


# --- local segments ---------------------------------------------------------------------------------------------------


def segments_leave_before_they_are_copied(patch: Patch) -> None:
    """Local retention does not wait for copies."""

    def deletable(*args: Any, copied_end: Any, log_end: Any, **options: Any) -> int:
        return count(*args, copied_end=log_end, log_end=log_end, **options)

    count = retention.count_deletable
    patch.setattr(log_start, "count_deletable", deletable)


def local_starts_are_not_durable(patch: Patch) -> None:
    """Where a local log begins is in memory only when its first segments go."""

    def starting(self: Any, name: Any, offset: Any) -> Any:
        self._local_starts.claimed[name] = offset
        return lambda: None

    patch.setattr(DirectoryClaims, "starting_locally", starting)


# --- reads ------------------------------------------------------------------------------------------------------------


def reads_end_at_the_local_log(patch: Patch) -> None:
    """What is in the tier only is told as deleted."""

    def try_read(self: Any, fetch: Any, now: Any) -> Any:
        if self.log.log_start_offset <= fetch.next_offset < self.log.local_log_start_offset:
            raise OffsetOutOfRange(f"{self} begins at {self.log.local_log_start_offset}")
        return read(self, fetch, now)

    read = Replica._try_read
    patch.setattr(Replica, "_try_read", try_read)


def the_store_is_called_on_the_loop(patch: Patch) -> None:
    """A read from the store does not wait for a thread."""

    def try_read(self: Any, log: Any, remote: Any, *args: Any) -> Any:
        found = read(self, log, remote, *args)
        if isinstance(found, RemoteTicket):
            found.run()
        return found

    read = RemoteReads.try_read
    patch.setattr(RemoteReads, "try_read", try_read)


def reads_pass_over_what_is_in_the_tier(patch: Patch) -> None:
    """A read of the tier continues at the local log."""

    def try_read(self: Any, log: Any, remote: Any, offset: Offset, max_bytes: int, isolation: Any, ready: Any) -> Any:
        return log.fetch(log.local_log_start_offset, max_bytes, isolation)

    patch.setattr(RemoteReads, "try_read", try_read)


COPIES: Final = "tier, copies"
FENCING: Final = "tier, fencing"
LOCAL: Final = "tier, local segments"
READS: Final = "tier, reads"

MUTANTS: Final = (
    Mutant(uploads_without_an_answer_count, COPIES, stories.store_is_away, "is finished, but"),
    Mutant(
        uploads_begin_before_they_are_known,
        COPIES,
        stories.segments_leave_once_they_are_copied,
        "no coordinator knows that copy",
    ),
    Mutant(
        uncommitted_segments_are_copied,
        COPIES,
        stories.uncommitted_records_are_not_copied,
        "other records than those that are committed",
    ),
    Mutant(leader_epochs_are_not_compared, FENCING, stories.deposed_leader_ends_its_upload, "registers after"),
    Mutant(
        leader_epochs_are_not_compared,
        FENCING,
        stories.deposed_leader_begins_a_copy,
        "is COPY_SEGMENT_STARTED by the leader of epoch",
    ),
    Mutant(copies_of_dead_leaders_stay, COPIES, stories.leader_dies_during_an_upload, "is copied beside"),
    Mutant(
        a_copy_that_replaced_another_is_passed_over,
        "found",
        stories.leader_dies_during_an_upload,
        "what is below 7 leaves the nodes",
    ),
    Mutant(segments_leave_before_they_are_copied, LOCAL, stories.store_is_away, "no remote segment has offset"),
    Mutant(
        local_starts_are_not_durable,
        LOCAL,
        stories.local_start_outlives_a_power_loss,
        "all have their logs|damaged or fetched again",
    ),
    Mutant(reads_end_at_the_local_log, READS, stories.segments_leave_once_they_are_copied, "is read"),
    Mutant(the_store_is_called_on_the_loop, READS, stories.segments_leave_once_they_are_copied, "on the event loop"),
    Mutant(
        reads_pass_over_what_is_in_the_tier,
        READS,
        stories.segments_leave_once_they_are_copied,
        "without being given offset",
    ),
)
