"""Nodes that trust the epochs, leaders and positions in any message, and processes that end when a handler fails."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from node.quorum import checks as quorum_checks
from node.quorum import driver as quorum_driver
from node.quorum import handlers as quorum_handlers
from node.replicas.follower_streams import FollowerStreams
from node.replicas.replica import Replica
from node.requests.fetch_session import FetchSession
from replication.controller import controller
from replication.partition import leader as partition_leader
from replication.raft import quorum
from replication.raft.epoch_limits import EPOCH_MAX
from tests.sim import hostile_stories
from tests.sim.mutants.mutant import Mutant, Patch
from tidelog.epochs import divergence
from tidelog.errors import InvalidRequest
from tidelog.types import INT64_MAX, Offset


def an_unproven_leader_is_accepted(patch: Patch) -> None:
    """A node follows whichever node claims to lead, in any epoch, without querying it."""

    def begin_asked(self: Any, request: Any) -> None:
        if request.epoch > self.epoch:
            self._enter_epoch(request.epoch, request.leader_id)

    patch.setattr(quorum.Quorum, "_epoch_begun", begin_asked)


def a_request_without_a_cluster_is_obeyed(patch: Patch) -> None:
    """A request that names no cluster is accepted."""
    ensure = quorum_handlers.QuorumHandlers._ensure_cluster
    patch.setattr(
        quorum_handlers.QuorumHandlers,
        "_ensure_cluster",
        lambda self, asked_by, sender, **_: ensure(self, asked_by, sender, may_be_none=True),
    )


def a_request_for_another_replica_is_obeyed(patch: Patch) -> None:
    """A request to another directory or another node is accepted."""
    patch.setattr(quorum_handlers.QuorumHandlers, "_ensure_meant", lambda *_: None)


def one_message_raises_the_epoch_without_a_bound(patch: Patch) -> None:
    """An epoch may increase by any amount, even into the reserve."""
    patch.setattr(quorum, "step_towards", lambda _, claimed: claimed)
    patch.setattr(quorum_checks, "EPOCH_LAST", EPOCH_MAX)


def a_position_beyond_the_log_end_counts(patch: Patch) -> None:
    """A leader compares the epoch of a follower's last record, but not whether it has that record."""

    def within(history: Any, log_start: Any, log_end: Any, next_offset: Any, last_epoch: Any) -> Any:
        return divergence(history, log_start, Offset(max(log_end, next_offset)), next_offset, last_epoch)

    patch.setattr(partition_leader, "divergence", within)


def an_outdated_stream_stays_open(patch: Patch) -> None:
    """A leader refuses the fetches on an outdated stream one by one, so that the follower never reconnects."""
    take_over, fetched = FollowerStreams.take_over, Replica.follower_fetched
    latest_of: dict[Any, Any] = {}

    def left_open(self: Any, follower: Any, replace: Any, image: Any) -> None:
        with suppress(InvalidRequest):
            take_over(self, follower, replace, image)
        latest_of[id(follower)] = self._latest.get(follower.node_id, (follower, None))[0]

    def one_by_one(self: Any, fetch: Any, follower: Any, item: Any, now: Any) -> Any:
        if latest_of[id(follower)].session > follower.session:
            raise InvalidRequest("the follower has fetched on a later stream")
        return fetched(self, fetch, follower, item, now)

    patch.setattr(FollowerStreams, "take_over", left_open)
    patch.setattr(FetchSession, "replace", lambda *_: None)
    patch.setattr(Replica, "follower_fetched", one_by_one)


def a_drain_is_never_withdrawn(patch: Patch) -> None:
    """Any heartbeat that requests a drain stops the node for good, also one that another sender forged."""

    def heartbeat(self: Any, beat: Any, at: Any) -> Any:
        node = self.image.nodes.get(beat.node_id)
        if node is not None and node.draining:
            self._state_known_at[beat.node_id] = INT64_MAX  # no heartbeat counts as sent since it knows
        return take(self, beat, at)

    take = controller.Controller._heartbeat
    patch.setattr(controller.Controller, "_heartbeat", heartbeat)


def a_failing_handler_ends_the_process(patch: Patch) -> None:
    """An exception in the rules is raised in a task that no caller awaits."""

    def note(self: Any, doing: str, defect: Exception) -> Any:
        raise defect

    patch.setattr(quorum_driver.QuorumDriver, "_note_defect", note)


MUTANTS: Final = (
    Mutant(
        an_unproven_leader_is_accepted,
        "unproven epochs",
        hostile_stories.stranger_claims_to_lead,
        "in which no node was elected",
    ),
    Mutant(
        a_request_without_a_cluster_is_obeyed,
        "unproven epochs",
        hostile_stories.stranger_names_no_cluster,
        "without a cluster ID is accepted",
    ),
    Mutant(
        a_request_for_another_replica_is_obeyed,
        "KIP-853",
        hostile_stories.stranger_names_no_cluster,
        "for another replica is accepted",
    ),
    Mutant(
        one_message_raises_the_epoch_without_a_bound,
        "unproven epochs",
        hostile_stories.stranger_asks_for_a_vote_in_the_last_epoch,
        "moves the epoch by|Value out of range|requires -2147483648",
    ),
    Mutant(
        a_position_beyond_the_log_end_counts,
        "S2",
        hostile_stories.follower_claims_a_position_beyond_the_log_end,
        "only the leader holds is committed|is in the in-sync set and holds offsets below",
    ),
    Mutant(
        an_outdated_stream_stays_open,
        "S2",
        hostile_stories.stranger_fetches_for_a_follower,
        "all followers are in sync after a forged fetch",
    ),
    Mutant(
        a_drain_is_never_withdrawn,
        "controller",
        hostile_stories.stranger_stops_a_node,
        "the node serves again after a forged stop",
    ),
    Mutant(
        a_failing_handler_ends_the_process,
        "defects",
        hostile_stories.handler_fails,
        "ZeroDivisionError|ended the process|a defect",
    ),
)
