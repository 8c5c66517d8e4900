"""The metadata quorum with one of its rules made weaker at a time: the story that needs the rule must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from node import cluster_formation, quorum_driver
from replication import quorum, quorum_books, quorum_log_view
from replication.quorum_roles import Cause, Role
from storage import log as storage_log
from tests.replication import quorum_tales as tales
from tests.replication.quorum_cluster import QuorumCluster
from tests.sim import quorum_stories as stories
from tests.sim.world import Simulation
from tidelog.types import LeaderEpoch

Patch = pytest.MonkeyPatch


def a_vote_is_not_written(patch: Patch) -> None:
    """A vote is answered at once, and never reaches the disk."""

    async def persist(self: Any, state: Any) -> None:
        return None

    patch.setattr(quorum_driver.QuorumDriver, "_persist", persist)


def a_vote_is_written_behind_its_answer(patch: Patch) -> None:
    """The answer does not wait until the vote is on the disk."""

    async def begin(self: Any, state: Any) -> None:
        self._start(persist(self, state))

    persist = quorum_driver.QuorumDriver._persist
    patch.setattr(quorum_driver.QuorumDriver, "_persist", begin)


def older_epochs_are_committed_by_count(patch: Patch) -> None:
    """A leader commits what a majority holds, whoever wrote it."""

    def committed(self: Any, log: Any) -> Any:
        self.epoch_start, began = 0, self.epoch_start
        try:
            return counted(self, log)
        finally:
            self.epoch_start = began

    counted = quorum_books.QuorumBooks.committed
    patch.setattr(quorum_books.QuorumBooks, "committed", committed)


def who_was_removed_never_stands(patch: Patch) -> None:
    """Though the record that removes it may be on its disk alone."""
    patch.setattr(quorum_log_view.LogView, "may_stand", lambda self, replica: replica in self.voters)


def any_folder_of_a_node_votes(patch: Patch) -> None:
    """A voter is a node, whatever its folder."""

    def vote_asked(self: Any, event: Any) -> None:
        self.me, own = event.request.voter, self.me
        asked(self, event)
        self.me = own

    asked = quorum.Quorum._vote_asked
    patch.setattr(quorum.Quorum, "_vote_asked", vote_asked)


def nobody_is_asked_before_an_epoch_begins(patch: Patch) -> None:
    """No pre-vote: who hears no leader begins an epoch."""

    def stand(self: Any, cause: Any) -> None:
        if not self.is_voter or self._retired:
            return
        self._move(cause, Role.PROSPECTIVE)
        self._move(Cause.PRE_VOTES_WON, Role.CANDIDATE)
        self.epoch, self.leader_id, self.voted = LeaderEpoch(self.epoch + 1), -1, self.me
        self._persist()
        self._begin_round()
        self._count()

    patch.setattr(quorum.Quorum, "_stand", stand)


def a_leader_without_a_majority_leads_on(patch: Patch) -> None:
    """No check-quorum."""
    patch.setattr(quorum.Quorum, "_tick_leader", lambda self: self._send_begin_epoch() if self._resend_due() else None)


def any_log_gets_a_vote(patch: Patch) -> None:
    """A voter does not look how far the candidate's log reaches."""
    patch.setattr(quorum.Quorum, "_is_complete", lambda self, request: True)


def unsynced_records_count(patch: Patch) -> None:
    """A replica says that it holds what it has only written."""
    patch.setattr(storage_log.Log, "held", property(lambda self: self.log_end_offset))


def an_emptied_node_forms_a_cluster(patch: Patch) -> None:
    """The first node forms a cluster whatever the others belong to."""
    patch.setattr(cluster_formation.ClusterFormation, "_has_only_to_join", lambda self, *_: False)


class Planted(NamedTuple):
    """A bug, the story that notices it, what is said then, and with which seed."""

    bug: Callable[[Patch], None]
    story: Callable[[Simulation], None]
    says: str
    seed: int = 1


PLANTED = [
    Planted(a_vote_is_not_written, stories.forgotten_vote, r"is led by node-\d\.\d and by node-\d\.\d"),
    Planted(a_vote_is_written_behind_its_answer, stories.vote_on_a_hanging_disk, "by a vote that could be forgotten"),
    Planted(any_folder_of_a_node_votes, stories.two_of_three_lose_all_state, "a new folder has voted"),
    Planted(nobody_is_asked_before_an_epoch_begins, stories.cut_off_voter_disturbs_nobody, ""),
    Planted(a_leader_without_a_majority_leads_on, stories.minority_leader_returns, "the old leader has resigned"),
    Planted(any_log_gets_a_vote, stories.short_log_gets_no_vote, "with its log ending at"),
    Planted(unsynced_records_count, stories.all_nodes_killed, "but a crash may lose"),
    Planted(an_emptied_node_forms_a_cluster, stories.emptied_first_node, ""),
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.bug.__name__}-in-{planted.story.__name__}")
def test_a_planted_bug_is_caught(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.bug(monkeypatch)
    with pytest.raises(AssertionError, match=planted.says), Simulation(planted.seed) as sim:
        planted.story(sim)


class PlantedInCores(NamedTuple):
    """As above, where the story needs a disk that has come just so far: cores alone, some of them voters."""

    bug: Callable[[Patch], None]
    tale: Callable[[QuorumCluster], None]
    nodes: int
    voting: int
    says: str


IN_CORES = [
    PlantedInCores(older_epochs_are_committed_by_count, tales.figure_8, 5, 5, "the leader lacks something|committed"),
    PlantedInCores(who_was_removed_never_stands, tales.leader_that_removed_itself, 3, 2, "not within 20000 ms"),
]


@pytest.mark.parametrize("planted", IN_CORES, ids=lambda planted: planted.bug.__name__)
def test_a_planted_bug_is_caught_by_cores_alone(planted: PlantedInCores, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.bug(monkeypatch)
    with pytest.raises(AssertionError, match=planted.says):
        planted.tale(QuorumCluster(nodes=planted.nodes, voting=planted.voting))
