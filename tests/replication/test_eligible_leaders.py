"""Eligible leader replicas (KIP-966), unclean elections, preferred leaders: which replica leads if no member of the set
can."""

from __future__ import annotations

import pytest

from replication.controller.elections import why_leaderless
from replication.controller.events import (
    ChangedTopic,
    ElectionType,
    ElectLeaders,
    PartitionOutcome,
    PartitionOutcomes,
    Resigned,
)
from replication.controller.image import PartitionState
from replication.controller.metadata_records import LOST_DIRECTORY
from tests.replication.controlled import SESSION_MS, Controlled, directory
from tidelog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidConfig,
    PreferredLeaderNotAvailable,
    RequestTimedOut,
)
from tidelog.types import NO_NODE, PartitionKey


def sets(world: Controlled) -> tuple[set[int], set[int], int]:
    state = world.partition()
    return set(state.isr), set(state.elr), state.leader


def three(minimum: int = 2, **configs: str) -> tuple[Controlled, int, int, int]:
    """Three nodes, one partition; its leader and the two others in the order of the replicas."""
    world = Controlled()
    world.start(1, 2, 3)
    world.create(min_insync_replicas=str(minimum), **configs)  # type: ignore[arg-type]
    first, second, third = world.partition().replicas
    return world, first, second, third


def test_a_member_that_leaves_a_set_below_the_minimum_stays_eligible() -> None:
    world, a, b, c = three()
    world.kill(c, alive=(a, b))
    assert sets(world) == ({a, b}, set(), a)  # two are enough: they commit without c
    world.kill(b, alive=(a,))
    assert sets(world) == ({a}, {b}, a)  # nothing is committed without b


def test_an_eligible_replica_leads_where_no_in_sync_replica_can() -> None:
    world, a, b, c = three()
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.kill(a, alive=())
    assert sets(world) == ({a}, {b}, NO_NODE)
    assert f"node {b}: fenced" in why_leaderless(world.image, world.partition())
    world.start(c, run_number=2)
    assert sets(world) == ({a}, {b}, NO_NODE)  # c may lack what a and b committed
    epoch = world.partition().leader_epoch
    world.start(b, run_number=2)
    assert sets(world) == ({b}, {a}, b)
    assert world.partition().leader_epoch == epoch + 1
    assert world.uncleanly == []


def test_a_set_that_suffices_again_leaves_no_replica_eligible() -> None:
    world, a, b, c = three()
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.start(c, run_number=2)
    assert isinstance(world.propose(a, c), PartitionState)
    assert sets(world) == ({a, c}, set(), a)


@pytest.mark.parametrize("how", ["another directory", "an older copy", "damage"])
def test_an_eligible_replica_that_lost_durable_records_is_no_longer_eligible(how: str) -> None:
    world, a, b, c = three()
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    key = world.partition().key
    known = world.on_disk[directory(b)]
    if how == "another directory":
        world.register(b, run_number=2, directories={directory(7): -1})
    elif how == "an older copy":
        world.register(b, run_number=2, directories={directory(b): known - 1})
    else:
        world.register(b, run_number=2, directories={directory(b): known}, damaged={key: "bad CRC at offset 17"})
    world.beat(b)
    assert sets(world) == ({a}, set(), a)
    assert world.partition().directory_of(b) == directory(7 if how == "another directory" else b)  # type: ignore[arg-type]
    world.pass_time(SESSION_MS + 200, b)
    assert sets(world) == ({a}, set(), NO_NODE)


@pytest.mark.parametrize(("boot", "eligible"), [(b"boot", True), (b"another boot", False)])
def test_a_page_cache_replica_stays_eligible_until_its_machine_reboots(boot: bytes, eligible: bool) -> None:
    world, a, b, c = three(durability="page-cache")
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.start(b, run_number=2, boot=boot)
    assert sets(world) == ({a}, {b} if eligible else set(), a)


def test_after_a_reboot_of_all_machines_the_last_known_leader_leads_and_the_loss_is_reported() -> None:
    """Last known leader, power loss, page-cache: both sets become empty."""
    world, a, b, c = three(durability="page-cache")
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.kill(a)
    world.start(b, run_number=2, boot=b"another boot")
    assert sets(world) == ({a}, set(), NO_NODE)
    world.start(a, run_number=2, boot=b"another boot")
    assert sets(world) == ({a}, set(), a)
    assert [reported.leader for reported in world.uncleanly] == [a]
    assert any("lost unsynced records when its machine rebooted" in report for report in world.reports)


