"""Replicas of topics with a remote tier that begin empty: they fetch what is local, and know the rest by its end."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from node.replicas.replica import Replica
from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT
from testbed.fake_object_store import FakeObjectStore
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.tiered_nodes import (
    COORDINATORS,
    RECORDS,
    TIERED,
    TOPIC,
    all_left,
    bootstrap,
    consumed,
    follower_number,
    in_sync,
    leader,
    of_store,
    produce,
    replicas,
)
from tidelog import Producer
from tidelog.client.admin import Admin

pytestmark = pytest.mark.usefixtures("quick_tier")

NODES = 3
SEGMENT = 2 * 1100
"""More than the bytes of a segment."""


async def tiered_topic(nodes: RealNodes) -> None:
    async with Admin(bootstrap(nodes)) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=NODES, configs=TIERED)
    await nodes.wait_until(lambda: len(replicas(nodes)) == NODES and len(in_sync(nodes)) == NODES)


def replica_of(nodes: RealNodes, number: int) -> Replica | None:
    manager = nodes.nodes[number].node.replicas
    return None if manager is None else manager.registry.find(TOPIC, 0)


async def empty(nodes: RealNodes, number: int) -> None:
    """The node loses its log of the topic, and is started again."""
    await nodes.stop(number)
    shutil.rmtree(Path(nodes.log_directories(number)[0]) / f"{TOPIC}-0")
    await nodes.start(number)


def producers(replica: Replica) -> set[object]:
    return {each.to_snapshot() for each in replica.log.producers.state.active_producers()}


async def make_leader(nodes: RealNodes, number: int) -> None:
    others = [each for each in range(NODES) if each != number]
    async with Admin(bootstrap(nodes)) as admin:
        await admin.reassign({(TOPIC, 0): [number, *others]})
        await admin.elect_leaders([(TOPIC, 0)])

    def leads() -> bool:
        found = replica_of(nodes, number)
        return found is not None and found.leader is not None

    await nodes.wait_until(leads)


@pytest.mark.deep
async def test_an_emptied_replica_fetches_only_what_is_local(tmp_path: Path) -> None:
    """Goal: a replica that lost its log is complete with the local part. Method: three nodes; idle and transactional
    producers, whose records but for the last marker are in the store only; a node loses its log, comes back, and is
    made the leader. Passed: it has fetched less than two segments, has all producers and epochs of the leader, the idle
    producer goes on there, and readers get every record, without those of the aborted transaction if they say so.
    Takes longer than 10 s: followers ask every 10 s what was copied."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, NODES, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        await tiered_topic(nodes)
        async with Producer(bootstrap(nodes), linger_ms=0) as idle:
            for number in range(RECORDS):
                await idle.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)
            async with Producer(bootstrap(nodes), transactional_id="t", linger_ms=0) as producer:
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        for _ in range(9):
                            await producer.send(TOPIC, b"-1." + b"." * 900, partition=0)
                        raise KeyError
            end = RECORDS + 10
            await nodes.wait_until(all_left(nodes, end))
            number = follower_number(nodes)
            await empty(nodes, number)
            await nodes.wait_until(lambda: replica_of(nodes, number) is not None)
            await nodes.wait_until(lambda: replica_of(nodes, number).log.log_end_offset == end)  # type: ignore[union-attr]
            await nodes.wait_until(lambda: number in in_sync(nodes))

            back = replica_of(nodes, number)
            assert back is not None
            log, of_leader = back.log, leader(nodes)
            assert log.log_start_offset == 0
            assert log.local_log_start_offset >= of_leader.log.local_log_start_offset > RECORDS
            assert log.epochs.entries == of_leader.log.epochs.entries
            assert producers(back) == producers(of_leader), "those of the remote part too"
            assert back.topic_meter.replication_bytes_in < 2 * SEGMENT, "the local part only"

            await make_leader(nodes, number)
            await nodes.wait_until(lambda: replica_of(nodes, number).remote is not None)  # type: ignore[union-attr]
            await idle.send(TOPIC, f"{RECORDS}".encode() + b".", partition=0)
        assert await consumed(nodes, RECORDS + 1, isolation="read_committed") == list(range(RECORDS + 1))
        assert len(await consumed(nodes, RECORDS + 10)) == RECORDS + 10


