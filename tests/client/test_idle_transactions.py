"""A transactional producer after a pause in which the coordinator may have removed its transactional id."""

from __future__ import annotations

import pytest

from tests.client.memory_cluster import memory_cluster
from tests.client.transactional import committed, transactional
from tests.client.transactional_application import Application
from tidelog.client import transaction_core
from tidelog.client.transaction_core import IDLE_MS, AskProducerId, TransactionalState
from tidelog.errors import ProducerFenced
from tidelog.types import ProducerId


def test_after_a_pause_the_producer_id_is_asked_for_again() -> None:
    """The coordinator may have removed the transactional id: it gives another producer id then. Nothing is open that
    the request could end, and a newer producer fences this one by it."""
    application = Application().in_transaction()
    application.commit()
    application.identify(epoch=1)
    application.now += IDLE_MS - 1
    asked = len(application.asked)
    application.begin()
    assert (len(application.asked), application.opened[-1]) == (asked, (7, 1))
    application.commit(has_written=False)
    application.now += 1
    application.begin()
    assert application.asked[-1].call == AskProducerId(ProducerId(7), 1)
    assert application.core.state is TransactionalState.STARTING
    application.identify(producer_id=9, epoch=0)
    assert application.opened[-1] == (9, 0)
    application.commit(has_written=False)
    application.now += IDLE_MS
    application.begin()
    application.refuse(ProducerFenced("producer 9 in epoch 0 is fenced"))
    assert application.core.has_failed


async def test_a_transactional_id_that_expired_in_a_pause_is_initialized_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_core, "IDLE_MS", 0)
    async with memory_cluster() as cluster:
        cluster.create("out")
        async with transactional(cluster) as producer:
            for value in (b"before", b"after"):
                async with producer.transaction() as txn:
                    await txn.send("out", value)
                cluster.transactions.ids.clear()
        assert await committed(cluster) == [b"after", b"before"]
