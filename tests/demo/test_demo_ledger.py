"""The demo's ledger and meters: numbers per key, acknowledgements, latencies, and the duration of a failover."""

import asyncio
import math
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.demo.ledger import ROWS_PER_GROUP, Ledger, Numbers, checksum
from examples.demo.meter import Failover, InSync, Meter, percentile


def test_each_key_is_numbered_for_itself() -> None:
    numbers = Numbers()
    assert [numbers.take(key) for key in ("a", "b", "a", "a", "b")] == [0, 0, 1, 2, 1]
    assert len(numbers) == 2


def test_the_ledger_holds_every_acknowledgement_in_order(tmp_path: Path) -> None:
    rows = ROWS_PER_GROUP + 3  # more than one group, the last one not full
    with Ledger(tmp_path / "ledger.parquet") as ledger:
        for number in range(rows):
            ledger.add(f"key-{number % 7}", number // 7, checksum(b"%d" % number), number % 6, number // 6)
    assert ledger.rows == rows
    read = pq.read_table(ledger.path).to_pylist()
    assert len(read) == rows
    assert read[-1] == {
        "key": f"key-{(rows - 1) % 7}",
        "n": (rows - 1) // 7,
        "crc": checksum(b"%d" % (rows - 1)),
        "partition": (rows - 1) % 6,
        "offset": (rows - 1) // 6,
    }


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=200).map(sorted),
    st.one_of(st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]), st.floats(0.001, 1.0)),
)
def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed(ordered: list[float], share: float) -> None:
    found = percentile(ordered, share)
    enough = math.ceil(share * len(ordered))
    assert sum(value <= found for value in ordered) >= enough
    assert sum(value < found for value in ordered) < enough


def test_a_sample_covers_the_time_since_the_previous_one() -> None:
    meter = Meter()
    meter.sample(10.0)
    meter.sent = 5
    for latency in (0.010, 0.020, 0.030):
        meter.acknowledge(4, due=10.1 - latency, at=10.1)
    meter.in_sync = InSync(smallest=2, total=17, full=18)
    sample = meter.sample(10.5)
    assert sample.acks_per_second == pytest.approx(6)
    assert sample.acks == {4: 3}
    assert sample.p50_ms == pytest.approx(20, rel=1e-3)
    assert (sample.waiting, sample.in_sync_smallest, sample.in_sync_total) == (2, 2, 17)

    idle = meter.sample(10.7)
    assert idle.acks_per_second == 0
    assert idle.acks == {}
    assert idle.p99_ms is None


def test_latency_and_throughput_of_a_part_of_the_run() -> None:
    meter = Meter()
    for second in range(10):
        meter.acknowledge(0, due=second - 0.001 * second, at=second)
    part = meter.latency(2, 5)  # the end does not belong to it
    assert part is not None
    assert part.records == 3
    assert part.max_ms == pytest.approx(4, rel=1e-3)
    assert meter.throughput(2, 5) == 1
    assert meter.latency(20) is None


def test_a_failover_ends_when_each_partition_acknowledges_a_record_sent_after_the_kill() -> None:
    failover = Failover([1, 4], killed_at=100.0)
    failover.acknowledge(1, sent_at=99.9, at=100.1)  # the dead leader's answer was under way already
    failover.acknowledge(3, sent_at=100.1, at=100.2)  # not one of its partitions
    assert failover.missing == [1, 4]
    failover.acknowledge(4, sent_at=100.1, at=101.5)
    failover.acknowledge(1, sent_at=100.3, at=102.5)
    failover.acknowledge(1, sent_at=103.0, at=104.0)  # ignored: the partition has acknowledged already
    assert failover.missing == []
    assert failover.seconds == 2.5
    asyncio.run(asyncio.wait_for(failover.wait_over(), 1))
