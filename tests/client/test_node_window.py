"""What a producer has under way to a node is bounded, so that batches fill while the node is busy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.client.memory_cluster import memory_cluster, until
from tests.client.producer_session import POLICY, RequestSession
from tidelog import Producer
from tidelog.client.accumulator import Attempt, PendingBatch
from tidelog.client.core_events import LeaderKnown
from tidelog.client.produce_stream import ProduceStream
from tidelog.client.producer_core import OVERDUE_MS, ProducerCore
from tidelog.client.producer_events import Acknowledged, Flushed, Lost, Refused
from tidelog.clock import MachineClock
from tidelog.errors import ConnectionLost, NotEnoughReplicas
from tidelog.protocol.network import Transport
from tidelog.protocol.status import to_proto
from tidelog.protocol.v1 import data_pb2
from tidelog.record_exchange import ProduceRequest
from tidelog.types import Acks, Endpoint, Millis, NodeId

FOUR = replace(POLICY, node_partial_max=4)
FULL = b"x" * 900
"""A record that fills a batch."""


def session_of(partitions: int, *, nodes: int = 1, bytes_max: int = 1 << 20) -> RequestSession:
    """Partitions that are led by nodes 1 to `nodes` in turn; a node may have four partial batches under way."""
    session = RequestSession(replace(FOUR, node_bytes_max=bytes_max))
    for partition in range(partitions):
        session.put(partition=partition)
        session.lead(1 + partition % nodes, partition=partition)
    return session


def places(attempts: list[Attempt]) -> list[int]:
    return [attempt.batch.queue.topic_partition.partition for attempt in attempts]


def given_since(session: RequestSession) -> list[Attempt]:
    """The attempts since the last call; all of them are on the wire then."""
    given = list(session.gives)
    session.wire()
    session.gives.clear()
    return given


def acknowledge(session: RequestSession, attempts: list[Attempt]) -> None:
    for attempt in attempts:
        session.acknowledge(attempt)


def test_all_partitions_that_are_due_go_together() -> None:
    session = session_of(50)
    session.tick(5)
    assert places(given_since(session)) == list(range(50))


def test_batches_stay_open_while_the_node_is_busy_and_then_go_together() -> None:
    session = session_of(20)
    session.tick(5)
    first = given_since(session)
    waiting: dict[int, PendingBatch] = {}
    for partition in range(30, 40):
        waiting[partition] = session.put(partition=partition)
        session.lead(partition=partition)
    session.tick(50)
    assert session.gives == [], "the node is busy, long after the batches were due"
    for partition, batch in waiting.items():
        assert session.put(b"more", partition) is batch, "a waiting batch takes records"
    acknowledge(session, first[:10])
    assert session.gives == [], "half of the batches are still under way"
    session.acknowledge(first[10])
    given = given_since(session)
    assert places(given) == list(waiting)
    assert [attempt.batch.outcome.records for attempt in given] == [2] * 10


def test_a_full_batch_does_not_wait_for_batches_that_are_not_full() -> None:
    session = session_of(10)
    session.tick(5)
    given_since(session)
    session.put(partition=20)
    session.lead(partition=20)
    session.tick(5)
    assert session.gives == []
    session.put(FULL, partition=20)
    session.put(FULL, partition=20)
    session.tick()
    assert places(given_since(session)) == [20]


def test_full_batches_wait_while_many_bytes_are_under_way_and_take_turns() -> None:
    session = RequestSession(replace(FOUR, node_bytes_max=2_500), idempotent=True)
    session.identify()
    for partition in range(6):
        first = session.put(partition=partition)
        session.lead(partition=partition)
        session.tick(5)
        session.wire()
        session.acknowledge(first)
    given_since(session)
    for partition in range(6):
        for _ in range(4):
            session.put(FULL, partition)
    session.tick()
    order = []
    while given := given_since(session):
        assert len(given) <= 3, "2,500 bytes are under way with the third batch"
        order += places(given)
        acknowledge(session, given)
    assert order[:18] == [0, 1, 2, 3, 4, 5] * 3


def test_a_node_that_does_not_answer_does_not_delay_other_nodes() -> None:
    session = session_of(20, nodes=2)
    session.tick(5)
    first = given_since(session)
    for partition in range(20, 30):
        session.put(partition=partition)
        session.lead(1 + partition % 2, partition=partition)
    session.tick(5)
    acknowledge(session, [attempt for attempt in first if attempt.node == 2])
    assert places(given_since(session)) == [21, 23, 25, 27, 29]


@pytest.mark.parametrize("how", ["lost", "refused"])
def test_attempts_that_fail_free_their_places(how: str) -> None:
    session = session_of(4)
    session.tick(5)
    first = given_since(session)
    session.put(partition=9)
    session.lead(partition=9)
    session.tick(5)
    assert session.gives == []
    if how == "lost":
        session.lose(first[0], ConnectionLost("broke"))
    else:
        session.refuse(first[0], NotEnoughReplicas("one in sync, two needed"))
    assert places(given_since(session)) == [9]


def test_an_attempt_that_is_taken_back_frees_its_place() -> None:
    """Its stream cannot connect while another node is elected."""
    session = session_of(4)
    session.tick(5)
    assert len(session.gives) == 4
    session.put(partition=9)
    session.lead(partition=9)
    session.tick(5)
    session.lead(2, epoch=1, partition=0)
    assert [attempt.node for attempt in session.gives[4:]] == [2, 1]
    assert places(session.gives[4:]) == [0, 9]


def test_partitions_that_cannot_commit_delay_the_others_of_their_node_for_a_moment_only() -> None:
    session = session_of(4)
    session.tick(5)
    stuck = given_since(session)
    session.put(partition=9)
    session.lead(partition=9)
    session.tick(OVERDUE_MS - 10)
    assert session.gives == []
    session.tick(10)
    assert places(given_since(session)) == [9]
    acknowledge(session, stuck)
    window = session.core.window(NodeId(1))
    assert (window.partial_under_way, window.under_way) == (1, session.put(partition=9).size), (
        "each place is freed once"
    )


def test_overdue_attempts_free_their_places_whatever_event_comes_first() -> None:
    """The metadata of one of the partitions arrive while the timer of the overdue attempts rings."""
    session = session_of(4)
    session.tick(5)
    given_since(session)
    session.put(partition=9)
    session.lead(partition=9)
    session.tick(5)
    session.now += OVERDUE_MS
    session.lead(partition=0)
    assert places(given_since(session)) == [9], "the place of the attempt that is known to be overdue"
    session.put(partition=8)
    session.lead(partition=8)
    session.tick(5)
    assert places(given_since(session)) == [8], "the places of the other ones"


def test_a_flush_ends_the_lingering_but_not_the_batch() -> None:
    session = session_of(4)
    session.tick(5)
    first = given_since(session)
    batch = session.put(partition=9)
    session.lead(partition=9)
    session.note(session.core.handle(Flushed(Millis(session.now))))
    assert session.gives == [], "the node is busy"
    assert session.put(partition=9) is batch
    session.acknowledge(first[0])
    assert places(given_since(session)) == [9]


def test_nothing_wakes_a_producer_whose_batches_wait_for_the_node() -> None:
    """Neither an attempt nor a batch that waits has an alarm of its own: one time for all of them is enough."""
    session = session_of(100)
    session.tick(5)
    given_since(session)
    for partition in range(100, 200):
        session.put(partition=partition)
        session.lead(partition=partition)
    session.tick(5)
    assert session.core.next_alarm() == session.now - 5 + OVERDUE_MS


# --- with streams ---------------------------------------------------------------------------------------------------


async def test_partitions_that_are_due_share_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[int] = []
    next_request = ProduceStream._next_request

    def counted(stream: ProduceStream) -> ProduceRequest | None:
        request = next_request(stream)
        messages.append(len(request.partitions) if request is not None else 0)
        return request

    monkeypatch.setattr(ProduceStream, "_next_request", counted)
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 60)
        async with Producer(cluster.bootstrap, linger_ms=0) as producer:
            await producer.partitions("orders")
            await producer.send("orders", b"first", partition=0)
            messages.clear()
            deliveries = [producer.send_nowait("orders", b"v", partition=place) for place in range(60)]
            await until(lambda: all(delivery.done() for delivery in deliveries))
            assert messages == [60]


def test_the_answers_of_a_message_are_reported_together() -> None:
    reports: list[list[Acknowledged | Refused | Lost]] = []
    stream = ProduceStream(
        Endpoint("a", 1),
        cast("Transport", None),
        MachineClock(),
        acks=Acks.ALL,
        take=lambda _attempt: None,
        report=lambda outcomes: reports.append(list(outcomes)),
        throttled=lambda _time_ms, _at: None,
    )
    refused = data_pb2.PartitionProduced(batch_id=2, error=to_proto(NotEnoughReplicas("one in sync, two needed")))
    answers = [data_pb2.PartitionProduced(batch_id=1, base_offset=7), refused]
    stream._received(data_pb2.ProduceResponse(partitions=answers))
    assert [[type(outcome) for outcome in report] for report in reports] == [[Acknowledged, Refused]]


async def test_one_reset_of_the_timer_follows_the_answers_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[int] = []
    set_timer = Producer._set_timer

    def counted(producer: Producer) -> None:
        resets.append(1)
        set_timer(producer)

    async with memory_cluster(1) as cluster:
        cluster.create("orders", 60)
        async with Producer(cluster.bootstrap, linger_ms=60_000) as producer:
            await producer.partitions("orders")
            for place in range(60):
                producer.send_nowait("orders", b"v", partition=place)
            monkeypatch.setattr(Producer, "_set_timer", counted)
            producer._report([Lost(number, ConnectionLost("broke"), Millis(0)) for number in range(60)])
            assert len(resets) == 1


async def test_metadata_without_a_change_cause_no_events(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    handle = ProducerCore.handle

    def counted(core: ProducerCore, *given: Any) -> Any:
        events.extend(given)
        return handle(core, *given)

    monkeypatch.setattr(ProducerCore, "handle", counted)
    async with memory_cluster(2) as cluster:
        cluster.create("orders", 60)
        async with Producer(cluster.bootstrap, linger_ms=60_000) as producer:
            await producer.partitions("orders")
            await producer._cluster.refresh("orders")
            events.clear()
            await producer._cluster.refresh("orders")
            assert events == []
            cluster.lead("orders", 7, 0)
            await producer._cluster.refresh("orders")
            assert [event.topic_partition.partition for event in events if isinstance(event, LeaderKnown)] == [7]
