"""The metadata quorum's rules as stories: elections, commits, resignations, voters, and what must never happen."""

from __future__ import annotations

import pytest

from replication.common_events import ClockTicked
from replication.raft.quorum_events import (
    Answer,
    BeginEpoch,
    Called,
    EndEpoch,
    Fetch,
    FetchAnswered,
    LeaderRefused,
    LeaderReported,
    NewRecords,
    Persist,
    Requested,
    ResignRequested,
    SendVote,
    SnapshotRequested,
    VoteAnswer,
    VoteRequest,
)
from replication.raft.roles import TRANSITIONS, QuorumState, Role
from replication.raft.voters import ReplicaKey, VoterSet
from tests.replication.quorum_cluster import TIMES, QuorumCluster, key, voters
from tests.replication.quorum_core_stories import figure_8, leader_that_removed_itself, voter_that_lost_its_log
from tidelog.types import LeaderEpoch, Millis, Offset


def test_three_voters_elect_one_leader_within_the_timeout() -> None:
    cluster = QuorumCluster()
    began = cluster.now
    leader = cluster.wait_leader()
    assert cluster.now - began < 2_100
    cluster.run(500)
    assert [cluster.role(node) for node in range(3) if node != leader] == [Role.FOLLOWER] * 2
    assert cluster.values() == ["epoch 1"]


def test_a_voter_alone_leads_at_once_when_it_is_called() -> None:
    cluster = QuorumCluster(nodes=1)
    cluster.give(0, Called(Millis(cluster.now)))
    cluster.settle()
    assert cluster.active() == 0


@pytest.mark.parametrize("seed", range(30))
def test_another_leads_soon_after_the_leader_is_lost(seed: int) -> None:
    """Three seconds are left of the five after which writes must work again."""
    cluster = QuorumCluster(seed=seed)
    leader = cluster.wait_leader()
    cluster.append(leader, "a")
    cluster.run_until(lambda: "a" in cluster.values())
    cluster.kill(leader)
    began = cluster.now
    cluster.wait_leader(but=leader)
    assert cluster.now - began < 3_000
    assert "a" in cluster.values()


def refuse(cluster: QuorumCluster, node: int, leader: int, *, epoch: int | None = None) -> None:
    """A probe of the leader by `node` is refused."""
    known = cluster.core(node).epoch if epoch is None else LeaderEpoch(epoch)
    cluster.give(node, LeaderRefused(Millis(cluster.now), known, key(leader).node_id))


@pytest.mark.parametrize("seed", range(30))
def test_another_leads_at_once_when_the_dead_leader_refuses_connections(seed: int) -> None:
    cluster = QuorumCluster(seed=seed)
    leader = cluster.wait_leader()
    cluster.kill(leader)
    for node in cluster.running():
        refuse(cluster, node, leader)
    began = cluster.now
    cluster.wait_leader(but=leader)
    assert cluster.now - began < 900


def test_a_voter_that_alone_is_refused_begins_no_epoch() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(500)
    epoch = cluster.core(leader).epoch
    other = next(node for node in range(3) if node != leader)
    for _ in range(20):
        refuse(cluster, other, leader)
        cluster.run(100)
    assert cluster.core(leader).leads
    assert {cluster.core(node).epoch for node in range(3)} == {epoch}


def test_repeated_refusals_do_not_delay_an_election() -> None:
    """Each probe is reported; the deadline is set by the first one."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(500)
    other = next(node for node in range(3) if node != leader)
    refuse(cluster, other, leader)
    due = cluster.core(other).due
    assert due is not None
    assert due <= cluster.now + TIMES.refused + TIMES.refused_jitter
    for _ in range(5):
        refuse(cluster, other, leader)
        assert cluster.core(other).due == due


def test_a_refusal_of_an_earlier_leader_changes_nothing() -> None:
    cluster = QuorumCluster()
    old = cluster.wait_leader()
    cluster.run(500)
    epoch = cluster.core(old).epoch
    cluster.kill(old)
    leader = cluster.wait_leader(but=old)
    other = next(node for node in cluster.running() if node != leader)
    cluster.run(500)
    due = cluster.core(other).due
    refuse(cluster, other, old, epoch=epoch)
    refuse(cluster, other, leader, epoch=epoch)
    refuse(cluster, other, old)
    refuse(cluster, leader, leader)
    assert cluster.core(other).due == due
    request = VoteRequest(cluster.core(other).epoch, key(old), key(other), LeaderEpoch(9), Offset(99), pre_vote=True)
    cluster.wire.clear()
    answers: list[Answer] = []
    cluster._ask(other, lambda number: Requested(number, Millis(cluster.now), request), answers.append)
    core = cluster.core(other)
    assert answers[0].answer == VoteAnswer(core.epoch, core.leader_id, granted=False), "it hears from its leader"


def test_nothing_is_committed_before_it_is_durable_on_a_majority() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.slow_disks = {node for node in range(3) if node != leader}
    cluster.append(leader, "a")
    cluster.run(1_000)
    assert "a" not in cluster.values()
    cluster.slow_disks = set()
    cluster.run(500)
    assert "a" in cluster.values()


def test_a_leaders_own_disk_counts_like_any_other() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.slow_disks = {leader}
    cluster.append(leader, "a")
    cluster.run(500)
    assert "a" in cluster.values()  # the two others are a majority


def test_a_leader_without_fetches_of_a_majority_resigns() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.isolate(leader)
    began = cluster.now
    cluster.run_until(lambda: not cluster.core(leader).leads)
    assert cluster.now - began <= 1_600
    assert "no majority" in cluster.reports[0]


@pytest.mark.parametrize("seed", range(3))
def test_two_voters_on_starved_cores_have_a_leader_that_lasts(seed: int) -> None:
    """The third is away, and each message takes 0.5 to 1 s. A leader that resigned as soon as usual would do so before
    the other voter has fetched, and the two would lead in turn, without a commit, for minutes."""
    cluster = QuorumCluster(seed=seed)
    cluster.wait_leader()
    cluster.kill(2)
    cluster.run_late(60_000, 500, 1_000)
    leader = cluster.active()
    assert leader is not None
    epoch = cluster.core(leader).epoch
    cluster.run_late(30_000, 500, 1_000)
    assert (cluster.active(), cluster.core(leader).epoch) == (leader, epoch)
    cluster.isolate(leader)
    cluster.run_until(lambda: not cluster.core(leader).leads, ms=6_100)


def test_what_waited_for_a_paused_leader_does_not_confirm_it() -> None:
    """A fetch that was sent before the other voters elected another leader grants no leases."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    other, dead = (node for node in range(3) if node != leader)
    cluster.kill(dead)
    cluster.kill(other)
    core = cluster.core(leader)

    def unconfirmed_ms_after_fetch(later_ms: int) -> int | None:
        cluster.now += later_ms
        fetch = Fetch(key(other), core.epoch, Offset(99), core.epoch, Offset(99))
        core.handle(Requested(1, Millis(cluster.now), fetch))
        return core.unconfirmed_ms(Millis(cluster.now))

    assert unconfirmed_ms_after_fetch(500) == 0
    assert (unconfirmed_ms_after_fetch(10_000) or 0) >= 10_000
    assert (unconfirmed_ms_after_fetch(400) or 0) >= 10_000
    assert unconfirmed_ms_after_fetch(200) == 0


def test_a_voter_alone_is_confirmed_however_seldom_something_happens() -> None:
    cluster = QuorumCluster(nodes=1)
    cluster.give(0, Called(Millis(cluster.now)))
    cluster.settle()
    core = cluster.core(0)
    cluster.now += 10_000
    core.handle(ClockTicked(Millis(cluster.now)))
    assert core.unconfirmed_ms(Millis(cluster.now)) == 0


