"""What a follower with an open transaction sees in its leader's records: whether compaction has left a gap in them."""

from __future__ import annotations

import pytest

from node.replicas.follower_log import open_before_gap
from storage.append_info import Origin
from tests.storage.workbench import NOW, Bench, stamped
from tidelog.records import EndTxnMarker, RecordBatchBuilder, control_batch
from tidelog.records.v2.batch import RecordBatch
from tidelog.records.v2.builder import empty_batch
from tidelog.types import LeaderEpoch, Offset, ProducerId


def of_transaction(base: int) -> bytes:
    builder = RecordBatchBuilder(
        base_offset=Offset(base),
        leader_epoch=LeaderEpoch(0),
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    builder.append(key=b"k", value=b"v", timestamp=NOW)
    return builder.build()


def emptied(base: int) -> bytes:
    """A marker of which compaction has left the header only, for the epoch of its producer."""
    marker = control_batch(
        EndTxnMarker(committed=False, coordinator_epoch=0),
        timestamp=NOW,
        producer_id=ProducerId(7),
        producer_epoch=1,
        base_offset=Offset(base),
    )
    return empty_batch(RecordBatch(marker))


@pytest.fixture
def bench() -> Bench:
    """A follower's log 0..2: a record, and two of a transaction that is open."""
    bench = Bench()
    follow(bench, stamped(0))
    follow(bench, of_transaction(1))
    follow(bench, stamped(2))
    return bench


def follow(bench: Bench, records: bytes) -> None:
    bench.log.append(records, assign_offsets=False, leader_epoch=LeaderEpoch(0), origin=Origin.REPLICATION)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(stamped(4), id="before the first batch"),
        pytest.param(stamped(3) + stamped(5), id="between two batches"),
        pytest.param(stamped(3) + emptied(4), id="a marker without its record"),
    ],
)
def test_a_gap_after_an_open_transaction_is_seen(bench: Bench, records: bytes) -> None:
    assert open_before_gap(bench.log, records) == 1


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(stamped(3) + stamped(4, b"a", b"b") + stamped(6), id="one batch after the other"),
        pytest.param(stamped(2) + stamped(3), id="from within the batch before"),
        pytest.param(stamped(3) + bytes(61), id="what is no batch, which the append refuses"),
    ],
)
def test_records_without_a_gap_are_appended(bench: Bench, records: bytes) -> None:
    assert open_before_gap(bench.log, records) is None


def test_a_gap_is_no_matter_once_the_transaction_has_ended(bench: Bench) -> None:
    bench.log.append(
        control_batch(
            EndTxnMarker(committed=True, coordinator_epoch=0),
            timestamp=NOW,
            producer_id=ProducerId(7),
            producer_epoch=0,
        ),
        assign_offsets=True,
        leader_epoch=LeaderEpoch(0),
        origin=Origin.COORDINATOR,
    )
    assert bench.log.first_open_offset is None
    assert open_before_gap(bench.log, stamped(9)) is None


def test_a_transaction_that_began_below_the_log_start_is_open_from_there(bench: Bench) -> None:
    bench.log.advance_high_watermark(Offset(3))
    bench.directory.move_log_start(bench.log, Offset(2))
    assert open_before_gap(bench.log, stamped(9)) == 2
