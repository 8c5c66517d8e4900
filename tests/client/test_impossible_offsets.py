"""A flipped bit in the header of a batch: the offsets move what is fetched next before the checksum is verified, and
the checksum does not cover the base offset."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.fetch_core_world import RequestSession, batch, opened
from tests.client.memory_cluster import memory_cluster
from tests.client.numbered_records import P0, fill, numbered, read
from tidelog.client.consumer import Consumer
from tidelog.client.cursor import CursorState
from tidelog.client.fetch_core import REFUSED_MS
from tidelog.errors import CorruptRecord
from tidelog.records import RecordBatch

BASE_OFFSET_BYTE, LAST_OFFSET_DELTA_BYTE = 2, 23
"""Bytes of a batch header whose low bit is worth 2^40 and 2^24 offsets."""


def flipped(sound: RecordBatch, at: int) -> RecordBatch:
    data = bytearray(sound.buffer)
    data[at] ^= 1
    return RecordBatch(bytes(data))


@pytest.mark.parametrize("byte", [BASE_OFFSET_BYTE, LAST_OFFSET_DELTA_BYTE])
def test_a_batch_beyond_the_high_watermark_moves_nothing_and_is_fetched_again(byte: int) -> None:
    """The next fetch would have been out of range, and the reader would have got that error."""
    session = RequestSession()
    session.ready()
    assert opened(session.fetched(flipped(batch(0), byte))) == []
    cursor = session.cursor()
    assert (cursor.ahead, cursor.error, cursor.has_data) == (0, None, False)
    (fetch,) = opened(session.tick(200))
    assert (fetch.offset, fetch.refused) == (0, True), "the node verifies its log"
    session.fetched(batch(0))
    assert session.cursor().ahead == 3


def test_batches_before_the_first_impossible_one_are_taken() -> None:
    session = RequestSession()
    session.ready()
    (fetch,) = opened(session.fetched(batch(0), batch(3), flipped(batch(6), BASE_OFFSET_BYTE), batch(9)))
    assert fetch.offset == 6
    assert [each.base_offset for each in session.cursor().batches] == [0, 3]


def test_a_batch_below_the_one_before_it_is_not_skipped() -> None:
    """Its records would have been lost without an error."""
    session = RequestSession()
    session.ready(90)
    (fetch,) = opened(session.fetched(batch(90), batch(29), batch(96)))
    assert fetch.offset == 93


def test_impossible_offsets_that_stay_become_an_error() -> None:
    session = RequestSession()
    session.ready()
    for _ in range(REFUSED_MS // 100):
        session.fetched(flipped(batch(0), BASE_OFFSET_BYTE))
        session.tick(400)
    cursor = session.cursor()
    assert cursor.state is CursorState.FAILED
    assert isinstance(cursor.error, CorruptRecord)
    assert "where offsets below 100 are committed" in cursor.error.message


async def test_a_consumer_reads_everything_once_though_a_header_is_flipped_on_its_way() -> None:
    async with memory_cluster(1) as cluster:
        cluster.create("orders", 1)
        fill(cluster, numbered(9))
        sent: list[int] = []

        def flip_once(entry: Any) -> object:
            if len(sent) >= 2:
                return None
            sent.append(entry.fetch_offset)
            byte = (BASE_OFFSET_BYTE, LAST_OFFSET_DELTA_BYTE)[len(sent) - 1]
            return lambda records: bytes(flipped(RecordBatch(bytes(records)), byte).buffer) if records else records

        cluster.nodes[0].on_fetch = flip_once
        async with Consumer(cluster.bootstrap, fetch_bytes=1) as consumer:
            consumer.assign([P0])
            found = await read(consumer, 9)
        assert [record.offset for record in found] == list(range(9))
        assert sent == [0, 0]
