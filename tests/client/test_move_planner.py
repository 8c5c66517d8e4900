"""Plans of moves: even, over racks, with few bytes, never to a node that takes no replicas."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.planned_clusters import after, held, leads, nodes_in, placed, racks_used
from tidelog.balancing.move_planner import BalancedNode, PlacedPartition, plan_moves, unplaceable
from tidelog.errors import TooFewNodes
from tidelog.types import NodeId


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BalancedNode], list[PlacedPartition]]:
    racks = draw(st.lists(st.sampled_from("abc"), min_size=2, max_size=8))
    takes = draw(st.lists(st.booleans(), min_size=len(racks), max_size=len(racks)))
    nodes = [
        BalancedNode(NodeId(number), rack, takes_replicas=taking)
        for number, (rack, taking) in enumerate(zip(racks, takes, strict=True))
    ]
    ids = list(range(len(nodes)))
    replicas = st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True)
    log_dirs = st.lists(st.sampled_from(["", "/x", "/y", "/z"]), min_size=3, max_size=3)
    drawn = draw(st.lists(st.tuples(replicas, st.integers(0, 1_000), log_dirs), max_size=40))
    return nodes, [
        placed("t", index, chosen, size, where[: len(chosen)]) for index, (chosen, size, where) in enumerate(drawn)
    ]


def in_directory(partitions: Sequence[PlacedPartition], node: int, log_dir: str) -> list[PlacedPartition]:
    """The partitions with a replica in a log directory of the node."""
    place = (NodeId(node), log_dir)
    return [each for each in partitions if place in zip(each.replicas, each.log_dirs, strict=False)]


def bytes_of(partitions: Sequence[PlacedPartition]) -> int:
    return sum(each.size_bytes for each in partitions)


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_any_plan_keeps_the_rules(cluster: tuple[list[BalancedNode], list[PlacedPartition]]) -> None:
    """Factors stay, no node is named twice, none that takes no replicas gets one, no partition uses fewer racks, and
    where two replicas share a rack, no rack with a node that takes replicas is left out."""
    nodes, partitions = cluster
    takes = {node.node_id for node in nodes if node.takes_replicas}
    moves = plan_moves(nodes, partitions)
    available = {node.rack for node in nodes if node.takes_replicas}
    for move in moves:
        assert move.before != move.after
        assert len(set(move.after)) == len(move.before)
        assert set(move.adding) <= takes
        assert racks_used(nodes, move.after) >= racks_used(nodes, move.before)
        assert move.after[0] == move.before[0] or move.after[0] in takes
    for each in after(partitions, moves):
        used = {node.rack for node in nodes if node.node_id in each.replicas}
        assert len(used) == len(each.replicas) or not available - used


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_without_racks_nodes_differ_by_one_replica_and_a_second_plan_moves_nothing(
    cluster: tuple[list[BalancedNode], list[PlacedPartition]],
) -> None:
    nodes = [BalancedNode(node.node_id, "", node.takes_replicas) for node in cluster[0]]
    partitions = cluster[1]
    takes = [node.node_id for node in nodes if node.takes_replicas]
    moves = plan_moves(nodes, partitions)
    planned = after(partitions, moves)
    counts, before = held(planned), held(partitions)
    assert max((counts[node] for node in takes), default=0) - min((counts[node] for node in takes), default=0) <= 1
    excess = sum(max(0, before[node] - counts[node]) for node in takes)
    assert sum(len(move.adding) for move in moves) == excess, "each replica that moves leaves a node that had too many"
    assert not [move for move in plan_moves(nodes, planned) if move.adding]


@settings(max_examples=60, deadline=None)
@given(clusters(), st.data())
def test_an_emptied_node_has_nothing_left_and_nothing_else_moves(
    cluster: tuple[list[BalancedNode], list[PlacedPartition]], data: st.DataObject
) -> None:
    nodes, partitions = cluster
    leaving = data.draw(st.sampled_from(nodes)).node_id
    try:
        moves = plan_moves(nodes, partitions, emptied={leaving}, evens_out=False)
    except TooFewNodes:
        able = [node.node_id for node in nodes if node.takes_replicas and node.node_id != leaving]
        assert any(leaving in each.replicas and set(able) <= set(each.replicas) for each in partitions)
        return
    assert held(after(partitions, moves))[leaving] == 0
    assert {move.partition for move in moves} == {each.partition for each in partitions if leaving in each.replicas}
    for move in moves:
        assert len(move.adding) == 1, "one replica moves, the others stay"
        assert len(move.after) == len(move.before)


@settings(max_examples=60, deadline=None)
@given(clusters(), st.data())
def test_an_emptied_log_directory_has_nothing_left_and_nothing_else_moves(
    cluster: tuple[list[BalancedNode], list[PlacedPartition]], data: st.DataObject
) -> None:
    """Also where several are emptied at once: no replica moves into another of them."""
    nodes, partitions = cluster
    chosen = st.tuples(st.sampled_from([node.node_id for node in nodes]), st.sampled_from(["/x", "/y"]))
    emptied = data.draw(st.sets(chosen, min_size=1, max_size=3))
    meant = {each.partition for leaving in emptied for each in in_directory(partitions, *leaving)}
    staying = unplaceable(nodes, partitions, (), emptied)
    moves = plan_moves(nodes, partitions, emptied_dirs=emptied, evens_out=False, staying=staying)
    planned = [each for each in after(partitions, moves) if each.partition not in staying]
    assert not [each for leaving in emptied for each in in_directory(planned, *leaving)]
    assert {move.partition for move in moves} == meant - staying.keys()
    for move in moves:
        assert {(node, log_dir) for node, log_dir in move.leaving_dirs.items()} <= emptied
        assert len(move.after) == len(set(move.after)) == len(move.before)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1_000), st.sampled_from(["/x", "/y", "/z"])), max_size=40))
def test_replicas_leave_a_node_so_that_its_log_directories_become_more_even(drawn: list[tuple[int, str]]) -> None:
    """Half of them leave: what is left differs by no more than before, or by one log."""
    partitions = [placed("t", index, [0], size, [log_dir]) for index, (size, log_dir) in enumerate(drawn)]
    planned = after(partitions, plan_moves(nodes_in("", ""), partitions))

    def spread(of: Sequence[PlacedPartition]) -> int:
        sizes = [bytes_of(in_directory(of, 0, log_dir)) for log_dir in ("/x", "/y", "/z")]
        return max(sizes) - min(sizes)

    assert abs(held(planned)[0] - held(planned)[1]) <= 1
    assert spread(planned) <= max(spread(partitions), max((each.size_bytes for each in partitions), default=0))


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_log_directories_cause_no_further_moves(cluster: tuple[list[BalancedNode], list[PlacedPartition]]) -> None:
    nodes = [BalancedNode(each.node_id, "", each.takes_replicas, frozenset({"/x"})) for each in cluster[0]]
    blind = [placed("t", index, each.replicas, each.size_bytes) for index, each in enumerate(cluster[1])]
    counts = [sum(len(move.adding) for move in plan_moves(nodes, each)) for each in (cluster[1], blind)]
    assert counts[0] == counts[1]


def test_replicas_in_a_cordoned_log_directory_leave_first() -> None:
    nodes = [BalancedNode(NodeId(0), cordoned_dirs=frozenset({"/y"})), BalancedNode(NodeId(1))]
    where = ["/x", "/y", "/x", "/y", "/x", "/x"]
    partitions = [
        placed("t", index, [0], 100 if log_dir == "/x" else 1, [log_dir]) for index, log_dir in enumerate(where)
    ]
    moves = plan_moves(nodes, partitions)
    assert [move.leaving_dirs for move in moves] == [{0: "/x"}, {0: "/y"}, {0: "/y"}]
    (move,) = plan_moves(
        [BalancedNode(NodeId(number), cordoned_dirs=frozenset({"/y"})) for number in range(3)],
        [placed("t", 0, [0, 1, 2], 1, ["/x", "/y", "/x"])],
        replication_factors={"t": 2},
        evens_out=False,
    )
    assert move.after == (0, 2), "the replica of a lower factor too"


def test_a_new_node_gets_its_share_from_all_others() -> None:
    nodes = nodes_in("", "", "", "")
    partitions = [placed("t", index, [index % 3, (index + 1) % 3]) for index in range(12)]
    moves = plan_moves(nodes, partitions)
    planned = after(partitions, moves)
    assert held(planned) == {0: 6, 1: 6, 2: 6, 3: 6}
    assert leads(planned) == {0: 3, 1: 3, 2: 3, 3: 3}
    assert sum(move.moved_bytes for move in moves) == 6


def test_of_equally_many_replicas_those_move_that_make_the_bytes_even() -> None:
    nodes = nodes_in("", "")
    partitions = [placed("t", index, [0], size) for index, size in enumerate((100, 1, 1, 98))]
    planned = after(partitions, plan_moves(nodes, partitions))
    sizes = Counter({node: sum(each.size_bytes for each in planned if node in each.replicas) for node in (0, 1)})
    assert held(planned) == {0: 2, 1: 2}
    assert abs(sizes[0] - sizes[1]) <= 2


def test_a_replica_leaves_the_rack_that_has_two() -> None:
    nodes = nodes_in("a", "a", "b")
    (move,) = plan_moves(nodes, [placed("t", 0, [0, 1], size=7)])
    assert (move.adding, move.moved_bytes) == ((2,), 7)


def test_a_replication_factor_is_raised_over_racks_and_lowered_without_moving_bytes() -> None:
    nodes = nodes_in("a", "a", "b")
    partitions = [placed("t", 0, [0]), placed("other", 0, [1])]
    (move,) = plan_moves(nodes, partitions, replication_factors={"t": 2}, evens_out=False)
    assert move.after == (0, 2)
    (move,) = plan_moves(nodes, [placed("t", 0, [0, 1, 2])], replication_factors={"t": 2}, evens_out=False)
    assert move.after == (0, 2), "the rack that has two loses one"
    with pytest.raises(TooFewNodes, match=r"t-0 needs another node .* only 3 nodes take replicas"):
        plan_moves(nodes, partitions, replication_factors={"t": 4})


def test_every_partition_that_keeps_a_node_from_being_emptied_is_named_and_may_stay() -> None:
    nodes = nodes_in("", "", "")
    wide = [placed("wide", index, [0, 1, 2]) for index in range(7)]
    partitions = [placed("t", 0, [0, 2]), *wide, placed("t", 1, [0, 1])]
    emptied = {NodeId(2)}
    with pytest.raises(TooFewNodes, match=r"^wide-0 needs another node .*; so do wide-1, .*, wide-4 and 2 more$"):
        plan_moves(nodes, partitions, emptied=emptied, evens_out=False)
    staying = unplaceable(nodes, partitions, emptied)
    assert list(staying) == [each.partition for each in wide]
    (move,) = plan_moves(nodes, partitions, emptied=emptied, evens_out=False, staying=staying)
    assert (str(move.partition), move.after) == ("t-0", (0, 1))


def test_a_lower_replication_factor_removes_the_replica_that_is_down_not_one_that_works() -> None:
    """Even if that one is the preferred leader, or its node has the fewest replicas."""
    nodes = [BalancedNode(NodeId(0)), BalancedNode(NodeId(1), takes_replicas=False), BalancedNode(NodeId(2))]
    others = [placed("other", index, [2]) for index in range(3)]
    for replicas in ([0, 1, 2], [1, 0, 2]):
        partitions = [placed("t", 0, replicas), *others]
        (move,) = plan_moves(nodes, partitions, replication_factors={"t": 2}, evens_out=False)
        assert move.after == (0, 2)


def test_a_hundred_nodes_with_fifty_thousand_partitions_take_seconds() -> None:
    """Ten of the nodes are new, and one is emptied."""
    nodes = nodes_in(*("abc"[number % 3] for number in range(100)))
    partitions = [
        placed("t", index, [(index * 7 + step * 31) % 90 for step in range(3)], size=index % 1_000)
        for index in range(50_000)
    ]
    began = time.process_time()
    moves = plan_moves(nodes, partitions, emptied={NodeId(5)})
    assert time.process_time() - began < 30
    planned = after(partitions, moves)
    counts = held(planned)
    assert 5 not in counts
    assert all(racks_used(nodes, each.replicas) == 3 for each in planned)
