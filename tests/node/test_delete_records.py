"""DeleteRecords at three nodes: the log start moves on all replicas, durably, before the answer, and stays."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping

import pytest

from storage.isolation import FetchIsolation
from tests.node.marker_requests import batch as transactional
from tests.node.marker_requests import request_of, sent
from tests.node.wires import CALLER, TOPIC, Cluster, batch
from tidelog.errors import (
    InvalidTopic,
    LeadershipLost,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    PolicyViolation,
    RequestTimedOut,
    UnknownTopicId,
)
from tidelog.protocol.v1 import data_pb2
from tidelog.types import EARLIEST, NO_LEADER_EPOCH, TopicPartition

RECORDS = 12


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Node 1 leads, and all nodes have 12 records, each in its own batch and each two in a segment of their own."""
    cluster = Cluster(segment_bytes="1024")
    cluster.set(leader=1)
    cluster.produce(1, *(batch(b"%d" % number + b"." * 400) for number in range(RECORDS)))
    cluster.until(lambda: all(cluster.watermark(node) == RECORDS for node in (1, 2, 3)))
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def request(*offsets: int, max_wait_ms: int = 5_000) -> data_pb2.DeleteRecordsRequest:
    """One deletion after another in partition 0."""
    deletions = [data_pb2.PartitionDeletion(topic_id=TOPIC.bytes, partition=0, offset=each) for each in offsets]
    return data_pb2.DeleteRecordsRequest(partitions=deletions, max_wait_ms=max_wait_ms)


def deleted(cluster: Cluster, *offsets: int, node: int = 1, max_wait_ms: int = 5_000) -> list[tuple[int, int]]:
    """The code and the low watermark of each answer."""
    asked = request(*offsets, max_wait_ms=max_wait_ms)
    answer = cluster.wait(cluster.service(node).delete_records(asked, CALLER))
    return [(each.error.code, each.low_watermark) for each in answer.partitions]


def starts(cluster: Cluster, nodes: tuple[int, ...] = (1, 2, 3)) -> Mapping[int, int]:
    return {node: cluster.log(node).log_start_offset for node in nodes}


def test_the_records_are_gone_on_every_replica_when_the_answer_comes(cluster: Cluster) -> None:
    assert deleted(cluster, 7) == [(0, 7)]
    assert starts(cluster) == {1: 7, 2: 7, 3: 7}
    assert cluster.fetch(1, 6).error.code == OffsetOutOfRange.code
    assert len(cluster.fetch(1, 7).records) > 0
    assert cluster.partition(1).offset_at(EARLIEST, FetchIsolation.HIGH_WATERMARK, NO_LEADER_EPOCH)[0] == 7


def test_the_segments_below_are_removed(cluster: Cluster) -> None:
    before = len(cluster.log(2).segments)
    deleted(cluster, 7)
    cluster.until(lambda: all(cluster.log(node).segments.first.base_offset == 6 for node in (1, 2, 3)))
    assert len(cluster.log(2).segments) == before - 3


def test_minus_one_deletes_everything_and_the_log_goes_on_from_there(cluster: Cluster) -> None:
    assert deleted(cluster, -1) == [(0, RECORDS)]
    [produced] = cluster.produce(1, batch(b"next"))
    assert produced.base_offset == RECORDS
    assert starts(cluster) == {1: RECORDS, 2: RECORDS, 3: RECORDS}


def test_the_answer_waits_for_each_replica_in_service(cluster: Cluster) -> None:
    cluster.machines[3].executor.holding = True
    task = cluster.loop.create_task(cluster.service(1).delete_records(request(7), CALLER))
    cluster.until(lambda: starts(cluster, (1, 2)) == {1: 7, 2: 7})
    cluster.run(0.5)
    assert not task.done()
    cluster.machines[3].executor.release()
    cluster.until(task.done)
    assert task.result().partitions[0].low_watermark == 7


def test_a_partition_without_other_replicas_needs_no_timeout() -> None:
    """Kafka's clients may send a timeout of 0, which Kafka answers with success if nothing is to be waited for."""
    cluster = Cluster(nodes=1)
    cluster.set(leader=1)
    cluster.produce(1, batch(b"one"), batch(b"two"))
    cluster.machines[1].executor.holding = True
    task = cluster.loop.create_task(cluster.service(1).delete_records(request(1, max_wait_ms=0), CALLER))
    cluster.run(0.5)
    assert not task.done(), "its own disk is slow"
    cluster.machines[1].executor.release()
    cluster.until(task.done)
    [answer] = task.result().partitions
    assert (answer.error.code, answer.low_watermark) == (0, 1)
    cluster.loop.raise_defects()
    cluster.close()


def test_a_replica_that_lags_lets_the_request_time_out_and_follows_later(cluster: Cluster) -> None:
    cluster.machines[3].executor.holding = True
    assert deleted(cluster, 7, max_wait_ms=200) == [(RequestTimedOut.code, 0)]
    cluster.machines[3].executor.release()
    cluster.until(lambda: starts(cluster) == {1: 7, 2: 7, 3: 7})
    assert deleted(cluster, 7) == [(0, 7)], "to repeat it is harmless"


