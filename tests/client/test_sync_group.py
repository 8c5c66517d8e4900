"""Synchronous members of a group: what their iteration has polled ahead of the program."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from tests.client.memory_cluster import MemoryCluster, cluster_in_a_thread
from tidelog import sync
from tidelog.client.group_member import CLOSED_IN_CALLBACK
from tidelog.errors import CommitFailed, InvalidRequest, TransactionAborted, UnknownMemberId
from tidelog.protocol.v1 import groups_pb2 as pb
from tidelog.types import TopicPartition


class Assignments:
    """Callbacks of a member: waits for the next assignment, and for the loss of one."""

    def __init__(self) -> None:
        self.came, self.lost = Event(), Event()

    def on_assigned(self, _: list[TopicPartition]) -> None:
        self.came.set()

    def on_lost(self, _: list[TopicPartition]) -> None:
        self.came.clear()
        self.lost.set()


def fence_once(cluster: MemoryCluster) -> None:
    """The coordinator removes the member; it joins again."""
    is_fenced = False

    def refuse(request: Any) -> UnknownMemberId | None:
        nonlocal is_fenced
        if is_fenced or not isinstance(request, pb.ConsumerGroupHeartbeatRequest):
            return None
        is_fenced = True
        return UnknownMemberId("it timed out")

    cluster.groups.refuse = refuse


def test_what_an_iteration_has_left_is_not_put_back_into_a_later_assignment() -> None:
    """It lies behind records that were yielded, and whose transaction was aborted: they would be read by nobody."""
    with cluster_in_a_thread() as cluster:
        cluster.create("in")
        cluster.create("out")
        with sync.Producer(cluster.bootstrap) as source:
            source.send_many("in", [b"%d" % number for number in range(10)])
        seen = Assignments()
        with (
            sync.Consumer(
                cluster.bootstrap,
                group="g",
                topics=["in"],
                auto_commit=False,
                on_assigned=seen.on_assigned,
                on_lost=seen.on_lost,
            ) as consumer,
            sync.Producer(cluster.bootstrap, transactional_id="t") as producer,
        ):
            records = iter(consumer)
            with pytest.raises(TransactionAborted) as caught, producer.transaction() as txn:
                assert [next(records).offset, next(records).offset] == [0, 1]
                txn.send("out", b"of 0 and 1")
                fence_once(cluster)
                assert seen.lost.wait(10)
                assert seen.came.wait(10)
                txn.send_offsets(consumer)
            assert isinstance(caught.value.__cause__, CommitFailed)
            consumer.rewind()
            assert [next(iter(consumer)).offset for _ in range(2)] == [0, 1]


def test_a_commit_after_the_records_were_lost_is_refused() -> None:
    """The member was removed and has joined again before the program commits what it processed."""
    with cluster_in_a_thread() as cluster:
        cluster.create("in")
        with sync.Producer(cluster.bootstrap) as source:
            source.send_many("in", [b"0", b"1"])
        seen = Assignments()
        with sync.Consumer(
            cluster.bootstrap,
            group="g",
            topics=["in"],
            auto_commit=False,
            on_assigned=seen.on_assigned,
            on_lost=seen.on_lost,
        ) as consumer:
            assert next(iter(consumer)).offset == 0
            fence_once(cluster)
            assert seen.lost.wait(10)
            assert seen.came.wait(10)
            with pytest.raises(CommitFailed, match="removed from the group"):
                consumer.commit()
            assert cluster.groups.groups["g"].offsets == {}


def test_a_slow_iteration_is_not_a_stuck_program() -> None:
    """Each record takes a third of the interval, four take more than all of it: asking for the next one counts."""
    with cluster_in_a_thread() as cluster:
        cluster.create("in")
        with sync.Producer(cluster.bootstrap) as source:
            source.send_many("in", [b"%d" % number for number in range(100)])
        seen = Assignments()
        with sync.Consumer(
            cluster.bootstrap, group="g", topics=["in"], on_lost=seen.on_lost, max_poll_interval_ms=1_500
        ) as consumer:
            for record in consumer:
                if record.offset == 4:
                    break
                assert not seen.lost.wait(0.5), "the member has left"


def test_a_callback_that_closes_its_consumer_is_refused() -> None:
    """It would wait for itself."""
    refused: list[str] = []
    with cluster_in_a_thread() as cluster:
        cluster.create("in")

        def close(_: list[TopicPartition]) -> None:
            try:
                consumer.close()
            except InvalidRequest as error:
                refused.append(error.message)

        seen = Assignments()
        with sync.Consumer(
            cluster.bootstrap, group="g", topics=["in"], on_assigned=seen.on_assigned, on_revoked=close
        ) as consumer:
            assert seen.came.wait(10)
        assert refused == [CLOSED_IN_CALLBACK]
        assert cluster.groups.groups["g"].members == {}
