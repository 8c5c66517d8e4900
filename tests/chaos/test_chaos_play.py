"""What a run notices of its nodes between the faults, without a cluster."""

from __future__ import annotations

from typing import cast

import pytest

from node.process.local_cluster import ClusterFailed
from tests.chaos.history import now
from tests.chaos.nodes import Nodes
from tests.chaos.play import Played, PlayedBand, play_round
from tests.chaos.schedule import Band, Round


class _Processes:
    """As much of `Nodes` as a round with a kill needs."""

    def __init__(self) -> None:
        self.count = 2
        self.running = {0, 1}

    def is_running(self, node: int) -> bool:
        return node in self.running

    def ensure_running(self) -> None:
        if len(self.running) < self.count:
            raise ClusterFailed("node 1 has ended")

    def kill(self, *nodes: int) -> None:
        self.running -= set(nodes)

    def start(self, node: int) -> None:
        self.running.add(node)


def test_a_node_that_ends_in_the_quiet_time_is_noticed_before_a_kill_hides_it() -> None:
    processes, said, played = _Processes(), list[str](), Played(now())
    nodes = cast("Nodes", processes)
    kill = Round((Band("kill", (1,), 0, 0, 0),), needs_in_sync=False)
    play_round(nodes, kill, now(), played, said.append)
    assert len(played.spans) == 1

    processes.running.remove(1)
    with pytest.raises(ClusterFailed, match="node 1 has ended"):
        play_round(nodes, kill, now(), played, said.append)

    played.bands.append(PlayedBand("memory", (1,), "", now(), now()))
    play_round(nodes, kill, now(), played, said.append)
    assert any("node 1 has ended a moment after memory: started again" in line for line in said)
    assert len(played.spans) == 2
