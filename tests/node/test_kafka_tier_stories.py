"""Stories of Kafka's tests of tiered storage (org.apache.kafka.tiered.storage.integration) on a real node;
docs/tiering.md has the table of all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.checkpoints.checkpoint_file import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from storage.checkpoints.directory_identity import CLEAN_SHUTDOWN
from storage.directory.maintenance_config import MaintenanceConfig
from storage.isolation import FetchIsolation
from testbed.fake_object_store import FakeObjectStore
from tests.node.real_nodes import RealNodes, real_nodes
from tests.node.tiered_nodes import (
    COORDINATORS,
    TIERED,
    TOPIC,
    all_left,
    bootstrap,
    closed_left,
    consume_more,
    consumed,
    elect_unclean,
    leader,
    of_store,
    produce,
)
from tidelog import Admin, Consumer, Producer, TopicPartition
from tidelog.clock import MachineClock
from tidelog.types import MAX_TIMESTAMP, PartitionIndex

pytestmark = pytest.mark.usefixtures("quick_tier")

pytestmark = pytest.mark.usefixtures("quick_tier")

FIRST = TopicPartition(TOPIC, PartitionIndex(0))
RECORDS = 12


@asynccontextmanager
async def one_node(home: Path, store: FakeObjectStore, **configs: str) -> AsyncIterator[tuple[RealNodes, Admin]]:
    """With a topic that has a remote tier, unless its settings say otherwise."""
    async with (
        real_nodes(home, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes,
        Admin(bootstrap(nodes)) as admin,
    ):
        settings = {**TIERED, **{key.replace("_", "."): value for key, value in configs.items()}}
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=settings)
        yield nodes, admin


def copies(store: FakeObjectStore) -> list[str]:
    return [key for key in store.objects if key.endswith(".segment")]


async def test_what_was_there_before_the_tier_is_copied_too(tmp_path: Path) -> None:
    """EnableRemoteLogOnTopicTest."""
    store = FakeObjectStore()
    async with real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=of_store(store)) as nodes:
        async with Admin(bootstrap(nodes)) as admin:
            local = {key: value for key, value in TIERED.items() if not key.startswith(("remote.", "local."))}
            await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=local)
            await produce(nodes, 0, RECORDS)
            assert not copies(store)
            await admin.alter_topic(TOPIC, {"remote.storage.enable": "true", "local.retention.bytes": "0"})
        await nodes.wait_until(all_left(nodes, RECORDS))
        assert await consumed(nodes, RECORDS) == list(range(RECORDS))


async def test_a_topic_that_was_compacted_is_copied_with_its_emptied_segments(tmp_path: Path) -> None:
    """Compaction leaves first segments without a record. They are copied as others are: a copy that left them out would
    never be one without a gap, and the segments behind it would be copied again and again."""
    store = FakeObjectStore()

    def prepare(nodes: RealNodes) -> None:
        of_store(store)(nodes)
        nodes.maintenance = MaintenanceConfig(retention_check_ms=200, cleaner_backoff_ms=50)

    async with (
        real_nodes(tmp_path, 1, coordinators=COORDINATORS, prepare=prepare) as nodes,
        Admin(bootstrap(nodes)) as admin,
    ):
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}
        settings = {**compacted, "segment.bytes": TIERED["segment.bytes"]}
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1, configs=settings)
        async with Producer(bootstrap(nodes), linger_ms=0) as producer:
            for number in range(RECORDS):
                await producer.send(TOPIC, f"{number}".encode() + b"." * 900, b"the only key", partition=0)
        log = leader(nodes).log
        await nodes.wait_until(lambda: sum(each.size for each in log.segments[:-1]) < 1_000)  # one record
        assert not log.segments[0].size
        await admin.alter_topic(
            TOPIC, {"cleanup.policy": "delete", "remote.storage.enable": "true", "local.retention.bytes": "0"}
        )
        await nodes.wait_until(all_left(nodes, RECORDS))
        await produce(nodes, RECORDS, RECORDS)
        await nodes.wait_until(all_left(nodes, 2 * RECORDS))
        starts = [key.rpartition("/")[2][:20] for key in copies(store)]
        assert len(starts) == len(set(starts)), "each segment was copied once"
        kept = await consumed(nodes, 3 + RECORDS)  # of the first ones, one and the active segment
        assert kept[-RECORDS:] == list(range(RECORDS, 2 * RECORDS))
        assert kept == await consumed(nodes, len(kept), isolation="read_committed")


async def test_partitions_that_are_added_are_copied(tmp_path: Path) -> None:
    """PartitionsExpandTest."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store) as (nodes, admin):
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(all_left(nodes, RECORDS))
        await admin.create_partitions(TOPIC, 3)
        await nodes.wait_led(leader(nodes).key.topic_id.bytes, 3)
        for partition in (1, 2):
            await produce(nodes, 0, RECORDS, partition=partition)
        await produce(nodes, RECORDS, 4)
        for partition in (1, 2):
            await nodes.wait_until(all_left(nodes, RECORDS, partition=partition))
            assert await consumed(nodes, RECORDS, partition=partition) == list(range(RECORDS))
        await nodes.wait_until(all_left(nodes, RECORDS + 4))
        assert await consumed(nodes, RECORDS + 4) == list(range(RECORDS + 4))


