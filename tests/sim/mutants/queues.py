"""Controllers that break a rule of queued moves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from replication.controller import auto_rebalance, image_records, move_queue, reassignment
from replication.controller import image as cluster_image
from tests.sim import move_queue_stories
from tests.sim.mutants.mutant import Mutant, Patch


def a_wave_begins_every_move(patch: Patch) -> None:
    """A wave does not count what each node fetches."""
    next_wave = move_queue.next_wave
    patch.setattr(move_queue, "next_wave", lambda image, _moves_per_node: next_wave(image, 1_000))


def a_cancel_leaves_the_queue(patch: Patch) -> None:
    """Only the reassignment in progress is cancelled."""
    begin = reassignment.begin

    def beginning(image: Any, state: Any, wanted: Any, chooser: Any) -> Any:
        change = begin(image, state, wanted, chooser)
        return replace(change, queued=None) if wanted.cancel and change is not None else change

    patch.setattr(reassignment, "begin", beginning)


def a_move_to_a_fenced_node_is_dropped(patch: Patch) -> None:
    """A move whose turn comes while its new node is down is refused for good."""
    patch.setattr(move_queue, "_is_away", lambda _image, _node_id: False)


def a_snapshot_forgets_the_queue(patch: Patch) -> None:
    """Snapshots of the metadata lack the queued moves."""
    fields_of = cluster_image.partition_fields
    patch.setattr(image_records, "partition_fields", lambda state: fields_of(state)[:-1])


def a_failure_is_answered_with_moves(patch: Patch) -> None:
    """Nodes that are down, and replicas that are not in sync, do not keep the controller from planning moves."""

    def at_rest(topic: Any) -> bool:
        return not any(state.queued or state.adding or state.removing for state in topic.partitions)

    patch.setattr(auto_rebalance, "_is_at_rest", at_rest)
    patch.setattr(auto_rebalance, "_are_in_service", lambda _image: True)


def a_plan_is_due_at_once(patch: Patch) -> None:
    """Nodes need not have been uneven for a while."""
    init = auto_rebalance.AutoRebalance.__init__
    patch.setattr(auto_rebalance.AutoRebalance, "__init__", lambda self, _delay_ms: init(self, 0))


MUTANTS: Final = (
    Mutant(
        a_failure_is_answered_with_moves,
        "queue",
        move_queue_stories.new_node_gets_its_share,
        "moves are planned while a node is down",
    ),
    Mutant(
        a_plan_is_due_at_once,
        "queue",
        move_queue_stories.new_node_gets_its_share,
        "moves are planned at once",
    ),
    Mutant(
        a_wave_begins_every_move,
        "queue",
        move_queue_stories.waves_outlive_controller_source_and_target,
        r"fetches \d partitions that waves have begun to move, and may fetch 1",
    ),
    Mutant(
        a_move_to_a_fenced_node_is_dropped,
        "queue",
        move_queue_stories.queue_outlives_all_nodes,
        "some queued moves were forgotten",
    ),
    Mutant(
        a_cancel_leaves_the_queue,
        "queue",
        move_queue_stories.cancelled_queue_begins_nothing,
        "a cancelled move has begun",
    ),
    Mutant(
        a_snapshot_forgets_the_queue,
        "queue",
        move_queue_stories.queue_outlives_all_nodes,
        "some queued moves were forgotten",
    ),
)
