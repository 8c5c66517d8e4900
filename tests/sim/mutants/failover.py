"""Failovers that take a living process for a dead one."""

from __future__ import annotations

from typing import Any, Final

from node.controller import process_watch
from node.requests import fetch_session
from replication.controller import controller, refusals
from replication.controller.refusals import RefusedNode
from replication.raft import quorum
from replication.raft.roles import Cause, Role
from tests.sim import failover_stories
from tests.sim.mutants import controllers
from tests.sim.mutants.mutant import Mutant, Patch


def one_witness_is_enough(patch: Patch) -> None:
    """A node is fenced when one other node reports that its address refuses connections."""
    patch.setattr(refusals, "WITNESSES", 1)


def a_report_counts_for_any_process(patch: Patch) -> None:
    """A report that an address refuses connections counts for the present registration of the node, whichever it
    names."""

    def take(self: Any, node: Any, beat: Any, at: Any) -> None:
        nodes = self.image.nodes
        refused = tuple(RefusedNode(each.node_id, nodes[each.node_id].node_epoch) for each in beat.refused)
        object.__setattr__(beat, "refused", refused)
        take_refusals(self, node, beat, at)

    take_refusals = controller.Controller._take_refusals
    patch.setattr(controller.Controller, "_take_refusals", take)


def contradicted_reports_count(patch: Patch) -> None:
    """Reports about a process are believed again after its heartbeats have contradicted them."""

    patch.setattr(refusals.Refusals, "heard_from", lambda self, node, *, informed: self._fenced.discard(node))


def a_late_heartbeat_ends_a_fencing(patch: Patch) -> None:
    """A fenced node is unfenced by any heartbeat of its registration, also by one from before the fencing."""

    def heartbeat(self: Any, beat: Any, at: Any) -> Any:
        self._state_known_at.update({beat.node_id: beat.node_epoch + 1})
        return take(self, beat, at)

    take = controller.Controller._heartbeat
    patch.setattr(controller.Controller, "_heartbeat", heartbeat)


def one_witness_stays_alone(patch: Patch) -> None:
    """No other node is asked to probe an address that refuses the connections of one."""
    patch.setattr(refusals.Refusals, "ask", lambda *_: ())


def a_lost_follower_is_not_probed(patch: Patch) -> None:
    """A leader does not probe a follower whose fetch stream has ended."""
    patch.setattr(fetch_session.FetchSession, "follower_id", None)


def a_broken_connection_counts_as_a_refusal(patch: Patch) -> None:
    """A connection that breaks is reported like one that is refused, whatever the probe finds."""

    async def probe(self: Any, node: Any) -> bool:
        peers, self._peers = self._peers, _Refused()
        try:
            return await probe_once(self, node)
        finally:
            self._peers = peers

    probe_once = process_watch.ProcessWatch._probe_once
    patch.setattr(process_watch.ProcessWatch, "_probe_once", probe)


class _Refused:
    async def is_refused(self, *_: object, **__: object) -> bool:
        return True


def a_refused_voter_begins_an_epoch(patch: Patch) -> None:
    """A voter whose connections the leader's address refuses begins an epoch without asking the others."""

    def refused(self: Any, epoch: Any, leader_id: Any) -> None:
        if (epoch, leader_id) == (self.epoch, self.leader_id) and self.role is Role.FOLLOWER:
            self._move(Cause.FETCH_TIMEOUT, Role.PROSPECTIVE)
            self._begin_candidacy()

    patch.setattr(quorum.Quorum, "_leader_refused", refused)


def a_dead_process_keeps_its_session(patch: Patch) -> None:
    """Refused connections are not reported: a dead process is fenced when its session ends."""
    patch.setattr(process_watch.ProcessWatch, "refused", ())


def a_dead_leader_is_awaited(patch: Patch) -> None:
    """A refused connection to the leader of the quorum shortens no timeout."""
    patch.setattr(quorum.Quorum, "_leader_refused", lambda *_: None)


AT_ONCE: Final = "is fenced at once"
BEFORE_ITS_SESSION: Final = "the dead node is fenced before its session ends"

MUTANTS: Final = (
    Mutant(one_witness_is_enough, "failover", failover_stories.one_bad_link_fences_no_node, "one witness fenced"),
    Mutant(
        a_report_counts_for_any_process,
        "failover",
        failover_stories.late_report_of_a_former_process,
        "a report about a former process",
    ),
    Mutant(
        contradicted_reports_count,
        "failover",
        failover_stories.rejected_node_is_fenced_once,
        "contradicted reports fenced it again",
    ),
    Mutant(
        a_late_heartbeat_ends_a_fencing,
        "failover",
        failover_stories.late_heartbeat_of_a_dead_process,
        "a heartbeat of a dead process ended its fencing",
    ),
    Mutant(
        one_witness_stays_alone,
        "failover",
        failover_stories.dead_node_is_connected_to_the_controller_alone,
        BEFORE_ITS_SESSION,
    ),
    Mutant(
        a_lost_follower_is_not_probed,
        "failover",
        failover_stories.dead_node_is_connected_to_the_controller_alone,
        BEFORE_ITS_SESSION,
    ),
    Mutant(
        a_broken_connection_counts_as_a_refusal,
        "failover",
        failover_stories.paused_leader_keeps_its_session,
        "before its session ended",
    ),
    Mutant(
        a_refused_voter_begins_an_epoch,
        "pre-vote",
        failover_stories.bad_link_to_the_controller_begins_no_epoch,
        "one bad link began another epoch",
    ),
    Mutant(
        controllers.silent_nodes_are_not_fenced,
        "fencing",
        failover_stories.silent_machine_keeps_its_session,
        "its session ends",
    ),
    Mutant(a_dead_process_keeps_its_session, "failover", failover_stories.killed_leader_is_fenced_at_once, AT_ONCE),
    Mutant(
        a_dead_leader_is_awaited,
        "failover",
        failover_stories.killed_controller_is_replaced_at_once,
        "another controller is elected at once",
    ),
)
