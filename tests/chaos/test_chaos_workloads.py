"""A worker that needs more nodes than the short runs have does its work."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.chaos.history import Event, History, Step
from tests.chaos.process_nodes import ProcessNodes
from tests.chaos.workloads.administrators import drain_and_rebalance
from tests.chaos.workloads.work import Work, pause

NODES = 4
WAIT_S = 120.0


class Noted(History):
    """Keeps the events instead of writing them."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, event: Event) -> None:
        self.events.append(event)

    def steps(self) -> list[str]:
        return [each.what for each in self.events if isinstance(each, Step)]


@pytest.mark.integration
@pytest.mark.deep
async def test_a_node_is_emptied_and_gets_replicas_again(tmp_path: Path) -> None:
    """Above 10 s: four real nodes start, and 12 replicas leave one of them and come back."""
    nodes = ProcessNodes(tmp_path / "nodes", NODES)
    try:
        nodes.wait_healthy(WAIT_S)
        nodes.create_topic("orders", 16, 3)
        noted = Noted()
        work = Work(nodes.addresses.bootstrap, nodes.addresses.kafka_bootstrap, NODES, 1, noted)
        async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(drain_and_rebalance(work, "drains"))
            while not any("rebalanced" in each for each in noted.steps()):
                await pause(work.stopping_producers, 0.1)
            work.stopping_producers.set()
    finally:
        nodes.close()
    left, emptied, back = noted.steps()[:3]
    assert left.startswith("12 replicas leave node")
    assert emptied.endswith("has 0 replicas left")
    assert back == "12 of 12 replicas rebalanced"
