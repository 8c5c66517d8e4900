"""Whether compaction may have removed the marker of a follower's transaction from the records of its leader."""

from __future__ import annotations

import pytest

from node.replicas.follower_log import unended_transaction
from storage.append_info import Origin
from tests.storage.workbench import NOW, Bench, stamped
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch
from tidelog.records.legacy.message_builder import build_message_set
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.builder import empty_batch
from tidelog.records.v2.record import Record
from tidelog.types import Codec, LeaderEpoch, Offset, ProducerId


def marker(base: int, *, producer: int = 7) -> bytes:
    return control_batch(
        EndTxnMarker(committed=False, coordinator_epoch=0),
        timestamp=NOW,
        producer_id=ProducerId(producer),
        producer_epoch=1,
        base_offset=Offset(base),
        leader_epoch=0,
    )


def of_transaction(base: int, *, producer: int = 7) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=Offset(base),
        leader_epoch=LeaderEpoch(0),
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    builder.append(key=b"k", value=b"v", timestamp=NOW)
    return builder.build()


def emptied(base: int, *, producer: int = 7) -> bytes:
    """A marker of which compaction has left the header only, for the epoch of its producer."""
    return empty_batch(RecordBatch(marker(base, producer=producer)))


def message_set(base: int, *values: bytes) -> bytes:
    """A compressed set of v1, whose header has its last offset."""
    records = [Record(Offset(base + at), NOW, b"k", value) for at, value in enumerate(values)]
    return bytes(build_message_set(records, 1, Codec.GZIP))


@pytest.fixture
def bench() -> Bench:
    """A follower's log 0..3: a record, transactions of the producers 7 and 8 that are open, and a record."""
    bench = Bench()
    for records in (stamped(0), of_transaction(1), of_transaction(2, producer=8), stamped(3)):
        bench.log.append(records, assign_offsets=False, leader_epoch=LeaderEpoch(0), origin=Origin.REPLICATION)
    return bench


def unended(bench: Bench, records: bytes, held_from: int = 4) -> int | None:
    return unended_transaction(bench.log, records, Offset(held_from))


@pytest.mark.parametrize(
    ("records", "first"),
    [
        pytest.param(stamped(5), 1, id="a gap before the first batch"),
        pytest.param(stamped(4) + stamped(6), 1, id="between two batches"),
        pytest.param(emptied(4), 1, id="a marker without its record"),
        pytest.param(emptied(4, producer=8), 2, id="one of the younger transaction"),
        pytest.param(marker(4) + stamped(6), 2, id="behind the marker of the older one"),
        pytest.param(message_set(4, b"a", b"b") + stamped(7), 1, id="behind a message set"),
    ],
)
def test_a_marker_may_be_in_a_gap(bench: Bench, records: bytes, first: int) -> None:
    assert unended(bench, records) == first


ROTTEN = bytearray(emptied(4))
ROTTEN[30] ^= 1


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(stamped(4) + stamped(5, b"a", b"b") + stamped(7), id="one batch after the other"),
        pytest.param(stamped(3) + stamped(4), id="from within the batch before"),
        pytest.param(marker(4) + marker(5, producer=8) + stamped(9), id="both have ended before the gap"),
        pytest.param(message_set(4, b"a", b"b", b"c") + stamped(7), id="a compressed message set"),
        pytest.param(emptied(4, producer=9), id="the marker of a producer that has nothing open"),
        pytest.param(stamped(4) + bytes(61), id="what is no batch, which the append refuses"),
        pytest.param(bytes(ROTTEN), id="a batch that fails its checksum, which the append refuses"),
    ],
)
def test_records_without_such_a_gap_are_appended(bench: Bench, records: bytes) -> None:
    assert unended(bench, records) is None


def test_transactions_from_the_offset_on_that_the_leader_has_held_have_their_markers(bench: Bench) -> None:
    assert unended(bench, stamped(9), held_from=2) == 1
    assert unended(bench, stamped(9), held_from=1) is None
