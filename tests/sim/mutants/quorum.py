"""Quorums that break a rule of Raft: votes, elections, commits, truncation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from node.controller import cluster_formation
from node.metadata import metadata_log
from node.process import metadata_node
from node.quorum import addresses as quorum_addresses
from node.quorum import driver as quorum_driver
from node.quorum import fetcher as quorum_fetcher
from replication.controller import voter_changes
from replication.raft import ballot, quorum
from replication.raft import log_view as quorum_log_view
from replication.raft import progress as quorum_books
from replication.raft.roles import Cause, Role
from replication.raft.voters import ReplicaKey, VoterSet
from tests.sim import quorum_stories, stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.types import LeaderEpoch


def a_vote_is_not_written(patch: Patch) -> None:
    """A vote is answered at once and never reaches the disk."""

    async def persist(self: Any, state: Any) -> None:
        return None

    patch.setattr(quorum_driver.QuorumDriver, "_persist", persist)


def a_vote_is_written_behind_its_answer(patch: Patch) -> None:
    """A vote is answered before it is on disk."""

    async def begin(self: Any, state: Any) -> None:
        self._start(lambda: persist(self, state))

    persist = quorum_driver.QuorumDriver._persist
    patch.setattr(quorum_driver.QuorumDriver, "_persist", begin)


def the_only_voter_leads_before_it_has_voted(patch: Patch) -> None:
    """A node that needs only its own vote leads before that vote is on disk."""

    async def show_and_persist(self: Any, state: Any) -> None:
        self._show()
        await persist(self, state)

    persist = quorum_driver.QuorumDriver._persist
    patch.setattr(quorum_driver.QuorumDriver, "_persist", show_and_persist)


def a_voter_without_its_directory_reports_a_durable_offset(patch: Patch) -> None:
    """A voter whose directory failed keeps fetching and reports the offset that was durable before."""
    patch.setattr(quorum_fetcher.QuorumFetcher, "_ensure_usable", lambda _: None)


def a_lost_log_votes(patch: Patch) -> None:
    """A voter whose log was emptied grants votes by comparison with the empty log."""
    patch.setattr(quorum.Quorum, "_is_whole", True)


def a_removed_voter_is_no_candidate(patch: Patch) -> None:
    """A removed voter is no candidate, although the record of its removal may be on its disk only."""
    patch.setattr(quorum_log_view.MetadataLogView, "may_stand", lambda self, replica: replica in self.voters)


def any_directory_of_a_node_votes(patch: Patch) -> None:
    """A voter is identified by its node id, without its directory."""

    def vote_asked(self: Any, request: Any) -> Any:
        self.me, own = request.voter, self.me
        granted = asked(self, request)
        self.me = own
        return granted

    asked = quorum.Quorum._vote_requested
    patch.setattr(quorum.Quorum, "_vote_requested", vote_asked)


def the_configured_nodes_vote(patch: Patch) -> None:
    """While the log names fewer voters than configured, the configured nodes vote."""

    def begin(self: Any, config: Any, *given: Any, **named: Any) -> None:
        begin_with(self, config, *given, **named)
        listed[self.metadata] = config.quorum.voters

    def view(self: Any) -> Any:
        seen, nodes = view_of(self), self.replayed().nodes
        members = sorted(ReplicaKey(node, nodes[node].directories[0].directory_id) for node in nodes)[
            : listed.get(self, 0)
        ]
        return replace(seen, voters=VoterSet(tuple(members))) if len(members) > len(seen.voters.members) else seen

    def of(self: Any, node_id: Any) -> Any:
        return address_of(self, node_id) or self._nodes[node_id]

    listed: dict[Any, int] = {}
    begin_with, view_of = metadata_node.MetadataNode.__init__, metadata_log.MetadataLog.view
    address_of = quorum_addresses.QuorumAddresses.of
    patch.setattr(quorum_addresses.QuorumAddresses, "of", of)
    patch.setattr(metadata_node.MetadataNode, "__init__", begin)
    patch.setattr(metadata_log.MetadataLog, "view", view)


def a_resigning_leader_names_no_successor(patch: Patch) -> None:
    """A leader that stops announces no successors."""
    patch.setattr(quorum.Quorum, "_send_end_epoch", lambda _: None)


def an_epoch_begins_without_pre_votes(patch: Patch) -> None:
    """No pre-vote: a node that hears no leader begins an epoch."""

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


def a_leader_without_a_majority_does_not_resign(patch: Patch) -> None:
    """No check-quorum."""
    patch.setattr(quorum.Quorum, "_tick_leader", lambda self: self._send_begin_epoch() if self._resend_due() else None)


def any_log_gets_a_vote(patch: Patch) -> None:
    """A voter does not compare the candidate's log with its own."""
    patch.setattr(quorum.Quorum, "_is_complete", lambda self, request: True)


