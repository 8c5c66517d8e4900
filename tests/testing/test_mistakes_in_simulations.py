"""What a test gets that uses `tidelog.testing.Simulation` wrongly: an error at the call with the mistake."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

import tidelog
from tidelog.errors import InvalidConfig, InvalidTopic, TopicExists
from tidelog.records import Record
from tidelog.testing import Simulation


async def sell(bootstrap: str) -> None:
    async with tidelog.Producer(bootstrap) as producer:
        await producer.send("orders", b"1")


def test_a_topic_that_is_refused_says_why() -> None:
    with Simulation(1) as world:
        world.create_topic("orders")
        with pytest.raises(TopicExists, match="orders already exists"):
            world.create_topic("orders")
        with pytest.raises(InvalidTopic, match="two words"):
            world.create_topic("two words")
        with pytest.raises(InvalidConfig, match=r'unknown topic setting "retention"'):
            world.create_topic(retention="1000")
        with pytest.raises(TypeError, match=r'the value of retention_ms must be a str, not 5: retention_ms="5"'):
            world.create_topic(retention_ms=cast("str", 5))
        assert world.now < 1.0, "no refusal was waited for"


def test_results_that_are_no_list_of_values_are_refused() -> None:
    """Bytes are a sequence of numbers: a pipeline seemed to have lost results that no record has."""
    wrong: Iterable[Any]
    with Simulation(1) as world:
        world.create_topic("orders")
        world.create_topic("invoices")
        world.run(world.start(sell, world.bootstrap))
        for wrong in (b"invoice", b"", "invoice", ["invoice"], [1]):

            def results(_: Record, wrong: Iterable[Any] = wrong) -> Iterable[Any]:
                return wrong

            with pytest.raises(TypeError, match="results must return a list of the values of records"):
                world.check_exactly_once("orders", "invoices", results)


def test_a_call_in_place_of_a_function_is_refused() -> None:
    with Simulation(1) as world, pytest.raises(TypeError, match=r"pass the function and its arguments, start\(sell"):
        world.start(cast("Any", sell(world.bootstrap)))


def test_faults_that_there_are_not_are_refused() -> None:
    with Simulation(1) as world:
        for call in (world.kill, world.restart, world.cut_off, world.fill_disk, world.free_disk, world.power_off):
            with pytest.raises(ValueError, match="there is no node 3: the nodes are 0, 1, 2"):
                call(3)
        for share in (-0.1, 2):
            with pytest.raises(ValueError, match="share must be from 0 to 1"):
                world.lose_messages(share)
        with pytest.raises(ValueError, match="factor must be 0 or more, not -1"):
            world.slow_disk(0, -1)
        for run in (world.run_for, world.disturb):
            with pytest.raises(ValueError, match="seconds must be 0 or more, not -1"):
                run(-1)


@pytest.mark.parametrize(("nodes", "voters"), [(0, 1), (3, 0), (3, 5)])
def test_a_cluster_that_there_cannot_be_is_refused(nodes: int, voters: int) -> None:
    with pytest.raises(ValueError, match=f"not {nodes} and {voters}"):
        Simulation(1, nodes=nodes, voters=voters)
