"""Replicas that are moved to a node are fetched at a rate; what is in sync already is not slowed by that (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node.replicas.follower_replica import FollowerReplica
from node.replicas.replica_config import ReplicaConfig
from node.replicas.replica_fetcher import MOVE_BYTES_MAX, PIECES_MS
from node.replication_settings import ReplicationConfig
from tests.node.wires import Cluster, batch
from tidelog.record_exchange import FetchedPartition
from tidelog.types import NodeId

RATE = 10_000
COMES = NodeId(3)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two partitions of which node 3 is to get a replica: it has the first one, the second lacks 20 batches."""
    cluster = Cluster(
        3, partitions=2, config=ReplicaConfig(ReplicationConfig(throttled_rate=RATE, fetch_bytes_max=5_000))
    )
    first_two = NodeId(1), NodeId(2)
    for index in range(2):
        cluster.set(
            index, leader=NodeId(1), isr=first_two, replicas=first_two, directories=cluster.state().directories[:2]
        )
    cluster.produce(1, *(batch(b"." * 5_000) for _ in range(20)), index=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def comes(cluster: Cluster, index: int) -> None:
    state = cluster.state(index)
    cluster.set(
        index,
        replicas=(*state.replicas, COMES),
        directories=(*state.directories, state.directories[0]),
        adding=(COMES,),
    )


def test_moved_replicas_are_fetched_at_the_throttled_rate(cluster: Cluster) -> None:
    comes(cluster, 1)
    cluster.run(5.0)
    assert 40_000 < cluster.log(3, 1).size < 70_000
    cluster.until(lambda: cluster.state(1).isr == (1, 2, 3), within=8.0)


def test_a_member_of_the_set_is_not_slowed_down(cluster: Cluster) -> None:
    """It came first, and waits for the rest of its move: writes wait for it, and must not wait for the throttle."""
    comes(cluster, 0)
    cluster.until(lambda: cluster.state(0).isr == (1, 2, 3), within=2.0)
    cluster.publish()
    comes(cluster, 1)
    cluster.run(0.2)
    began = cluster.loop.time()
    for _ in range(5):
        cluster.produce(1, batch(b"." * 5_000), index=0)
    assert cluster.loop.time() - began < 0.5
    assert cluster.state(0).isr == (1, 2, 3)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[int]]:
    """The bytes of the answers that the followers of each node get."""
    found: dict[int, list[int]] = {2: [], 3: []}
    answered = FollowerReplica.answered

    def watched(follower: FollowerReplica, answer: FetchedPartition) -> None:
        found[follower._services.me].append(len(answer.records))
        answered(follower, answer)

    monkeypatch.setattr(FollowerReplica, "answered", watched)
    return found


def test_a_moved_replica_fetches_little_at_a_time(sizes: dict[int, list[int]]) -> None:
    """The leader reads an answer, and the follower checks and writes it, within a turn of the loop: meanwhile the
    records of all other partitions wait. What only was away, and is needed for writes, catches up with large ones."""
    cluster = Cluster(3, partitions=1)
    first_two = NodeId(1), NodeId(2)
    cluster.set(leader=NodeId(1), isr=first_two, replicas=first_two, directories=cluster.state().directories[:2])
    cluster.run(0.1)
    cluster.kill(2)
    cluster.set(isr=(NodeId(1),))
    cluster.produce(1, *(batch(b"." * 50_000) for _ in range(30)))
    cluster.start(2)
    cluster.until(lambda: cluster.state().isr == (1, 2))
    assert sum(sizes[2]) > 1_500_000
    assert max(sizes[2]) > MOVE_BYTES_MAX

    comes(cluster, 0)
    cluster.until(lambda: cluster.state().isr == (1, 2, 3))
    assert sum(sizes[3]) > 1_500_000
    assert 50_000 < max(sizes[3]) <= MOVE_BYTES_MAX
    cluster.loop.raise_defects()
    cluster.close()


def test_a_move_that_lasts_goes_on_with_large_answers(sizes: dict[int, list[int]]) -> None:
    """Small ones take a round trip each: a partition that grows faster would never be in sync."""
    cluster = Cluster(3, partitions=1, config=ReplicaConfig(ReplicationConfig(throttled_rate=20_000)))
    first_two = NodeId(1), NodeId(2)
    cluster.set(leader=NodeId(1), isr=first_two, replicas=first_two, directories=cluster.state().directories[:2])
    cluster.produce(1, *(batch(b"." * 50_000) for _ in range(40)))
    comes(cluster, 0)
    cluster.run(PIECES_MS / 1_000 - 1)
    assert max(sizes[3]) <= MOVE_BYTES_MAX
    cluster.until(lambda: cluster.state().isr == (1, 2, 3), within=60)
    assert max(sizes[3]) > MOVE_BYTES_MAX
    cluster.loop.raise_defects()
    cluster.close()
