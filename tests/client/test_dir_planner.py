"""Plans even out the bytes of the log directories of a node, and move few of them."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.planned_clusters import nodes_in, placed
from tidelog.balancing.cluster_balance import ClusterBalance
from tidelog.balancing.dir_planner import SLACK_BYTES, Disk, even_directories
from tidelog.balancing.move_planner import BalancedNode, ReplicaMove
from tidelog.types import NodeId, PartitionIndex, TopicPartition

MB = 1_000_000
TB = 1_000_000 * MB


def partition(index: int) -> TopicPartition:
    return TopicPartition("t", PartitionIndex(index))


@dataclass
class Directories:
    """The directories of a node, with the bytes of each replica that may move."""

    held: dict[str, dict[TopicPartition, int]]
    staying: dict[str, int] = field(default_factory=dict)
    disks: dict[str, Disk] = field(default_factory=dict)

    def plan(self) -> dict[TopicPartition, str]:
        return even_directories(self.held, self.disks, self.staying)

    def after(self, plan: Mapping[TopicPartition, str]) -> Directories:
        held: dict[str, dict[TopicPartition, int]] = {path: {} for path in self.held}
        for path, replicas in self.held.items():
            for name, size in replicas.items():
                held[plan.get(name, path)][name] = size
        return Directories(held, self.staying, self.disks)

    def bytes(self, path: str) -> int:
        return sum(self.held[path].values()) + self.staying.get(path, 0)

    def weight(self, path: str) -> int:
        sizes = [self.disks.get(each, Disk()).total_bytes for each in self.held]
        return self.disks[path].total_bytes if min(sizes) > 0 else 1

    def share(self, path: str) -> int:
        total = sum(map(self.bytes, self.held))
        return total * self.weight(path) // sum(map(self.weight, self.held))

    def surplus(self, path: str) -> int:
        return self.bytes(path) - self.share(path)

    def slack(self, path: str) -> int:
        return max(self.share(path) // 10, SLACK_BYTES)


def of_sizes(*sizes: list[int]) -> Directories:
    """Directories /0, /1, ... with replicas of these MB."""
    numbers = iter(range(1_000_000))
    held = {f"/{number}": {partition(next(numbers)): size * MB for size in each} for number, each in enumerate(sizes)}
    return Directories(held)


@st.composite
def directories(draw: st.DrawFn) -> Directories:
    """Sometimes with disks of different sizes, all or some of which are known."""
    sizes = st.lists(st.one_of(st.integers(0, 60), st.integers(0, 3_000)), max_size=12)
    made = of_sizes(*draw(st.lists(sizes, min_size=1, max_size=6)))
    made.staying = {path: draw(st.integers(0, 500)) * MB for path in made.held if draw(st.booleans())}
    if draw(st.booleans()):
        made.disks = {path: Disk(draw(st.sampled_from([-1, 1, 2, 2, 4, 9])) * TB) for path in made.held}
    return made


@settings(max_examples=100, deadline=None)
@given(directories())
def test_a_directory_stays_above_its_bound_only_with_replicas_that_are_too_large(made: Directories) -> None:
    """Each of them would make another directory as full."""
    found = made.after(made.plan())
    for path, replicas in found.held.items():
        if found.surplus(path) > found.slack(path) and (sizes := [size for size in replicas.values() if size]):
            for other in found.held:
                filled = (found.bytes(other) + min(sizes)) * made.weight(path)
                assert filled >= found.bytes(path) * made.weight(other)


@settings(max_examples=100, deadline=None)
@given(directories())
def test_no_more_bytes_move_than_are_above_the_shares_and_a_replica_for_each_directory(made: Directories) -> None:
    plan = made.plan()
    sizes = {name: size for replicas in made.held.values() for name, size in replicas.items()}
    above = sum(max(made.surplus(path), 0) for path in made.held)
    largest = max((sizes[name] for name in plan), default=0)
    assert sum(sizes[name] for name in plan) <= above + largest * (len(made.held) - 1)
    if all(abs(made.surplus(path)) <= made.slack(path) for path in made.held):
        assert plan == {}, "the spread is small"


@settings(max_examples=100, deadline=None)
@given(directories())
def test_a_plan_after_the_moves_is_empty(made: Directories) -> None:
    plan = made.plan()
    assert made.after(plan).plan() == {}
    fullest = max((made.bytes(path) / made.weight(path) for path in made.held), default=0)
    found = made.after(plan)
    assert max((found.bytes(path) / made.weight(path) for path in made.held), default=0) <= fullest


def test_small_replicas_end_near_the_shares() -> None:
    made = of_sizes([10] * 90, [10] * 10, [])
    found = made.after(made.plan())
    assert all(abs(found.surplus(path)) <= found.slack(path) for path in found.held)
    assert found.bytes("/1") >= made.bytes("/1"), "only the fullest one gives"


def test_one_large_replica_stays_where_it_is_and_the_others_leave_it() -> None:
    made = of_sizes([5_000, 100, 100], [100])
    assert made.plan() == {partition(1): "/1", partition(2): "/1"}


def test_a_large_replica_moves_where_only_that_helps() -> None:
    """It takes its new directory above its share: the fullest one has less afterwards."""
    made = of_sizes([300, 300], [200], [200], [200])
    found = made.after(made.plan())
    assert (found.bytes("/0"), max(map(found.bytes, found.held))) == (300 * MB, 400 * MB)


def test_a_new_disk_gets_its_share_though_no_other_is_far_above_its_own() -> None:
    made = of_sizes(*([[100] * 10] * 19), [])
    found = made.after(made.plan())
    assert found.bytes("/19") == 900 * MB
    assert min(map(found.bytes, found.held)) == 900 * MB


def test_a_larger_disk_gets_more_and_a_full_one_nothing() -> None:
    made = of_sizes([100] * 9, [])
    made.disks = {"/0": Disk(TB), "/1": Disk(2 * TB)}
    assert made.after(made.plan()).bytes("/1") == 600 * MB
    made.disks = {"/0": Disk(TB), "/1": Disk(2 * TB, 250 * MB)}
    assert made.after(made.plan()).bytes("/1") == 200 * MB, "as much as has space there"
    made.disks = {"/0": Disk(TB), "/1": Disk()}
    assert 400 * MB <= made.after(made.plan()).bytes("/1") <= 500 * MB, "of unknown size: as if all were equal"


def balance_of(logs: Mapping[int, tuple[str, int]], **more: object) -> ClusterBalance:
    """Node 0 with these logs, by partition: directory and MB."""
    partitions = [placed("t", index, [0], size * MB, [path]) for index, (path, size) in logs.items()]
    fields: dict[str, object] = {
        "nodes": tuple(nodes_in("", "")),
        "taking_dirs": {NodeId(0): ("/0", "/1"), NodeId(1): ("/0",)},
    }
    return ClusterBalance(partitions=tuple(partitions), **{**fields, **more})  # type: ignore[arg-type]


LOGS = {0: ("/0", 400), 1: ("/0", 200), 2: ("/0", 100), 3: ("/1", 50)}


def test_replicas_of_a_plan_that_leave_the_node_neither_count_nor_move() -> None:
    """One that comes has no directory yet."""
    assert balance_of(LOGS).even_dirs(()) == {0: {partition(1): "/1", partition(2): "/1"}}
    leaving = ReplicaMove(partition(0), (NodeId(0),), (NodeId(1),), 400 * MB, ("/0",))
    assert balance_of(LOGS).even_dirs([leaving]) == {0: {partition(2): "/1"}}
    balance = balance_of(LOGS)
    coming = placed("t", 7, [1], 5_000 * MB, ["/0"])
    bringing = ReplicaMove(coming.partition, (NodeId(1),), (NodeId(0),), coming.size_bytes, ("/0",))
    more = replace(balance, partitions=(*balance.partitions, coming))
    assert more.even_dirs([bringing]) == balance.even_dirs(())


def test_only_directories_that_take_replicas_take_part() -> None:
    """A cordoned one and one that failed neither give nor get any; a node that takes none is left alone."""
    logs = {**LOGS, 4: ("/cordoned", 9_000)}
    assert balance_of(logs).even_dirs(()) == balance_of(LOGS).even_dirs(())
    assert balance_of(LOGS, taking_dirs={NodeId(0): ("/0",)}).even_dirs(()) == {}
    assert balance_of(LOGS, nodes=(BalancedNode(NodeId(0), takes_replicas=False),)).even_dirs(()) == {}


def test_a_copy_that_is_under_way_counts_where_it_goes() -> None:
    copies = {(NodeId(0), partition(1)): "/1"}
    assert balance_of(LOGS, copies=copies).even_dirs(()) == {0: {partition(1): "/1", partition(2): "/1"}}
    copies = {(NodeId(0), partition(1)): "/cordoned"}
    assert balance_of(LOGS, copies=copies).even_dirs(()) == {0: {partition(2): "/1"}}, "it leaves both"


def test_a_large_cluster_is_planned_quickly() -> None:
    """100 nodes of 4 directories, 50,000 partitions of 3 replicas, of which most are in the first directory."""
    chance, paths = random.Random(3), ("/0", "/1", "/2", "/3")
    nodes = tuple(nodes_in(*[""] * 100))
    partitions = tuple(
        placed(
            "t",
            index,
            chance.sample(range(100), 3),
            int(chance.paretovariate(1.2) * 10 * MB),
            chance.choices(paths, (9, 3, 1, 1), k=3),
        )
        for index in range(50_000)
    )
    balance = ClusterBalance(nodes, partitions, taking_dirs={node.node_id: paths for node in nodes})
    began = time.process_time()
    assert len(balance.even_dirs(())) == 100
    assert time.process_time() - began < 10