async def test_a_deleted_topic_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    """DeleteTopicTest."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store) as (nodes, admin):
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(all_left(nodes, RECORDS))
        assert copies(store)
        await admin.delete_topic(TOPIC)
        await nodes.wait_until(lambda: not store.objects)


async def test_offsets_are_listed_over_both_tiers(tmp_path: Path) -> None:
    """ListOffsetsTest: by place, by time, and after records were deleted."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store) as (nodes, admin):
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(closed_left(nodes))
        log = leader(nodes).log

        async def at(place: object) -> int:
            return (await admin.list_offsets([FIRST], place))[FIRST]  # type: ignore[arg-type]

        assert await at("earliest") == 0
        assert await at("earliest-local") == log.local_log_start_offset
        assert await at("latest-tiered") == log.copied_end - 1
        assert await at("latest") == RECORDS
        assert await at(datetime.fromtimestamp(0, UTC)) == 0, "the first record by time is in the store"

        await admin.delete_records({FIRST: 3})
        assert await at("earliest") == 3
        await admin.delete_records({FIRST: log.local_log_start_offset})
        assert await at("earliest") == await at("earliest-local") == log.local_log_start_offset
        await nodes.wait_until(lambda: not copies(store))


async def test_the_largest_timestamp_is_that_of_a_record_that_readers_get(tmp_path: Path) -> None:
    """Also where the log starts in a segment whose largest one belongs to a deleted record. Kafka's brokers answer it
    of the local segments (KAFKA-17552)."""
    store, now = FakeObjectStore(), MachineClock().wall_ms()
    stamps = {0: 1, 1: 2, 2: 90, 3: 50, 4: 80, 5: 60}
    async with one_node(tmp_path, store) as (nodes, admin):
        async with Producer(bootstrap(nodes), linger_ms=0) as producer:
            for number in range(RECORDS):
                stamp = now + stamps.get(number, number)
                await producer.send(TOPIC, b"." * 900, partition=0, timestamp=stamp)
        await nodes.wait_until(all_left(nodes, RECORDS))
        replica = leader(nodes)

        async def largest() -> tuple[int, int] | None:
            found = await replica.offset_in_tier(MAX_TIMESTAMP, FetchIsolation.HIGH_WATERMARK, replica.leader_epoch)
            return None if found is None else (found[0], found[1] - now)

        assert await largest() == (2, 90)
        await admin.delete_records({FIRST: 3})
        assert await largest() == (4, 80), "that of the segment of offset 3 is deleted"
        await admin.delete_records({FIRST: 5})
        assert await largest() == (5, 60), "and here the rest of the segment has the largest one"
        await admin.delete_records({FIRST: 6})
        assert await largest() is None, "it is local"


async def test_a_leader_that_has_lost_its_checkpoints_reads_from_both_tiers(tmp_path: Path) -> None:
    """FetchFromLeaderWithCorruptedCheckpointTest."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store) as (nodes, _):
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(all_left(nodes, RECORDS))
        await nodes.stop(0)
        home = tmp_path / "node-0"
        for name in (HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, CLEAN_SHUTDOWN):
            (home / name).unlink()
        await nodes.start(0)
        await nodes.wait_whole()
        await produce(nodes, RECORDS, 4)
        assert await consumed(nodes, RECORDS + 4) == list(range(RECORDS + 4))


async def test_a_leader_that_has_lost_its_epochs_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the file it cannot tell whose segments they are: a replica that has the epochs may still lead. It leads
    only if an operator accepts that."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store) as (nodes, admin):
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(closed_left(nodes))
        copied = {*copies(store)}
        file = tmp_path / "node-0" / f"{TOPIC}-0" / LEADER_EPOCH_CHECKPOINT
        await nodes.stop(0)
        file.unlink()
        await nodes.start(0)
        await nodes.wait_until(lambda: "leader epochs of what is in the remote tier are lost" in caplog.text)
        await elect_unclean(nodes, admin)
        await nodes.wait_until(lambda: "remote segments below it are kept and not read" in caplog.text)
        await produce(nodes, RECORDS, 4)
        local = leader(nodes).log.local_log_start_offset
        async with Consumer(bootstrap(nodes)) as consumer:
            consumer.assign([(TOPIC, 0)])
            await consumer.seek((TOPIC, 0), local)
            numbers: list[int] = []
            await consume_more(consumer, numbers, RECORDS + 4 - local)
        assert numbers == list(range(local, RECORDS + 4))
        assert {*copies(store)} == copied, "an object of this log would not have the epochs either"


async def test_by_time_both_tiers_expire(tmp_path: Path) -> None:
    """DeleteSegmentsByRetentionTimeTest."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store) as (nodes, admin):
        await produce(nodes, 0, RECORDS)
        await nodes.wait_until(all_left(nodes, RECORDS))
        await admin.alter_topic(TOPIC, {"retention.ms": "1", "local.retention.ms": "1"})
        await nodes.wait_until(lambda: not copies(store) and leader(nodes).log.log_start_offset == RECORDS)


async def test_the_active_segment_is_rolled_by_its_age_and_copied(tmp_path: Path) -> None:
    """RollAndOffloadActiveSegmentTest: without another record, too."""
    store = FakeObjectStore()
    async with one_node(tmp_path, store, local_retention_ms="1") as (nodes, _):
        await produce(nodes, 0, 1)
        await nodes.wait_until(lambda: leader(nodes).log.local_log_start_offset == 1)
        assert len(copies(store)) == 1
        assert await consumed(nodes, 1) == [0]
