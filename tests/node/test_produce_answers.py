"""The answer for each batch: its offset, append time, epoch, and the log start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.log_start import delete_records
from tests.node.wires import CALLER, TOPIC, Cluster, batch
from tidelog.errors import InvalidRecord, NotLeaderOrFollower, OutOfOrderSequenceNumber
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import RecordBatchBuilder, iter_batches
from tidelog.types import Offset, ProducerId


def started(timestamp_type: str = "CreateTime", cleanup_policy: str = "delete") -> Cluster:
    cluster = Cluster(nodes=1, message_timestamp_type=timestamp_type, cleanup_policy=cleanup_policy)
    cluster.set(0, leader=1)
    return cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = started()
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def numbered(sequence: int) -> bytes:
    """A batch of an idempotent producer."""
    builder = RecordBatchBuilder(producer_id=ProducerId(7), producer_epoch=0, base_sequence=sequence)
    builder.append(key=None, value=b"%d" % sequence, timestamp=1_700_000_000_000)
    return builder.build()


def produce(cluster: Cluster, records: bytes) -> data_pb2.PartitionProduced:
    """The answer to one batch."""
    sent = ProduceBatch(correlation_id=1, topic_id=TOPIC.bytes, partition=0, records=records)
    request = ProduceRequest(acks=-1, timeout_ms=1_000, partitions=[sent])
    answer: data_pb2.PartitionProduced
    [answer] = cluster.wait(cluster.service(1).produce(request, CALLER)).partitions
    return answer


def test_create_time_is_no_append_time(cluster: Cluster) -> None:
    answer = produce(cluster, batch(b"a", b"b"))
    assert (answer.batch_id, answer.base_offset, answer.log_append_time_ms) == (1, 0, -1)
    assert (answer.log_start_offset, answer.leader_epoch, answer.duplicate) == (0, cluster.state().leader_epoch, False)
    assert produce(cluster, batch(b"c")).base_offset == 2


def test_the_append_time_is_the_one_that_readers_see() -> None:
    cluster = started("LogAppendTime")
    cluster.run(0.5)
    answer = produce(cluster, numbered(0))
    log = cluster.log(1)
    [stored] = iter_batches(log.read(Offset(0), 1 << 20, up_to=log.log_end_offset).records)
    assert answer.log_append_time_ms == stored.max_timestamp > 1_700_000_000_000
    cluster.run(0.5)
    again = produce(cluster, numbered(0))
    assert (again.duplicate, again.log_append_time_ms) == (True, answer.log_append_time_ms), "the first copy's"
    cluster.close()


def test_the_log_start_is_named_also_where_the_batch_is_refused(cluster: Cluster) -> None:
    for sequence in range(3):
        produce(cluster, numbered(sequence))
    delete_records(cluster.log(1), Offset(2))
    assert produce(cluster, numbered(3)).log_start_offset == 2
    assert produce(cluster, numbered(3)).log_start_offset == 2, "a duplicate's answer"
    refused = produce(cluster, numbered(9))
    assert refused.error.code == OutOfOrderSequenceNumber.code
    assert (refused.log_start_offset, refused.base_offset, refused.log_append_time_ms) == (2, -1, -1)


def test_a_duplicate_is_answered_with_the_epoch_of_its_first_copy(cluster: Cluster) -> None:
    first = produce(cluster, numbered(0))
    cluster.set(0, leader=1)
    later = cluster.state().leader_epoch
    assert produce(cluster, numbered(1)).leader_epoch == later
    again = produce(cluster, numbered(0))
    assert (again.duplicate, again.base_offset) == (True, 0)
    assert again.leader_epoch == first.leader_epoch < later


def test_a_refusal_names_the_epoch_and_the_leader() -> None:
    cluster = Cluster(nodes=2)
    cluster.set(0, leader=2)
    refused = produce(cluster, batch(b"a"))
    assert refused.error.code == NotLeaderOrFollower.code
    assert refused.leader_epoch == cluster.state().leader_epoch
    cluster.close()


def test_a_refusal_names_the_records_that_are_wrong() -> None:
    cluster = started(cleanup_policy="compact")
    builder = RecordBatchBuilder()
    for key in (b"k", None, b"k", None):
        builder.append(key=key, value=b"v", timestamp=1_700_000_000_000)
    refused = produce(cluster, builder.build())
    assert refused.error.code == InvalidRecord.code
    assert [each.index for each in refused.record_errors] == [1, 3]
    assert all("no key" in each.message for each in refused.record_errors)
    cluster.close()