def test_after_clean_stops_a_reboot_of_all_machines_removes_no_replica() -> None:
    """Page-cache: a clean stop has flushed everything, and the node reports that when it registers."""
    world, a, b, c = three(durability="page-cache")
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.kill(a)
    world.start(b, run_number=2, boot=b"another boot", intact=True)
    assert sets(world) == ({b}, {a}, b)
    world.start(a, run_number=2, boot=b"another boot", intact=True)
    assert sets(world) == ({b}, {a}, b)
    assert world.uncleanly == []


def test_a_page_cache_replica_on_a_node_not_reported_as_intact_is_no_longer_eligible() -> None:
    """The boot id that the controller knows proves nothing: only the directory of the node shows whether it is
    intact."""
    world, a, b, c = three(durability="page-cache")
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.start(b, run_number=2, intact=False)
    assert sets(world) == ({a}, set(), a)


def test_with_fsync_power_loss_removes_no_replica() -> None:
    world, a, b, c = three()
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    world.kill(a)
    world.start(b, run_number=2, boot=b"another boot")
    assert sets(world) == ({b}, {a}, b)
    assert world.uncleanly == []


def test_a_leader_that_resigns_leaves_both_sets() -> None:
    world, a, b, c = three()
    world.propose(a, b)
    assert isinstance(world.propose(b, by=a), PartitionState)
    assert sets(world) == ({b}, set(), b)
    assert c not in world.partition().elr


# --- scenario 6: a new minimum ---


def test_a_new_minimum_raises_every_partition_epoch_in_the_batch_that_sets_it() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made(partitions=4)
    before = [state.partition_epoch for state in world.topic().partitions]
    count = len(world.batches)
    assert isinstance(world.alter(min_insync_replicas="2"), ChangedTopic)
    assert len(world.batches) == count + 1
    assert [state.partition_epoch for state in world.topic().partitions] == [epoch + 1 for epoch in before]
    assert world.topic().min_insync_replicas == 2
    world.alter(retention_ms="1000")
    assert [state.partition_epoch for state in world.topic().partitions] == [epoch + 1 for epoch in before]


def test_a_smaller_minimum_empties_an_eligible_set_whose_in_sync_set_now_suffices() -> None:
    world, a, b, c = three()
    world.kill(c, alive=(a, b))
    world.kill(b, alive=(a,))
    assert sets(world) == ({a}, {b}, a)
    world.alter(min_insync_replicas="1")
    assert sets(world) == ({a}, set(), a)  # it commits alone from now on


def test_a_larger_minimum_makes_no_lagging_replica_eligible() -> None:
    world, a, b, c = three(minimum=1)
    world.kill(b, c, alive=(a,))
    world.alter(min_insync_replicas="2")
    assert sets(world) == ({a}, set(), a)


def test_durability_is_fixed() -> None:
    """Scenario 13."""
    world, *_ = three()
    assert isinstance(world.alter(durability="page-cache"), InvalidConfig)
    assert isinstance(world.alter(durability="fsync"), ChangedTopic)


# --- unclean elections ---


def no_replica_left(**configs: str) -> tuple[Controlled, int, int, int]:
    """Node a, which alone was in sync, comes back with another directory; b and c are there with older logs."""
    world, a, b, c = three(minimum=1, **configs)
    world.kill(b, c, alive=(a,))
    world.kill(a)
    world.start(b, c, run_number=2)
    world.register(a, run_number=2, directories={directory(7): -1})
    world.beat(a)
    assert sets(world) == (set(), set(), NO_NODE)
    return world, a, b, c


def elect(world: Controlled, *keys: PartitionKey) -> object:
    return world.ask(ElectLeaders(ElectionType.UNCLEAN, keys))


def outcome(world: Controlled) -> PartitionOutcome:
    answer = world.replies[world.requests]
    assert isinstance(answer, PartitionOutcomes)
    (one,) = answer.partitions
    return one


