"""Controllers that break a rule: who may lead, who may join, what a registration means, who is alive."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from node.controller import registration as node_registration
from replication.controller import alter_partition, controller, elections, registration, sessions
from replication.controller.registration import Judged
from tests.sim.mutants.mutant import Patch
from tidelog.errors import KafkaStorageError
from tidelog.types import NO_NODE


def an_epoch_outlives_its_incarnation(patch: Patch) -> None:
    """A node that comes back goes on leading in the epoch it had."""

    def nothing(*_: object) -> Iterator[Any]:
        return iter(())

    patch.setattr(registration, "judge", lambda *_: Judged((), ()))
    patch.setattr(elections, "fence_changes", nothing)
    patch.setattr(elections, "return_changes", nothing)


def a_failed_directory_is_no_news(patch: Patch) -> None:
    """A node tells of a log directory that has failed when it registers next."""
    patch.setattr(controller.Controller, "_take_directories_offline", lambda self, node, beat: node)


def a_replica_leads_without_its_directory(patch: Patch) -> None:
    """Whoever is there and unfenced is elected, whether it has its log or not."""

    def choose_leader(image: Any, state: Any, members: Any) -> Any:
        able = [node for node in state.replicas if node in members and node in image.nodes]
        return next((node for node in able if not image.nodes[node].fenced), NO_NODE)

    patch.setattr(elections, "choose_leader", choose_leader)


def a_leader_comes_from_all_replicas(patch: Patch) -> None:
    """The first replica that is alive is elected, in sync or not."""

    def choose_leader(image: Any, state: Any, members: Any) -> Any:
        able = [node for node in state.replicas if elections.electable(image, state, node)]
        return max((node for node in able if node != state.leader), default=NO_NODE)

    patch.setattr(elections, "choose_leader", choose_leader)


def a_directory_without_its_number_is_unfenced(patch: Patch) -> None:
    """A node goes on to be unfenced when a directory that it named could not take the registration's number."""

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
    """A proposal may rest on a partition epoch that is over."""
    refuse = alter_partition._refuse_stale

    def refusing(state: Any, leader: Any, proposal: Any) -> None:
        refuse(state, leader, replace(proposal, partition_epoch=state.partition_epoch))

    patch.setattr(alter_partition, "_refuse_stale", refusing)


def an_unfit_replica_is_admitted(patch: Patch) -> None:
    """Whoever a leader proposes is admitted: fenced, draining, of an earlier registration."""
    patch.setattr(alter_partition, "_refuse_ineligible", lambda *_: None)


def an_earlier_registration_is_admitted(patch: Patch) -> None:
    """A leader's proposal names nodes; which registration of them it saw does not matter (KIP-903)."""
    refuse = alter_partition._refuse_ineligible

    def refusing(image: Any, state: Any, leader: Any, member: Any) -> None:
        node = image.nodes.get(member.node_id)
        refuse(image, state, leader, member if node is None else replace(member, node_epoch=node.node_epoch))

    patch.setattr(alter_partition, "_refuse_ineligible", refusing)


def the_silent_are_not_fenced(patch: Patch) -> None:
    """A node that sends no heartbeats stays alive."""
    patch.setattr(sessions.Sessions, "take_ended", lambda _: [])


def fencing_changes_no_partition(patch: Patch) -> None:
    """A fenced node stays in its in-sync sets, and leads on."""
    patch.setattr(elections, "fence_changes", lambda *_: iter(()))


def any_directory_will_do(patch: Patch) -> None:
    """A node leads from whatever directory it has, the one with the records or another."""

    def electable(image: Any, state: Any, node_id: Any) -> bool:
        node = image.nodes.get(node_id)
        return node is not None and not node.fenced and node_id in state.replicas

    patch.setattr(elections, "electable", electable)


def a_reboot_takes_nothing(patch: Patch) -> None:
    """What a machine had in its page cache alone counts as held after it has booted again."""
    patch.setattr(registration._Judge, "_page_cache_is_lost", lambda *_: False)


def copies_of_directories_are_not_noticed(patch: Patch) -> None:
    """A directory is what its id says, whether it took part in the last registration or not."""
    begin = registration._Judge.__init__

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._older = set()

    patch.setattr(registration._Judge, "__init__", beginning)


def a_late_registration_counts(patch: Patch) -> None:
    """A process may register that has not seen its node's last registration."""
    patch.setattr(registration, "refuse_late", lambda *_: None)


def damage_is_not_named(patch: Patch) -> None:
    """A node that registers does not say what of its logs is damaged."""
    begin = registration._Judge.__init__

    def beginning(self: Any, *given: Any) -> None:
        begin(self, *given)
        self._damaged = {}

    patch.setattr(registration._Judge, "__init__", beginning)
    patch.setattr(controller.Controller, "_take_out_damaged", lambda *_: None)


def nobody_comes_back_to_lead(patch: Patch) -> None:
    """A partition without a leader does not notice that its last member is back."""
    patch.setattr(elections, "return_changes", lambda *_: iter(()))


def answers_do_not_wait_for_the_commit(patch: Patch) -> None:
    """The controller answers what it has appended, committed or not."""

    def answer(self: Any) -> None:
        while self._waiting:
            self._effects.append(self._waiting.popleft()[1])

    patch.setattr(controller.Controller, "_answer_committed", answer)