def test_a_replica_whose_disk_was_full_deletes_the_records_by_itself(cluster: Cluster) -> None:
    """It tried again only when the next record came, and until then every deletion ended with a timeout."""
    cluster.machines[3].disk.fail("write", "log-start-offset-checkpoint", error=errno.ENOSPC, times=1_000_000)
    assert deleted(cluster, 7, max_wait_ms=200) == [(RequestTimedOut.code, 0)]
    cluster.run(5.0)
    assert (starts(cluster), cluster.directory(3).offline) == ({1: 7, 2: 7, 3: 0}, None)
    cluster.machines[3].disk.heal()
    cluster.until(lambda: starts(cluster) == {1: 7, 2: 7, 3: 7})
    assert deleted(cluster, 7) == [(0, 7)]


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_node_that_acknowledged_starts_there_after_a_crash(cluster: Cluster, power_fails: bool) -> None:
    deleted(cluster, 7)
    for node in (1, 2, 3):
        cluster.kill(node, power_fails=power_fails)
    for node in (1, 2, 3):
        cluster.start(node)
    assert starts(cluster) == {1: 7, 2: 7, 3: 7}


def test_the_next_leader_has_the_log_start(cluster: Cluster) -> None:
    deleted(cluster, 7)
    cluster.set(leader=2)
    assert cluster.fetch(2, 6).error.code == OffsetOutOfRange.code
    cluster.produce(2, batch(b"next"))
    assert starts(cluster) == {1: 7, 2: 7, 3: 7}


def test_a_replica_that_was_down_learns_the_log_start_before_it_is_in_sync(cluster: Cluster) -> None:
    cluster.stop(3)
    cluster.set(isr=(1, 2))
    assert deleted(cluster, 7, max_wait_ms=300) == [(RequestTimedOut.code, 0)], "its node is still in service"
    cluster.machines[3].executor.holding = True
    cluster.start(3)
    cluster.run(1)
    cluster.machines[3].executor.release()
    cluster.until(lambda: cluster.state().isr == (1, 2, 3))
    assert starts(cluster) == {1: 7, 2: 7, 3: 7}


def test_each_deletion_is_answered_by_itself(cluster: Cluster) -> None:
    asked = request(3, RECORDS + 1, -2, 5)
    asked.partitions.add(topic_id=b"?" * 16, partition=0, offset=1)
    answer = cluster.wait(cluster.service(1).delete_records(asked, CALLER))
    codes = [each.error.code for each in answer.partitions]
    assert codes == [0, OffsetOutOfRange.code, OffsetOutOfRange.code, 0, UnknownTopicId.code]
    assert f"high watermark at {RECORDS}" in answer.partitions[1].error.message
    assert starts(cluster, (1,)) == {1: 5}


def test_an_empty_request_has_an_empty_answer(cluster: Cluster) -> None:
    assert deleted(cluster) == []


def test_a_node_that_does_not_lead_names_the_leader(cluster: Cluster) -> None:
    answer = cluster.wait(cluster.service(2).delete_records(request(3), CALLER))
    error = answer.partitions[0].error
    assert (error.code, error.leader.node_id) == (NotLeaderOrFollower.code, 1)


def test_a_leader_that_is_deposed_meanwhile_fails_the_deletion(cluster: Cluster) -> None:
    cluster.machines[3].executor.holding = True
    task = cluster.loop.create_task(cluster.service(1).delete_records(request(7), CALLER))
    cluster.run(0.2)
    cluster.set(leader=2)
    cluster.until(task.done)
    assert task.result().partitions[0].error.code == LeadershipLost.code


@pytest.mark.parametrize(("policy", "code"), [("compact", PolicyViolation.code), ("compact,delete", 0)])
def test_a_topic_that_is_only_compacted_refuses(policy: str, code: int) -> None:
    cluster = Cluster(cleanup_policy=policy)
    cluster.set(leader=1)
    found = [found for found, _ in deleted(cluster, 0)]
    cluster.close()
    assert found == [code]


def test_an_internal_topic_refuses(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = cluster.partition(1)
    monkeypatch.setattr(replica, "name", TopicPartition("__consumer_offsets", replica.name.partition))
    assert [found for found, _ in deleted(cluster, 3)] == [InvalidTopic.code]


def test_readers_of_an_open_transaction_go_on_behind_its_deletion() -> None:
    """The last stable offset is not below the log start, and a reader that waited there is told."""
    cluster = Cluster()
    cluster.set(leader=1)
    cluster.produce(1, batch(b"a"), transactional(0), batch(b"b"))
    assert cluster.log(1).last_stable_offset == 1
    waiting = cluster.loop.create_task(
        cluster.service(1).fetch(committed_fetch(offset=1), CALLER),
    )
    cluster.run(0.1)
    assert not waiting.done()
    assert deleted(cluster, -1) == [(0, 3)]
    cluster.until(waiting.done)
    assert waiting.result().partitions[0].error.code == OffsetOutOfRange.code
    assert cluster.log(1).last_stable_offset == 3
    assert sent(cluster, request_of()) == [0], "its coordinator can still end it"
    cluster.close()


def committed_fetch(offset: int) -> data_pb2.FetchRequest:
    """A fetch with read_committed that may wait for long."""
    request = data_pb2.FetchRequest(
        max_wait_ms=60_000, min_bytes=1, isolation_level=data_pb2.ISOLATION_LEVEL_READ_COMMITTED
    )
    request.partitions.add(
        fetch_id=1,
        topic_id=TOPIC.bytes,
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        durable_offset=-1,
        log_start_offset=-1,
        max_bytes=1 << 20,
    )
    return request
