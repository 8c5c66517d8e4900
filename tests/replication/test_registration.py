"""Registration, sessions, fencing: which node is a member, and with which incarnation."""

from __future__ import annotations

from typing import Any

import pytest

from replication.controller.elections import why_leaderless
from replication.controller.events import HeartbeatAnswer, Registered
from replication.controller.metadata_records import LOST_DIRECTORY
from tests.replication.controlled import SESSION_MS, Controlled, directory
from tidelog.errors import (
    DuplicateNodeRegistration,
    InconsistentClusterId,
    InvalidRequest,
    NodeIdNotRegistered,
    StaleNodeEpoch,
)
from tidelog.types import NO_NODE, DirectoryId, Endpoint


def test_a_node_begins_fenced_and_is_unfenced_once_it_has_applied_its_own_registration_and_is_ready() -> None:
    world = Controlled()
    answer = world.register(1)
    assert isinstance(answer, Registered)
    assert world.node(1).fenced
    assert world.beat(1, offset=answer.node_epoch) == HeartbeatAnswer(fenced=True, drained=False)
    assert world.beat(1, ready=False) == HeartbeatAnswer(fenced=True, drained=False)
    assert world.beat(1, offset=answer.node_epoch + 1) == HeartbeatAnswer(fenced=False, drained=False)


def test_the_number_of_a_registration_is_the_offset_of_its_record() -> None:
    world = Controlled()
    end = world.end
    assert world.register(1) == Registered(end)  # type: ignore[arg-type]


def test_a_request_sent_twice_registers_once() -> None:
    world = Controlled()
    first = world.register(1)
    end = world.end
    assert world.register(1) == first
    assert world.end == end


def test_a_process_elsewhere_with_a_live_nodes_number_is_refused_until_the_session_ends() -> None:
    """It seems to have the node's directory; a copy of the directory on another machine would look the same."""
    world = Controlled()
    world.start(1)
    refused = world.register(1, run_number=2, boot=b"another machine")
    assert isinstance(refused, DuplicateNodeRegistration)
    assert "session ends in 2000 ms" in refused.message
    world.pass_time(SESSION_MS + 200)
    assert isinstance(world.register(1, run_number=2, boot=b"another machine"), Registered)


def test_a_process_that_has_the_locks_of_the_one_before_takes_its_place_at_once() -> None:
    """The session of a process that was killed and restarted on its machine need not end first."""
    world = Controlled()
    world.start(1, 2, 3)
    before = world.made()
    leader = before.leader
    assert isinstance(world.register(leader, run_number=2), Registered)
    assert world.node(leader).fenced
    after = world.partition()
    assert leader not in after.isr
    assert after.leader not in (leader, NO_NODE)
    assert after.leader_epoch > before.leader_epoch


@pytest.mark.parametrize(
    "named",
    [{directory(5): -1}, {directory(1): 0}, {directory(5): -1, directory(6): -1}],
    ids=["another directory", "an older copy", "other directories"],
)
def test_a_directory_that_the_live_process_may_have_locked_itself_proves_nothing(named: dict[DirectoryId, int]) -> None:
    world = Controlled()
    world.start(1)
    assert isinstance(world.register(1, run_number=2, directories=named), DuplicateNodeRegistration)


def test_one_of_two_directories_proves_nothing_of_the_process_that_had_both() -> None:
    world = Controlled()
    first = world.register(1, directories={directory(1): -1, directory(2): -1})
    assert isinstance(first, Registered)
    number = first.node_epoch
    assert isinstance(world.register(1, run_number=2, directories={directory(1): number}), DuplicateNodeRegistration)
    assert isinstance(
        world.register(1, run_number=2, directories={directory(1): number, directory(2): number}), Registered
    )


def test_a_node_of_another_cluster_or_with_the_directory_of_another_node_is_refused() -> None:
    world = Controlled()
    world.start(1)
    assert isinstance(world.register(2, cluster="BBBBBBBBBBBBBBBBBBBBBB"), InconsistentClusterId)
    assert isinstance(world.register(2, directories={directory(1): 3}), InvalidRequest)
    assert isinstance(world.register(2, directories={}), InvalidRequest)


def test_a_silent_node_is_fenced_leaves_every_set_and_leads_nothing() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made(partitions=3)
    world.pass_time(SESSION_MS + 200, 2, 3)
    assert world.node(1).fenced
    for state in world.topic().partitions:
        assert 1 not in state.isr
        assert state.leader in (2, 3)


