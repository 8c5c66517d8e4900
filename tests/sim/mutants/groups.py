"""Group coordinators and members that break a rule of ownership, of epochs, or of committed offsets."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

from replication.coordination.coordinator_record import CoordinatorRecord
from replication.coordination.group_records import OffsetCommitKey
from replication.coordination.groups import group_machine, heartbeats, reconciliation, uniform_assignor
from replication.coordination.groups.consumer_group import ConsumerGroup
from replication.coordination.groups.group_machine import GroupMachine
from replication.coordination.groups.heartbeats import Heartbeats
from replication.coordination.groups.member import Member
from replication.coordination.groups.member_steps import MemberSteps
from replication.coordination.groups.member_timers import MemberTimers
from replication.coordination.groups.metadata_changes import MetadataChanges
from replication.coordination.groups.offset_requests import OffsetRequests
from replication.coordination.groups.offset_store import OffsetStore
from tests.sim import group_stories as stories
from tests.sim.coordinator_stories import aborted_offsets_do_not_count, offsets_are_committed_with_the_records
from tests.sim.mutants.mutant import Mutant, Patch
from tests.sim.pipeline_stories import offsets_of_a_fenced_worker
from tidelog.client.group_core import GroupCore
from tidelog.client.group_member import GroupMember
from tidelog.types import LEAVE_EPOCH, LEAVE_STATIC_EPOCH, PartitionIndex

# --- the coordinator ------------------------------------------------------------------------------------------------


def a_revocation_needs_no_confirmation(patch: Patch) -> None:
    """A partition is free as soon as its owner has been asked to give it up."""
    patch.setattr(reconciliation, "_owns_any", lambda owned, revoking: False)


def a_partition_is_free_while_it_is_owned(patch: Patch) -> None:
    """A member gets its target assignment at once, even while others still have the partitions."""
    patch.setattr(MemberSteps, "_is_free", lambda *_: True)
    patch.setattr(ConsumerGroup, "owner", lambda *_: None)


def members_never_time_out(patch: Patch) -> None:
    """A member that sends no heartbeats stays in its group."""
    patch.setattr(MemberTimers, "expect_heartbeat", lambda *_: None)


def loaded_members_have_no_session(patch: Patch) -> None:
    """A coordinator that has loaded a group waits for the first heartbeat of a member before it starts its session."""
    patch.setattr(MemberTimers, "expect_loaded", lambda *_: None)


def revocations_may_take_any_time(patch: Patch) -> None:
    """The rebalance timeout of a member is not enforced."""
    patch.setattr(MemberTimers, "expect_revocation", lambda *_: None)


def members_are_told_with_their_next_heartbeat(patch: Patch) -> None:
    """A change of an assignment is not pushed to the members that it concerns."""
    patch.setattr(heartbeats, "nudge", lambda *_: ())
    patch.setattr(group_machine, "nudge", lambda *_: ())


def new_partitions_are_not_noticed(patch: Patch) -> None:
    """A change of the cluster's metadata leads to no other assignment."""
    patch.setattr(MetadataChanges, "note", lambda *_: None)


def every_join_moves_everything(patch: Patch) -> None:
    """The assignor does not keep partitions where they are."""
    keep = uniform_assignor._Shares._keep

    def keep_nothing(self: Any) -> int:
        total = keep(self)
        for member_id in self._kept:
            self._kept[member_id], self._sizes[member_id] = {}, 0
        self._free = [
            (topic_id, partition)
            for topic_id, topic in sorted(self._spec.topics.items(), reverse=True)
            for partition in reversed(range(topic.partitions))
        ]
        return total

    patch.setattr(uniform_assignor._Shares, "_keep", keep_nothing)


def a_static_member_leaves_for_good(patch: Patch) -> None:
    """A static member that is closed gives its place up."""
    leave = Heartbeats._leave

    def leave_for_good(self: Any, request: Any) -> Any:
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            request = replace(request, member_epoch=LEAVE_EPOCH)
        return leave(self, request)

    patch.setattr(Heartbeats, "_leave", leave_for_good)


def an_instance_id_is_taken_from_a_running_member(patch: Patch) -> None:
    """A second process with an instance id replaces the first one, which still runs."""
    patch.setattr(Member, "is_away", property(lambda _: True))


def pending_revocations_are_not_loaded(patch: Patch) -> None:
    """A loaded coordinator does not know which partitions members have been asked to give up."""
    apply = GroupMachine.apply

    def forgetting(self: Any, record: Any, offset: Any, producer: Any) -> None:
        if not self._is_loaded and getattr(record.value, "partitions_pending_revocation", None):
            record = replace(record, value=copy(record.value))
            record.value.partitions_pending_revocation = ()
        apply(self, record, offset, producer)

    patch.setattr(GroupMachine, "apply", forgetting)


