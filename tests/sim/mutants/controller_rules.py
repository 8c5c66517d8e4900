"""Controllers that break a rule of eligible replicas, reassignment, draining, or changes of topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from node.metadata import metadata_snapshots
from node.replicas.log_registry import LogRegistry
from node.replicas.replica_manager import ReplicaManager
from replication.controller import (
    alter_partition,
    controller,
    elections,
    image_records,
    reassignment,
    registration,
    topics,
    unclean,
)
from replication.controller.events import HeartbeatAnswer
from replication.controller.metadata_records import PartitionChangeRecord
from replication.controller.placement import DirectoryChooser
from storage.log import log as storage_log
from tests.sim.mutants.mutant import Patch
from tidelog.errors import TidelogError
from tidelog.types import NO_NODE


def every_leaving_member_is_eligible(patch: Patch) -> None:
    """A member that leaves the set stays eligible, even when the set continues without it."""

    def eligible_beside(image: Any, state: Any, isr: Any, lost: Any = ()) -> Any:
        had = {*state.elr, *state.isr}
        return tuple(node for node in state.replicas if node in had and node not in isr and node not in lost)

    patch.setattr(elections, "eligible_beside", eligible_beside)


def no_replica_is_eligible(patch: Patch) -> None:
    """KIP-966 undone: after the last member has left, the partition has no leader until that member returns."""
    patch.setattr(elections, "eligible_beside", lambda *_: ())


def an_emptied_node_stays_in_its_sets(patch: Patch) -> None:
    """A registration is accepted without a comparison of its directories with those that contained the records."""
    patch.setattr(registration._Judge, "_has_lost", lambda self, state: False)


def a_new_minimum_raises_no_epoch(patch: Patch) -> None:
    """A change of settings is a record of its own and does not raise the partition epochs."""
    change = topics.records_of_change
    patch.setattr(topics, "records_of_change", lambda image, topic, configs: change(image, topic, configs)[:1])


def an_eligible_set_outlives_its_minimum(patch: Patch) -> None:
    """A new minimum raises the partition epochs and leaves the eligible replicas as they are."""
    patch.setattr(
        topics, "_with_new_minimum", lambda image, state: PartitionChangeRecord(state.topic_id, state.partition)
    )


def any_live_replica_leads(patch: Patch) -> None:
    """Unclean elections take place even if the topic does not allow them."""
    patch.setattr(
        unclean, "wanted", lambda image, state: state.leader == NO_NODE and bool(unclean.present(image, state))
    )


def replicas_are_removed_before_others_are_in_sync(patch: Patch) -> None:
    """A reassignment is complete as soon as it begins."""

    def finished(image: Any, state: Any) -> Any:
        if not state.adding:
            return None
        target = tuple(node for node in state.replicas if node not in state.removing)
        change = reassignment._become(image, replace(state, isr=target), target, DirectoryChooser(image))
        return None if change is None else replace(change, isr=target)

    patch.setattr(reassignment, "finished", finished)


def a_replica_is_removed_within_an_epoch(patch: Patch) -> None:
    """A reassignment that removes a replica leaves the leader in its epoch."""
    become = reassignment._become

    def becoming(image: Any, state: Any, *given: Any, **more: Any) -> Any:
        change = become(image, state, *given, **more)
        return change if change is None or change.leader != state.leader else replace(change, leader=None)

    patch.setattr(reassignment, "_become", becoming)


def a_damaged_replica_restarts_within_an_epoch(patch: Patch) -> None:
    """A replica that lost durable records is removed from the sets within the leader epoch, so that its earlier reports
    stay valid."""

    def taken_out(image: Any, state: Any, node_id: Any, used_in: Any) -> Any:
        return elections.moved_away(image, state, node_id, lost=True)

    def begins_again(self: Any, partition: Any, state: Any) -> bool:
        return begin(self, partition, replace(state, leader_epoch=partition.used_in + 1))

    begin = ReplicaManager._set_aside_unfit
    patch.setattr(elections, "taken_out", taken_out)
    patch.setattr(ReplicaManager, "_set_aside_unfit", begins_again)


def a_replica_continues_in_any_directory(patch: Patch) -> None:
    """A node continues with a log whichever log directory the metadata name."""

    def why_unfit(self: Any, directory: Any, log: Any, state: Any) -> Any:
        return None if log.damage is None or directory.offline is not None else "damaged"

    patch.setattr(LogRegistry, "why_unfit", why_unfit)


def the_last_member_may_leave(patch: Patch) -> None:
    """A drain removes its node from every in-sync set, even as the last member."""

    def moved_away(image: Any, state: Any, node_id: Any, *, lost: bool = False) -> Any:
        if node_id not in state.isr:
            return None
        staying = tuple(node for node in state.isr if node != node_id)
        if staying:
            return elections.reformed(image, state, staying)
        return PartitionChangeRecord(state.topic_id, state.partition, leader=NO_NODE, isr=(), elr=())

    patch.setattr(elections, "moved_away", moved_away)


def a_fenced_node_is_not_marked_as_stopped(patch: Patch) -> None:
    """A fenced node that stops needs no drain, and its state is not changed."""
    drain = controller.Controller._drain

    def draining(self: Any, node: Any, at: Any) -> Any:
        return drain(self, node, at) if not node.fenced else HeartbeatAnswer(fenced=True, drained=True)

    patch.setattr(controller.Controller, "_drain", draining)


def a_drain_does_not_wait_for_other_nodes(patch: Patch) -> None:
    """A drain ends when the leaderships have moved in the metadata, before the other nodes have applied it."""
    patch.setattr(controller.Controller, "_all_have_applied", lambda self, offset, *, but: True)


def a_fenced_node_is_admitted(patch: Patch) -> None:
    """KIP-841 undone: a proposal may contain fenced nodes."""
    refuse = alter_partition._refuse_ineligible

    def refuse_ineligible(image: Any, state: Any, leader: Any, member: Any) -> None:
        nodes = {node_id: replace(node, fenced=False, draining=False) for node_id, node in image.nodes.items()}
        refuse(replace(image, nodes=nodes), state, leader, member)

    patch.setattr(alter_partition, "_refuse_ineligible", refuse_ineligible)


def replicas_on_dead_nodes_are_in_sync(patch: Patch) -> None:
    """Every replica of a new partition is in sync from the start, whether or not its node runs."""
    make = topics._new_partition

    def new_partition(image: Any, topic_id: Any, index: Any, replicas: Any, chooser: Any) -> Any:
        return replace(make(image, topic_id, index, replicas, chooser), isr=replicas)

    patch.setattr(topics, "_new_partition", new_partition)


def a_stale_incarnation_is_admitted(patch: Patch) -> None:
    """KIP-903 undone: a proposal names nodes without their incarnations."""
    refuse = alter_partition._refuse_ineligible

    def refuse_ineligible(image: Any, state: Any, leader: Any, member: Any) -> None:
        refuse(image, state, leader, replace(member, node_epoch=image.nodes[member.node_id].node_epoch))

    patch.setattr(alter_partition, "_refuse_ineligible", refuse_ineligible)


def any_epochs_proposal_is_accepted(patch: Patch) -> None:
    """A proposal is accepted without a comparison of its epochs and of its sender."""
    patch.setattr(alter_partition, "_refuse_stale", lambda state, leader, proposal: None)


def an_unclean_leader_keeps_the_old_sets(patch: Patch) -> None:
    """An unclean election sets the leader and keeps the in-sync set."""
    choose = unclean.choose

    def keeps(image: Any, state: Any, ends: Any) -> Any:
        chosen = choose(image, state, ends)
        members = tuple(node for node in state.replicas)
        return None if chosen is None else replace(chosen, change=replace(chosen.change, isr=members))

    patch.setattr(unclean, "choose", keeps)


def proposals_are_judged_by_what_is_committed(patch: Patch) -> None:
    """The controller checks a proposal against the committed image, without its own uncommitted records."""
    batch_of = controller.Controller._batch

    @contextmanager
    def appending(self: Any, *cause: Any) -> Iterator[Any]:
        self.__dict__.setdefault("_images", [self.image])
        with batch_of(self, *cause) as batch:
            yield batch
        self._images.append(self.image)

    def judge(self: Any, batch: Any, leader: Any, proposal: Any) -> Any:
        images = self.__dict__.get("_images", [batch.image])
        image = max((each for each in images if each.offset <= self._committed), key=lambda each: each.offset)
        try:
            batch.add([alter_partition.judge(image, leader, proposal)])
        except TidelogError as refusal:
            return refusal
        return None

    patch.setattr(controller.Controller, "_batch", appending)
    patch.setattr(controller.Controller, "_judge", judge)


def durability_may_change(patch: Patch) -> None:
    """The durability of a topic may change after its creation."""

    def reconfigure(self: Any, config: Any) -> None:
        self.config = config

    patch.setattr(topics, "altered", lambda configs, changes: {**configs, **{each.key: each.value for each in changes}})
    patch.setattr(storage_log.Log, "reconfigure", reconfigure)


def preferred_leaders_are_elected_on_command_only(patch: Patch) -> None:
    """Preferred leaders are elected on command only."""
    patch.setattr(elections, "rebalance_changes", lambda *_: iter(()))


def a_preferred_replica_leads_out_of_sync(patch: Patch) -> None:
    """A preferred leader is elected as soon as its node is unfenced, even if it is not in sync."""

    def preferred_change(_image: Any, state: Any) -> PartitionChangeRecord:
        return PartitionChangeRecord(state.topic_id, state.partition, leader=state.replicas[0])

    patch.setattr(elections, "preferred_change", preferred_change)


def snapshots_have_no_acls(patch: Patch) -> None:
    """A snapshot of the metadata leaves out the access control lists."""
    records_of = image_records.records_of
    patch.setattr(metadata_snapshots, "records_of", lambda image: records_of(replace(image, acls=frozenset())))