def test_a_node_that_sends_heartbeats_again_is_unfenced_but_not_in_any_set() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    world.made()
    world.kill(1, alive=(2, 3))
    before = world.partition()
    assert world.beat(1) == HeartbeatAnswer(fenced=False, drained=False)
    assert world.partition() == before


def test_the_last_in_sync_member_stays_and_leads_again_in_a_new_epoch() -> None:
    world = Controlled()
    world.start(1, 2, 3)
    last = world.made().leader
    world.propose(last)
    epoch = world.partition().leader_epoch
    others = tuple(node for node in (1, 2, 3) if node != last)
    world.kill(last, alive=others)
    assert (world.partition().isr, world.partition().leader) == ((last,), NO_NODE)
    assert "fenced" in why_leaderless(world.image, world.partition())
    world.start(last, run_number=2)
    assert world.partition().leader == last
    assert world.partition().leader_epoch == epoch + 2  # one that ended the leadership, one that began the next


def test_a_new_incarnation_ends_the_leaderships_of_the_old_one() -> None:
    """Rule 1, scenario 1: an epoch belongs to one incarnation, even if no other replica could lead."""
    world = Controlled()
    world.start(1)
    state = world.made(replicas=1)
    world.activate()  # another controller, which does not know how long the node was silent
    world.pass_time(SESSION_MS + 200)
    world.start(1, run_number=2)
    again = world.partition()
    assert again.leader == 1
    assert again.leader_epoch > state.leader_epoch


def test_a_controllers_own_earlier_incarnation_is_fenced_at_once() -> None:
    world = Controlled()
    world.start(1, 2)
    world.made(replicas=2)
    world.activate(node=1, incarnation=1_002)
    assert world.node(1).fenced
    assert world.partition().leader == 2
    assert isinstance(world.register(1, run_number=2), Registered)
    assert isinstance(world.register(2, run_number=2, boot=b"another machine"), DuplicateNodeRegistration)


def test_a_controller_that_was_paused_fences_no_node_for_it() -> None:
    world = Controlled()
    world.start(1, 2)
    world.now += 60_000  # type: ignore[assignment]
    world.pass_time(200, 1)
    assert not world.node(1).fenced
    assert not world.node(2).fenced
    world.pass_time(SESSION_MS, 1)
    assert world.node(2).fenced


def test_an_earlier_incarnation_gets_an_error() -> None:
    world = Controlled()
    world.start(1)
    old = world.numbers[1]  # type: ignore[index]
    world.kill(1)
    world.start(1, run_number=2)
    assert isinstance(world.beat(1, epoch=old), StaleNodeEpoch)
    world.numbers[7] = old  # type: ignore[index]
    assert isinstance(world.beat(7), NodeIdNotRegistered)


# --- rule 6: what a replica still has after its process ended ---


def alone(world: Controlled, *, durability: str = "fsync") -> None:
    """Node 1 is the last in-sync replica of `orders`, and dead."""
    world.start(1, 2)
    world.made(replicas=2, durability=durability)
    while world.partition().leader != 1:
        world.propose(1, by=world.partition().leader)
    world.propose(1)
    world.kill(1, alive=(2,))
    assert world.partition().isr == (1,)


def test_an_unclean_stop_keeps_the_last_replica_if_its_directory_is_the_same() -> None:
    world = Controlled()
    alone(world)
    world.start(1, run_number=2, boot=b"another boot")
    assert world.partition().leader == 1
    assert world.reports[1:] == []


def test_a_crash_before_the_number_was_written_does_not_make_the_directory_an_older_one() -> None:
    world = Controlled()
    alone(world)
    assert isinstance(world.register(1, run_number=2), Registered)  # ends before it writes the number
    world.pass_time(SESSION_MS + 200, 2)
    world.start(1, run_number=3)
    assert world.partition().leader == 1


def test_an_emptied_volume_leads_nothing_until_the_old_one_is_back() -> None:
    """Scenario 9: in-sync set {A}; A's volume is replaced by an empty one; A must not lead from nothing."""
    world = Controlled()
    alone(world)
    assert isinstance(world.register(1, run_number=2, directories={directory(7): -1}), Registered)
    world.beat(1)
    assert not world.node(1).fenced
    state = world.partition()
    assert (state.isr, state.elr, state.last_known_elr, state.leader) == ((), (), (1,), NO_NODE)
    assert "is gone or has failed; restore it" in why_leaderless(world.image, state)
    assert any("without log directory" in report for report in world.reports)
    world.kill(1, alive=(2,))
    world.start(1, run_number=3)
    assert world.partition().leader == 1