def test_an_unclean_election_on_command_takes_the_highest_epoch_and_end_and_reports_the_loss() -> None:
    world, a, b, c = no_replica_left()
    assert "run an unclean election" in why_leaderless(world.image, world.partition())
    world.pass_time(5_000, a, b, c)
    assert world.asked == []  # the topic does not allow it by itself
    assert elect(world, world.partition().key) is None
    assert set(world.asked[0].nodes) == {a, b, c}
    world.tell({a: (-1, 0), b: (3, 10), c: (2, 99)}, directories={a: directory(7)})
    assert sets(world) == ({b}, set(), b)
    assert world.partition().last_known_elr == ()
    assert world.partition().directory_of(a) == directory(7)  # type: ignore[arg-type]
    reported = outcome(world)
    assert isinstance(reported.outcome, PartitionState)
    assert f"only nodes {a} had are lost" in reported.loss
    assert [reported.leader for reported in world.uncleanly] == [b]


def test_a_topic_may_allow_unclean_elections() -> None:
    world, a, b, c = no_replica_left(unclean_leader_election_enable="true")
    world.pass_time(1_200, a, b, c)
    assert len(world.asked) == 1
    world.tell({b: (3, 10), c: (3, 11)})
    assert sets(world) == ({c}, set(), c)
    assert len(world.uncleanly) == 1


def test_a_clean_leader_that_returns_meanwhile_is_not_deposed() -> None:
    world, a, b, c = three(minimum=1)
    world.kill(b, c, alive=(a,))
    world.kill(a)
    world.start(b, c, run_number=2)
    assert elect(world) is None
    world.start(a, run_number=2)
    world.tell({b: (3, 10), c: (2, 99)})
    assert sets(world) == ({a}, set(), a)
    assert world.uncleanly == []


def test_an_unclean_election_needs_a_leaderless_partition_and_a_live_replica() -> None:
    world, a, b, c = three(minimum=1)
    elect(world, world.partition().key)
    assert isinstance(outcome(world).outcome, ElectionNotNeeded)
    world.kill(a, b, c)
    elect(world, world.partition().key)
    assert isinstance(outcome(world).outcome, EligibleLeadersNotAvailable)
    world.start(b, run_number=2)
    if world.partition().leader == NO_NODE:
        elect(world)
        world.tell({})
        assert isinstance(outcome(world).outcome, EligibleLeadersNotAvailable)


def test_a_controller_that_resigns_leaves_an_unclean_election_open() -> None:
    world, *_ = no_replica_left()
    assert elect(world) is None
    world.handle(Resigned())
    assert isinstance(world.replies[world.requests], RequestTimedOut)


def test_a_lost_replica_elected_uncleanly_is_known_by_the_directory_it_really_has() -> None:
    world = Controlled()
    world.start(1)
    key = world.made(replicas=1).key
    world.kill(1)
    world.register(1, run_number=2, directories={directory(1): world.on_disk[directory(1)] - 1})
    world.beat(1)
    assert world.partition().directory_of(1) == LOST_DIRECTORY  # type: ignore[arg-type]
    elect(world, key)
    world.tell({1: (0, 7)})
    assert sets(world) == ({1}, set(), 1)
    assert world.partition().directory_of(1) == directory(1)  # type: ignore[arg-type]
    assert "older copy" in outcome(world).loss


# --- preferred leaders ---


def test_preferred_leaders_are_elected_on_command() -> None:
    world, a, b, c = three(minimum=1)
    world.kill(a, alive=(b, c))
    world.start(a, run_number=2)
    key = world.partition().key

    def prefer() -> object:
        world.ask(ElectLeaders(ElectionType.PREFERRED, (key,)))
        return outcome(world).outcome

    assert isinstance(prefer(), PreferredLeaderNotAvailable)
    world.propose(a, b, c)
    assert isinstance(prefer(), PartitionState)
    assert world.partition().leader == a
    assert isinstance(prefer(), ElectionNotNeeded)


def test_leaderships_go_home_by_themselves_where_a_node_lacks_more_than_its_share() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made(partitions=6)
    world.kill(1, alive=(2, 3))
    world.start(1, run_number=2)
    for state in world.topic().partitions:
        world.propose(1, 2, 3, state=state)
    away = [state for state in world.topic().partitions if state.leader != state.replicas[0]]
    assert len(away) == 2
    world.pass_time(301_000, 1, 2, 3)
    assert all(state.leader == state.replicas[0] for state in world.topic().partitions)
