"""Topics with a remote tier on real nodes: closed segments are copied, leave the nodes, and are read from the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from node.tiering import tiered_partition
from testbed.fake_object_store import FakeObjectStore
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.tiered_nodes import (
    COORDINATORS,
    RECORDS,
    TIERED,
    TOPIC,
    all_left,
    bootstrap,
    closed_left,
    consumed,
    leader,
    of_store,
    produce,
    replicas,
)
from tidelog import Consumer, Producer
from tidelog.client.admin import Admin
from tidelog.errors import InvalidConfig
from tidelog.protocol.v1 import common_pb2, remote_logs_pb2, rpcs
from tidelog.tiering.remote_errors import RemoteObjectMissing
from tidelog.types import EpochStart, LeaderEpoch, Offset

pytestmark = pytest.mark.usefixtures("quick_tier")


async def test_what_left_the_nodes_is_consumed_from_the_store(tmp_path: Path) -> None:
    store = FakeObjectStore()
    async with (
        real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes,
        Admin(bootstrap(nodes)) as admin,
    ):
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        assert await admin.list_offsets([(TOPIC, 0)], "latest-tiered") == {(TOPIC, 0): -1}, "nothing is copied yet"
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(closed_left(nodes))
        assert leader(nodes).log.log_start_offset == 0
        partition = (TOPIC, 0)
        assert await admin.list_offsets([partition], "earliest") == {partition: 0}
        local = leader(nodes).log.local_log_start_offset
        assert await admin.list_offsets([partition], "earliest-local") == {partition: local}
        assert await admin.list_offsets([partition], "latest-tiered") == {partition: local - 1}
        assert await consumed(nodes, RECORDS) == list(range(RECORDS))
        assert await consumed(nodes, RECORDS, isolation="read_committed") == list(range(RECORDS))

        async with Consumer(bootstrap(nodes)) as consumer:
            first, *_ = (await consumer.offsets_for_times({(TOPIC, 0): 0})).values()
        assert first is not None and first.offset == 0, "the first record of all is in the store"

        await admin.delete_records({(TOPIC, 0): 31})
        await nodes.wait_until(lambda: not any("/00000000000000000000-" in key for key in store.objects))
        assert await consumed(nodes, RECORDS - 31) == list(range(31, RECORDS))
        assert store.objects


async def test_a_store_that_fails_keeps_segments_on_the_node(tmp_path: Path) -> None:
    """The store is down, full, and gives no answer: each record is on the node or in the store, and in the end each
    segment has one object."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        store.fail("put", times=1)
        store.answer_late("put", times=1)
        store.fail("get_range", times=1)
        store.fail("delete", times=1)
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        await produce(nodes, 0, 9)
        assert await consumed(nodes, 9) == list(range(9))
        await nodes.wait_until(all_left(nodes, 9))
        segments = [key for key in store.objects if key.endswith(".segment")]

        def each_once() -> bool:
            found = [key.rpartition("/")[2][:20] for key in store.objects if key.endswith(".segment")]
            return len(found) == len(set(found))

        await nodes.wait_until(each_once)
        assert segments
        assert await consumed(nodes, 9) == list(range(9))

        store.fail("get_range", times=2)
        assert await consumed(nodes, 9) == list(range(9)), "what is in the cache needs no store"