def test_a_voter_that_fetches_a_snapshot_or_truncates_counts_as_alive() -> None:
    """A long snapshot would never be fetched to its end if the leader resigned meanwhile."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    other, dead = (node for node in range(3) if node != leader)
    cluster.kill(dead)
    cluster.kill(other)
    core, asked = cluster.core(leader), key(other)
    for number in range(10):
        cluster.now += 1_000
        if number % 2:
            core.handle(SnapshotRequested(Millis(cluster.now), asked, core.epoch))
        else:
            further = Fetch(asked, core.epoch, Offset(99), core.epoch, Offset(99))
            core.handle(Requested(number, Millis(cluster.now), further))
        core.handle(ClockTicked(Millis(cluster.now)))
    assert core.leads
    cluster.now += 2_000
    core.handle(SnapshotRequested(Millis(cluster.now), asked, LeaderEpoch(core.epoch - 1)))
    core.handle(ClockTicked(Millis(cluster.now)))
    assert not core.leads, "the request of an older epoch says nothing"


def test_a_disconnected_voter_begins_no_epochs_and_disturbs_no_leader_when_it_returns() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cut = next(node for node in range(3) if node != leader)
    cluster.isolate(cut)
    cluster.run(10_000)
    assert cluster.core(cut).epoch == 1
    assert cluster.role(cut) in (Role.PROSPECTIVE, Role.FOLLOWER)
    cluster.heal()
    cluster.run(2_000)
    assert cluster.active() == leader
    assert cluster.core(leader).epoch == 1


def test_a_minority_leader_returns_and_its_records_are_truncated() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.isolate(leader)
    cluster.append(leader, "never committed")
    other = cluster.wait_leader(but=leader)
    cluster.append(other, "b")
    cluster.run(500)
    cluster.heal()
    cluster.run(2_000)
    assert (
        [entry.value for entry in cluster.replicas[leader].entries] == cluster.values() == ["epoch 1", "epoch 2", "b"]
    )


@pytest.mark.parametrize("seed", range(10))
def test_figure_8_an_old_epochs_record_is_not_committed_by_count(seed: int) -> None:
    figure_8(QuorumCluster(nodes=5, seed=seed))


def test_a_vote_is_persisted_before_it_is_answered_and_given_once() -> None:
    cluster = QuorumCluster()
    core = cluster.core(0)
    request = VoteRequest(LeaderEpoch(5), key(1), key(0), LeaderEpoch(-1), Offset(0), pre_vote=False)
    effects = core.handle(Requested(1, Millis(cluster.now), request))
    states = [effect.state for effect in effects if isinstance(effect, Persist)]
    assert states[-1] == QuorumState(LeaderEpoch(5), core.leader_id, key(1).node_id, key(1).directory_id)
    assert isinstance(effects[-1], object)
    assert [type(effect).__name__ for effect in effects][-2:] == ["Persist", "Answer"]
    rival = VoteRequest(LeaderEpoch(5), key(2), key(0), LeaderEpoch(-1), Offset(0), pre_vote=False)
    (refused,) = core.handle(Requested(2, Millis(cluster.now), rival))
    (again,) = core.handle(Requested(3, Millis(cluster.now), request))
    assert (refused.answer.granted, again.answer.granted) == (False, True)  # type: ignore[union-attr]
    cluster.replicas[0].state = states[-1]
    cluster.kill(0)
    cluster.start(0)
    (still,) = cluster.core(0).handle(Requested(4, Millis(cluster.now), rival))
    assert still.answer == VoteAnswer(LeaderEpoch(5), cluster.core(0).leader_id, granted=False)  # type: ignore[union-attr]


def test_a_voter_that_lost_its_log_votes_again_when_it_has_all_that_it_had() -> None:
    voter_that_lost_its_log(QuorumCluster())


def test_a_pre_vote_changes_nothing_in_the_voter() -> None:
    cluster = QuorumCluster()
    core = cluster.core(0)
    request = VoteRequest(LeaderEpoch(0), key(1), key(0), LeaderEpoch(-1), Offset(0), pre_vote=True)
    (answer,) = core.handle(Requested(1, Millis(cluster.now), request))
    assert answer.answer.granted  # type: ignore[union-attr]
    assert (core.epoch, core.voted, core.role) == (0, None, Role.UNATTACHED)


def test_a_voter_that_hears_its_leader_grants_no_pre_vote() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    asker, voter = (node for node in range(3) if node != leader)
    cluster.run(100)
    view = cluster.replicas[asker].view()
    request = VoteRequest(LeaderEpoch(1), key(asker), key(voter), *view.position, pre_vote=True)
    (answer,) = cluster.core(voter).handle(Requested(1, Millis(cluster.now), request))
    assert not answer.answer.granted  # type: ignore[union-attr]


def test_a_shorter_log_gets_no_vote() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    straggler = next(node for node in range(3) if node != leader)
    cluster.isolate(straggler)
    cluster.append(leader, "a")
    cluster.run_until(lambda: "a" in cluster.values())
    cluster.kill(leader)
    cluster.heal()
    assert cluster.wait_leader(but=leader) != straggler


def test_an_emptied_voter_is_another_replica() -> None:
    """KIP-853: it does not vote, nor count, until it was removed and added again."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    emptied, other = (node for node in range(3) if node != leader)
    cluster.append(leader, "the set", voters(0, 1, 2))
    cluster.run(200)
    cluster.kill(emptied)
    cluster.empty(emptied)
    cluster.start(emptied)
    cluster.run(500)
    assert cluster.role(emptied) is Role.OBSERVER
    request = VoteRequest(LeaderEpoch(9), key(other), key(emptied), LeaderEpoch(9), Offset(99), pre_vote=False)
    (answer,) = cluster.core(emptied).handle(Requested(1, Millis(cluster.now), request))
    assert not answer.answer.granted  # type: ignore[union-attr]
    cluster.kill(other)
    cluster.run_until(lambda: not cluster.core(leader).leads)
    cluster.run(10_000)
    assert cluster.active() is None  # one of three: no leader is the right outcome


