"""Controllers that break a rule of leadership, of in-sync sets, of registration, or of sessions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from node.controller import node_registration
from replication.controller import alter_partition, controller, elections, refusals, registration, sessions
from replication.controller.registration import Judged
from tests.sim.mutants.mutant import Patch
from tidelog.errors import KafkaStorageError
from tidelog.types import NO_NODE


def an_epoch_outlives_its_incarnation(patch: Patch) -> None:
    """A node that restarts continues to lead in the epoch that it had."""

    def nothing(*_: object) -> Iterator[Any]:
        return iter(())

    patch.setattr(registration, "judge", lambda *_: Judged((), ()))
    patch.setattr(elections, "fence_changes", nothing)
    patch.setattr(elections, "return_changes", nothing)


def a_failed_directory_is_not_reported_at_once(patch: Patch) -> None:
    """A node reports a failed log directory only with its next registration."""
    patch.setattr(controller.Controller, "_take_directories_offline", lambda self, node, beat: node)


def a_replica_leads_without_its_directory(patch: Patch) -> None:
    """An unfenced node is elected even if it lacks the directory with the log."""

    def choose_leader(image: Any, state: Any, members: Any) -> Any:
        able = [node for node in state.replicas if node in members and node in image.nodes]
        return next((node for node in able if not image.nodes[node].fenced), NO_NODE)

    patch.setattr(elections, "choose_leader", choose_leader)


def a_leader_comes_from_all_replicas(patch: Patch) -> None:
    """The first replica on a live node is elected, even if it is not in sync."""

    def choose_leader(image: Any, state: Any, members: Any) -> Any:
        able = [node for node in state.replicas if elections.electable(image, state, node)]
        return max((node for node in able if node != state.leader), default=NO_NODE)

    patch.setattr(elections, "choose_leader", choose_leader)


def a_directory_without_its_number_is_unfenced(patch: Patch) -> None:
    """A node becomes ready although one of its directories could not store the registration number."""

    async def get_ready(self: Any) -> None:
        number = self._progress.node_epoch
        await self._metadata.wait_until(lambda: self._metadata.image.offset > number)
        for directory, executor in self._directories:
            with contextlib.suppress(KafkaStorageError):
                await self._write_number(directory, executor, number)
        self._progress.ready = True
        self._wake.set()

    patch.setattr(node_registration.Registration, "_get_ready", get_ready)


def an_older_proposal_is_taken(patch: Patch) -> None:
    """A proposal that is based on an older partition epoch is accepted."""
    refuse = alter_partition._refuse_stale

    def refusing(state: Any, leader: Any, proposal: Any) -> None:
        refuse(state, leader, replace(proposal, partition_epoch=state.partition_epoch))

    patch.setattr(alter_partition, "_refuse_stale", refusing)


def an_unfit_replica_is_admitted(patch: Patch) -> None:
    """Every proposed replica is admitted: on fenced or draining nodes, and of an earlier registration."""
    patch.setattr(alter_partition, "_refuse_ineligible", lambda *_: None)


def an_earlier_registration_is_admitted(patch: Patch) -> None:
    """A proposal is accepted although its leader knew an earlier registration of a member (KIP-903)."""
    refuse = alter_partition._refuse_ineligible

    def refusing(image: Any, state: Any, leader: Any, member: Any) -> None:
        node = image.nodes.get(member.node_id)
        refuse(image, state, leader, member if node is None else replace(member, node_epoch=node.node_epoch))

    patch.setattr(alter_partition, "_refuse_ineligible", refusing)


def silent_nodes_are_not_fenced(patch: Patch) -> None:
    """The session of a node that sends no heartbeats does not end, and refused connections fence no node."""
    patch.setattr(sessions.Sessions, "take_ended", lambda _: [])
    patch.setattr(refusals.Refusals, "is_confirmed", lambda *_: False)


def fencing_changes_no_partition(patch: Patch) -> None:
    """A fenced node stays in its in-sync sets and keeps its leaderships."""
    patch.setattr(elections, "fence_changes", lambda *_: iter(()))


def a_node_leads_from_any_directory(patch: Patch) -> None:
    """A node leads from any of its directories, not only from the one with the records."""

    def electable(image: Any, state: Any, node_id: Any) -> bool:
        node = image.nodes.get(node_id)
        return node is not None and not node.fenced and node_id in state.replicas

    patch.setattr(elections, "electable", electable)


def a_reboot_loses_nothing(patch: Patch) -> None:
    """Records that were only in the page cache count as durable after a reboot."""
    patch.setattr(registration._Judge, "_page_cache_is_lost", lambda *_: False)


def copies_of_directories_are_not_noticed(patch: Patch) -> None:
    """A directory is identified by its id alone, so that an older copy of it is accepted."""
    begin = registration._Judge.__init__

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._older = set()

    patch.setattr(registration._Judge, "__init__", beginning)


def a_late_registration_counts(patch: Patch) -> None:
    """A process may register although it has not applied the last registration of its node."""
    patch.setattr(registration, "refuse_late", lambda *_: None)


def damage_is_not_registered(patch: Patch) -> None:
    """A node that registers does not report its damaged logs."""
    begin = registration._Judge.__init__

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._damaged = {}

    patch.setattr(registration._Judge, "__init__", beginning)
    patch.setattr(controller.Controller, "_take_out_damaged", lambda *_: None)


def a_returning_member_does_not_lead(patch: Patch) -> None:
    """A partition without a leader gets none when its last member returns."""
    patch.setattr(elections, "return_changes", lambda *_: iter(()))


def answers_do_not_wait_for_the_commit(patch: Patch) -> None:
    """The controller answers as soon as it has appended, before the commit."""

    def answer(self: Any) -> None:
        while self._waiting:
            self._effects.append(self._waiting.popleft()[1])

    patch.setattr(controller.Controller, "_answer_committed", answer)