def offsets_are_deleted_with_the_last_member(patch: Patch) -> None:
    """A group that loses its last member loses its committed offsets too."""
    leave = Heartbeats._leave

    def leave_and_delete(self: Any, request: Any) -> Any:
        decision = leave(self, request)
        group = self._state.consumer[request.group_id]
        if len(group.members) > 1:
            return decision
        tombstones: list[Any] = [
            CoordinatorRecord(OffsetCommitKey(request.group_id, topic, PartitionIndex(partition)), None)
            for topic, partition in self._state.offsets.of_group(request.group_id)
        ]
        return replace(decision, records=(*decision.records, *tombstones))

    patch.setattr(Heartbeats, "_leave", leave_and_delete)


# --- offsets --------------------------------------------------------------------------------------------------------


def a_fenced_member_commits(patch: Patch) -> None:
    """The coordinator accepts offsets without a check of the committer's membership; nor of the order, which refuses
    a late commit as well."""
    patch.setattr(OffsetRequests, "_check_committer", lambda *_: None)
    patch.setattr(OffsetRequests, "_check_order", lambda *_: None)


def a_fenced_member_commits_in_transactions(patch: Patch) -> None:
    """As before, for the offsets of transactions only."""
    commit = OffsetRequests.commit_in_transaction

    def unchecked(self: Any, request: Any, now: Any) -> Any:
        check, self._check_committer = self._check_committer, lambda *_: None
        try:
            return commit(self, request, now)
        finally:
            self._check_committer = check

    patch.setattr(OffsetRequests, "commit_in_transaction", unchecked)


def tools_commit_beside_members(patch: Patch) -> None:
    """A committer that claims no membership is accepted while the group has members."""
    check = OffsetRequests._check_committer

    def check_members(self: Any, request: Any) -> None:
        if request.member_id:
            check(self, request)

    patch.setattr(OffsetRequests, "_check_committer", check_members)


def offsets_of_aborted_transactions_count(patch: Patch) -> None:
    """A marker commits the offsets of its transaction, whatever it says."""
    end = OffsetStore.end_transaction
    patch.setattr(OffsetStore, "end_transaction", lambda self, producer, committed: end(self, producer, committed=True))


def open_transactions_are_not_awaited(patch: Patch) -> None:
    """A member that gets a partition is given an offset that an open transaction is about to change."""
    patch.setattr(OffsetStore, "is_pending", lambda *_: False)


def replayed_offsets_are_kept_once(patch: Patch) -> None:
    """A loaded coordinator keeps the first offset of each partition that it finds in the log."""
    apply = GroupMachine.apply

    def apply_first(self: Any, record: Any, offset: Any, producer: Any) -> None:
        key = record.key
        replays = not self._is_loaded and isinstance(key, OffsetCommitKey)
        if not replays or self._state.offsets.get(key.group, key.topic, key.partition) is None:
            apply(self, record, offset, producer)

    patch.setattr(GroupMachine, "apply", apply_first)


# --- members --------------------------------------------------------------------------------------------------------


def a_member_confirms_before_it_stops(patch: Patch) -> None:
    """A member reports that it gave partitions up when it is asked to, before its application has."""
    advance = GroupCore._advance

    def advancing(self: Any, at: Any, effects: Any) -> None:
        advance(self, at, effects)
        if type(self._open).__name__ == "Revoke" and self.owned & set(self._open.partitions):
            self.owned -= set(self._open.partitions)
            self._reported, self._due = None, at
            advance(self, at, effects)

    patch.setattr(GroupCore, "_advance", advancing)


def a_fenced_member_reads_on(patch: Patch) -> None:
    """A member that is told that it is fenced keeps its partitions and joins again."""

    give_up = GroupCore._give_up

    def keeping(self: Any, at: Any, effects: Any) -> None:
        self.owned = frozenset()  # as it says to the coordinator
        give_up(self, at, effects)

    patch.setattr(GroupCore, "_give_up", keeping)


def records_are_committed_while_they_are_processed(patch: Patch) -> None:
    """A member commits the position behind the records that its application still works on."""
    patch.setattr(GroupMember, "returning", lambda *_: None)


def the_order_of_commits_is_not_checked(patch: Patch) -> None:
    """A commit that arrives after later ones of its member counts."""
    patch.setattr(OffsetRequests, "_check_order", lambda *_: None)


def an_explicit_commit_processes_nothing(patch: Patch) -> None:
    """After an explicit commit a member still takes the records of the last poll for unprocessed: its next commit by
    itself goes back."""
    commit = GroupMember.commit

    async def committing(self: Any, offsets: Any = None) -> None:
        returned = dict(self._returned)
        await commit(self, offsets)
        self._returned.update(returned)

    patch.setattr(GroupMember, "commit", committing)


def a_member_commits_nothing_as_it_leaves(patch: Patch) -> None:
    """A member that is closed does not commit what it has processed since its last commit."""
    close = GroupMember.close

    async def closing(self: Any, *, for_good: bool) -> None:
        async def nothing(*_: Any) -> None:
            pass

        self._commit_processed = nothing
        await close(self, for_good=for_good)

    patch.setattr(GroupMember, "close", closing)


