"""Plans even out the load of nodes: leaderships first, then replicas, and nothing else becomes less even."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.planned_clusters import after, held, leads, nodes_in, racks_used
from tidelog.balancing.load_planner import SLACK
from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, plan_moves
from tidelog.balancing.node_shares import node_shares
from tidelog.types import NodeId, PartitionIndex, TopicPartition

MB = 1_000_000


def loaded(
    index: int, replicas: Sequence[int], bytes_in: int = 0, bytes_out: int = 0, size: int = 1
) -> PlacedPartition:
    return PlacedPartition(
        TopicPartition("t", PartitionIndex(index)),
        tuple(map(NodeId, replicas)),
        size,
        bytes_in=bytes_in,
        bytes_out=bytes_out,
    )


def load(nodes: Sequence[BalancedNode], partitions: Sequence[PlacedPartition]) -> list[int]:
    """Of each node that takes replicas."""
    shares = node_shares(nodes, partitions)
    return [shares[node.node_id].load for node in nodes if node.takes_replicas]


def moved(partitions: Sequence[PlacedPartition], planned: Sequence[PlacedPartition]) -> list[PlacedPartition]:
    """The partitions after it, with the load that they had."""
    return [
        PlacedPartition(each.partition, now.replicas, each.size_bytes, now.log_dirs, each.bytes_in, each.bytes_out)
        for each, now in zip(partitions, planned, strict=True)
    ]


def planned_for(nodes: Sequence[BalancedNode], partitions: Sequence[PlacedPartition]) -> list[PlacedPartition]:
    return moved(partitions, after(partitions, plan_moves(nodes, partitions)))


def without_load(partitions: Sequence[PlacedPartition]) -> list[PlacedPartition]:
    return [PlacedPartition(each.partition, each.replicas, each.size_bytes) for each in partitions]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BalancedNode], list[PlacedPartition]]:
    racks = draw(st.lists(st.sampled_from("ab"), min_size=2, max_size=6))
    nodes = [
        BalancedNode(NodeId(number), rack, takes_replicas=not number or draw(st.booleans()))
        for number, rack in enumerate(racks)
    ]
    replicas = st.lists(st.sampled_from(range(len(nodes))), min_size=1, max_size=3, unique=True)
    rates = st.integers(0, 40).map(lambda rate: rate * MB)
    drawn = draw(st.lists(st.tuples(replicas, rates, rates, st.integers(0, 1_000)), max_size=40))
    return nodes, [loaded(index, *each) for index, each in enumerate(drawn)]


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_load_makes_nothing_else_less_even(cluster: tuple[list[BalancedNode], list[PlacedPartition]]) -> None:
    """The node with the most replicas or leaderships has no more than in the plan without load, the one with the fewest
    no fewer; nothing moves to a node that takes none, and no partition uses fewer racks. The highest load is no
    higher."""
    nodes, partitions = cluster
    blind = moved(partitions, after(partitions, plan_moves(nodes, without_load(partitions))))
    planned = planned_for(nodes, partitions)
    takers = [node.node_id for node in nodes if node.takes_replicas]
    for count in (held, leads):
        expected, found = ([count(each)[node] for node in takers] for each in (blind, planned))
        assert max(found) <= max(expected)
        assert min(found) >= min(expected)
    for before, now in zip(blind, planned, strict=True):
        assert len({*now.replicas}) == len(before.replicas)
        assert {*now.replicas} - {*before.replicas} <= {*takers}
        assert racks_used(nodes, now.replicas) >= racks_used(nodes, before.replicas)
    assert max(load(nodes, planned)) <= max(load(nodes, blind))


@settings(max_examples=100, deadline=None)
@given(clusters())
def test_a_second_plan_for_the_same_load_moves_nothing(
    cluster: tuple[list[BalancedNode], list[PlacedPartition]],
) -> None:
    nodes, partitions = [BalancedNode(node.node_id, "", node.takes_replicas) for node in cluster[0]], cluster[1]
    planned = planned_for(nodes, partitions)
    assert not [move for move in plan_moves(nodes, planned) if move.adding]


def test_leaderships_move_before_replicas() -> None:
    """Consumers read from what node 0 leads; node 1 has a replica of each."""
    nodes = nodes_in("", "")
    partitions = [loaded(index, [index % 2, 1 - index % 2], MB, 0 if index % 2 else 10 * MB) for index in range(8)]
    assert load(nodes, partitions) == [48 * MB, 8 * MB]
    moves = plan_moves(nodes, partitions)
    assert sum(move.moved_bytes for move in moves) == 0
    planned = planned_for(nodes, partitions)
    assert load(nodes, planned) == [28 * MB, 28 * MB]
    assert leads(planned) == {0: 4, 1: 4}


def test_replicas_are_exchanged_for_few_bytes() -> None:
    """What is written is the same load for each replica: only another place of it helps."""
    nodes = nodes_in("", "")
    written = [loaded(index, [0], 10 * MB, size=1_000 - index) for index in range(4)]
    idle = [loaded(index, [1], size=100 + index) for index in range(4, 8)]
    moves = plan_moves(nodes, [*written, *idle])
    assert load(nodes, planned_for(nodes, [*written, *idle])) == [20 * MB, 20 * MB]
    assert {str(move.partition): move.after for move in moves} == {"t-2": (1,), "t-3": (1,), "t-4": (0,), "t-5": (0,)}


def test_a_small_difference_moves_nothing() -> None:
    nodes = nodes_in("", "")
    for most in (2 * SLACK, 0):
        partitions = [loaded(0, [0], most), loaded(1, [1]), loaded(2, [0]), loaded(3, [1])]
        assert plan_moves(nodes, partitions) == []
    even_enough = [loaded(0, [0], 54 * MB), loaded(1, [1], 46 * MB), loaded(2, [0], 54 * MB), loaded(3, [1], 46 * MB)]
    assert plan_moves(nodes, even_enough) == []


def test_one_partition_with_most_of_the_load_stays_where_it_is() -> None:
    nodes = nodes_in("", "", "")
    partitions = [loaded(0, [0], 90 * MB), *(loaded(index, [index % 3]) for index in range(1, 9))]
    assert plan_moves(nodes, partitions) == []


def test_the_load_of_a_hundred_nodes_with_fifty_thousand_partitions_is_even_within_seconds() -> None:
    """Some topics are read and written far more than others, and led by a few nodes."""
    rng, nodes = random.Random(1), nodes_in(*[""] * 100)
    partitions = []
    for index in range(50_000):
        first = index % 100
        rate = min(rng.paretovariate(1.2), 100) * 20_000 * (4 if first < 20 else 1)
        replicas = [(first + step * 31) % 100 for step in range(3)]
        partitions.append(loaded(index, replicas, int(rate), int(2 * rate), size=rng.randrange(1_000_000)))
    before = load(nodes, partitions)
    began = time.process_time()
    planned = planned_for(nodes, partitions)
    assert time.process_time() - began < 40
    found = load(nodes, planned)
    assert max(before) > 1.5 * sum(before) / 100
    assert max(found) < 1.3 * sum(found) / 100
    moved_bytes = sum(
        now.size_bytes for old, now in zip(partitions, planned, strict=True) if {*old.replicas} != {*now.replicas}
    )
    assert moved_bytes < 0.02 * sum(each.size_bytes for each in partitions)
    counts = held(planned)
    assert max(counts.values()) - min(counts.values()) <= 1
