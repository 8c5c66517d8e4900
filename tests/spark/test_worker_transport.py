"""The connections of a Python worker outlive its tasks, if these end well."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.client.memory_cluster import cluster_in_a_thread
from tests.spark.reading_tasks import fill, task_offsets
from tidelog.errors import RequestTimedOut
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.spark.ranges import range_batches, worker_transport
from tidelog.spark.ranges.reading import RangeReader


class Made(GrpcTransport):
    """A transport that says whether it was closed."""

    all: list[Made] = []  # noqa: RUF012 - of one test

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.client_id, self.is_closed = given["client_id"], False
        self.all.append(self)

    async def close(self) -> None:
        self.is_closed = True
        await super().close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """The transports of tasks, in the order in which they were made."""
    monkeypatch.setattr(Made, "all", [])

    def make(tls: None, sasl: None, client_id: str) -> Made:
        assert tls is None
        assert sasl is None
        return Made(client_id=client_id)

    monkeypatch.setattr(worker_transport, "client_transport", make)
    return Made.all


def test_tasks_of_one_query_connect_once_and_those_of_another_one_again(made: list[Made]) -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 3)
        for start in range(3):
            assert task_offsets(cluster, start, 9) == list(range(start, 9))
        assert [(each.client_id, each.is_closed) for each in made] == [("", False)]
        assert task_offsets(cluster, 0, 9, **{"tidelog.client.id": "other"}) == list(range(9))
        assert [(each.client_id, each.is_closed) for each in made] == [("", True), ("other", False)]


def test_the_connections_of_a_task_that_failed_are_closed(made: list[Made], monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster_in_a_thread() as cluster:
        cluster.create("orders")
        fill(cluster, 1)
        assert task_offsets(cluster, 0, 3) == [0, 1, 2]
        with monkeypatch.context() as impatient:
            impatient.setattr(range_batches, "RangeReader", partial(RangeReader, patience_ms=300))
            cluster.lead("orders", 0, -1)
            with pytest.raises(RequestTimedOut):
                task_offsets(cluster, 0, 3)
        assert [each.is_closed for each in made] == [True]
        cluster.lead("orders", 0, 1)
        assert task_offsets(cluster, 0, 3) == [0, 1, 2]
        assert [each.is_closed for each in made] == [True, False]