def an_emptied_node_forms_a_cluster(patch: Patch) -> None:
    """A first node that should join an existing cluster forms a new one."""

    async def choose_voters(self: Any, me: Any, *given: Any) -> Any:
        return await choose(self, me, *given) or (me,)

    choose = cluster_formation.ClusterFormation.choose_voters
    patch.setattr(cluster_formation.ClusterFormation, "choose_voters", choose_voters)


def older_epochs_are_committed_by_count(patch: Patch) -> None:
    """A leader commits records of older epochs as soon as a majority has them."""

    def committed(self: Any, log: Any) -> Any:
        self.epoch_start, began = 0, self.epoch_start
        try:
            return counted(self, log)
        finally:
            self.epoch_start = began

    counted = quorum_books.QuorumProgress.committed
    patch.setattr(quorum_books.QuorumProgress, "committed", committed)


def one_vote_elects(patch: Patch) -> None:
    """A candidate becomes leader with its own vote alone."""
    patch.setattr(ballot.Ballot, "won", property(lambda _: True))


def one_voter_commits(patch: Patch) -> None:
    """A leader commits what it has made durable itself."""

    def committed(self: Any, log: Any) -> Any:
        return log.durable_offset if log.durable_offset > self.epoch_start else None

    patch.setattr(quorum_books.QuorumProgress, "committed", committed)


def logs_of_voters_are_not_compared(patch: Patch) -> None:
    """A leader sends records from the requested offset on without comparing the logs before it."""
    patch.setattr(quorum, "divergence", lambda *_: None)


def voters_are_never_replaced(patch: Patch) -> None:
    """A voter whose node has another directory now is not replaced."""
    patch.setattr(voter_changes, "next_voters", lambda *_: None)


TWO_LEADERS: Final = r"is led by node-\d\.\d and by node-\d\.\d"
TOO_SHORT: Final = "with its log ending at"

MUTANTS: Final = (
    Mutant(
        a_voter_without_its_directory_reports_a_durable_offset,
        "rule 6",
        quorum_stories.voter_whose_mark_fails,
        "of 3 voters hold",
    ),
    Mutant(
        the_only_voter_leads_before_it_has_voted,
        "found",
        stories.only_voter_has_not_voted_yet,
        "it leads without having voted",
    ),
    Mutant(a_vote_is_not_written, "quorum", quorum_stories.forgotten_vote, TWO_LEADERS, 2),
    Mutant(
        any_directory_of_a_node_votes, "S16", quorum_stories.two_of_three_lose_all_state, "a new directory has voted"
    ),
    Mutant(
        any_directory_of_a_node_votes,
        "S16",
        quorum_stories.emptied_voter_votes_again,
        f"{TWO_LEADERS}|elected by a directory that is not a voter",
    ),
    Mutant(one_voter_commits, "quorum", quorum_stories.initial_election, "of 3 voters hold"),
    Mutant(
        a_resigning_leader_names_no_successor,
        "quorum",
        quorum_stories.draining_controller_hands_over,
        "no successor was named",
    ),
    Mutant(
        the_configured_nodes_vote,
        "S16",
        quorum_stories.configured_voters_are_none_yet,
        f"{TOO_SHORT}|elected by nodes that are only configured",
    ),
    Mutant(any_log_gets_a_vote, "quorum", quorum_stories.back_to_back_failures, TOO_SHORT),
    Mutant(a_vote_is_not_written, "quorum", quorum_stories.all_nodes_killed, TWO_LEADERS),
    Mutant(voters_are_never_replaced, "KIP-853", quorum_stories.one_node_loses_all_state, "its new directory votes"),
    Mutant(
        an_epoch_begins_without_pre_votes,
        "pre-vote",
        quorum_stories.disconnected_voter_starts_no_epoch,
        "started an epoch",
    ),
    Mutant(
        a_leader_without_a_majority_does_not_resign,
        "check-quorum",
        quorum_stories.minority_leader_returns,
        "the old leader has resigned",
    ),
    Mutant(any_log_gets_a_vote, "quorum", quorum_stories.short_log_gets_no_vote, TOO_SHORT),
    Mutant(
        an_emptied_node_forms_a_cluster,
        "S16",
        quorum_stories.emptied_first_node,
        f"{TWO_LEADERS}|another cluster is formed",
    ),
    Mutant(
        a_vote_is_written_behind_its_answer,
        "quorum",
        quorum_stories.vote_on_a_hanging_disk,
        "by a vote that was not durable",
    ),
    Mutant(
        older_epochs_are_committed_by_count,
        "figure 8",
        quorum_stories.old_record_waits_for_a_new_one,
        "of an older epoch",
    ),
    Mutant(one_vote_elects, "quorum", quorum_stories.two_of_three_lose_all_state, "elected, or a new"),
    Mutant(one_voter_commits, "quorum", quorum_stories.minority_leader_returns, "of 3 voters hold"),
    Mutant(logs_of_voters_are_not_compared, "quorum", quorum_stories.minority_leader_returns, "the cluster heals"),
)
