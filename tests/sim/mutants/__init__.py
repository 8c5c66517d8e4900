"""The simulator can fail: known bugs, planted one at a time, each with the story that must notice it.

    python -m tests.sim.mutants               all of them, each in its story and in random worlds
    python -m tests.sim.mutants NAME ...      some of them

A planted bug that neither its story nor any random world notices is a missing checker.
"""

from __future__ import annotations

from typing import Final

from tests.sim import (
    acl_stories,
    controller_stories,
    directory_stories,
    late_stories,
    log_stories,
    page_stories,
    producer_stories,
    quorum_stories,
    reader_stories,
    recreation_stories,
    replication_stories,
    slow_truncation_stories,
    stories,
    transaction_stories,
)
from tests.sim.mutants import (
    classic,
    controller_rules,
    controllers,
    coordinators,
    damage,
    deletions,
    directories,
    disks,
    failover,
    followers,
    groups,
    hostile,
    kafka,
    kafka_groups,
    kafka_transactions,
    leaders,
    migrations,
    producers,
    quorum,
    readers,
    transactions,
)
from tests.sim.mutants.mutant import Mutant

MIXED: Final = "is not what was committed there before"
LOSES: Final = "but a crash may lose"
MEMBER_LACKS: Final = "is in the in-sync set and (holds offsets below|has no log)"
FENCED_MEMBER: Final = "is fenced, and in the in-sync set"
TOO_FEW: Final = r"\d are in sync, \d must be"
TOO_SHORT: Final = "with its log ending at"
LEADS_FROM_OUTSIDE: Final = "leads and is not in its in-sync set"

