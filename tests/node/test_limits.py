"""Callers with excessive requests, or that never read their answers: their cost for the node is bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.api.table import APIS
from node.boundary.boundary import REQUEST_BYTES_MAX, ensure_small
from node.listeners.grpc import request_limits
from node.listeners.grpc.codec import ApiCodec
from node.listeners.grpc.request_limits import FIELDS_MAX
from node.runtime.limits import ENTRIES_MAX, UNSENT_MAX
from testbed.message_bytes import bytes_of
from testbed.topic_requests import changed, creating
from tests.node.real_nodes import real_nodes
from tests.node.wires import CALLER, TOPIC, Cluster, as_value, batch, fetch_request
from tests.record_values import collected
from tidelog.errors import InvalidRequest
from tidelog.protocol import methods
from tidelog.protocol.rpc import Method
from tidelog.protocol.v1 import admin_pb2, controller_pb2, data_pb2
from tidelog.record_exchange import ProduceBatch, ProduceRequest
from tidelog.types import LeaderEpoch


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    cluster.set(leader=1)
    yield cluster
    cluster.loop.raise_defects()
    cluster.close()


def test_a_request_with_too_many_entries_is_refused_whole(cluster: Cluster) -> None:
    service = cluster.service(1)
    entry = ProduceBatch(correlation_id=1, topic_id=TOPIC.bytes, partition=0, records=batch(b"a"))
    with pytest.raises(InvalidRequest, match="at most"):
        cluster.wait(
            service.produce(ProduceRequest(acks=-1, timeout_ms=0, partitions=[entry] * (ENTRIES_MAX + 1)), CALLER)
        )
    fetch = fetch_request(0)
    fetch.partitions.extend(data_pb2.FetchPartition() for _ in range(ENTRIES_MAX))
    with pytest.raises(InvalidRequest, match="at most"):
        cluster.wait(service.fetch(fetch, CALLER))
    with pytest.raises(InvalidRequest, match="at most"):
        questions = data_pb2.ListOffsetsRequest(
            partitions=[data_pb2.ListOffsetsPartition() for _ in range(ENTRIES_MAX + 1)]
        )
        cluster.wait(service.list_offsets(questions, CALLER))
    assert cluster.log(1).log_end_offset == 0


REQUESTS = [method for method in methods.ALL if method.service.startswith("tidelog.")]


@pytest.mark.parametrize("method", REQUESTS, ids=str)
def test_a_message_of_empty_fields_is_refused_before_it_is_parsed(
    method: Method[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a request of 16 MiB blocked a node for 13 s and used 4 GiB."""
    monkeypatch.setattr(request_limits, "FIELDS_MAX", 500)  # the limit itself is reached below, once
    read = reader(method)
    for number in (1, 3, 5, 15):
        refused = read(bytes([number << 3 | 2, 0]) * 1_000)
        assert isinstance(refused, InvalidRequest)
        assert "more than 500 fields" in refused.message


def reader(method: Method[Any, Any]) -> Callable[[bytes], Any]:
    """Reads messages as the boundary does. Returns the error, or the message."""

    def read(data: bytes) -> Any:
        try:
            api = APIS[str(method)]
            ensure_small(api, len(data))
            return ApiCodec(api, method, None, None).decode(data)
        except InvalidRequest as error:
            return error

    return read


def test_a_message_of_empty_fields_is_refused_wherever_they_are() -> None:
    deep = controller_pb2.AlterPartitionRequest(
        partitions=[
            controller_pb2.AlterPartitionItem(new_isr=[controller_pb2.IsrMember()] * 1_000) for _ in range(1_000)
        ]
    ).SerializeToString()
    read = reader(methods.CONTROLLER_ALTER_PARTITION)
    behind_group, cut_off = b"\x7b\x7c" + deep, deep[:-1]
    for data in (deep, behind_group, cut_off):
        refused = read(data)
        assert isinstance(refused, InvalidRequest)
        assert "fields" in refused.message


