"""Leaders and followers of several nodes: produce, replicate, commit, read, over wires in memory."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator
from typing import Any

import pytest

from node.listeners.grpc.grpc_peers import PeerStream
from tests.node.wires import CALLER, Cluster, batch, fetch_request
from tidelog.errors import (
    ConnectionFailed,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
)
from tidelog.protocol.v1 import data_pb2
from tidelog.records import iter_batches
from tidelog.types import Buffer, NodeId


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.set(leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def values(records: Buffer) -> list[bytes | None]:
    return [record.value for found in iter_batches(records) for record in found.records()]


def test_acknowledged_records_are_on_every_in_sync_replica_byte_for_byte(cluster: Cluster) -> None:
    [first, second] = cluster.produce(1, batch(b"a", b"b"), batch(b"c"))
    assert not first.HasField("error")
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert cluster.watermark(1) == 3
    assert [cluster.log(node).durable_offset for node in (1, 2, 3)] == [3, 3, 3]
    assert cluster.contents(1) == cluster.contents(2) == cluster.contents(3)


def test_consumers_read_committed_records(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a", b"b"))
    for machine in (2, 3):
        cluster.machines[machine].executor.holding = True
    cluster.append(1, batch(b"c"))
    cluster.run(0.2)
    assert cluster.log(2).log_end_offset == 3, "it has it, it does not hold it"
    fetched = cluster.fetch(1, 0)
    assert values(fetched.records) == [b"a", b"b"]
    assert fetched.high_watermark == 2


def test_the_acknowledgement_waits_for_the_followers_disks(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.machines[2].executor.holding = True
    waiting = cluster.append(1, batch(b"b"))
    cluster.run(1.0)
    assert not waiting.done()
    cluster.machines[2].executor.release()
    cluster.until(waiting.done, within=0.2)


def test_the_next_fetch_does_not_wait_for_the_disk(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.machines[2].executor.holding = True
    for value in (b"b", b"c", b"d"):
        cluster.append(1, batch(value))
    cluster.run(0.1)
    assert cluster.log(2).log_end_offset == 4
    assert cluster.log(2).durable_offset == 1


def test_a_follower_learns_the_watermark_soon_even_when_nothing_new_comes(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.until(lambda: cluster.watermark(2) == 1 and cluster.watermark(3) == 1, within=0.2)


def test_a_record_is_committed_at_once_not_with_the_next_tick(cluster: Cluster) -> None:
    cluster.run(0.2)
    waiting = cluster.append(1, batch(b"a"))
    cluster.until(waiting.done, within=0.001)


def test_a_flush_that_a_full_disk_refused_is_tried_again(cluster: Cluster) -> None:
    cluster.run(0.2)
    cluster.machines[1].disk.fail("write", "leader-epoch-checkpoint", error=errno.ENOSPC)
    waiting = cluster.append(1, batch(b"a"))
    cluster.run(0.01)
    assert not waiting.done()
    cluster.until(waiting.done, within=1.0)


def test_a_produce_request_to_a_follower_names_the_leader(cluster: Cluster) -> None:
    [answer] = cluster.produce(2, batch(b"a"))
    assert answer.error.code == NotLeaderOrFollower.code
    assert (answer.error.leader.node_id, answer.error.leader.host) == (1, "node-1")


def test_acks_one_does_not_wait_for_followers(cluster: Cluster) -> None:
    cluster.run(0.1)
    for machine in (2, 3):
        cluster.machines[machine].executor.holding = True
    [answer] = cluster.produce(1, batch(b"a"), acks=1)
    assert not answer.HasField("error")
    assert cluster.watermark(1) == 0


def test_a_killed_follower_leaves_the_set_and_returns(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.kill(3)
    waiting = cluster.append(1, batch(b"b"))
    cluster.until(waiting.done, within=8.0)
    assert cluster.state().isr == (1, 2)
    cluster.start(3)
    cluster.until(lambda: 3 in cluster.state().isr, within=5.0)
    assert cluster.contents(3) == cluster.contents(1)


def test_nothing_of_a_killed_node_runs_on(cluster: Cluster) -> None:
    """A fetch that waited for records went on at the dead node, until its time was over."""
    cluster.produce(1, batch(b"a"))
    waiting = cluster.loop.create_task(cluster.service(1).fetch(fetch_request(1, max_wait_ms=60_000), CALLER))
    cluster.run(0.1)
    assert not waiting.done()
    cluster.kill(1)
    with pytest.raises(ConnectionFailed):
        waiting.result()


def test_too_few_in_sync_replicas_refuse_before_anything_is_written(cluster: Cluster) -> None:
    for machine in (2, 3):
        cluster.kill(machine)
    cluster.set(min_insync=3, isr=(1, 2))
    [answer] = cluster.produce(1, batch(b"a"))
    assert answer.error.code == NotEnoughReplicas.code
    assert cluster.log(1).log_end_offset == 0


def test_a_deadline_ends_the_waiting(cluster: Cluster) -> None:
    cluster.run(0.1)
    cluster.machines[2].executor.holding = True
    [answer] = cluster.produce(1, batch(b"a"), timeout_ms=300)
    assert answer.error.code == RequestTimedOut.code


def test_a_new_leader_continues_at_the_committed_end(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a", b"b"))
    cluster.kill(1)
    cluster.set(leader=2, isr=(2, 3))
    [answer] = cluster.produce(2, batch(b"c"))
    assert answer.base_offset == 2
    assert answer.leader_epoch == 2
    cluster.start(1)
    cluster.until(lambda: 1 in cluster.state().isr, within=5.0)
    assert cluster.contents(1) == cluster.contents(2)


def test_a_disconnected_leader_truncates_records_of_its_own(cluster: Cluster) -> None:
    """The old leader's unacknowledged tail diverges and is truncated, by epochs."""
    cluster.produce(1, batch(b"a"))
    cluster.kill(2)
    cluster.kill(3)
    lost = cluster.append(1, batch(b"x", b"y"))
    cluster.run(0.1)
    cluster.kill(1)
    lost.cancel()
    for node in (2, 3):
        cluster.start(node, publish=False)
    cluster.set(leader=2, isr=(2, 3))
    cluster.produce(2, batch(b"b"))
    cluster.start(1)
    cluster.until(lambda: 1 in cluster.state().isr, within=5.0)
    assert cluster.contents(1) == cluster.contents(2) == cluster.contents(3)
    assert values(cluster.contents(1)) == [b"a", b"b"]


