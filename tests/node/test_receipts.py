"""Receipts of batches: what the leader states is what the log has and what the followers have reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.node.wires import CALLER, TOPIC, Cluster, batch
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.records import RecordBatchBuilder, iter_batches
from tidelog.types import Codec, Offset, ProducerId


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = started()
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def started(**settings: Any) -> Cluster:
    cluster = Cluster(nodes=1, **settings)
    cluster.set(0, leader=1)
    return cluster


def numbered(sequence: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch of an idempotent producer."""
    builder = RecordBatchBuilder(codec, producer_id=ProducerId(7), producer_epoch=0, base_sequence=sequence)
    builder.append(key=b"k", value=b"%d" % sequence * 50, timestamp=1_700_000_000_000)
    return builder.build()


def produce(cluster: Cluster, records: bytes, *, acks: int = -1, receipts: bool = True) -> data_pb2.PartitionProduced:
    """The answer to one batch."""
    sent = ProduceBatch(correlation_id=1, topic_id=TOPIC.bytes, partition=0, records=records)
    request = ProduceRequest(acks=acks, timeout_ms=5_000, partitions=[sent], receipts=receipts)
    answer: data_pb2.PartitionProduced
    [answer] = cluster.wait(cluster.service(1).produce(request, CALLER)).partitions
    assert not answer.HasField("error"), answer
    return answer


def stored_checksums(cluster: Cluster) -> list[int]:
    log = cluster.log(1)
    return [each.crc for each in iter_batches(log.read(Offset(0), 1 << 20, up_to=log.log_end_offset).records)]


def test_a_receipt_states_the_stored_batch(cluster: Cluster) -> None:
    produce(cluster, batch(b"a"))
    receipt = produce(cluster, batch(b"b", b"c")).receipt
    assert UUID(bytes=receipt.topic_id) == TOPIC
    assert (receipt.last_offset, receipt.checksum) == (2, stored_checksums(cluster)[1])
    assert (list(receipt.replicas), list(receipt.durable_replicas), receipt.fsync) == ([1], [1], True)


def test_no_receipt_without_a_request_for_it(cluster: Cluster) -> None:
    assert not produce(cluster, batch(b"a"), receipts=False).HasField("receipt")


@pytest.mark.parametrize(
    "settings",
    [{"message_timestamp_type": "LogAppendTime"}, {"compression_type": "zstd"}, {"compression_type": "producer"}],
    ids=str,
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_checksum_is_that_of_the_batch_as_the_node_rewrote_it(settings: dict[str, str], codec: Codec) -> None:
    cluster = started(**settings)
    cluster.run(0.5)
    first, second = (produce(cluster, numbered(sequence, codec)).receipt for sequence in range(2))
    assert [first.checksum, second.checksum] == stored_checksums(cluster)
    cluster.run(0.5)
    duplicate = produce(cluster, numbered(0, codec))
    assert duplicate.duplicate
    assert duplicate.receipt == first, "that of the first copy"
    cluster.close()


def test_a_topic_of_an_earlier_format_has_no_receipts() -> None:
    cluster = started(message_format="v1")
    assert not produce(cluster, batch(b"a")).HasField("receipt")
    cluster.close()


def test_all_in_sync_replicas_have_a_batch_with_acks_all_durably() -> None:
    cluster = Cluster(nodes=3)
    cluster.set(0, leader=1)
    receipt = produce(cluster, batch(b"a")).receipt
    assert (list(receipt.replicas), list(receipt.durable_replicas)) == ([1, 2, 3], [1, 2, 3])
    cluster.close()


def test_with_acks_1_only_the_leader_is_known_to_have_it() -> None:
    cluster = Cluster(nodes=3)
    cluster.set(0, leader=1)
    cluster.run(1)
    receipt = produce(cluster, batch(b"a"), acks=1).receipt
    assert list(receipt.durable_replicas) == [1]
    assert set(receipt.replicas) <= {1, 2, 3}
    cluster.close()