@pytest.mark.deep
async def test_a_replica_that_has_lost_its_epochs_is_fetched_again_before_it_leads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: no replica leads that believes nothing of the remote tier. Method: three nodes; one comes back without the
    file of its leader epochs. Passed: it counts as damaged, and is in sync again with all epochs of the leader and only
    the local part; made the leader, it serves all records. Takes longer than 10 s: as above."""
    caplog.set_level(logging.WARNING)
    store = FakeObjectStore()
    async with real_nodes(tmp_path, NODES, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        await tiered_topic(nodes)
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(all_left(nodes, RECORDS))
        number = follower_number(nodes)
        await nodes.stop(number)
        (tmp_path / f"node-{number}" / f"{TOPIC}-0" / LEADER_EPOCH_CHECKPOINT).unlink()
        await nodes.start(number)
        epochs = leader(nodes).log.epochs.entries

        def is_whole() -> bool:
            back = replica_of(nodes, number)
            return number in in_sync(nodes) and back is not None and back.log.epochs.entries == epochs

        await nodes.wait_until(is_whole)
        assert "leader epochs of what is in the remote tier are lost" in caplog.text
        await make_leader(nodes, number)
        assert await consumed(nodes, RECORDS) == list(range(RECORDS))


@pytest.mark.deep
async def test_a_store_that_does_not_answer_keeps_only_that_replica_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a follower waits for the store and tells it. Method: as above, and the store fails some times. Passed: the
    log says so, each attempt is counted, the replica is in sync in the end. Takes longer than 10 s: as above."""
    caplog.set_level(logging.WARNING)
    store = FakeObjectStore()
    async with real_nodes(tmp_path, NODES, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        await tiered_topic(nodes)
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(all_left(nodes, RECORDS))
        number = follower_number(nodes)
        store.fail("get_range", times=6)  # a leader that reads a copy back may take some of them
        await empty(nodes, number)
        await nodes.wait_until(lambda: "cannot go on behind the remote tier yet" in caplog.text)
        assert "the store does not answer" in caplog.text
        await nodes.wait_until(lambda: number in in_sync(nodes))
        assert await consumed(nodes, RECORDS) == list(range(RECORDS))
        starts = nodes.nodes[number].node.replicas.remote_starts  # type: ignore[union-attr]
        assert starts is not None
        assert starts.found == 1
        assert 1 <= starts.failed <= 6


@pytest.mark.deep
async def test_a_reassignment_to_another_node_sends_only_what_is_local(tmp_path: Path) -> None:
    """Goal: a move of a replica costs what is local. Method: three nodes, two replicas, of which one moves to the third
    node and leads there. Passed: the new replica has received less than two segments of thirty, and readers get all
    records from it. Takes longer than 10 s: followers ask every 10 s what was copied."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, NODES, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=2, configs=TIERED)
            await produce(nodes, 0, RECORDS)
            await nodes.wait_until(all_left(nodes, RECORDS))
            stays = leader(nodes).leader_node
            added = next(number for number in range(NODES) if replica_of(nodes, number) is None)
            await admin.reassign({(TOPIC, 0): [added, stays]})
            await nodes.wait_until(lambda: sorted(in_sync(nodes)) == sorted([added, stays]))
            await admin.elect_leaders([(TOPIC, 0)])
        new = replica_of(nodes, added)
        assert new is not None
        await nodes.wait_until(lambda: new.leader is not None)
        assert new.log.log_start_offset == 0 < RECORDS - 4 <= new.log.local_log_start_offset
        assert 0 < new.topic_meter.replication_bytes_in < 2 * SEGMENT, "of 30 segments"
        assert await consumed(nodes, RECORDS) == list(range(RECORDS))


@pytest.mark.deep
async def test_a_replica_without_producer_snapshots_is_replaced_by_one_that_copies_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: what the runbook says of `no producer snapshot is left`. Method: the only replica loses its snapshots while
    the store is away, and is moved to the other node. Passed: it copies nothing more and says what to do, and the other
    node copies on and has all records. Takes longer than 10 s: a failed copy waits, and so does the new replica."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 2, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
            await produce(nodes, 0, 12)
            await nodes.wait_until(all_left(nodes, 12))
            store.fail("put", times=1_000)
            await produce(nodes, 12, 12)
            old = leader(nodes)
            for each in Path(old.log.path).glob("*.snapshot"):
                each.unlink()
            store.recover()
            await nodes.wait_until(lambda: "no producer snapshot is left" in caplog.text)
            copied = old.log.copied_end
            assert copied <= 12
            assert "partition reassign" in caplog.text

            moved_to = next(number for number in range(2) if number != old.leader_node)
            await admin.reassign({(TOPIC, 0): [moved_to]})
            await nodes.wait_until(all_left(nodes, 24))
            assert leader(nodes).leader_node == moved_to
            assert leader(nodes).log.copied_end > copied
        assert await consumed(nodes, 24) == list(range(24))


async def test_a_move_to_another_log_directory_copies_only_what_is_local(tmp_path: Path) -> None:
    store = FakeObjectStore()
    async with (
        real_nodes(tmp_path, 1, coordinators=COORDINATORS, directories=2, prepare=of_store(store)) as nodes,
        Admin(bootstrap(nodes)) as admin,
    ):
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        async with Producer(bootstrap(nodes), linger_ms=0) as producer:
            for number in range(12):
                await producer.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)
            await nodes.wait_until(all_left(nodes, 12))
            replica = leader(nodes)
            before = replica.log
            [target] = [each for each in nodes.log_directories(0) if each != replica.directory.path]
            [moved] = await admin.move_replicas(0, {(TOPIC, 0): target})
            assert moved.error is None
            await nodes.wait_until(lambda: replica.directory.path == target and before.closed)
            log = replica.log
            assert (log.log_start_offset, log.epochs.entries) == (0, before.epochs.entries)
            assert log.local_log_start_offset >= before.local_log_start_offset > 0
            for number in range(12, 20):
                await producer.send(TOPIC, f"{number}".encode() + b"." * 900, partition=0)
        await nodes.wait_until(all_left(nodes, 20))
        assert await consumed(nodes, 20) == list(range(20))
        await nodes.stop(0)
        await nodes.start(0)
        assert await consumed(nodes, 20) == list(range(20))
        assert leader(nodes).log.directory.path == target  # type: ignore[attr-defined]