def test_voters_are_added_and_removed_one_at_a_time() -> None:
    cluster = QuorumCluster(nodes=3, voting=1)
    cluster.wait_leader()
    for named in (voters(0, 1), voters(0, 1, 2)):
        cluster.append(0, f"{len(named.members)} voters", named)
        cluster.run_until(lambda named=named: f"{len(named.members)} voters" in cluster.values())  # type: ignore[misc]
    cluster.run(500)
    assert [cluster.role(node) for node in (1, 2)] == [Role.FOLLOWER] * 2
    cluster.kill(0)
    assert cluster.wait_leader(but=0) in (1, 2)


def test_a_leader_that_was_removed_leads_until_that_is_committed_and_then_no_more() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    rest = [node for node in range(3) if node != leader]
    cluster.append(leader, "without me", voters(*rest))
    assert cluster.core(leader).leads
    cluster.run_until(lambda: "without me" in cluster.values())
    assert cluster.wait_leader(but=leader) in rest
    cluster.run(1_000)
    assert cluster.role(leader) in (Role.OBSERVER, Role.RESIGNED)


def test_a_leader_that_alone_has_the_record_that_removes_it_is_elected_again() -> None:
    """Found by test_quorum_machine.py."""
    leader_that_removed_itself(QuorumCluster(nodes=3, voting=2))


def test_a_voter_whose_removal_is_committed_is_no_candidate() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    removed, other = (node for node in range(3) if node != leader)
    cluster.append(leader, "without it", voters(leader, other))
    cluster.run_until(lambda: "without it" in cluster.values())
    cluster.run(500)
    assert cluster.role(removed) is Role.OBSERVER
    cluster.kill(removed)
    cluster.start(removed)
    cluster.isolate(removed)
    cluster.run(3_000)
    assert cluster.core(removed).epoch == 1, "it asks, and begins nothing"
    cluster.heal()
    cluster.run_until(lambda: cluster.role(removed) is Role.OBSERVER)
    assert cluster.active() == leader


