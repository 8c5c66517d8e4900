"""Readers that name their rack (KIP-392): the leader names a nearer replica, which serves committed records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from node.config import GRPC_LISTENER
from tests.node.wires import CALLER, Cluster, batch, fetch_request
from tidelog.errors import FencedLeaderEpoch, NotLeaderOrFollower, OffsetNotAvailable, UnknownLeaderEpoch
from tidelog.records import iter_batches
from tidelog.types import NodeId, Offset

FAR = "far"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Node 1 leads in rack "near", node 2 is in the same one, node 3 in rack "far"."""
    cluster = Cluster()
    for number, rack in ((1, "near"), (2, "near"), (3, FAR)):
        node = cluster.image.nodes[NodeId(number)]
        cluster.image = replace(cluster.image, nodes={**cluster.image.nodes, NodeId(number): replace(node, rack=rack)})
    cluster.set(leader=NodeId(1))
    cluster.produce(1, batch(b"a"), batch(b"b"))
    cluster.run(1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def values(answer: Any) -> list[bytes | None]:
    return [record.value for found in iter_batches(answer.records) for record in found.records()]


def test_a_reader_in_the_rack_of_a_follower_is_sent_there(cluster: Cluster) -> None:
    hint = cluster.fetch(1, 0, rack=FAR)
    assert (hint.preferred_read_replica, values(hint)) == (3, [])
    there = cluster.fetch(3, 0, rack=FAR, epoch=1)
    assert (there.preferred_read_replica, values(there)) == (-1, [b"a", b"b"])


def test_a_reader_of_what_is_in_the_remote_tier_is_sent_there_too(cluster: Cluster) -> None:
    """As in Kafka: the follower reads the object store itself."""
    cluster.log(1).copied_end = Offset(2)
    assert cluster.fetch(1, 0, rack=FAR).preferred_read_replica == 3


@pytest.mark.parametrize("rack", ["", "near", "elsewhere"])
def test_a_reader_without_a_nearer_replica_is_answered(cluster: Cluster, rack: str) -> None:
    answer = cluster.fetch(1, 0, rack=rack)
    assert (answer.preferred_read_replica, values(answer)) == (-1, [b"a", b"b"])


def test_only_members_of_the_set_that_have_the_offset_are_named(cluster: Cluster) -> None:
    cluster.wires.unreachable.add(cluster.image.nodes[NodeId(1)].listeners[GRPC_LISTENER])
    cluster.wires.break_streams()
    cluster.append(1, batch(b"c"))
    assert cluster.fetch(1, 3, rack=FAR).preferred_read_replica == -1, "node 3 has no such offset yet"
    cluster.set(isr=(NodeId(1), NodeId(2)), publish=False)
    cluster.publish(1)
    assert cluster.fetch(1, 0, rack=FAR).preferred_read_replica == -1


def test_a_follower_serves_no_more_than_it_knows_to_be_committed(cluster: Cluster) -> None:
    cluster.machines[2].executor.holding = True
    cluster.append(1, batch(b"c"))
    cluster.until(lambda: cluster.log(3).log_end_offset == 3)
    assert values(cluster.fetch(3, 2, epoch=1, max_wait_ms=10)) == []
    reading = cluster.loop.create_task(cluster.service(3).fetch(*request(2, 5_000)))
    cluster.run(0.1)
    cluster.machines[2].executor.release()
    cluster.until(reading.done, within=0.5, what="the reader is woken by the watermark")
    assert values(reading.result().partitions[0]) == [b"c"]


def test_a_follower_that_lags_sends_the_reader_away(cluster: Cluster) -> None:
    assert type(cluster.fetch(3, 7, epoch=1).error) is OffsetNotAvailable


def test_a_follower_in_another_epoch_or_without_one_refuses(cluster: Cluster) -> None:
    assert type(cluster.fetch(3, 0, epoch=0).error) is FencedLeaderEpoch
    assert type(cluster.fetch(3, 2, epoch=1, last_epoch=2).error) is UnknownLeaderEpoch
    assert type(cluster.fetch(3, 0, epoch=-1).error) is NotLeaderOrFollower


def test_readers_of_a_follower_get_an_error_when_its_role_ends(cluster: Cluster) -> None:
    reading = cluster.loop.create_task(cluster.service(3).fetch(*request(2, 30_000)))
    cluster.run(0.1)
    cluster.set(leader=NodeId(2))
    cluster.until(reading.done, within=0.5)
    error = reading.result().partitions[0].error
    assert type(error) is NotLeaderOrFollower


def request(offset: int, wait_ms: int) -> tuple[Any, Any]:
    return fetch_request(offset, max_wait_ms=wait_ms, epoch=1), CALLER
