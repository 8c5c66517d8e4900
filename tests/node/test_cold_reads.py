"""Fetches that wait for a disk: other work continues meanwhile, and the log may change before they end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from node.replicas.replica_config import ReplicaConfig
from node.replicas.waiting_fetch import AT_ONCE
from node.requests import data_handlers
from replication.partition.replica_lifecycle import ReplicaState
from tests.fakes.log_start import delete_records
from tests.node.wires import CALLER, Cluster, as_value, batch, endpoint_of, fetch_request
from tests.record_values import collected
from tidelog.errors import KafkaStorageError, NotLeaderOrFollower
from tidelog.protocol import methods
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import FetchAnswer
from tidelog.records import iter_batches
from tidelog.types import NodeId, Offset

PARTITIONS = 12


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Node 1 leads; none of its log is in memory, and its disk answers when the test lets it."""
    cluster = Cluster(partitions=PARTITIONS)
    for index in range(PARTITIONS):
        cluster.set(index, leader=NodeId(1))
    for index in range(PARTITIONS):
        cluster.produce(1, batch(b"a"), batch(b"b"), index=index)
    cluster.run(1)
    cluster.machines[1].disk.is_cold = lambda path: path.endswith(".log")
    cluster.machines[1].executor.holding = True
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def values(answer: FetchAnswer) -> list[list[bytes | None]]:
    return [
        [record.value for found in iter_batches(part.records) for record in found.records()]
        for part in sorted(answer.partitions, key=lambda part: part.partition)
    ]


def error_of(answer: FetchAnswer) -> str:
    error = answer.partitions[0].error
    return "" if error is None else to_proto(error).name


def reading(cluster: Cluster, *indexes: int, offset: int = 0, max_wait_ms: int = 100) -> asyncio.Task[FetchAnswer]:
    request = fetch_request(offset, index=indexes[0], max_wait_ms=max_wait_ms)
    for index in indexes[1:]:
        more: data_pb2.FetchPartition = fetch_request(offset, index=index).partitions[0]
        request.partitions.append(more)
    task = cluster.loop.create_task(cluster.service(1).fetch(request, CALLER))
    cluster.run(0.01)
    return task


def release(cluster: Cluster) -> None:
    cluster.machines[1].executor.release()


def test_a_read_that_waits_for_the_disk_delays_no_other(cluster: Cluster) -> None:
    slow = reading(cluster, 0)
    cluster.machines[1].disk.is_cold = None
    assert values(cluster.wait(cluster.service(1).fetch(fetch_request(0, index=1), CALLER))) == [[b"a", b"b"]]
    cluster.run(1)
    assert not slow.done(), "it waits beyond its time: it would only ask again"
    release(cluster)
    cluster.until(slow.done)
    assert values(slow.result()) == [[b"a", b"b"]]


def test_followers_are_served_from_the_disk_too(cluster: Cluster) -> None:
    cluster.read_files_only(1)
    produced = cluster.append(1, batch(b"c"))
    cluster.run(0.5)
    assert cluster.log(2).log_end_offset == 2
    release(cluster)
    cluster.until(produced.done)
    assert cluster.contents(2) == cluster.contents(1)


def test_so_many_reads_of_one_stream_are_under_way_and_no_more(cluster: Cluster) -> None:
    everything = reading(cluster, *range(PARTITIONS))
    executor = cluster.machines[1].executor
    assert len(executor._waiting) == AT_ONCE
    release(cluster)
    cluster.until(everything.done)
    assert values(everything.result()) == [[b"a", b"b"]] * PARTITIONS


