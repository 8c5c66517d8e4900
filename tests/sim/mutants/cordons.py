"""Controllers that place replicas on cordoned nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from replication.controller import image as cluster_image
from replication.controller import reassignment, topics
from replication.controller.placement import refuse_replicas
from tests.sim import cordon_stories
from tests.sim.mutants.mutant import Mutant, Patch


def new_partitions_are_placed_on_cordoned_nodes(patch: Patch) -> None:
    """The placement of new partitions counts cordoned nodes as usable."""
    patch.setattr(topics, "_usable", lambda image: list(image.nodes.values()))


def a_move_to_a_cordoned_node_begins(patch: Patch) -> None:
    """A reassignment may name a cordoned node."""

    def refusing(image: Any, name: str, replicas: Any, *, present: Any = ()) -> None:
        refuse_replicas(image, name, replicas, present=replicas)

    patch.setattr(reassignment, "refuse_replicas", refusing)


def a_cordon_ends_with_its_registration(patch: Patch) -> None:
    """A node that registers again is not cordoned any more."""
    register = cluster_image.register

    def registering(offset: Any, record: Any, previous: Any) -> Any:
        return replace(register(offset, record, previous), cordoned=False)

    patch.setattr(cluster_image, "register", registering)


def cordoned_directories_are_chosen(patch: Patch) -> None:
    """A new replica may get any directory of its node."""
    patch.setattr(cluster_image.NodeRegistration, "open_directories", property(lambda node: node.directories))


PLACED: Final = r"has a new replica on node 3, which is cordoned"

MUTANTS: Final = (
    Mutant(
        new_partitions_are_placed_on_cordoned_nodes,
        "KIP-1066",
        cordon_stories.cordoned_node_gets_no_replica,
        PLACED,
    ),
    Mutant(
        a_move_to_a_cordoned_node_begins,
        "KIP-1066",
        cordon_stories.cordoned_node_gets_no_replica,
        PLACED,
    ),
    Mutant(
        a_cordon_ends_with_its_registration,
        "KIP-1066",
        cordon_stories.cordon_outlives_the_controller_and_the_node,
        "a registration ended the cordon",
    ),
    Mutant(
        cordoned_directories_are_chosen,
        "KIP-1066",
        cordon_stories.cordoned_directory_gets_no_replica,
        "in a log directory that is cordoned",
    ),
)
