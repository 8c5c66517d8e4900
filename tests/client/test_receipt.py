"""Receipts as text: what is written is read again, and nothing else is taken for a receipt."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.client.memory_cluster import memory_cluster
from tidelog.client.delivery import Delivery, Outcome
from tidelog.client.receipt import Receipt, StoredBatch
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.types import (
    INT64_MAX,
    BatchReceipt,
    Durability,
    LeaderEpoch,
    Millis,
    NodeId,
    Offset,
    TopicId,
    TopicPartition,
)

int32 = st.integers(0, (1 << 31) - 1)
nodes: Any = st.lists(int32, max_size=4).map(tuple)


@st.composite
def receipts(draw: st.DrawFn) -> Receipt:
    base, offset, last = sorted(draw(st.lists(st.integers(0, INT64_MAX), min_size=3, max_size=3)))
    return Receipt(
        draw(st.text(min_size=1)),
        TopicId(UUID(int=draw(st.integers(0, 2**128 - 1)))),
        draw(int32),  # type: ignore[arg-type]
        Offset(offset),
        LeaderEpoch(draw(int32)),
        Offset(base),
        Offset(last),
        draw(st.integers(0, 2**32 - 1)),
        draw(nodes),
        draw(nodes),
        draw(st.sampled_from(Durability)),
    )


@given(receipts())
def test_a_receipt_survives_as_one_line_of_text(receipt: Receipt) -> None:
    line = receipt.to_json()
    assert "\n" not in line
    assert Receipt.from_json(line) == receipt


@given(receipts(), st.data())
def test_a_changed_field_is_read_or_refused(receipt: Receipt, data: st.DataObject) -> None:
    fields = json.loads(receipt.to_json())
    name = data.draw(st.sampled_from(sorted(fields)))
    numbers: Any = st.integers() | st.lists(st.integers(), max_size=2)
    anything: Any = st.none() | st.booleans() | numbers | st.text(max_size=9)
    fields[name] = data.draw(anything)
    line = json.dumps(fields)
    with contextlib.suppress(InvalidRequest):
        read = Receipt.from_json(line)
        assert Receipt.from_json(read.to_json()) == read


@given(st.text())
def test_other_text_is_no_receipt(text: str) -> None:
    with pytest.raises(InvalidRequest, match="a receipt is"):
        Receipt.from_json(text)


def test_each_record_of_a_batch_has_a_receipt_of_its_own_offset() -> None:
    key = TopicPartition("orders", 1)
    nodes = NodeId(1), NodeId(2)
    stated = BatchReceipt(TopicId(UUID(int=7)), Offset(12), 0xABC, nodes, nodes[:1], Durability.FSYNC)
    outcome = Outcome(key, records=3)
    deliveries = [Delivery(outcome, index, Millis(1)) for index in range(outcome.records)]
    outcome.succeed(Offset(10), Millis(-1), StoredBatch(stated, Offset(10), LeaderEpoch(4)))
    found = [delivery.result().receipt for delivery in deliveries]
    assert [receipt.offset for receipt in found if receipt] == [10, 11, 12]
    assert all(receipt and (receipt.base_offset, receipt.last_offset) == (10, 12) for receipt in found)
    assert found[0] is not None
    assert (found[0].topic, found[0].partition, found[0].leader_epoch) == ("orders", 1, 4)


def test_a_producer_that_is_not_answered_can_get_no_receipt() -> None:
    with pytest.raises(InvalidConfig, match="receipts=True needs"):
        tidelog.Producer("127.0.0.1:1", acks=0, receipts=True)


async def test_a_node_that_states_nothing_leaves_the_result_without_a_receipt() -> None:
    """A node of an earlier version does not know the field."""
    async with memory_cluster() as cluster:
        cluster.create("orders")
        async with tidelog.Producer(cluster.bootstrap, receipts=True) as producer:
            assert (await producer.send("orders", b"a")).receipt is None
