"""Idempotent and transactional producers on nodes: duplicates answered as their first copies, reads by isolation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node.requests.refused_batches import NOTED_MAX, NOTED_MS
from storage.append_info import Origin
from tests.node.wires import CALLER, TOPIC, Cluster, fetch_request
from tidelog.errors import (
    DiskFull,
    InvalidProducerEpoch,
    InvalidRequest,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutOfOrderSequenceNumber,
)
from tidelog.protocol.v1 import common_pb2, data_pb2
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch
from tidelog.types import NO_LEADER_EPOCH

UNCOMMITTED = data_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED
COMMITTED = data_pb2.ISOLATION_LEVEL_READ_COMMITTED


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.set(leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def numbered(sequence: int, count: int = 1, *, producer: int = 9, epoch: int = 0, txn: bool = False) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=txn
    )
    for i in range(count):
        builder.append(key=None, value=b"%d" % (sequence + i), timestamp=1_000 + sequence + i)
    return builder.build()


def codes(cluster: Cluster, *batches: bytes, at: int = 1) -> list[int]:
    return [answer.error.code for answer in cluster.produce(at, *batches)]


def end_transaction(cluster: Cluster, *, commit: bool, producer: int = 9) -> None:
    """What a transaction coordinator on the leader does."""
    partition = cluster.partition(1)
    partition.log.append(
        control_batch(
            EndTxnMarker(committed=commit, coordinator_epoch=0),
            timestamp=5_000,
            producer_id=producer,
            producer_epoch=0,
        ),
        assign_offsets=True,
        leader_epoch=partition.leader_epoch,
        origin=Origin.COORDINATOR,
    )


def latest(cluster: Cluster, isolation: int, timestamp: int = -1) -> int:
    request = data_pb2.ListOffsetsRequest(isolation_level=isolation)  # type: ignore[arg-type]
    request.partitions.add(
        topic_id=TOPIC.bytes, partition=0, current_leader_epoch=NO_LEADER_EPOCH, timestamp_ms=timestamp
    )
    [listed] = cluster.wait(cluster.service(1).list_offsets(request, CALLER)).partitions
    assert listed.error.code == 0
    return int(listed.offset)


def test_a_resend_is_answered_as_its_first_copy(cluster: Cluster) -> None:
    [first] = cluster.produce(1, numbered(0, 3))
    [second] = cluster.produce(1, numbered(3))
    [again] = cluster.produce(1, numbered(0, 3))
    assert (first.base_offset, second.base_offset, again.base_offset) == (0, 3, 0)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (again.error.code, again.leader_epoch) == (0, first.leader_epoch)
    assert cluster.log(1).log_end_offset == cluster.log(2).log_end_offset == 4


def test_a_gap_and_an_old_epoch_are_refused_unwritten(cluster: Cluster) -> None:
    cluster.produce(1, numbered(0, epoch=2))
    answers = cluster.produce(1, numbered(5, epoch=2), numbered(0, epoch=1))
    assert [answer.error.code for answer in answers] == [OutOfOrderSequenceNumber.code, InvalidProducerEpoch.code]
    assert [answer.error.written for answer in answers] == [common_pb2.WRITTEN_NO] * 2


def test_a_batch_behind_a_refused_one_is_refused_for_the_same_reason(cluster: Cluster) -> None:
    """Two batches are on their way; the second arrives when what refused the first is over. Told that it is out of
    order, librdkafka would write records of other partitions twice."""
    cluster.produce(1, numbered(0))
    cluster.set(min_insync=3, isr=(1, 2))
    assert codes(cluster, numbered(1, 2)) == [NotEnoughReplicas.code]
    cluster.set(min_insync=1, isr=(1, 2))
    [behind] = cluster.produce(1, numbered(3))
    assert (behind.error.code, behind.error.written) == (NotEnoughReplicas.code, common_pb2.WRITTEN_NO)
    assert "up to sequence 2 of producer 9, was refused" in behind.error.message
    assert codes(cluster, numbered(4)) == [NotEnoughReplicas.code]  # and the one behind that one
    assert codes(cluster, numbered(1, 2), numbered(3), numbered(4)) == [0, 0, 0]
    assert cluster.log(1).log_end_offset == 5


def test_a_gap_that_no_refusal_explains_is_told(cluster: Cluster) -> None:
    cluster.produce(1, numbered(0), numbered(0, producer=8))
    cluster.set(min_insync=3, isr=(1, 2))
    assert codes(cluster, numbered(1)) == [NotEnoughReplicas.code]
    cluster.set(min_insync=1, isr=(1, 2))
    out_of_order = [OutOfOrderSequenceNumber.code]
    assert codes(cluster, numbered(3)) == out_of_order  # one more is missing
    assert codes(cluster, numbered(2, producer=8)) == out_of_order  # another producer's
    assert codes(cluster, numbered(2, epoch=1)) == out_of_order
    cluster.run(NOTED_MS / 1_000 + 1)
    assert codes(cluster, numbered(2)) == out_of_order  # the producer has given up the batch before


def test_a_batch_behind_one_that_found_a_full_disk_is_no_gap(cluster: Cluster) -> None:
    """The log refuses a gap before it looks at the disk: with several batches on their way, each full disk made one."""
    cluster.produce(1, numbered(0))
    disk = cluster.machines[1].disk
    disk.capacity = disk.used
    assert codes(cluster, numbered(1), numbered(2)) == [DiskFull.code, DiskFull.code]
    disk.capacity = None
    cluster.run(10)
    assert codes(cluster, numbered(1), numbered(2)) == [0, 0]


def test_a_batch_behind_one_for_the_former_leader_is_no_gap(cluster: Cluster) -> None:
    cluster.produce(1, numbered(0))
    assert codes(cluster, numbered(1), at=2) == [NotLeaderOrFollower.code]
    cluster.set(leader=2)
    assert codes(cluster, numbered(2), at=2) == [NotLeaderOrFollower.code]
    assert codes(cluster, numbered(1), numbered(2), at=2) == [0, 0]


def test_the_refusals_that_a_node_remembers_are_bounded(cluster: Cluster) -> None:
    cluster.produce(1, numbered(0, producer=0))
    cluster.set(min_insync=3, isr=(1, 2))
    for producer in range(NOTED_MAX + 1):
        assert codes(cluster, numbered(1, producer=producer)) == [NotEnoughReplicas.code]
    cluster.set(min_insync=1, isr=(1, 2))
    assert codes(cluster, numbered(2, producer=0)) == [OutOfOrderSequenceNumber.code]


def test_a_duplicate_waits_for_the_watermark_as_its_first_copy_does(cluster: Cluster) -> None:
    """Design section 4, rule 5."""
    for number in (2, 3):
        cluster.machines[number].executor.holding = True  # the followers' disks are slow
    first, again = cluster.append(1, numbered(0)), cluster.append(1, numbered(0))
    cluster.run(0.1)
    assert not first.done()
    assert not again.done()
    for number in (2, 3):
        cluster.machines[number].executor.release()
    cluster.until(again.done)
    assert first.done()
    assert [task.result().partitions[0].base_offset for task in (first, again)] == [0, 0]


def test_a_resend_that_finds_too_few_replicas_is_not_reported_as_unwritten(cluster: Cluster) -> None:
    """Scenario 11: were it refused as "not written", the client could give its sequence to another batch."""
    cluster.produce(1, numbered(0))
    cluster.set(min_insync=3, isr=(1, 2))
    [other] = cluster.produce(1, numbered(1))
    assert (other.error.code, other.error.written) == (NotEnoughReplicas.code, common_pb2.WRITTEN_NO)
    [again] = cluster.produce(1, numbered(0))
    assert (again.error.code, again.duplicate, again.base_offset) == (0, True, 0)


def test_a_new_leader_knows_the_producers_of_the_old_one(cluster: Cluster) -> None:
    cluster.produce(1, numbered(0, 2))
    cluster.kill(1)
    cluster.set(leader=2, isr=(2, 3))
    [again] = cluster.produce(2, numbered(0, 2))
    assert (again.duplicate, again.base_offset, again.error.code) == (True, 0, 0)
    [following] = cluster.produce(2, numbered(2))
    assert following.base_offset == 2


def test_a_truncated_batch_is_no_duplicate_afterwards(cluster: Cluster) -> None:
    """Scenario 3: producer state does not survive the truncation."""
    cluster.produce(1, numbered(0))
    cluster.wires.stalled = True
    lost = cluster.append(1, numbered(1))
    cluster.run(0.01)
    assert cluster.log(1).log_end_offset == 2
    cluster.kill(1)
    lost.cancel()
    cluster.wires.stalled = False
    cluster.set(leader=2, isr=(2, 3))
    [taken] = cluster.produce(2, numbered(0, producer=4))
    assert taken.base_offset == 1
    cluster.start(1)
    cluster.run(2.0)
    cluster.set(leader=1)
    cluster.run(1.0)
    [again] = cluster.produce(1, numbered(1))
    assert (again.duplicate, again.base_offset, again.error.code) == (False, 2, 0)


def test_readers_of_decided_records_see_no_open_transaction(cluster: Cluster) -> None:
    """Trap 8: ListOffsets respects the isolation level, also by timestamp."""
    cluster.produce(1, numbered(0, 2))
    cluster.produce(1, numbered(2, 2, txn=True))
    assert (latest(cluster, UNCOMMITTED), latest(cluster, COMMITTED)) == (4, 2)
    assert (latest(cluster, UNCOMMITTED, 1_003), latest(cluster, COMMITTED, 1_003)) == (3, -1)
    everything = cluster.fetch(1, 0)
    assert (everything.high_watermark, everything.last_stable_offset) == (4, 2)
    request = fetch_request(0)
    request.isolation_level = COMMITTED
    [decided] = cluster.wait(cluster.service(1).fetch(request, CALLER)).partitions
    assert len(decided.records) < len(everything.records)
    request.partitions[0].fetch_offset = 2
    [nothing] = cluster.wait(cluster.service(1).fetch(request, CALLER)).partitions
    assert (len(nothing.records), nothing.error) == (0, None)


def test_every_answer_to_a_fetch_has_the_watermark_and_the_last_stable_offset(cluster: Cluster) -> None:
    """Trap 4: clients that wait at the end stall if an empty answer, or one with an error, lacks them."""
    cluster.produce(1, numbered(0, 2))
    cluster.produce(1, numbered(2, 2, txn=True))
    for isolation, offset in ((UNCOMMITTED, 4), (COMMITTED, 2), (COMMITTED, 4), (UNCOMMITTED, 9), (COMMITTED, 9)):
        request = fetch_request(offset)
        request.isolation_level = isolation
        [fetched] = cluster.wait(cluster.service(1).fetch(request, CALLER)).partitions
        assert len(fetched.records) == 0
        assert (fetched.error.code if fetched.error else 0) == (OffsetOutOfRange.code if offset == 9 else 0)
        assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (4, 2, 0)


def test_aborted_transactions_are_listed_on_request(cluster: Cluster) -> None:
    cluster.produce(1, numbered(0, 2, txn=True))
    end_transaction(cluster, commit=False)
    cluster.produce(1, numbered(0, producer=4))
    request = fetch_request(0)
    request.isolation_level = COMMITTED
    [fetched] = cluster.wait(cluster.service(1).fetch(request, CALLER)).partitions
    assert [(entry.producer_id, entry.first_offset) for entry in fetched.aborted] == [(9, 0)]
    assert not cluster.fetch(1, 0).aborted
    assert latest(cluster, COMMITTED) == 4
    cluster.run(2.0)
    assert cluster.log(2).last_stable_offset == 4, "followers know it as well"


def test_an_unknown_isolation_level_is_refused(cluster: Cluster) -> None:
    request = fetch_request(0)
    request.isolation_level = 7  # type: ignore[assignment]
    with pytest.raises(InvalidRequest, match="isolation"):
        cluster.wait(cluster.service(1).fetch(request, CALLER))