def test_a_draining_leader_hands_over_to_the_best_successor_and_does_not_stand_again() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    began = cluster.now
    cluster.give(leader, ResignRequested(Millis(cluster.now)))
    other = cluster.wait_leader(but=leader)
    assert cluster.now - began < 300
    cluster.kill(other)
    cluster.run(5_000)
    assert not cluster.core(leader).leads


def test_a_killed_leader_that_is_back_at_once_does_not_disrupt_the_others() -> None:
    """It may have lost what it appended: it does not lead that epoch again, and reports that."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    cluster.kill(leader)
    cluster.start(leader)
    assert cluster.role(leader) is Role.RESIGNED
    began = cluster.now
    cluster.run_until(lambda: cluster.active() is not None)
    assert cluster.now - began < 1_000
    assert cluster.core(cluster.wait_leader()).epoch == 2


def test_a_killed_leader_announces_it_to_later_starters_too() -> None:
    """All were killed and come back one after the other: none waits for a leader that is none any more."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    for node in range(3):
        cluster.kill(node)
    cluster.start(leader)
    cluster.run(400)
    began = cluster.now
    cluster.start(next(node for node in range(3) if node != leader))
    cluster.run_until(lambda: cluster.active() is not None)
    assert cluster.now - began < TIMES.resend + TIMES.succession + 200, "before any timeout"


def test_an_observer_follows_and_gets_only_committed_records() -> None:
    cluster = QuorumCluster(nodes=4, voting=3)
    leader = cluster.wait_leader()
    cluster.slow_disks = {node for node in range(3) if node != leader}
    cluster.append(leader, "a")
    cluster.run(500)
    assert cluster.role(3) is Role.OBSERVER
    assert [entry.value for entry in cluster.replicas[3].entries] == ["epoch 1"]
    cluster.slow_disks = set()
    cluster.run(500)
    assert [entry.value for entry in cluster.replicas[3].entries] == ["epoch 1", "a"]


def test_an_observer_votes_when_a_newer_voters_record_than_its_own_names_it() -> None:
    """The set {0, 1, 2} is known to 0 and 1 only; 0 is lost; 1 needs the vote of 2, which does not know that it is a
    voter."""
    cluster = QuorumCluster(nodes=3, voting=1)
    cluster.wait_leader()
    cluster.append(0, "two", voters(0, 1))
    cluster.run_until(lambda: "two" in cluster.values())
    cluster.isolate(2)
    cluster.append(0, "three", voters(0, 1, 2))
    cluster.run_until(lambda: "three" in cluster.values())
    cluster.kill(0)
    cluster.heal()
    assert cluster.role(2) is Role.OBSERVER
    assert cluster.wait_leader(but=0) == 1


def test_all_nodes_lose_power_and_keep_committed_records() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.append(leader, "a")
    cluster.run_until(lambda: "a" in cluster.values())
    for node in range(3):
        cluster.kill(node)
    for node in range(3):
        cluster.start(node)
    again = cluster.wait_leader()
    assert [entry.value for entry in cluster.replicas[again].entries][:2] == ["epoch 1", "a"]


def test_a_successor_of_a_later_rank_waits_for_the_first() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    first, second = (node for node in range(3) if node != leader)
    farewell = EndEpoch(LeaderEpoch(1), key(leader).node_id, (key(first), key(second)))
    for node in (first, second):
        cluster._answers[node] = lambda _: None
        cluster.give(node, Requested(node, Millis(cluster.now), farewell))
    cluster.kill(leader)
    assert cluster.wait_leader(but=leader) == first