def test_large_requests_that_clients_make_are_read() -> None:
    large = ProduceRequest(
        acks=-1,
        timeout_ms=0,
        partitions=[
            ProduceBatch(
                correlation_id=index,
                topic_id=TOPIC.bytes,
                leader_epoch=LeaderEpoch(3),
                partition=0,
                records=bytes(1_000),
            )
            for index in range(ENTRIES_MAX)
        ],
    )
    assert reader(methods.DATA_PRODUCE)(bytes_of(large)) == large
    fetch = fetch_request(0)
    fetch.partitions.extend(
        data_pb2.FetchPartition(
            topic_id=TOPIC.bytes, partition=index, fetch_offset=1 << 60, max_bytes=1 << 24, current_leader_epoch=1 << 30
        )
        for index in range(ENTRIES_MAX)
    )
    assert reader(methods.DATA_FETCH)(fetch.SerializeToString()) == fetch


def test_a_stream_that_is_not_read_is_not_served_further(cluster: Cluster) -> None:
    session = cluster.sessions(1).open(CALLER)
    for index in range(1, UNSENT_MAX):
        session.take(as_value(fetch_request(0, index=index)))  # no such partition
    cluster.wait(session.wait_room())
    session.take(as_value(fetch_request(0, index=UNSENT_MAX)))
    waiting = cluster.loop.create_task(session.wait_room())
    cluster.run(1.0)
    assert not waiting.done()
    assert len(collected(session)) == UNSENT_MAX
    cluster.until(waiting.done, within=0.001)
    cluster.sessions(1).close(session)


def test_fetches_that_were_answered_long_before_their_time_leave_nothing(cluster: Cluster) -> None:
    cluster.produce(1, batch(b"a"))
    session = cluster.sessions(1).open(CALLER)
    for _ in range(3_000):
        session.take(as_value(fetch_request(0, max_wait_ms=60_000)))
        [answer] = collected(session)
        assert len(answer.records) > 0
    assert session.idle
    session.take(as_value(fetch_request(1, max_wait_ms=500, fetch_id=77)))
    assert collected(session) == []
    cluster.run(0.6)
    assert [answer.correlation_id for answer in collected(session)] == [77], (
        "the one that waits is still answered in time"
    )
    cluster.sessions(1).close(session)


def test_a_million_topics_asked_for_by_name_are_refused_before_they_are_parsed() -> None:
    """As many as fit into a message; the answer would have been a hundred times larger than the request."""
    names = admin_pb2.GetMetadataRequest(topics=[f"{number:x}" for number in range(1_000_000)]).SerializeToString()
    assert len(names) < REQUEST_BYTES_MAX
    refused = reader(methods.ADMIN_GET_METADATA)(names)
    assert isinstance(refused, InvalidRequest)
    assert f"more than {FIELDS_MAX} fields" in refused.message


@pytest.mark.parametrize("method", REQUESTS, ids=str)
def test_only_requests_with_records_may_be_large(method: Method[Any, Any]) -> None:
    unknown_field = b"\x72\x80\x80\x80\x08" + bytes(2 * REQUEST_BYTES_MAX)
    read = reader(method)(unknown_field)
    if method.request is ProduceRequest:
        assert read == ProduceRequest(0, 0, [])
    else:
        assert isinstance(read, InvalidRequest)
        assert "split it into several requests" in read.message


async def test_a_topic_that_is_named_many_times_is_answered_once(tmp_path: Path) -> None:
    """3,000 times the name of a topic with 100 partitions stopped a node for 4 s."""
    async with real_nodes(tmp_path) as nodes:
        create = creating(name="orders", partitions=100, replication_factor=1)
        topic_id = changed(await nodes.call(0, methods.ADMIN_CREATE_TOPICS, create)).topic_id
        request = admin_pb2.GetMetadataRequest(topics=["orders", "none"] * 2_000, topic_ids=[topic_id] * 2_000)
        answer = await nodes.call(0, methods.ADMIN_GET_METADATA, request)
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [
            ("orders", 100),
            ("none", 0),
            ("orders", 100),
        ]