def test_a_copy_put_back_leads_nothing() -> None:
    """Scenario 9: the volume is put back from last night's snapshot, same id, older number."""
    world = Controlled()
    alone(world)
    assert isinstance(world.register(1, run_number=2, directories={directory(1): world.numbers[1] - 1}), Registered)  # type: ignore[index]
    world.beat(1)
    state = world.partition()
    assert (state.isr, state.elr, state.last_known_elr, state.leader) == ((), (), (1,), NO_NODE)
    assert state.directory_of(1) == LOST_DIRECTORY  # type: ignore[arg-type]
    assert any("older copy" in report for report in world.reports)
    world.kill(1, alive=(2,))
    world.start(1, run_number=3)
    assert world.partition().leader == NO_NODE
    assert "is known to have lost records, as reported earlier" in world.reports[-1]
    assert "why-unavailable" in world.reports[-1]


def test_a_late_copy_of_an_earlier_incarnations_registration_is_ignored() -> None:
    """It would make the directory an older copy of itself: it contains the number that the directory had in that
    incarnation."""
    world = Controlled()
    alone(world)
    number, seen = world.on_disk[directory(1)], world.end
    world.start(1, run_number=2)
    world.kill(1, alive=(2,))
    world.start(1, run_number=3)
    world.kill(1, alive=(2,))
    before = world.image
    assert isinstance(world.register(1, run_number=2, directories={directory(1): number}, offset=seen), StaleNodeEpoch)
    assert world.image is before
    world.start(1, run_number=4)
    assert world.partition().leader == 1


def test_named_damage_leads_nothing() -> None:
    world = Controlled()
    alone(world)
    key = world.partition().key
    answer = world.register(
        1, run_number=2, directories={directory(1): world.on_disk[directory(1)]}, damaged={key: "bad CRC at offset 17"}
    )
    assert isinstance(answer, Registered)
    world.beat(1)
    assert world.partition().leader == NO_NODE
    assert any("bad CRC at offset 17" in report for report in world.reports)
    assert "unclean" in why_leaderless(world.image, world.partition())


def test_damage_or_a_new_directory_takes_a_replica_out_of_a_set_that_others_carry_on() -> None:
    """The registration itself removes it, in the batch that names its new directory: nothing uses the old one."""
    world = Controlled()
    world.start(1, 2, 3)
    world.made()
    world.activate(node=1, incarnation=1)  # node 1 hosts the controller: its session is over at once
    assert isinstance(world.register(1, run_number=2, directories={directory(7): -1}), Registered)
    state = world.partition()
    assert 1 not in state.isr
    assert state.directory_of(1) == directory(7)  # type: ignore[arg-type]
    assert state.leader in (2, 3)


def test_a_page_cache_replica_leads_again_on_the_same_boot() -> None:
    world = Controlled()
    alone(world, durability="page-cache")
    world.start(1, run_number=2)
    assert world.partition().leader == 1
    assert world.reports[1:] == []


def test_the_last_page_cache_replica_may_lead_after_a_reboot_and_the_loss_is_reported() -> None:
    world = Controlled()
    alone(world, durability="page-cache")
    world.start(1, run_number=2, boot=b"another boot")
    assert world.partition().leader == 1
    assert any("lost unsynced records when its machine rebooted" in report for report in world.reports)


@pytest.mark.parametrize(
    "large",
    [
        {"rack": "r" * 256},
        {"boot": b"b" * 256},
        {"listeners": {"l" * 256: Endpoint("a", 1)}},
        {"listeners": {"client": Endpoint("h" * 256, 1)}},
        {"listeners": {f"listener-{number}": Endpoint("a", 1) for number in range(65)}},
        {"listeners": {"client": Endpoint("a", 0)}},
        {"listeners": {"client": Endpoint("a", 65_536)}},
        {"directories": {directory(number): -1 for number in range(1_001)}},
    ],
    ids=["rack", "boot id", "listener", "host", "listeners", "no port", "port", "directories"],
)
def test_what_a_registration_adds_to_the_metadata_log_is_bounded(large: dict[str, Any]) -> None:
    """The record stays in the log and in every image; one of 128 MiB could not be replicated any more."""
    world = Controlled()
    world.start(1)
    end = world.end
    assert isinstance(world.register(2, **large), InvalidRequest)
    assert world.end == end
    assert isinstance(world.register(2, rack="r" * 255, boot=b"b" * 255), Registered)