def test_a_leader_that_resigned_is_not_followed_again_because_of_outdated_answers() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    node, late = (node for node in range(3) if node != leader)
    cluster.disconnected.add((leader, late))
    cluster.give(leader, ResignRequested(Millis(cluster.now)))
    began = cluster.now
    cluster.settle()
    reported = LeaderReported(Millis(cluster.now), LeaderEpoch(1), key(leader).node_id, key(leader).node_id)
    cluster.give(node, reported)
    cluster._answers[0] = lambda _: None
    cluster.give(node, Requested(0, Millis(cluster.now), BeginEpoch(LeaderEpoch(1), key(leader).node_id)))
    assert cluster.core(node).leader_id == -1
    assert cluster.wait_leader(but=leader) == node
    assert cluster.now - began < 500


def test_a_leader_that_answers_a_later_fetch_has_not_resigned() -> None:
    """A stranger ends the leader's epoch at one follower. The leader leads on, and the follower follows it again."""
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    node = next(node for node in range(3) if node != leader)
    cluster._answers[0] = lambda _: None
    forged = EndEpoch(LeaderEpoch(1), key(leader).node_id, (key(node),))
    cluster.give(node, Requested(0, Millis(cluster.now), forged))
    assert cluster.core(node).leader_id == -1
    cluster.run_until(lambda: cluster.core(node).leader_id == key(leader).node_id)
    cluster.append(leader, "a")
    cluster.run_until(lambda: "a" in [entry.value for entry in cluster.replicas[node].entries])
    assert cluster.core(leader).leads and cluster.core(leader).epoch == 1


def test_an_answer_from_before_a_resignation_does_not_disprove_it() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    node = next(node for node in range(3) if node != leader)
    asked_at = Millis(cluster.now)
    cluster._answers[0] = lambda _: None
    farewell = EndEpoch(LeaderEpoch(1), key(leader).node_id, (key(node),))
    cluster.give(node, Requested(0, asked_at, farewell))
    has_nothing = NewRecords(Offset(1))
    late = FetchAnswered(Millis(cluster.now + 5), asked_at, key(leader).node_id, LeaderEpoch(1), Offset(1), has_nothing)
    cluster.give(node, late)
    assert cluster.core(node).leader_id == -1


def test_only_the_leader_itself_disproves_its_resignation() -> None:
    cluster = QuorumCluster()
    leader = cluster.wait_leader()
    cluster.run(300)
    node, another = (node for node in range(3) if node != leader)
    cluster._answers[0] = lambda _: None
    farewell = EndEpoch(LeaderEpoch(1), key(leader).node_id, (key(node),))
    at = Millis(cluster.now)
    cluster.give(node, Requested(0, at, farewell))

    def answer_of(claims: int) -> FetchAnswered:
        asked, at_end = Millis(at + 1), NewRecords(Offset(1))
        return FetchAnswered(Millis(at + 2), asked, key(claims).node_id, LeaderEpoch(1), Offset(1), at_end)

    cluster.core(node).handle(answer_of(another))
    assert cluster.core(node).leader_id == -1
    cluster.core(node).handle(answer_of(leader))
    assert cluster.core(node).leader_id == key(leader).node_id


def test_a_directory_that_is_not_meant_gets_no_vote_request_of_ours() -> None:
    cluster = QuorumCluster()
    effects = cluster.core(0).handle(Called(Millis(cluster.now)))
    asked = {effect.request.voter for effect in effects if isinstance(effect, SendVote)}
    assert asked == {key(1), key(2)}


def test_majorities() -> None:
    three = VoterSet((key(0), key(1), key(2)))
    stranger = ReplicaKey(key(0).node_id, key(0, directory=5).directory_id)
    assert not three.is_majority({key(0), stranger})
    assert three.is_majority({key(0), key(2)})
    assert not VoterSet().is_majority({key(0)})
    assert three.reached_by_majority({key(0): 9, key(1): 5, stranger: 9}) == 5
    assert three.reached_by_majority({key(0): 9}) == -1
    assert VoterSet((key(0), key(1))).reached_by_majority({key(0): 9, key(1): 4}) == 4


def test_every_role_can_be_left_and_every_newer_epoch_is_accepted() -> None:
    for role in Role:
        assert any(move.source is role for move in TRANSITIONS)
        assert any(move.target is role for move in TRANSITIONS)