def test_reads_of_one_stream_that_end_together_are_sent_in_several_messages() -> None:
    """Each of the four may be as large as the largest batch: together they would exceed the limit of a message."""
    cluster = Cluster(partitions=AT_ONCE, config=ReplicaConfig(response_bytes=1_000))
    for index in range(AT_ONCE):
        cluster.set(index, leader=NodeId(1))
        cluster.produce(1, batch(bytes(900)), index=index)
    cluster.run(1)
    cluster.machines[1].disk.is_cold = lambda path: path.endswith(".log")
    cluster.machines[1].executor.holding = True
    stream = cluster.wait(cluster.wires.open_stream(endpoint_of(1), methods.DATA_FETCH_STREAM))
    for index in range(AT_ONCE):
        cluster.wait(stream.send(fetch_request(0, index=index, fetch_id=index, max_wait_ms=60_000)))
    cluster.run(0.1)
    release(cluster)
    answers = [cluster.next(stream) for _ in range(AT_ONCE // 2)]
    assert [len(answer.partitions) for answer in answers] == [2, 2], (
        "a message ends at the batch that reaches 1000 bytes"
    )
    assert sorted(part.correlation_id for answer in answers for part in answer.partitions) == [0, 1, 2, 3]
    cluster.loop.raise_defects()
    cluster.close()


def test_a_stream_that_ends_meanwhile_leaves_nothing_behind(cluster: Cluster) -> None:
    everything = reading(cluster, *range(PARTITIONS))
    everything.cancel()
    cluster.run(0.1)
    release(cluster)
    again = reading(cluster, 0)
    cluster.until(again.done)
    assert values(again.result()) == [[b"a", b"b"]]


def test_a_former_leader_answers_at_once(cluster: Cluster) -> None:
    """The disk may hang for long: the reader is sent on without it."""
    slow = reading(cluster, 0, max_wait_ms=60_000)
    cluster.set(0, leader=NodeId(2))
    cluster.until(slow.done, within=0.1)
    assert error_of(slow.result()) == "NOT_LEADER_OR_FOLLOWER"
    release(cluster)
    cluster.run(0.1)


def test_a_topic_deleted_meanwhile_ends_the_fetch(cluster: Cluster) -> None:
    slow = reading(cluster, 0, max_wait_ms=60_000)
    cluster.manager(1)._delete(cluster.partition(1).key, "the test deletes it")
    cluster.until(slow.done, within=0.1)
    assert error_of(slow.result()) == "NOT_LEADER_OR_FOLLOWER"
    release(cluster)
    cluster.run(0.1)


def test_records_deleted_meanwhile_are_not_given(cluster: Cluster) -> None:
    slow = reading(cluster, 0)
    cluster.machines[1].executor.holding = False
    delete_records(cluster.log(1), Offset(1))
    release(cluster)
    cluster.until(slow.done)
    assert error_of(slow.result()) == "OFFSET_OUT_OF_RANGE"


def test_a_disk_that_fails_takes_the_directory_offline_as_ever(cluster: Cluster) -> None:
    slow = reading(cluster, 0)
    cluster.machines[1].disk.fail("read", ".log", times=-1)
    release(cluster)
    cluster.until(slow.done)
    assert error_of(slow.result()) == "KAFKA_STORAGE_ERROR"
    assert len(slow.result().partitions) == 1, "the end of the leadership does not answer it a second time"
    assert cluster.directory(1).offline is not None


def test_those_whose_turn_has_come_when_memory_has_it_after_all_let_the_next_have_theirs(cluster: Cluster) -> None:
    """Another reader had the disk bring it meanwhile."""
    everything = reading(cluster, *range(PARTITIONS), max_wait_ms=60_000)
    cluster.machines[1].disk.is_cold = None
    release(cluster)
    cluster.until(everything.done, within=0.1)
    assert values(everything.result()) == [[b"a", b"b"]] * PARTITIONS


def test_those_that_are_refused_when_their_turn_has_come_let_the_next_have_theirs(cluster: Cluster) -> None:
    everything = reading(cluster, *range(PARTITIONS), max_wait_ms=60_000)
    for index in range(AT_ONCE, 2 * AT_ONCE):
        delete_records(cluster.log(1, index), Offset(1))
    release(cluster)
    cluster.until(everything.done, within=0.1)
    refused = {each.partition for each in everything.result().partitions if each.error is not None}
    assert refused == set(range(AT_ONCE, 2 * AT_ONCE))


def test_a_truncation_that_begins_when_the_disk_has_answered_keeps_only_its_own_fetch_waiting(cluster: Cluster) -> None:
    session = cluster.sessions(1).open(CALLER)
    for index in (0, 1):
        session.take(as_value(fetch_request(0, index=index, fetch_id=index)))
    assert collected(session) == []
    release(cluster)
    replica = cluster.partition(1, 0)
    replica.state = ReplicaState.TRUNCATING
    assert [answer.correlation_id for answer in collected(session, read=True)] == [1]
    assert not session.outbox.reads, "what was read before the truncation is discarded, with its memory"
    assert not any(cluster.manager(1).memory.figures.used.values())
    replica.state = ReplicaState.LEADING
    cluster.append(1, batch(b"c"), acks=1)
    assert collected(session) == []
    assert [answer.correlation_id for answer in collected(session, read=True)] == [0]
    cluster.sessions(1).close(session)


def test_a_disk_that_fails_for_one_of_several_reads_answers_each_fetch_once(cluster: Cluster) -> None:
    """The failure ends the leadership of the other partitions, which rejects the fetches that the disk had served."""
    session = cluster.sessions(1).open(CALLER)
    for index in (0, 1):
        session.take(as_value(fetch_request(0, index=index, fetch_id=index)))
    assert collected(session) == []
    release(cluster)
    cluster.log(1, 0)._reader.forget()  # what was read from partition 0 is outdated
    cluster.machines[1].disk.is_cold = None
    cluster.machines[1].disk.fail("read", "t-0", times=-1)
    answers = collected(session, read=True) + collected(session)
    assert [(answer.correlation_id, type(answer.error)) for answer in answers] == [
        (0, KafkaStorageError),
        (1, NotLeaderOrFollower),
    ]
    assert session.idle
    assert not any(cluster.manager(1).memory.figures.used.values())
    cluster.sessions(1).close(session)


def test_a_fetch_that_gets_a_place_is_tried_after_those_that_were_ready_before(cluster: Cluster) -> None:
    session = cluster.sessions(1).open(CALLER)
    for index in range(AT_ONCE + 1):
        session.take(as_value(fetch_request(0, index=index, fetch_id=index)))
    assert collected(session) == []
    session.take(as_value(fetch_request(0, index=AT_ONCE + 1, fetch_id=AT_ONCE + 1)))
    cluster.machines[1].disk.is_cold = None
    release(cluster)
    assert [answer.correlation_id for answer in collected(session, read=True)] == [*range(AT_ONCE)]
    assert [answer.correlation_id for answer in collected(session)] == [AT_ONCE + 1, AT_ONCE]
    assert session.idle
    cluster.sessions(1).close(session)


@pytest.mark.parametrize("is_cold", [True, False])
def test_the_answer_to_a_call_is_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_cold: bool) -> None:
    """Each partition got at least one batch, as long as the node had memory: the answer could become larger than a
    message may be."""
    size = len(cluster.contents(1))
    monkeypatch.setattr(data_handlers, "UNARY_FETCH_BYTES_MAX", 5 * size // 2)
    if not is_cold:
        cluster.machines[1].disk.is_cold = None
    cluster.machines[1].executor.holding = False
    everything = reading(cluster, *range(PARTITIONS))
    cluster.until(everything.done)
    answered = everything.result().partitions
    assert len(answered) == PARTITIONS
    assert 5 * size // 2 <= sum(len(part.records) for part in answered) < 4 * size
    assert not any(part.error for part in answered)
