"""A follower's log is truncated beside the loop: which work waits for that meanwhile, and which does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest

from tests.node.wires import CALLER, TOPIC, Cluster, batch, fetch_request
from tidelog.errors import OffsetNotAvailable
from tidelog.records import iter_batches
from tidelog.types import LeaderEpoch, NodeId, TopicId

AGAIN = TopicId(UUID(int=71))


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Two partitions that node 1 leads. In the first, node 3 has led an epoch of its own in between, of which only it
    has two records; its log is to be truncated from 3 to 1, and its disk hangs."""
    cluster = Cluster(partitions=2)
    cluster.set(0, leader=NodeId(1))
    cluster.set(1, leader=NodeId(1))
    cluster.produce(1, batch(b"a"))
    cluster.until(lambda: cluster.watermark(3) == 1)
    cluster.set(leader=NodeId(3), publish=False)
    cluster.publish(3)
    cluster.append(3, batch(b"lost"), batch(b"lost too"))
    cluster.machines[3].executor.holding = True
    cluster.set(leader=NodeId(1), publish=False)
    cluster.publish(1)
    cluster.append(1, batch(b"b"))
    cluster.publish()
    cluster.until(lambda: cluster.log(3).truncation is not None, what="the truncation has begun")
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def values(records: bytes) -> list[bytes | None]:
    return [record.value for found in iter_batches(records) for record in found.records()]


def test_a_truncation_on_a_hanging_disk_delays_no_other_partition(cluster: Cluster) -> None:
    cluster.append(1, batch(b"c"), index=1)
    cluster.until(lambda: cluster.log(3, 1).log_end_offset == 1, what="the other partition is fetched")
    assert cluster.log(3).log_end_offset == 3
    cluster.machines[3].executor.release()
    cluster.until(lambda: cluster.contents(3) == cluster.contents(1) != b"")
    assert values(cluster.contents(3)) == [b"a", b"b"]


def test_nothing_is_fetched_or_reported_before_the_truncation_has_ended(cluster: Cluster) -> None:
    cluster.run(2)
    assert cluster.log(3).log_end_offset == 3
    assert cluster.watermark(1) == 1
    cluster.machines[3].executor.release()
    cluster.until(lambda: cluster.watermark(1) == 2)


def test_a_reader_of_a_log_under_truncation_waits(cluster: Cluster) -> None:
    """What it would read is committed, but where that lies is being changed."""
    epoch = cluster.state().leader_epoch
    request = fetch_request(0, epoch=epoch, max_wait_ms=100)
    reading = cluster.loop.create_task(cluster.service(3).fetch(request, CALLER))
    cluster.run(1)
    assert not reading.done()
    cluster.machines[3].executor.release()
    cluster.until(reading.done)
    assert values(bytes(reading.result().partitions[0].records))[:1] == [b"a"]


def test_a_reader_beyond_the_end_of_a_truncated_follower_is_not_told_that_its_offset_does_not_exist(
    cluster: Cluster,
) -> None:
    """The leader may have the offset: for an offset out of range, the reader would give up its position."""
    request = fetch_request(3, epoch=cluster.state().leader_epoch, max_wait_ms=60_000)
    reading = cluster.loop.create_task(cluster.service(3).fetch(request, CALLER))
    cluster.run(1)
    assert not reading.done()
    cluster.machines[3].executor.release()
    cluster.until(reading.done)
    assert type(reading.result().partitions[0].error) is OffsetNotAvailable


def test_a_new_leader_waits_until_its_log_is_truncated(cluster: Cluster) -> None:
    cluster.set(leader=NodeId(3))
    cluster.run(1)
    assert cluster.partition(3).leader is None
    cluster.machines[3].executor.release()
    cluster.until(lambda: cluster.partition(3).leader is not None)
    assert values(cluster.contents(3)) == [b"a"]
    cluster.produce(3, batch(b"d"))
    assert cluster.contents(1) == cluster.contents(3)


def test_of_several_changes_during_a_truncation_the_last_one_counts(cluster: Cluster) -> None:
    cluster.set(leader=NodeId(3))
    cluster.set(leader=NodeId(2))
    assert cluster.partition(3).leader_epoch < LeaderEpoch(4)
    cluster.machines[3].executor.release()
    cluster.until(lambda: cluster.partition(3).leader_epoch == cluster.state().leader_epoch)
    cluster.produce(2, batch(b"d"))
    assert cluster.contents(3) == cluster.contents(2) == cluster.contents(1)


def test_a_topic_deleted_during_a_truncation_is_removed_after_it(cluster: Cluster) -> None:
    cluster.image = replace(cluster.image, topics={}, topic_ids={})
    cluster.publish()
    cluster.run(1)
    assert "t-0" in cluster.machines[3].disk.list("/data")
    cluster.machines[3].executor.release()
    cluster.run(1)
    assert [name for name in cluster.machines[3].disk.list("/data") if name.startswith("t-")] == []


def test_a_topic_created_again_during_a_truncation_begins_after_it(cluster: Cluster) -> None:
    topic = cluster.image.topics[TOPIC]
    again = replace(
        topic, topic_id=AGAIN, partitions=tuple(replace(state, topic_id=AGAIN) for state in topic.partitions)
    )
    cluster.image = replace(cluster.image, topics={AGAIN: again}, topic_ids={"t": AGAIN})
    cluster.publish()
    cluster.run(1)
    cluster.machines[3].executor.release()
    cluster.run(1)
    assert cluster.log(3).topic_id == AGAIN
    cluster.produce(1, batch(b"new"), topic=AGAIN)
    assert values(cluster.contents(3)) == [b"new"]


def test_a_node_that_stops_during_a_truncation_closes_cleanly_after_it(cluster: Cluster) -> None:
    stopping = cluster.loop.create_task(cluster.manager(3).stop())
    cluster.until(stopping.done)
    assert cluster.directory(3).commit.busy
    cluster.machines[3].executor.release()
    assert not cluster.directory(3).commit.busy
    cluster.directory(3).close_clean()
    assert cluster.log(3).log_end_offset == 1