def test_all_nodes_lose_power_and_no_acknowledged_record_is_lost(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"), batch(b"b"))
    for node in (1, 2, 3):
        cluster.kill(node, power_fails=True)
    for node in (1, 2, 3):
        cluster.start(node, publish=False)
    cluster.set(leader=3)
    cluster.until(lambda: cluster.watermark(3) == 2)
    assert values(cluster.contents(3)) == [b"a", b"b"]


def test_a_follower_that_knows_of_an_election_first_waits_for_its_leader(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.set(leader=1, publish=False)
    cluster.publish(2, 3)
    cluster.run(3.0)
    cluster.publish(1)
    waiting = cluster.append(1, batch(b"b"))
    cluster.until(waiting.done, within=1.2, what="the longest pause is a second")


def test_broken_streams_are_made_again(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.wires.break_streams()
    [answer] = cluster.produce(1, batch(b"b"))
    assert not answer.HasField("error")


def test_a_silent_stream_is_closed(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    cluster.wires.stalled = True
    waiting = cluster.append(1, batch(b"b"))
    cluster.run(0.5)
    cluster.wires.stalled = False
    assert not waiting.done()
    cluster.until(waiting.done, within=4.0)
    assert cluster.state().isr == (1, 2, 3)


def test_a_report_that_was_not_sent_before_a_truncation_is_never_sent(cluster: Cluster) -> None:
    """Scenario 2: a durable offset of node 3 in a lost epoch must not count for the records that replaced it. Method:
    its fsync ends while its first fetch of the new epoch is open and its stream accepts nothing more; the answer to
    that fetch truncates."""
    cluster.produce(1, batch(b"a"))
    disk = cluster.machines[3].executor
    disk.holding = True
    cluster.set(leader=3, publish=False)
    cluster.publish(3)
    cluster.append(3, batch(b"lost"), batch(b"lost too"))
    cluster.set(leader=1, publish=False)
    cluster.publish(1)
    waiting = cluster.append(1, batch(b"b"), batch(b"c"), batch(b"d"))
    converted = cluster.manager(3).fetchers.of(NodeId(1))._stream
    assert isinstance(converted, PeerStream)
    stream: Any = converted._stream
    send, takes_more = stream.send, asyncio.Event()

    async def take_one(message: data_pb2.FetchRequest) -> None:
        await send(message)
        if not takes_more.is_set():
            disk.release()
            await takes_more.wait()

    stream.send = take_one
    cluster.publish()
    cluster.until(lambda: cluster.log(3).log_end_offset == 1, what="node 3 drops what only it had")
    disk.holding = True
    takes_more.set()
    cluster.until(lambda: cluster.log(3).log_end_offset == 4)
    cluster.run(0.5)
    assert (cluster.log(3).durable_offset, cluster.watermark(1)) == (1, 1)
    disk.release()
    cluster.until(waiting.done, within=1.0)
    assert cluster.contents(3) == cluster.contents(1)
