"""The figures of a profile, against what is counted one record at a time: any records, any division into ranges."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelog.jobs.log_histogram import LogHistogram
from tidelog.jobs.profile_figures import KeyCounts, PartitionProfile, key_text, topic_profile
from tidelog.jobs.profile_page import profile_page
from tidelog.jobs.range_profile import RangeBounds, RangeProfile, bounds_pass, predecessors_of, profile_pass
from tidelog.records.arrow_columns import table_schema

Row = tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
"""Offset, time in ms, key, value and headers."""

DATA = st.none() | st.binary(max_size=20)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), DATA), max_size=3)
TIMES = st.integers(0, 2_000_000) | st.sampled_from((-1, 1_795_843_134_110_000, 2**62, 2**63 - 1))
"""-1: none. Producers that write micro- or nanoseconds."""
ROWS = st.lists(st.tuples(st.integers(1, 5), TIMES, DATA, DATA, HEADERS), min_size=1, max_size=40)
COLUMNS = ("key", "value", "headers", "timestampMs", "partition", "offset", "topic")


def batch_of(rows: Sequence[Row], partition: int = 0) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "key": [key for _, _, key, _, _ in rows],
        "value": [value for _, _, _, value, _ in rows],
        "headers": [
            None if headers is None else [{"key": name, "value": value} for name, value in headers]
            for _, _, _, _, headers in rows
        ],
        "timestampMs": [time for _, time, _, _, _ in rows],
        "partition": [partition] * len(rows),
        "offset": [offset for offset, _, _, _, _ in rows],
        "topic": ["t"] * len(rows),
    }
    schema = table_schema(COLUMNS)
    return pa.record_batch([pa.array(columns[name], schema.field(name).type) for name in COLUMNS], schema=schema)


def profiled(ranges: Sequence[Sequence[Sequence[Row]]], unit_ms: int = 1000) -> RangeProfile:
    """Both passes over ranges of batches, each with its own predecessors, as Spark runs them."""
    batches = [[batch_of(rows) for rows in each] for each in ranges]
    bounds = [
        RangeBounds(*json.loads(row.as_py())) for each in batches for one in bounds_pass(each) for row in one.column(0)
    ]
    task = profile_pass(predecessors_of(reversed(bounds)), unit_ms)
    found = RangeProfile()
    for each in reversed(batches):
        for one in task(each):
            _, _, document = json.loads(one.column(0)[0].as_py())
            found.merge(RangeProfile.from_json(document))
    return found


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(1, 30))
def test_a_task_that_reads_several_short_ranges_tells_them_apart(partitions: list[list[Row]], length: int) -> None:
    """An Arrow batch then holds rows of several partitions; the figures are those of a task for each."""
    alone = []
    for index, rows in enumerate(partitions):
        offsets = accumulate(step for step, *_ in rows)
        alone.append(batch_of([(offset, *row[1:]) for offset, row in zip(offsets, rows, strict=True)], index))
    together = pa.Table.from_batches(alone).combine_chunks().to_batches(max_chunksize=length)
    for task in (bounds_pass, profile_pass({}, 1000)):
        found = [json.loads(row.as_py()) for one in task(together) for row in one.column(0)]
        expected = [json.loads(row.as_py()) for each in alone for one in task([each]) for row in one.column(0)]
        for row in (*found, *expected):
            if isinstance(row[-1], dict):
                del row[-1]["sample"]  # of the first records of each Arrow batch
        assert found == expected


@given(ROWS, st.lists(st.integers(0, 40), max_size=4), st.integers(1, 10))
def test_ranges_together_are_the_figures_of_all_records(
    steps: list[Row],
    borders: list[int],
    batch_rows: int,
) -> None:
    offset = 100
    rows: list[Row] = []
    for step, time, key, value, headers in steps:
        rows.append((offset, time, key, value, headers))
        offset += step
    cuts = [0, *sorted(each for each in borders if each < len(rows)), len(rows)]
    parts = [rows[start:end] for start, end in pairwise(cuts) if start < end]
    divided = [[part[at : at + batch_rows] for at in range(0, len(part), batch_rows)] for part in parts]
    found = profiled(divided)

    sizes = [
        len(key or b"") + len(value or b"") + sum(len(n.encode()) + len(v or b"") for n, v in headers or ())
        for _, _, key, value, headers in rows
    ]
    times = [time for _, time, _, _, _ in rows if time != -1]
    holes = sorted(((after[0] - before[0] - 1, before[0] + 1) for before, after in pairwise(rows)), reverse=True)
    holes = [hole for hole in holes if hole[0]]
    delays = [d for at, time in enumerate(times) if at and (d := max(times[:at]) - time) > 0]
    gaps = [max(0, after - before) for before, after in pairwise(times)]
    assert found.records == len(rows)
    assert found.key_bytes + found.value_bytes + found.header_bytes == sum(sizes) == found.sizes.sum
    assert (found.null_keys, found.null_values) == (
        sum(row[2] is None for row in rows),
        sum(row[3] is None for row in rows),
    )
    assert (found.first_offset, found.last_offset) == (rows[0][0], rows[-1][0])
    assert (found.time_min, found.time_max) == (min(times, default=None), max(times, default=None))
    assert found.null_times == len(rows) - len(times)
    assert (found.hole_count, found.absent_offsets) == (len(holes), sum(size for size, _ in holes))
    assert found.holes == holes[:5]
    assert (found.delays.count, found.delays.sum, found.delays.max) == (
        len(delays),
        sum(delays),
        max(delays, default=0),
    )
    assert (found.gaps.count, found.gaps.sum) == (len(gaps), sum(gaps))
    assert found.moments == Counter(time // 1000 for time in times)


@given(
    st.lists(st.integers(0, 2**45) | st.integers(0, 2**63 - 1), min_size=1, max_size=300),
    st.floats(0.1, 100),
    st.integers(0, 300),
)
def test_percentiles_are_within_one_percent(values: list[int], percent: float, border: int) -> None:
    together, one = LogHistogram(), LogHistogram()
    together.add_all(pa.array(values[:border], pa.int64()))
    for value in values[border:]:
        one.add(value)
    together.merge(LogHistogram.from_json(json.loads(json.dumps(one.to_json()))))
    exact = sorted(values)[max(1, math.ceil(percent / 100 * len(values))) - 1]
    assert abs(together.percentile(percent) - exact) <= 0.0101 * exact + 1
    assert (together.count, together.sum, together.max) == (len(values), sum(values), max(values))
    assert together.shares()[-1][1] == 1


def test_the_compression_of_a_sample_is_that_of_its_batches() -> None:
    text = b"the same words again and again " * 30
    found = profiled([[[(number, number, b"k", text, None) for number in range(500)]]])
    each = PartitionProfile("t", 0, 0, 500, 0, found)
    ratios = each.compression()
    assert ratios["none"] == 1
    assert all(ratios[codec] > 5 for codec in ("gzip", "snappy", "lz4", "zstd"))
    assert 64 * 1024 * 0.9 < found.sample["none"] < 64 * 1024 * 1.2, "one batch of 64 KiB of the one Arrow batch"


def test_the_page_has_everything_in_itself_and_escapes_what_comes_from_records() -> None:
    rows: list[Row] = [(number * 2, 1_714_564_800_000 + number, b"k", b"v" * number, None) for number in range(100)]
    keys = KeyCounts(2, ((b"<script>alert(1)</script>", 60), (None, 30), (b"\xff\x00", 10)))
    partition = PartitionProfile("t", 0, 0, 200, 0, profiled([[rows]]), keys)
    empty = PartitionProfile("t", 1)
    page = profile_page([topic_profile([partition, empty], keys, 1000)], "profile of <t>")
    assert page.count('src="data:image/png;base64,iVBOR') == 1
    assert "http" not in page and "<script" not in page
    for text in ("&lt;script&gt;", "<i>null</i>", "0xff00", "profile of &lt;t&gt;", "t-1"):
        assert text in page
    far = PartitionProfile("t", 2, found=profiled([[[(0, -1, None, b"v", None), (1, 2**62, None, b"v", None)]]]))
    with_far_times = profile_page([topic_profile([partition, far], keys, 1000)], "far")
    assert "<td>4611686018427387904 ms</td>" in with_far_times and with_far_times.count("data:image/png") == 1
    nothing = topic_profile([empty], KeyCounts(), 1)
    assert profile_page([nothing], "empty").count("data:image/png") == 1
    assert nothing.whole.to_json()["recordsPerSecond"] is None


def test_keys_are_shown_as_text_where_they_are() -> None:
    assert [key_text(key) for key in ("käse".encode(), b"\xff", b"a\nb", None)] == ["käse", "0xff", "0x610a62", None]
