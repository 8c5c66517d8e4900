"""The cost of a follower's fetches, and the speed of a simulated cluster.

The rounds run between two real nodes without gRPC and disk: their tasks, logs and messages, in virtual time. A round of
idle partitions is one turn of `replica.fetch.wait.max.ms` without an event. A round of busy partitions carries one
batch per partition from the leader to the follower, and the high watermark back. All figures are processor time, the
best of several, so that other load on the machine is not measured.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from bench.figure import Better, Figure, Run
from testbed.sim.world import Simulation
from tests.node.wires import Cluster, batch
from tests.sim.plan import Cleaning, Plan, TopicPlan
from tests.sim.random_world import Workload
from tidelog.types import NO_LEADER_EPOCH, Acks, Millis, NodeId

MANY = 1_000
WARM_S = 2.0


def figures(run: Run) -> Iterator[Figure]:
    many = 100 if run.quick else MANY
    one, _ = rounds(run, 1)
    idle, busy = rounds(run, many)
    yield Figure(
        f"a fetch round of {many} idle partitions, against one of 1",
        idle * 1e3,
        "ms",
        one * 1e3,
        target=1.5,
        better=Better.LESS,
    )
    yield Figure(f"a fetch round of {many} busy partitions, each", busy / many * 1e6, "us")
    yield Figure("a simulated cluster of 3 nodes under load", cluster_speed(run, pace=0.2), "s/s", target=12)
    yield Figure("a simulated cluster of 3 nodes under heavy load", cluster_speed(run, pace=0.05), "s/s")
    yield Figure("a simulated cluster of 3 nodes at rest", cluster_speed(run, producers=0), "s/s")


def rounds(run: Run, partitions: int) -> tuple[float, float]:
    """Processor seconds of an idle and of a busy round of that many partitions between two nodes."""
    cluster = Cluster(2, partitions=partitions, durability="page-cache", segment_index_bytes="1024")
    try:
        for index in range(partitions):
            cluster.set(index, publish=False, leader=NodeId(1))
        cluster.publish()
        turns = 2 if run.quick else 7
        busy = min(_busy_round(cluster, partitions) for _ in range(turns))
        cluster.run(WARM_S)
        wait_s = cluster.config.replication.fetch_wait_ms / 1000
        return min(_seconds(lambda: cluster.run(10 * wait_s)) for _ in range(turns)) / 10, busy
    finally:
        cluster.close()


def _busy_round(cluster: Cluster, partitions: int) -> float:
    """One batch per partition, from its append at the leader until the follower knows that it is committed. The
    appends themselves are not counted."""
    data = batch(b"v" * 100)
    for index in range(partitions):
        cluster.partition(1, index).produce(
            data, acks=Acks.LEADER, leader_epoch=NO_LEADER_EPOCH, deadline=Millis(1 << 60), done=lambda *_: None
        )
    ends = [cluster.log(1, index).log_end_offset for index in range(partitions)]
    last = partitions - 1
    return _seconds(
        lambda: cluster.until(
            lambda: cluster.watermark(2, last) == ends[last] and _all_know(cluster, ends), what="all is replicated"
        )
    )


def _all_know(cluster: Cluster, ends: list[int]) -> bool:
    return all(cluster.watermark(2, index) == end for index, end in enumerate(ends))


def cluster_speed(run: Run, *, producers: int = 3, pace: float = 1.0) -> float:
    """Virtual seconds per second of processor time: three nodes and voters, three partitions, two readers, producers
    that pause up to `pace` seconds between two records, all checkers."""
    seconds = 3.0 if run.quick else 20.0
    topic = TopicPlan("orders", partitions=3, replicas=3, min_insync=2, cleaning=Cleaning.NOTHING, configs=())
    plan = Plan(
        seed=1,
        nodes=3,
        seconds=seconds,
        topics=(topic,),
        producers=producers,
        idempotent=producers // 2,
        transactional=0,
        readers=2,
        consumers=0,
        racks=0,
        pace=pace,
        directories=1,
        voters=3,
        snapshot_bytes=20 << 20,
        churn=False,
        faults=(),
    )
    best = 0.0
    for _ in range(1 if run.quick else 3):
        with Simulation(plan.seed) as sim:
            sim.start(nodes=3, topics=(), voters=3)
            sim.create_topic("orders", partitions=3, replicas=3, min_insync=2)
            Workload(sim, plan)
            best = max(best, seconds / _seconds(lambda: sim.run_for(seconds)))
        gc.collect()
    return best


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun
