"""Every fault bites: while it lasts its effect is seen from outside, and after its end the cluster is healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from node.process.local_cluster import ClusterFailed
from tests.chaos.bites import BITES, TOPIC, Observer
from tests.chaos.faults.table import FAULTS, KINDS, chosen
from tests.chaos.faults.upgrades import change_version
from tests.chaos.history import now
from tests.chaos.other_version import for_processes
from tests.chaos.play import ENDS_LATE_S, PlayedBand, ensure_nodes_running
from tests.chaos.process_nodes import ProcessNodes
from tests.chaos.schedule import EVERY_NODE, Band
from tidelog import Producer

NODES = 3
PARTITIONS = 6
HEALTHY_S = 120
POSSIBLE = [kind.name for kind in KINDS if kind.name not in ProcessNodes.cannot]


@pytest.fixture(scope="module")
def nodes(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessNodes]:
    other = for_processes(str(wheel), tmp_path_factory.mktemp("other"))
    made = ProcessNodes(tmp_path_factory.mktemp("nodes"), NODES, other)
    try:
        made.wait_healthy(HEALTHY_S)
        change_version(made, range(NODES), other=False)
        made.wait_healthy(HEALTHY_S)
        made.create_topic(TOPIC, PARTITIONS, NODES, durability="fsync", message_timestamp_type="LogAppendTime")
        asyncio.run(_write(made.addresses.bootstrap))
        yield made
    finally:
        made.close()


async def _write(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(300):
            await producer.enqueue(TOPIC, b"record %d" % number, partition=number % PARTITIONS)


@pytest.mark.integration
@pytest.mark.deep
@pytest.mark.parametrize("name", POSSIBLE)
def test_a_fault_bites_and_ends(nodes: ProcessNodes, name: str) -> None:
    """Some seconds for each fault, on real processes: its effect is observed, then the cluster recovers."""
    kind = FAULTS[name].kind
    nodes.wait_healthy(HEALTHY_S)
    last = nodes.controller()
    # The controller is the peer of a cut between two, since it notices; others are struck for the same reason.
    first = next(node for node in range(NODES) if node != last)
    order = [first, *(node for node in range(NODES) if node not in (first, last)), last]
    victims = order if kind.victims == EVERY_NODE else [first, last][: kind.victims]
    band = Band(name, tuple(victims), 0, 0, 0)
    look = Observer(nodes, band)
    look.take_leaderships()
    look.what = FAULTS[name].begin(nodes, band, Random(7))
    try:
        assert BITES[name](look), f"{name} ({look.what}) has no effect"
    finally:
        FAULTS[name].end(nodes, band)
    nodes.wait_healthy(HEALTHY_S)


@pytest.mark.integration
@pytest.mark.deep
def test_a_node_that_ends_by_itself_fails_the_run_unless_its_fault_explains_it(nodes: ProcessNodes) -> None:
    """Some seconds: a real node ends after a round. A later kill of the same node would hide that."""
    nodes.wait_healthy(HEALTHY_S)
    said: list[str] = []
    nodes.kill(1)
    long_ago = now() - ENDS_LATE_S
    for name, node, end in (("pause", 1, now()), ("memory", 2, now()), ("memory", 1, long_ago)):
        with pytest.raises(ClusterFailed, match="node 1 has ended"):
            ensure_nodes_running(nodes, [PlayedBand(name, (node,), "", end - 1, end)], said.append)
    ensure_nodes_running(nodes, [PlayedBand("memory", (1,), "", now() - 1, now())], said.append)
    assert said == ["node 1 has ended a moment after memory: started again"]
    nodes.wait_healthy(HEALTHY_S)


def test_every_possible_fault_has_a_check_of_its_effect() -> None:
    assert set(BITES) == set(POSSIBLE)


def test_a_fault_that_is_unknown_or_impossible_is_refused_and_says_why() -> None:
    with pytest.raises(ValueError, match="there is no fault flood: the faults are kill, "):
        chosen(["kill", "flood"], {})
    with pytest.raises(ValueError, match=r"the fault loss is impossible here: .* no packets"):
        chosen(["loss"], ProcessNodes.cannot)
    assert [kind.name for kind in chosen([], ProcessNodes.cannot)] == POSSIBLE