MUTANTS: Final = (
    # leaders
    Mutant(leaders.a_diverging_fetch_counts, "S2", stories.stale_position, MIXED),
    Mutant(leaders.a_replica_joins_by_its_log_end, "S4", stories.join_by_log_end, MEMBER_LACKS),
    Mutant(leaders.a_joiner_counts_once_admitted, "S5", stories.late_proposal, MEMBER_LACKS),
    Mutant(leaders.a_rejected_joiner_is_not_counted, "S5", stories.late_proposal, MEMBER_LACKS, 3),
    Mutant(
        leaders.a_rejected_joiner_is_not_counted,
        "S5",
        stories.lost_answer_to_a_proposal,
        f"committed without a member of the set|{MEMBER_LACKS}",
    ),
    Mutant(
        leaders.a_leader_does_not_verify_its_own_log,
        "S15",
        stories.rot_that_a_follower_refuses,
        "the corrupt log is out of use",
    ),
    Mutant(leaders.a_topic_is_found_by_its_name, "S12", stories.topic_created_again, MEMBER_LACKS),
    Mutant(leaders.a_small_set_commits, "S6", replication_stories.too_small_a_set, TOO_FEW),
    Mutant(leaders.a_small_set_takes_records, "rule 5", replication_stories.too_small_a_set, "a later record is"),
    Mutant(
        leaders.a_shrunken_set_answers_no_producer,
        "rule 5",
        replication_stories.too_small_a_set,
        "the waiting producer has its answer",
    ),
    Mutant(leaders.members_are_never_behind, "rule 4", stories.join_by_log_end, "removed for its lag"),
    Mutant(
        leaders.an_eligible_replica_is_no_successor,
        "rule 4, KIP-966",
        replication_stories.stuck_leader_hands_over_to_an_eligible_one,
        "leader resigns",
    ),
    Mutant(
        leaders.a_stuck_leader_does_not_resign, "rule 4", replication_stories.stuck_leader_hands_over, "leader resigns"
    ),
    Mutant(
        leaders.a_resignation_is_sent_once,
        "rule 4",
        replication_stories.first_resignation_is_lost,
        "it resigns again",
    ),
    Mutant(
        leaders.a_leader_without_a_log_does_not_resign,
        "found",
        recreation_stories.topic_created_beside_a_failed_directory,
        "others lead",
    ),
    Mutant(
        leaders.an_acknowledgement_outlives_its_epoch,
        "S11",
        replication_stories.ack_of_another_epoch,
        "acknowledged, but",
    ),
    Mutant(leaders.an_acknowledgement_does_not_wait, "rule 5", stories.join_by_log_end, "acknowledged, but offset"),
    Mutant(
        leaders.a_leader_acknowledges_its_own_unsynced_records,
        "rule 5",
        replication_stories.stuck_leader_hands_over,
        "by a leader that does not hold it",
    ),
    Mutant(leaders.readers_see_the_log_end, "rule 3", replication_stories.too_small_a_set, "was given offset"),
    Mutant(
        leaders.the_last_stable_offset_is_one_too_high,
        "transactions",
        transaction_stories.decided_transactions_only,
        "of one that is open",
    ),
    Mutant(
        leaders.aborted_transactions_are_not_named,
        "transactions",
        transaction_stories.decided_transactions_only,
        "of one that is aborted",
    ),
    Mutant(
        leaders.a_new_leader_reports_the_end_it_knows,
        "KIP-207",
        replication_stories.new_leader_does_not_know_the_end,
        "reports the end 5, but everything below 6",
    ),
    Mutant(
        leaders.readers_are_not_asked_for_their_epoch,
        "KIP-320",
        replication_stories.reader_behind_the_end_of_its_epoch,
        "received records of another epoch",
    ),
    Mutant(
        leaders.epochs_are_not_compared,
        "rule 1",
        replication_stories.fetch_of_an_older_epoch,
        "of an older epoch was answered",
    ),
    Mutant(
        leaders.any_incarnation_counts,
        "rule 1",
        replication_stories.fetch_of_an_earlier_incarnation,
        "of an earlier incarnation was answered",
    ),
    Mutant(leaders.reports_of_any_stream_count, "S2", replication_stories.report_of_another_stream, MEMBER_LACKS),
    Mutant(leaders.reports_of_any_stream_count, "S2", late_stories.report_of_an_earlier_epoch, "holds offsets below 6"),
    Mutant(
        leaders.answers_of_any_age_are_applied,
        "S5",
        late_stories.answer_to_an_older_proposal,
        "without the removed replica",
    ),
    Mutant(
        leaders.a_leaver_is_not_counted,
        "rule 3",
        late_stories.leaver_counts_until_it_is_out,
        "committed without members of the set",
    ),
    Mutant(
        leaders.a_leader_does_not_verify_its_own_log,
        "S15",
        log_stories.rot_before_the_first_fetch,
        "the corrupt log is out of use",
    ),
    Mutant(
        leaders.a_replica_stopped_for_damage_never_leads,
        "found",
        log_stories.follower_is_damaged_as_its_leader_dies,
        "the corrupt replica leads",
    ),
    Mutant(leaders.a_leader_begins_its_epoch_twice, "rule 2", log_stories.leader_begins_again_in_its_epoch, MIXED),
    Mutant(
        leaders.any_live_node_is_a_successor,
        "KIP-858",
        directory_stories.leader_is_damaged_beside_a_failed_directory,
        "it serves what is sound|no node serves it",
    ),
    Mutant(
        leaders.offsets_go_to_abandoned_streams,
        "found",
        reader_stories.follower_returns_to_an_idle_topic,
        "the follower learns what is committed",
    ),
    Mutant(leaders.readers_see_the_log_end, "KIP-392", reader_stories.reader_at_a_follower, "was given offset"),
    Mutant(
        leaders.missing_records_of_a_follower_are_out_of_range,
        "KIP-392",
        reader_stories.reader_at_a_follower,
        "reports a future offset as out of range",
    ),
    Mutant(
        leaders.readers_are_sent_to_any_replica,
        "KIP-392",
        reader_stories.follower_that_is_no_member,
        "is sent to a lagging follower",
    ),
    Mutant(
        leaders.epochs_are_not_compared,
        "KIP-320",
        reader_stories.reader_of_an_older_epoch,
        "of an older epoch was answered",
    ),
    Mutant(
        disks.an_index_page_that_cannot_be_read_ends_the_node,
        "section 3",
        page_stories.index_page_of_a_follower_is_unreadable,
        "SIGBUS",
    ),
    # followers
    Mutant(
        followers.a_follower_restarts_below_its_own_log_start,
        "found",
        log_stories.member_has_only_its_own_epoch_left,
        "its high watermark went back",
    ),
    Mutant(
        followers.a_watermark_is_applied_before_the_truncation, "S7", stories.watermark_of_a_diverging_answer, MIXED
    ),
    Mutant(
        followers.an_answer_is_matched_by_partition_alone,
        "S7",
        stories.late_answer,
        "lost offsets 8|offset 8 is missing",
    ),
    Mutant(
        followers.a_paused_follower_is_checked_once,
        "found",
        stories.refused_fetch_is_sent_again,
        "the first record is committed",
    ),
    Mutant(
        followers.a_fetcher_stopped_while_it_connects_continues,
        "found",
        stories.stopped_while_connecting,
        "the node has stopped",
        3,
    ),
    Mutant(
        followers.a_follower_truncates_to_its_watermark,
        "KIP-101",
        replication_stories.watermark_does_not_truncate,
        MEMBER_LACKS,
    ),
    Mutant(
        followers.metadata_is_applied_during_a_truncation,
        "section 3",
        slow_truncation_stories.elected_during_a_truncation,
        "no new epoch during a truncation",
    ),
    Mutant(followers.a_follower_empties_its_log, "rule 2", stories.stale_position, MEMBER_LACKS),
    Mutant(
        followers.a_follower_truncates_to_the_leaders_epoch_end,
        "S15, KIP-279",
        replication_stories.epochs_that_only_a_follower_has,
        "the third is truncated and has the new records",
    ),
    Mutant(
        followers.a_log_below_the_leaders_start_is_not_restarted,
        "rule 2",
        replication_stories.follower_below_the_log_start,
        "the follower is in sync",
    ),
    Mutant(
        followers.a_batch_across_the_log_start_is_rejected,
        "found",
        replication_stories.leader_starts_within_a_batch,
        "the emptied replica is in sync",
    ),
    Mutant(
        followers.a_follower_reports_its_durable_offset_with_fetches_only,
        "rule 2",
        stories.committed_outlives_its_leader,
        "not acknowledged in time",
    ),
    Mutant(followers.a_lost_stream_is_not_noticed, "healing", stories.join_by_log_end, "has fetched everything"),
    Mutant(
        followers.a_followers_log_start_moves_to_its_log_end,
        "S10",
        stories.committed_outlives_its_leader,
        "gone, and nothing allows that",
    ),
    Mutant(followers.an_unknown_epoch_counts_as_equal, "rule 2", replication_stories.empty_epochs, MIXED),
    Mutant(
        followers.an_unknown_epoch_counts_as_equal, "rule 2", log_stories.sparse_epochs, "the old leader is in sync"
    ),
    Mutant(
        followers.a_watermark_is_applied_before_the_truncation,
        "S7",
        reader_stories.reader_of_records_to_be_truncated,
        MIXED,
    ),
    # controllers
    Mutant(controllers.an_epoch_outlives_its_incarnation, "S1", stories.same_epoch_other_bytes, FENCED_MEMBER),
    Mutant(
        controllers.a_leader_comes_from_all_replicas,
        "rule 6",
        stories.committed_outlives_its_leader,
        LEADS_FROM_OUTSIDE,
    ),
    Mutant(
        controllers.a_directory_without_its_number_is_unfenced,
        "rule 6",
        stories.directory_fails_before_ready,
        "it ends before it is ready",
    ),
    Mutant(controllers.an_older_proposal_is_taken, "S5, KIP-497", stories.late_proposal, MEMBER_LACKS),
    Mutant(controllers.an_unfit_replica_is_admitted, "KIP-841", replication_stories.fenced_joiner, FENCED_MEMBER),
    Mutant(
        controllers.an_unfit_replica_is_admitted,
        "rule 4",
        controller_stories.draining_node_is_not_admitted,
        f"is being stopped, and in the in-sync set|{FENCED_MEMBER}",
    ),
    Mutant(
        controllers.an_earlier_registration_is_admitted,
        "KIP-903",
        replication_stories.joiner_of_another_incarnation,
        "it is not the proposed one",
    ),
    Mutant(
        controllers.silent_nodes_are_not_fenced,
        "fencing",
        replication_stories.watermark_does_not_truncate,
        "a follower leads",
    ),
    Mutant(
        controllers.fencing_changes_no_partition,
        "fencing",
        replication_stories.watermark_does_not_truncate,
        FENCED_MEMBER,
    ),
    Mutant(
        controllers.fencing_changes_no_partition,
        "fencing",
        controller_stories.node_replaced_by_an_empty_one,
        FENCED_MEMBER,
    ),
    Mutant(controllers.silent_nodes_are_not_fenced, "fencing", quorum_stories.leader_failure, "is acknowledged again"),
    Mutant(controllers.silent_nodes_are_not_fenced, "fencing", quorum_stories.majority_reachable, "both are fenced"),
    Mutant(controllers.a_node_leads_from_any_directory, "S9", replication_stories.last_member_is_emptied, MEMBER_LACKS),
    Mutant(
        controllers.copies_of_directories_are_not_noticed,
        "S9",
        replication_stories.volume_restored_from_a_copy,
        "ending at|led from",
    ),
    Mutant(
        controllers.a_reboot_loses_nothing,
        "rule 6",
        log_stories.page_cache_is_lost_with_the_power,
        "ending at|led without",
    ),
    Mutant(
        controllers.damage_is_not_registered, "S8", replication_stories.last_member_is_damaged, "ending at|led without"
    ),
    Mutant(
        controllers.a_returning_member_does_not_lead,
        "healing",
        replication_stories.last_member_loses_power,
        "the last one leads",
    ),
    Mutant(
        controller_rules.every_leaving_member_is_eligible,
        "controller",
        controller_stories.last_replica_standing,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.no_replica_is_eligible,
        "controller",
        controller_stories.last_replica_standing,
        "one is left, another is eligible",
    ),
    Mutant(
        controller_rules.an_emptied_node_stays_in_its_sets,
        "controller",
        controller_stories.eligible_replica_is_emptied,
        "it has fetched everything and is in sync",
    ),
    Mutant(
        controller_rules.a_new_minimum_raises_no_epoch,
        "controller",
        controller_stories.shrinks_as_the_minimum_grows,
        TOO_FEW,
    ),
    Mutant(
        controller_rules.an_eligible_set_outlives_its_minimum,
        "controller",
        controller_stories.minimum_shrinks_beside_an_eligible_replica,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.any_live_replica_leads,
        "controller",
        controller_stories.minimum_shrinks_beside_an_eligible_replica,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.an_emptied_node_stays_in_its_sets,
        "controller",
        controller_stories.unclean_election,
        "no leader, no in-sync and no eligible replica",
    ),
    Mutant(
        controller_rules.an_unclean_leader_keeps_the_old_sets,
        "controller",
        controller_stories.unclean_election,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.replicas_are_removed_before_others_are_in_sync,
        "controller",
        controller_stories.reassignment_under_load,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.the_last_member_may_leave,
        "controller",
        controller_stories.all_drain_at_once,
        "the last member stays",
    ),
    Mutant(
        controller_rules.a_fenced_node_is_not_marked_as_stopped,
        "rule 7",
        controller_stories.stopped_before_it_was_ready,
        "the controller unfenced a stopped node",
    ),
    Mutant(
        controller_rules.a_drain_does_not_wait_for_other_nodes,
        "controller",
        controller_stories.drain_under_load,
        "it ends only when the other nodes know",
    ),
    Mutant(
        controller_rules.a_fenced_node_is_admitted,
        "controller",
        controller_stories.fenced_node_is_not_admitted,
        "is fenced, and in the in-sync set",
    ),
    Mutant(
        controller_rules.replicas_on_dead_nodes_are_in_sync,
        "KIP-841",
        controller_stories.topic_created_while_a_node_is_down,
        "is fenced, and in the in-sync set",
    ),
    Mutant(
        controller_rules.a_stale_incarnation_is_admitted,
        "controller",
        controller_stories.stale_incarnation_is_not_admitted,
        "admitted by the positions of its earlier incarnation",
    ),
    Mutant(
        controller_rules.any_epochs_proposal_is_accepted,
        "controller",
        controller_stories.proposal_of_a_former_leader,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.a_replica_is_removed_within_an_epoch,
        "rule 2",
        recreation_stories.replica_moved_away_and_back,
        MEMBER_LACKS,
        2,
    ),
    Mutant(
        controller_rules.a_damaged_replica_restarts_within_an_epoch,
        "rule 6",
        recreation_stories.damaged_member_is_created_again,
        MEMBER_LACKS,
    ),
    Mutant(
        controller_rules.a_damaged_replica_restarts_within_an_epoch,
        "rule 6",
        recreation_stories.damaged_joiner_is_created_again,
        MEMBER_LACKS,
    ),
    Mutant(
        controllers.a_failed_directory_is_not_reported_at_once,
        "KIP-858",
        directory_stories.directory_of_a_follower_fails,
        r"an answer for b'b'",
    ),
    Mutant(
        controllers.a_replica_leads_without_its_directory,
        "rule 6, KIP-858",
        directory_stories.directory_of_an_eligible_replica_fails,
        "the leader is fenced",
    ),
    Mutant(
        controllers.a_late_registration_counts,
        "rule 6",
        recreation_stories.late_registration,
        "the cluster heals",
    ),
    Mutant(
        controller_rules.a_replica_continues_in_any_directory,
        "rule 6",
        recreation_stories.replica_comes_back_in_another_directory,
        "a directory that the metadata do not name",
    ),
    Mutant(
        controllers.answers_do_not_wait_for_the_commit,
        "controller",
        late_stories.answer_waits_for_the_commit,
        "committed by an uncommitted change of the set",
    ),
    Mutant(controllers.a_node_leads_from_any_directory, "S9", log_stories.one_of_two_directories_is_gone, MEMBER_LACKS),
    Mutant(
        controller_rules.proposals_are_judged_by_what_is_committed,
        "S6",
        late_stories.proposal_meets_an_uncommitted_election,
        LEADS_FROM_OUTSIDE,
    ),
    Mutant(
        controller_rules.durability_may_change,
        "S13",
        log_stories.durability_is_fixed,
        "count as synced",
    ),
    Mutant(
        controller_rules.preferred_leaders_are_elected_on_command_only,
        "rule 7",
        controller_stories.preferred_leaders_return,
        "it leads again",
    ),
    Mutant(
        controller_rules.a_preferred_replica_leads_out_of_sync,
        "rule 7",
        controller_stories.preferred_leaders_return,
        LEADS_FROM_OUTSIDE,
    ),
    Mutant(
        controller_rules.snapshots_have_no_acls,
        "acls",
        acl_stories.rules_outlive_snapshots_and_restarts,
        "the ACL does not exist",
    ),
    # disks
    Mutant(disks.unsynced_bytes_count_as_durable, "durability", stories.all_machines_lose_power, LOSES),
    Mutant(disks.a_flush_counts_beyond_a_truncation, "S2", stories.flush_across_a_truncation, LOSES),
    Mutant(disks.names_are_not_synced, "durability", stories.all_machines_lose_power, LOSES),
    Mutant(disks.a_truncation_leaves_the_recovery_point, "S3", stories.flush_across_a_truncation, LOSES),
    Mutant(disks.a_failed_sync_is_repeated, "S14", replication_stories.failed_sync_is_not_repeated, LOSES),
    Mutant(
        disks.recovery_does_not_rewrite,
        "S14",
        log_stories.failed_sync_is_rewritten_by_recovery,
        LOSES,
    ),
    Mutant(
        disks.retention_deletes_uncommitted_records,
        "S10",
        replication_stories.retention_stops_at_the_watermark,
        "uncommitted records were deleted",
    ),
    Mutant(
        disks.records_are_deleted_too_early,
        "retention",
        log_stories.clocks_were_wrong_for_a_while,
        "is gone, and nothing allows that",
    ),
    Mutant(disks.a_damaged_leader_does_not_resign, "rule 6", stories.rot_found_by_the_scrub, "out of use"),
    Mutant(
        disks.a_truncation_leaves_the_checkpoint,
        "S3",
        log_stories.truncation_below_the_checkpoint,
        "it leads again with all durable records",
    ),
    Mutant(
        disks.a_truncation_leaves_the_watermark,
        "S3",
        slow_truncation_stories.watermark_checkpoint_above_a_truncation,
        "a watermark of 80 was restored",
    ),
    Mutant(disks.a_truncation_is_not_synced, "S3", log_stories.truncation_of_messages_without_epochs, MIXED),
    Mutant(disks.epochs_are_written_behind_the_bytes, "S3", log_stories.messages_without_their_epoch, MIXED),
    Mutant(disks.lost_epochs_are_no_damage, "S8", log_stories.epochs_are_lost, "without its epochs is eligible"),
    Mutant(disks.rot_is_taken_for_a_torn_tail, "S8", replication_stories.last_member_is_damaged, TOO_SHORT),
    Mutant(
        disks.known_damage_is_forgotten,
        "S8",
        log_stories.known_damage_outlives_a_restart,
        "with a flipped bit",
    ),
    Mutant(
        disks.the_cleaner_compacts_to_the_log_end,
        "S10",
        log_stories.compaction_stops_at_the_watermark,
        "is missing, below",
    ),
    Mutant(
        disks.a_damaged_leader_does_not_resign,
        "rule 6",
        log_stories.one_corrupt_replica,
        "the corrupt log is out of use",
    ),
    Mutant(
        disks.a_full_disk_takes_its_directory_offline,
        "full disk",
        replication_stories.leader_with_a_full_disk,
        "a record finds no free space",
    ),
    Mutant(
        disks.a_full_disk_takes_its_directory_offline,
        "full disk",
        replication_stories.follower_with_a_full_disk,
        "it continues by itself",
    ),
    # producers
    Mutant(
        producers.sequences_are_not_checked, "producers", producer_stories.later_batch_comes_through, "was sent later"
    ),
    Mutant(
        producers.a_duplicate_is_appended_again,
        "producers",
        producer_stories.answer_is_lost,
        "is committed at 1 and at 2",
    ),
    Mutant(
        producers.producers_survive_the_truncation,
        "S3",
        producer_stories.truncation_removes_producer_state,
        "is committed at offset 1",
    ),
    Mutant(
        producers.sequences_are_reused,
        "S11",
        producer_stories.sequence_of_a_lost_answer,
        "is committed at offset 1",
    ),
    Mutant(
        producers.one_failed_attempt_means_not_written,
        "producers",
        producer_stories.sequence_of_a_lost_answer,
        "refused as not written, yet",
    ),
    Mutant(
        producers.blocks_of_ids_are_forgotten,
        "producers",
        producer_stories.ids_outlive_the_cluster,
        "is committed at offset 0",
    ),
    Mutant(
        producers.a_duplicate_is_rejected_in_a_small_set,
        "S11",
        producer_stories.resend_meets_too_small_a_set,
        "the leader acknowledges the resent record",
    ),
    Mutant(
        producers.a_call_overtakes_waiting_calls,
        "producers",
        producer_stories.concurrent_callers_keep_their_order,
        "which was sent later",
    ),
    *readers.MUTANTS,
    *transactions.MUTANTS,
    *quorum.MUTANTS,
    *damage.MUTANTS,
    *hostile.MUTANTS,
    *directories.MUTANTS,
    *deletions.MUTANTS,
    *failover.MUTANTS,
    *groups.MUTANTS,
    *classic.MUTANTS,
    *migrations.MUTANTS,
    *kafka.MUTANTS,
    *kafka_groups.MUTANTS,
    *kafka_transactions.MUTANTS,
    *coordinators.MUTANTS,
)

__all__ = ["MUTANTS", "Mutant"]
