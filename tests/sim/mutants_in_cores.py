"""The planted bugs that the pure tests of the cores notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.replication import quorum_core_stories as core_stories
from tests.replication.quorum_cluster import QuorumCluster
from tests.sim.mutants import quorum
from tests.sim.mutants.mutant import Plant


class InCores(NamedTuple):
    """Like a Mutant, for a story that needs an exact state of the disk: it runs on cores of the quorum alone, some
    of them voters."""

    plant: Plant
    story: Callable[[QuorumCluster], None]
    nodes: int
    voting: int
    says: str


IN_CORES = [
    InCores(
        quorum.older_epochs_are_committed_by_count, core_stories.figure_8, 5, 5, "the leader lacks something|committed"
    ),
    InCores(
        quorum.a_removed_voter_is_no_candidate, core_stories.leader_that_removed_itself, 3, 2, "not within 20000 ms"
    ),
    InCores(quorum.a_lost_log_votes, core_stories.voter_that_lost_its_log, 3, 3, "a committed record is missing"),
]
