"""A seed becomes a schedule: repeatable, complete, and never so that two faults together may lose what was promised."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.chaos.__main__ import again_by
from tests.chaos.faults.table import KINDS, chosen
from tests.chaos.process_nodes import ProcessNodes
from tests.chaos.schedule import EVERY_NODE, QUIET_S, WARM_UP_S, Band, Kind, may_overlap, plan

BY_NAME = {kind.name: kind for kind in KINDS}
SEEDS = some.integers(0, 1 << 31)
SIZES = some.sampled_from((3, 5))


def overlap(one: Band, other: Band) -> bool:
    return one.begin < other.end and other.begin < one.end


@given(seed=SEEDS, seconds=some.floats(10, 900), nodes=SIZES)
def test_faults_overlap_at_most_by_twos_on_different_nodes_and_end_in_time(
    seed: int, seconds: float, nodes: int
) -> None:
    rounds = plan(seed, seconds, nodes, KINDS)
    bands = [band for each in rounds for band in each.bands]
    for each in rounds:
        assert 1 <= len(each.bands) <= 2
    for one, other in combinations(bands, 2):
        if overlap(one, other):
            assert not set(one.nodes) & set(other.nodes)
    for band in bands:
        kind = BY_NAME[band.kind]
        assert WARM_UP_S <= band.begin < band.end <= seconds
        assert len(set(band.nodes)) == (kind.victims or nodes)
        assert set(band.nodes) <= set(range(nodes))
    for before, after in pairwise(rounds):
        assert after.begin - before.end >= QUIET_S[0] - 1e-6


@given(seed=SEEDS, nodes=SIZES)
def test_data_are_taken_only_while_no_other_node_may_be_behind(seed: int, nodes: int) -> None:
    for each in plan(seed, 900, nodes, KINDS):
        taking = [band for band in each.bands if BY_NAME[band.kind].takes_data]
        assert each.needs_in_sync == bool(taking)
        if taking:
            others = [BY_NAME[band.kind] for band in each.bands if band is not taking[0]]
            assert not any(kind.takes_data or kind.takes_out for kind in others)


@given(seed=SEEDS, nodes=SIZES)
def test_every_kind_comes_before_any_comes_again(seed: int, nodes: int) -> None:
    names = [band.kind for each in plan(seed, 3_600, nodes, KINDS) for band in each.bands]
    assert set(names[: len(KINDS)]) == set(BY_NAME)


@given(seed=SEEDS, nodes=SIZES)
def test_a_seed_repeats_its_schedule_and_a_longer_run_continues_it(seed: int, nodes: int) -> None:
    rounds = plan(seed, 300, nodes, KINDS)
    assert plan(seed, 300, nodes, KINDS) == rounds
    assert plan(seed, 600, nodes, KINDS)[: len(rounds)] == rounds


def test_the_command_that_is_said_plans_the_same_where_other_faults_are_possible() -> None:
    """A checkout without a release leaves out the upgrade, and a seed alone gives another schedule there."""
    kinds = chosen([], ProcessNodes.cannot)
    rounds = plan(7, 600, 5, kinds)
    assert plan(7, 600, 5, [kind for kind in kinds if kind.name != "rolling-upgrade"]) != rounds
    said = dict(word.partition("=")[::2] for word in again_by(7, 10, 5, "process", kinds).split())
    named = chosen(said["FAULTS"].split(","), {})
    assert plan(int(said["SEED"]), float(said["MINUTES"]) * 60, int(said["NODES"]), named) == rounds


def test_only_the_named_kinds_come() -> None:
    chosen = [BY_NAME["kill"], BY_NAME["pause"]]
    assert {band.kind for each in plan(7, 300, 3, chosen) for band in each.bands} == {"kill", "pause"}


def test_what_needs_more_nodes_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="no fault is possible with 1 nodes: name others"):
        plan(1, 60, 1, [Kind("kill-two", (1, 2), victims=2)])


def test_an_absence_beside_a_loss_may_not_overlap() -> None:
    wipe, flip = Kind("wipe", (1, 2), takes_data=True), Kind("flip", (1, 2), takes_data=True)
    kill, slow = Kind("kill", (1, 2), takes_out=True), Kind("slow", (1, 2))
    assert not may_overlap(wipe, kill, 5)
    assert not may_overlap(kill, wipe, 5)
    assert not may_overlap(wipe, flip, 5)
    assert may_overlap(wipe, slow, 5)
    assert may_overlap(kill, slow, 5)
    assert not may_overlap(slow, Kind("kill-all", (1, 2), victims=EVERY_NODE), 5)
