"""The planted bugs that the pure tests of the cores notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.replication import classic_append_stories, classic_static_stories, classic_stories, migration_stories
from tests.replication import quorum_core_stories as core_stories
from tests.replication.quorum_cluster import QuorumCluster
from tests.sim.mutants import classic, migrations, quorum
from tests.sim.mutants.mutant import Plant


class InCores(NamedTuple):
    """Like a Mutant, for a story that needs an exact state of the disk: it runs on cores of the quorum alone, some
    of them voters."""

    plant: Plant
    story: Callable[[QuorumCluster], None]
    nodes: int
    voting: int
    says: str


IN_CORES = [
    InCores(
        quorum.older_epochs_are_committed_by_count, core_stories.figure_8, 5, 5, "the leader lacks something|committed"
    ),
    InCores(
        quorum.a_removed_voter_is_no_candidate, core_stories.leader_that_removed_itself, 3, 2, "not within 20000 ms"
    ),
    InCores(quorum.a_lost_log_votes, core_stories.voter_that_lost_its_log, 3, 3, "a committed record is missing"),
]


class InGroups(NamedTuple):
    """Like a Mutant, for a story of classic groups: it runs on a group coordinator alone, which has no clients of this
    protocol in a simulated cluster."""

    plant: Plant
    rule: str
    story: Callable[[], None]
    says: str


IN_GROUPS = [
    InGroups(
        classic.generations_keep_their_number,
        "generations",
        classic_stories.assignment_of_an_older_generation_is_refused,
        "each rebalance is a generation of its own",
    ),
    InGroups(
        classic.numbers_of_generations_are_given_again,
        "generations",
        classic_stories.numbers_of_lost_generations_are_not_given_again,
        "it assigned to a member that the group does not have any more",
    ),
    InGroups(
        classic.any_generation_is_current,
        "generations",
        classic_stories.assignment_of_an_older_generation_is_refused,
        "it assigned for other members",
    ),
    InGroups(
        classic.join_does_not_wait_for_others,
        "rebalances",
        classic_stories.third_member_joins,
        "it waits until the others have joined again",
    ),
    InGroups(
        classic.invited_members_are_not_waited_for,
        "KIP-394",
        classic_stories.invited_member_is_waited_for,
        "the third one has an id and will come",
    ),
    InGroups(
        classic.new_groups_do_not_wait,
        "KIP-134",
        classic_stories.members_share_a_generation,
        "both wait for each other",
    ),
    InGroups(
        classic.newcomers_do_not_prolong_the_first_rebalance,
        "KIP-134",
        classic_stories.new_group_waits_for_further_members,
        "a newcomer prolongs the wait",
    ),
    InGroups(
        classic.first_rebalance_may_take_for_ever,
        "KIP-134",
        classic_stories.new_group_waits_for_further_members,
        "not beyond the rebalance timeout",
    ),
    InGroups(
        classic.heartbeats_do_not_tell_of_a_rebalance,
        "rebalances",
        classic_stories.third_member_joins,
        "members are told to join again",
    ),
    InGroups(
        classic.members_that_do_not_join_stay,
        "KIP-62",
        classic_stories.member_that_does_not_join_again_is_removed,
        "it is removed",
    ),
    InGroups(
        classic.members_that_never_sync_stay,
        "trap 19",
        classic_stories.member_that_never_syncs_is_removed,
        "it never asked for its assignment",
    ),
    InGroups(
        classic.members_that_never_sync_stay,
        "trap 19",
        classic_stories.leader_that_never_assigns_is_removed,
        "nobody waits for it for ever",
    ),
    InGroups(
        classic.everyone_gets_the_first_assignment,
        "assignments",
        classic_stories.members_share_a_generation,
        "has its own assignment",
    ),
    InGroups(
        classic.assignments_are_not_recorded,
        "assignments",
        classic_stories.assignments_outlive_the_coordinator,
        "generation and assignments are recorded",
    ),
    InGroups(
        classic.assignments_are_given_before_they_are_recorded,
        "assignments",
        classic_append_stories.assignment_that_cannot_be_recorded_reaches_nobody,
        "the leader may try again",
    ),
    InGroups(
        classic.any_member_assigns,
        "assignments",
        classic_stories.members_share_a_generation,
        "nothing is assigned yet",
    ),
    InGroups(
        classic.the_first_member_chooses_the_protocol,
        "trap 19",
        classic_stories.protocol_is_one_that_all_support,
        "two prefer another one, which the third does not support",
    ),
    InGroups(
        classic.any_protocol_is_accepted,
        "trap 19",
        classic_stories.member_of_another_kind_is_refused,
        "another protocol type",
    ),
    InGroups(
        classic.sessions_do_not_time_out,
        "sessions",
        classic_stories.silent_member_is_removed,
        "the session of the other one has timed out",
    ),
    InGroups(
        classic.sessions_do_not_time_out,
        "KIP-394",
        classic_stories.member_without_id_is_given_one,
        "an id that nobody used is forgotten",
    ),
    InGroups(
        classic.loaded_classic_members_have_no_session,
        "sessions",
        classic_stories.assignments_outlive_the_coordinator,
        "sessions run after a change of the coordinator, too",
    ),
    InGroups(
        classic.waiting_members_time_out,
        "sessions",
        classic_stories.member_that_waits_needs_no_heartbeat,
        "its session does not run while its JoinGroup waits",
    ),
    InGroups(
        classic.new_members_wait_for_ever,
        "sessions",
        classic_stories.new_member_whose_client_is_gone_is_removed,
        "no member waits for its first generation for ever",
    ),
    InGroups(
        classic.leaving_begins_no_rebalance,
        "rebalances",
        classic_stories.member_that_leaves_is_not_waited_for,
        "its partitions go to the other one at once",
    ),
    InGroups(
        classic.groups_grow_without_limit,
        "limits",
        classic_stories.group_has_a_largest_size,
        "the group is full",
    ),
    InGroups(
        classic.any_session_timeout_is_accepted,
        "limits",
        classic_stories.session_timeouts_have_limits,
        "5999 ms",
    ),
    InGroups(
        classic.the_leader_cannot_begin_a_rebalance,
        "rebalances",
        classic_stories.leader_that_joins_again_begins_a_rebalance,
        "it has seen something that concerns the assignment",
    ),
    InGroups(
        classic.static_members_are_strangers_after_a_restart,
        "KIP-345",
        classic_static_stories.static_member_restarts_without_a_rebalance,
        "it keeps its place",
    ),
    InGroups(
        classic.instance_ids_are_not_compared,
        "KIP-345",
        classic_static_stories.static_member_restarts_without_a_rebalance,
        "the process before it is fenced",
    ),
    InGroups(
        classic.replacements_are_not_recorded,
        "trap 15",
        classic_static_stories.instance_ids_outlive_the_coordinator,
        "the replacement is recorded",
    ),
    InGroups(
        classic.instance_ids_are_not_loaded,
        "trap 15",
        classic_static_stories.instance_ids_outlive_the_coordinator,
        "the replacement is recorded",
    ),
    InGroups(
        classic.a_restarted_leader_assigns,
        "KIP-814",
        classic_static_stories.static_leader_restarts,
        "it leads, and does not assign",
    ),
    InGroups(
        classic.away_static_members_are_removed,
        "KIP-345",
        classic_static_stories.static_member_that_is_away_keeps_its_place,
        "its session has not timed out",
    ),
    InGroups(
        classic.restarted_members_never_gave_anything_up,
        "KIP-429",
        classic_static_stories.static_member_restarts_before_it_confirms_what_it_gave_up,
        "what the process before it gave up is free now",
    ),
    InGroups(
        classic.a_repeated_join_leaves_the_first_without_an_answer,
        "waiting requests",
        classic_stories.join_that_is_sent_again_answers_the_first_one,
        "no request is left without an answer",
    ),
    InGroups(
        classic.a_removed_member_has_no_answer,
        "waiting requests",
        classic_stories.waiting_member_that_leaves_is_answered,
        "no request is left without an answer",
    ),
    InGroups(
        classic.a_removed_member_has_no_answer,
        "waiting requests",
        classic_static_stories.restarted_static_member_fences_requests_that_wait,
        "no request is left without an answer",
    ),
    InGroups(
        classic.a_rebalance_leaves_syncs_waiting,
        "waiting requests",
        classic_stories.rebalance_answers_those_that_wait_for_an_assignment,
        "no request is left without an answer",
    ),
    InGroups(
        classic.late_answers_are_lost,
        "waiting requests",
        classic_stories.members_share_a_generation,
        "who has waited is answered",
    ),
    InGroups(
        classic.anyone_commits_for_a_classic_group,
        "fencing",
        classic_stories.only_members_of_the_generation_commit,
        "a simple consumer would set back what members have done",
    ),
    InGroups(
        classic.anyone_commits_for_a_classic_group,
        "fencing",
        classic_stories.commits_in_transactions_are_fenced_by_the_group,
        "a fenced member commits nothing",
    ),
    InGroups(
        classic.commits_do_not_count_as_heartbeats,
        "sessions",
        classic_stories.commits_count_as_heartbeats,
        "waits for its members to join again",
    ),
    InGroups(
        migrations.classic_members_get_their_targets,
        "KIP-848",
        migration_stories.classic_member_joins_a_consumer_group,
        "all is still with the other one",
    ),
    InGroups(
        migrations.joining_members_own_nothing,
        "KIP-848",
        migration_stories.cooperative_member_reads_on,
        "it has to confirm that",
    ),
    InGroups(
        migrations.classic_members_are_not_told_of_assignments,
        "rebalances",
        migration_stories.classic_member_joins_a_consumer_group,
        "what it waited for is free",
    ),
    InGroups(
        migrations.freed_partitions_are_not_announced,
        "rebalances",
        migration_stories.classic_member_joins_a_consumer_group,
        "what it waited for is free",
    ),
    InGroups(
        migrations.any_generation_is_an_epoch,
        "fencing",
        migration_stories.requests_of_another_generation_are_refused,
        "it is told that its generation is over",
    ),
    InGroups(
        migrations.classic_members_never_time_out,
        "sessions",
        migration_stories.silent_classic_member_is_removed,
        "it was silent for its session",
    ),
    InGroups(
        migrations.classic_members_join_when_they_like,
        "KIP-62",
        migration_stories.member_that_does_not_join_again_in_time_is_removed,
        "it has been told, and has not joined",
    ),
    InGroups(
        migrations.classic_members_need_not_sync,
        "trap 19",
        migration_stories.member_that_does_not_ask_for_its_assignment_is_removed,
        "nobody reads what it was given",
    ),
    InGroups(
        migrations.consumer_groups_take_any_member,
        "protocols",
        migration_stories.members_of_other_kinds_are_refused,
        "connect with .* is refused",
    ),
    InGroups(
        migrations.upgrades_forget_assignments,
        "upgrades",
        migration_stories.first_heartbeat_upgrades_a_group,
        "the others still have everything",
    ),
    InGroups(
        migrations.upgrades_give_partitions_to_two_members,
        "upgrades",
        migration_stories.partition_that_was_assigned_twice_has_one_owner,
        "each partition once",
    ),
    InGroups(
        migrations.upgrades_leave_requests_waiting,
        "waiting requests",
        migration_stories.requests_that_wait_are_answered_by_an_upgrade,
        "none is forgotten",
    ),
    InGroups(
        migrations.upgraded_members_have_no_session,
        "sessions",
        migration_stories.upgraded_members_time_out,
        "every partition has an owner",
    ),
    InGroups(
        migrations.upgrades_reuse_lost_generations,
        "generations",
        migration_stories.upgrade_counts_beyond_lost_generations,
        "an epoch of its own",
    ),
    InGroups(
        migrations.any_classic_group_is_upgraded,
        "policy",
        migration_stories.groups_that_may_not_be_upgraded,
        "does not allow it",
    ),
    InGroups(
        migrations.groups_are_never_downgraded,
        "downgrades",
        migration_stories.last_consumer_that_leaves_downgrades_its_group,
        "no member of the consumer protocol is left",
    ),
    InGroups(
        migrations.downgrades_ignore_the_policy,
        "policy",
        migration_stories.groups_that_may_not_be_downgraded,
        "it goes on as it is",
    ),
    InGroups(
        migrations.downgraded_groups_do_not_rebalance,
        "downgrades",
        migration_stories.last_consumer_that_leaves_downgrades_its_group,
        "what it had needs another owner",
    ),
    InGroups(
        migrations.loaded_downgrades_do_not_rebalance,
        "downgrades",
        migration_stories.downgrade_outlives_the_coordinator,
        "still without an owner",
    ),
    InGroups(
        migrations.downgraded_members_have_nothing,
        "downgrades",
        migration_stories.last_consumer_that_leaves_downgrades_its_group,
        "what they own",
    ),
    InGroups(
        migrations.downgrades_fence_everyone,
        "downgrades",
        migration_stories.last_consumer_that_leaves_downgrades_its_group,
        "members go on in their generation",
    ),
    InGroups(
        migrations.other_protocols_are_other_members,
        "KIP-345",
        migration_stories.static_member_changes_its_protocol,
        "which has not left",
    ),
    InGroups(
        migrations.static_members_join_beside_themselves,
        "KIP-345",
        migration_stories.static_member_is_fenced_by_its_successor,
        "it keeps its place",
    ),
]
