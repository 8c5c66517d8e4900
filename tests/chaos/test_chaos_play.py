"""What a run notices of its nodes between the faults, without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import cast

import pytest

from node.process.local_cluster import ClusterFailed
from tests.chaos.faults.table import FAULTS
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


class _Updated:
    """As much of `Nodes` as a rolling restart needs: a node is ready at once, and in sync when it was asked twice."""

    def __init__(self) -> None:
        self.behind: dict[int, int] = {}
        self.stopped: list[int] = []

    def terminate(self, node: int) -> None:
        assert not any(self.behind.values()), f"node {node} is stopped before the one before it is in sync"
        self.stopped.append(node)

    def start(self, node: int) -> None:
        self.behind[node] = 2

    def has_caught_up(self, node: int) -> bool:
        self.behind[node] -= 1
        return self.behind[node] == 0

    def wait_until(self, reached: Callable[[], object], within_s: float, what: str) -> None:
        while not reached():
            assert within_s > 0


def test_a_rolling_restart_waits_as_the_manifests_do_until_a_node_is_in_sync_again() -> None:
    updated = _Updated()
    FAULTS["rolling-restart"].begin(cast("Nodes", updated), Band("rolling-restart", (2, 0, 1), 0, 1, 0), Random(1))
    assert updated.stopped == [2, 0, 1]
