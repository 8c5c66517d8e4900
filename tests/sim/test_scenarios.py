"""The scenarios of the design, on the product as it is: each story passes with any seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from testbed.sim.world import Simulation
from tests.sim import (
    controller_stories,
    damage_stories,
    disk_stories,
    group_stories,
    kafka_group_stories,
    kafka_stories,
    log_stories,
    pipeline_stories,
    producer_stories,
    reader_stories,
    recreation_stories,
    replication_stories,
    slow_stories,
    slow_truncation_stories,
    stories,
    tier_retention_stories,
    tier_stories,
    unclean_reader_stories,
    volume_stories,
)
from tests.sim.all_stories import STORIES
from tests.sim.mutants import MUTANTS

NEED_ONE_VOTER = {
    controller_stories.draining_node_is_not_admitted,
    controller_stories.eligible_replica_is_emptied,
    controller_stories.last_replica_standing,
    controller_stories.unclean_election,
    controller_stories.unclean_election_without_a_live_replica,
    slow_truncation_stories.elected_during_a_truncation,
    slow_truncation_stories.watermark_checkpoint_above_a_truncation,
    damage_stories.damaged_replica_waits_for_a_leader,
    damage_stories.unclean_election_keeps_sound_batches,
    damage_stories.unclean_election_of_a_log_that_is_gone,
    damage_stories.unclean_election_of_a_replica_found_damaged,
    damage_stories.unclean_election_of_a_replica_that_starts_damaged,
    damage_stories.unclean_leader_has_fewer_records,
    disk_stories.epochs_rot_without_a_report,
    disk_stories.unclean_leader_keeps_all_guarantees,
    log_stories.truncation_below_the_checkpoint,
    log_stories.truncation_of_messages_without_epochs,
    log_stories.leader_begins_again_in_its_epoch,
    log_stories.messages_without_their_epoch,
    log_stories.one_corrupt_replica,
    log_stories.one_of_two_directories_is_gone,
    log_stories.sparse_epochs,
    producer_stories.later_batch_comes_through,
    producer_stories.resend_meets_too_small_a_set,
    reader_stories.reader_of_records_to_be_truncated,
    stories.only_voter_has_not_voted_yet,
    unclean_reader_stories.older_epoch_ends_behind_the_reader,
    recreation_stories.late_registration,
    replication_stories.epochs_that_only_a_follower_has,
    replication_stories.last_member_loses_power,
    replication_stories.stuck_leader_hands_over_to_an_eligible_one,
    replication_stories.too_small_a_set,
    stories.committed_outlives_its_leader,
    stories.flush_across_a_truncation,
    stories.voter_starts_on_a_full_disk,
    stories.watermark_of_a_diverging_answer,
    volume_stories.last_member_is_damaged,
    volume_stories.last_member_is_emptied,
    volume_stories.volume_restored_from_a_copy,
    volume_stories.volume_restored_from_a_copy_of_the_last_run,
}
"""Stories in which no majority of three voters would be left because nodes are killed, disks hang or messages are
held back, or which are about the single voter."""

LARGE = {group_stories.thousand_members_join_at_once}
"""Stories that take many seconds: they run in one world only."""

LONG_WITHOUT_A_PLANTED_BUG = {
    group_stories.compacted_offsets_outlive_their_coordinator,
    group_stories.silent_coordinator_is_replaced,
    group_stories.thousand_members_join_at_once,
    kafka_group_stories.connections_of_kafka_members_are_cut,
    kafka_group_stories.connections_of_kafka_workers_are_cut,
    kafka_group_stories.kafka_workers_are_killed,
    kafka_stories.connections_of_kafka_clients_are_cut,
    kafka_stories.kafka_client_reads_late,
    log_stories.deletion_known_to_the_leader_alone,
    pipeline_stories.all_machines_lose_power_at_once,
    pipeline_stories.both_coordinators_are_killed,
    pipeline_stories.paused_worker_is_replaced,
    slow_stories.slow_leader_is_fenced,
    tier_retention_stories.deletion_known_to_the_leader_alone,
    tier_stories.store_fails_now_and_then,
}
"""Stories without a planted bug show that a cluster survives their events, as random worlds do. Those that take long
are played by `make test-deep` alone."""

WORLDS = [((3, 3), "seed=3,voters=3"), ((1, 1), "seed=1"), ((2, 1), "seed=2"), ((4, 3), "seed=4,voters=3")]
"""Seed, and the number of voters if the story sets none. `make test` plays a story in the first of its worlds."""


def stories_by_cluster() -> Iterator[Any]:
    """Each story in each world; those that need a single voter, in the worlds that have one. The worlds of
    `make test-deep` are marked."""
    for story in STORIES:
        worlds = [each for each in WORLDS if each[0][1] == 1 or story not in NEED_ONE_VOTER]
        for number, (world, name) in enumerate(worlds[:1] if story in LARGE else worlds):
            marks = [pytest.mark.deep] if number or story in LONG_WITHOUT_A_PLANTED_BUG else []
            yield pytest.param(story, world, id=f"{name}-{story.__name__}", marks=marks)


@pytest.mark.parametrize(("story", "sim"), list(stories_by_cluster()), indirect=["sim"])
def test_story(sim: Simulation, story: Callable[[Simulation], None]) -> None:
    """Some seconds at most, but for the story of a thousand members, which is a world of a thousand clients."""
    story(sim)


def test_a_story_that_a_planted_bug_needs_is_played_in_the_first_tier() -> None:
    assert not LONG_WITHOUT_A_PLANTED_BUG & {mutant.story for mutant in MUTANTS}