def a_member_starts_at_the_beginning(patch: Patch) -> None:
    """A member reads a partition from its beginning, whatever its group has committed."""
    cursor = GroupMember._cursor
    patch.setattr(GroupMember, "_cursor", lambda self, key, topic_id, _: cursor(self, key, topic_id, None))


def a_member_starts_at_the_end(patch: Patch) -> None:
    """A member skips what was written while nobody owned the partition."""
    cursor = GroupMember._cursor

    async def at_the_end(self: Any, key: Any, topic_id: Any, _: Any) -> Any:
        made = await cursor(self, key, topic_id, None)
        made.start = "latest"
        return made

    patch.setattr(GroupMember, "_cursor", at_the_end)


TWO_OWNERS = "belongs to two members"

MUTANTS = (
    Mutant(
        a_revocation_needs_no_confirmation,
        "KIP-848",
        stories.revocation_waits_for_its_owner,
        "has a second owner|while .* owns it and is not fenced",
    ),
    Mutant(
        a_partition_is_free_while_it_is_owned,
        "KIP-848",
        stories.coordinator_is_killed_while_reconciling,
        TWO_OWNERS,
    ),
    Mutant(members_never_time_out, "KIP-848", stories.killed_member_is_replaced, "every partition has one owner"),
    Mutant(
        loaded_members_have_no_session,
        "KIP-848",
        stories.member_dies_with_its_coordinator,
        "the other member has all partitions",
    ),
    Mutant(
        revocations_may_take_any_time,
        "KIP-848",
        stories.member_never_confirms,
        "the coordinator removes the member",
    ),
    Mutant(
        members_are_told_with_their_next_heartbeat,
        "groups",
        stories.closed_member_is_replaced_at_once,
        "every partition has one owner",
    ),
    Mutant(new_partitions_are_not_noticed, "KIP-848", stories.new_partitions_are_assigned, "it has the new partitions"),
    Mutant(every_join_moves_everything, "KIP-848", stories.members_share_partitions, "gave up"),
    Mutant(a_static_member_leaves_for_good, "KIP-345", stories.static_member_returns, "the other member was disturbed"),
    Mutant(
        an_instance_id_is_taken_from_a_running_member,
        "KIP-345",
        stories.static_member_is_taken,
        "two members have one instance id",
    ),
    Mutant(
        pending_revocations_are_not_loaded,
        "groups",
        stories.coordinator_is_killed_while_reconciling,
        "a partition has a second owner|while .* owns it and is not fenced|belongs to two members of group",
    ),
    Mutant(
        offsets_are_deleted_with_the_last_member,
        "KIP-211",
        stories.offsets_outlive_all_machines,
        "is deleted, and nobody asked for that",
    ),
    Mutant(a_fenced_member_commits, "KIP-848", stories.late_commit_of_a_fenced_member, "which is fenced"),
    Mutant(a_fenced_member_commits_in_transactions, "KIP-447", offsets_of_a_fenced_worker, "which is fenced"),
    Mutant(tools_commit_beside_members, "groups", stories.tool_commits_beside_members, "no member, beside the members"),
    Mutant(
        offsets_of_aborted_transactions_count,
        "KIP-447",
        aborted_offsets_do_not_count,
        "was given 3 as the committed offset",
    ),
    Mutant(
        open_transactions_are_not_awaited,
        "KIP-447",
        offsets_are_committed_with_the_records,
        "does not wait for the open transaction",
    ),
    Mutant(
        replayed_offsets_are_kept_once,
        "groups",
        stories.offsets_outlive_all_machines,
        "the committed offsets are others|was given .* as the committed offset",
    ),
    Mutant(
        a_member_confirms_before_it_stops,
        "KIP-848",
        stories.coordinator_is_killed_while_reconciling,
        "owns it and is not fenced|partitions are to be given up|a second owner",
    ),
    Mutant(
        a_fenced_member_reads_on,
        "KIP-848",
        stories.paused_member_is_fenced,
        "is assigned to .* a second time|the first member knows that it was fenced",
    ),
    Mutant(
        records_are_committed_while_they_are_processed,
        "groups",
        stories.records_in_processing_are_not_committed,
        "was given all below 0",
    ),
    Mutant(
        an_explicit_commit_processes_nothing,
        "found",
        stories.member_commits_and_leaves,
        "goes back from 3 to",
    ),
    Mutant(
        the_order_of_commits_is_not_checked,
        "found",
        stories.late_commit_of_a_member,
        "goes back from 4 to",
    ),
    Mutant(
        a_member_commits_nothing_as_it_leaves,
        "groups",
        stories.rolling_restart_of_all_members,
        "a record was read twice",
    ),
    Mutant(
        a_member_starts_at_the_beginning,
        "groups",
        stories.killed_member_is_replaced,
        "begins orders-. at offset 0, but . is committed",
    ),
    Mutant(
        a_member_starts_at_the_end, "groups", stories.killed_member_is_replaced, "without being given offset|committed"
    ),
)
"""The planted bugs of groups."""