async def test_transactions_that_end_behind_the_tier(tmp_path: Path) -> None:
    """An aborted transaction spans segments that are only in the store: readers of decided records see none of it."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        await produce(nodes, 0, 4)
        async with Producer(bootstrap(nodes), transactional_id="t", linger_ms=0) as producer:
            with pytest.raises(KeyError):
                async with producer.transaction():
                    for _ in range(9):
                        await producer.send(TOPIC, b"-1." + b"." * 900, partition=0)
                    raise KeyError
        await produce(nodes, 4, 8)
        await nodes.wait_until(all_left(nodes, 22))
        assert await consumed(nodes, 12, isolation="read_committed") == list(range(12))
        assert len(await consumed(nodes, 21)) == 21


async def test_retention_counts_both_tiers(tmp_path: Path) -> None:
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            configs = {**TIERED, "retention.bytes": "10000"}
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=configs)
            with pytest.raises(InvalidConfig, match="cannot be switched off"):
                await admin.alter_topic(TOPIC, {"remote.storage.enable": "false"})
            with pytest.raises(InvalidConfig, match=r"local.retention.bytes is 10001, more than retention.bytes"):
                await admin.alter_topic(TOPIC, {"local.retention.bytes": "10001"})
        await produce(nodes, 0, 40)
        await nodes.wait_until(lambda: leader(nodes).log.log_start_offset >= 28)
        log = leader(nodes).log
        assert log.log_start_offset <= 30, "10,000 bytes remain in both tiers"
        await nodes.wait_until(lambda: len([key for key in store.objects if key.endswith(".segment")]) <= 7)
        first = log.log_start_offset
        assert await consumed(nodes, 40 - first) == list(range(first, 40))


async def test_a_snapshot_keeps_history_in_the_store_until_it_ends_and_nothing_on_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiered_partition, "RETENTION_MS", 50)
    store = FakeObjectStore()

    def segments() -> int:
        return sum(key.endswith(".segment") for key in store.objects)

    async with (
        real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes,
        Admin(bootstrap(nodes)) as admin,
    ):
        configs = {**TIERED, "retention.bytes": "10000", "local.retention.bytes": "10000"}
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=configs)
        await produce(nodes, 0, 4)
        await admin.create_topic_snapshot("friday", [TOPIC])
        await admin.alter_topic(TOPIC, {"local.retention.bytes": "0"})
        await nodes.wait_until(lambda: leader(nodes).log.pinned)
        await produce(nodes, 4, 36)
        await nodes.wait_until(closed_left(nodes))
        log = leader(nodes).log
        assert (log.log_start_offset, segments()) == (0, log.copied_end // 2), "all that is copied, 30,000 bytes"
        assert await consumed(nodes, 40) == list(range(40)), "the snapshot's records, and those behind it"

        await admin.delete_topic_snapshot("friday")
        await nodes.wait_until(lambda: not log.pinned and log.log_start_offset >= 28)
        await nodes.wait_until(lambda: segments() <= 7)


async def restart_without(nodes: RealNodes, first: int, end: int, log_start: EpochStart | None = None) -> None:
    """Let the coordinator delete the segments in [first, end) as if a leader had asked for it; the next leader, after
    a restart, knows of nothing else."""
    replica = leader(nodes)
    assert replica.remote is not None
    by = remote_logs_pb2.RemoteLogLeader(
        topic_id=replica.key.topic_id.bytes,
        partition=replica.key.partition,
        leader_epoch=replica.leader_epoch,
        node_id=0,
    )
    ids = [each.segment_id.bytes for each in replica.remote if first <= each.start_offset and each.end_offset <= end]
    request = remote_logs_pb2.DeleteRemoteSegmentsRequest(leader=by, segment_ids=ids)
    if log_start is not None:
        request.log_start.CopyFrom(common_pb2.EpochStart(epoch=log_start.epoch, start_offset=log_start.start_offset))
    await nodes.call(0, rpcs.REMOTE_LOGS_DELETE_REMOTE_SEGMENTS, request)
    await nodes.stop(0)
    await nodes.start(0)
    await nodes.wait_until(lambda: any(each.remote is not None for each in replicas(nodes)))


def missing_offsets(nodes: RealNodes) -> int:
    tier = nodes.nodes[0].node.metric_sources().tier
    assert tier is not None
    return tier.missing


async def test_segments_that_the_coordinator_has_lost_are_a_gap_that_readers_are_told_of(tmp_path: Path) -> None:
    """Goal: missing segments never move the log start. Method: the coordinator loses some in the middle. Passed: reads
    there name the offsets, the metric counts them, what is produced is copied and leaves the node, and the operator
    gives the records up."""
    store = FakeObjectStore()
    async with (
        real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes,
        Admin(bootstrap(nodes)) as admin,
    ):
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        await produce(nodes, 0, 30)
        await nodes.wait_until(all_left(nodes, 30))
        assert missing_offsets(nodes) == 0
        await restart_without(nodes, 10, 20)
        await nodes.wait_until(lambda: missing_offsets(nodes) == 10)
        assert leader(nodes).log.log_start_offset == 0
        assert await consumed(nodes, 10) == list(range(10)), "what is before the gap is read"
        with pytest.raises(RemoteObjectMissing, match=r"offsets 10 to 19, .* delete the records below offset 20"):
            await consumed(nodes, 30)

        await produce(nodes, 30, 20)
        await nodes.wait_until(all_left(nodes, 50))
        copies = [key for key in store.objects if key.endswith(".segment")]
        assert len(copies) == len({key.rpartition("/")[2][:20] for key in copies}), "nothing is copied twice"
        await admin.delete_records({(TOPIC, 0): 20})
        await nodes.wait_until(lambda: missing_offsets(nodes) == 0)
        assert await consumed(nodes, 30) == list(range(20, 50))


async def test_a_new_leader_takes_over_the_log_start_with_which_segments_were_deleted(tmp_path: Path) -> None:
    """The former leader has expired segments and died before this one knew of its log start."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        await produce(nodes, 0, 30)
        await nodes.wait_until(all_left(nodes, 30))
        epoch = leader(nodes).leader_epoch
        await restart_without(nodes, 0, 10, EpochStart(epoch, Offset(10)))
        await nodes.wait_until(lambda: leader(nodes).log.log_start_offset == 10)
        assert missing_offsets(nodes) == 0
        assert await consumed(nodes, 20) == list(range(10, 30))
        await restart_without(nodes, 10, 20, EpochStart(LeaderEpoch(epoch + 7), Offset(20)))
        await nodes.wait_until(lambda: missing_offsets(nodes) == 10)
        assert leader(nodes).log.log_start_offset == 10, "in an epoch that this log does not have: of other records"


async def test_an_upload_that_ended_late_is_swept(tmp_path: Path) -> None:
    store = FakeObjectStore()

    def prepare(nodes: RealNodes) -> None:
        of_store(store)(nodes)
        nodes.tiering = replace(nodes.tiering, sweep_ms=200)

    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=prepare) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=TIERED)
        await produce(nodes, 0, 12)
        await nodes.wait_until(all_left(nodes, 12))
        late = leader(nodes)
        key = f"{TOPIC}-{late.key.topic_id}/0/{0:020d}-{UUID(int=1 << 100)}.segment"
        store.put(key, [b"late"])
        await nodes.wait_until(lambda: key not in store.objects)
        assert await consumed(nodes, 12) == list(range(12)), "objects of segments stay"
