"""What a task of a profile finds in its range of a partition, and how ranges are put together.

Two passes: the first finds the bounds of each range, so that in the second one the first record of a range can be
compared with those before it, which another task reads.
Not here: keys, whose counts Spark makes (profile.py); tables and plots (profile_page.py).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.jobs.log_histogram import LogHistogram
from tidelog.records import Record, build_batch
from tidelog.records.v2.records_buffer import TIMESTAMP_MS_MAX
from tidelog.types import NO_TIMESTAMP, Codec, Millis, Offset

if TYPE_CHECKING:
    import pyarrow as pa

Array: TypeAlias = Any
"""An Arrow array."""

PARTIAL: Final = "found string"
"""The one column of a pass: JSON, one row for each range."""
SAMPLE_BYTES: Final = 64 * 1024
"""Size of one batch of the sample: about that of a producer's batches under load."""
HOLES_MAX: Final = 5
"""The largest holes that are named."""


@dataclass(frozen=True, slots=True)
class RangeBounds:
    """The first pass: where a range begins and ends. Times in ms; None if no record of the range has one."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    last_time: int | None
    time_min: int | None
    time_max: int | None


@dataclass(frozen=True, slots=True)
class Predecessor:
    """What lies before a range: the last offset, the last time, and the latest time of all records before it."""

    first_offset: int
    last_offset: int | None = None
    last_time: int | None = None
    time_max: int | None = None


Predecessors = Mapping[tuple[str, int], list[Predecessor]]
"""For each partition those of its ranges, by first offset."""


@dataclass(slots=True)
class RangeProfile:
    """Figures of the records of a range, or of several. Bytes are of keys, values and headers; times in ms."""

    records: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    null_keys: int = 0
    null_values: int = 0
    null_times: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    time_min: int | None = None
    time_max: int | None = None
    sizes: LogHistogram = field(default_factory=LogHistogram)
    gaps: LogHistogram = field(default_factory=LogHistogram)
    """Between the times of consecutive records."""
    delays: LogHistogram = field(default_factory=LogHistogram)
    """The delays of records that are older than one before them."""
    moments: Counter[int] = field(default_factory=Counter)
    """Records by time, in units of `unit_ms`."""
    hole_count: int = 0
    absent_offsets: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    """The largest: size, first absent offset."""
    sample: Counter[str] = field(default_factory=Counter)
    """Bytes of batches of a sample, by codec."""

    def merge(self, other: RangeProfile) -> None:
        """Take in the figures of another range."""
        for name in ("records", "key_bytes", "value_bytes", "header_bytes", "null_keys", "null_values", "null_times"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.hole_count += other.hole_count
        self.absent_offsets += other.absent_offsets
        self.first_offset = _least(self.first_offset, other.first_offset)
        self.time_min = _least(self.time_min, other.time_min)
        self.last_offset = _most(self.last_offset, other.last_offset)
        self.time_max = _most(self.time_max, other.time_max)
        for mine, others in ((self.sizes, other.sizes), (self.gaps, other.gaps), (self.delays, other.delays)):
            mine.merge(others)
        self.moments.update(other.moments)
        self.sample.update(other.sample)
        self.holes = sorted([*self.holes, *other.holes], reverse=True)[:HOLES_MAX]

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: each.to_json() if isinstance(each, LogHistogram) else each for name, each in found.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> RangeProfile:
        """The figures of `to_json`."""
        found = dict(document)
        for name in ("sizes", "gaps", "delays"):
            found[name] = LogHistogram.from_json(found[name])
        found["moments"] = Counter({int(moment): times for moment, times in found["moments"].items()})
        found["sample"] = Counter(found["sample"])
        found["holes"] = [tuple(hole) for hole in found["holes"]]
        return cls(**found)


# --- first pass ---------------------------------------------------------------------------------------------------


def bounds_pass(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The bounds of each range of a task, from its rows with topic, partition, offset and timestampMs."""
    _, pc = _arrow()
    for (topic, partition), parts in _by_partition(batches):
        first_offset: int | None = None
        last_time: int | None = None
        lowest: int | None = None
        highest: int | None = None
        last_offset = 0
        for part in parts:
            times = _times(part)
            first_offset = part.column("offset")[0].as_py() if first_offset is None else first_offset
            last_offset = part.column("offset")[-1].as_py()
            if len(times):
                last_time = times[-1].as_py()
                lowest, highest = _least(lowest, pc.min(times).as_py()), _most(highest, pc.max(times).as_py())
        yield _row([topic, partition, first_offset, last_offset, last_time, lowest, highest])


def _by_partition(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, int], Iterator[pa.RecordBatch]]]:
    """The rows of a task, which may have read several short ranges one after the other, partition by partition."""
    return groupby(_parts(batches), lambda part: (part.column("topic")[0].as_py(), part.column("partition")[0].as_py()))


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches without empty ones, divided where another partition begins."""
    _, pc = _arrow()
    for batch in batches:
        if not batch.num_rows:
            continue
        topics, partitions = batch.column("topic"), batch.column("partition")
        changes = pc.or_(pc.not_equal(topics[1:], topics[:-1]), pc.not_equal(partitions[1:], partitions[:-1]))
        borders = [0, *(each + 1 for each in pc.indices_nonzero(changes).to_pylist()), batch.num_rows]
        for start, end in pairwise(borders):
            yield batch.slice(start, end - start)


def predecessors_of(bounds: Iterable[RangeBounds]) -> dict[tuple[str, int], list[Predecessor]]:
    """What lies before each range."""
    found: dict[tuple[str, int], list[Predecessor]] = {}
    for _, ranges in groupby(
        sorted(bounds, key=lambda one: (one.topic, one.partition, one.first_offset)),
        lambda one: (one.topic, one.partition),
    ):
        last_offset = last_time = time_max = None
        for each in ranges:
            before = Predecessor(each.first_offset, last_offset, last_time, time_max)
            found.setdefault((each.topic, each.partition), []).append(before)
            last_offset, time_max = each.last_offset, _most(time_max, each.time_max)
            last_time = last_time if each.last_time is None else each.last_time
    return found


# --- second pass --------------------------------------------------------------------------------------------------


def profile_pass(predecessors: Predecessors, unit_ms: int) -> Any:
    """The function of a task in the second pass."""
    return partial(_profile, predecessors, unit_ms)


def _profile(predecessors: Predecessors, unit_ms: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The figures of each range of a task, from its rows with all columns."""
    for (topic, partition), parts in _by_partition(batches):
        profiler: RangeProfiler | None = None
        for part in parts:
            if profiler is None:
                before = _before(predecessors, topic, partition, part.column("offset")[0].as_py())
                profiler = RangeProfiler(topic, partition, before, unit_ms)
            profiler.add(part)
        if profiler is not None:
            yield _row([topic, partition, profiler.found.to_json()])


def _before(predecessors: Predecessors, topic: str, partition: int, first: int) -> Predecessor:
    """That of the range that begins here, or did: its first record may have been compacted since the first pass."""
    known = predecessors.get((topic, partition), [])
    place = bisect_left([each.first_offset for each in known], first + 1) - 1
    return known[place] if place >= 0 else Predecessor(first)


class RangeProfiler:
    """Takes in the rows of one range, in their order."""

    def __init__(self, topic: str, partition: int, before: Predecessor, unit_ms: int) -> None:
        """unit_ms: of the records by time."""
        self.topic, self.partition = topic, partition
        self.found = RangeProfile()
        self._unit_ms = unit_ms
        self._offset, self._time, self._time_max = before.last_offset, before.last_time, before.time_max
        self._batches, self._next_sample = 0, 1

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in rows, at least one."""
        _, pc = _arrow()
        found = self.found
        offsets, times = batch.column("offset"), _times(batch)
        keys, values, headers = (batch.column(name) for name in ("key", "value", "headers"))
        key_sizes, value_sizes = (_lengths(column) for column in (keys, values))
        header_sizes = _header_sizes(headers)
        found.records += batch.num_rows
        found.null_keys += keys.null_count
        found.null_values += values.null_count
        found.null_times += batch.num_rows - len(times)
        found.key_bytes += pc.sum(key_sizes).as_py()
        found.value_bytes += pc.sum(value_sizes).as_py()
        found.header_bytes += pc.sum(header_sizes).as_py()
        found.sizes.add_all(pc.add(pc.add(key_sizes, value_sizes), header_sizes))
        found.first_offset = _least(found.first_offset, offsets[0].as_py())
        found.last_offset = offsets[-1].as_py()
        found.time_min = _least(found.time_min, pc.min(times).as_py())
        found.time_max = _most(found.time_max, pc.max(times).as_py())
        for each in pc.value_counts(pc.divide(times, self._unit_ms)):
            found.moments[each["values"].as_py()] += each["counts"].as_py()
        self._add_holes(offsets)
        if len(times):
            self._add_times(times)
        self._batches += 1
        # Batch 1, 2, 4, 8 ...: all parts of a range are in the sample, and long ranges do not take longer to compress.
        if self._batches == self._next_sample:
            self._next_sample *= 2
            self._add_sample(batch, pc.add(key_sizes, value_sizes))

    def _add_holes(self, offsets: Array) -> None:
        pa, pc = _arrow()
        before = pa.array([offsets[0].as_py() - 1 if self._offset is None else self._offset], pa.int64())
        expected = pc.add(pa.concat_arrays([before, offsets[:-1]]), 1)
        sizes = pc.subtract(offsets, expected)
        is_hole = pc.greater(sizes, 0)
        sizes, starts = sizes.filter(is_hole), expected.filter(is_hole)
        if len(sizes):
            self.found.hole_count += len(sizes)
            self.found.absent_offsets += pc.sum(sizes).as_py()
            table = pa.table({"size": sizes, "start": starts})
            largest = pc.sort_indices(table, [("size", "descending"), ("start", "descending")])[:HOLES_MAX]
            new = [(sizes[each.as_py()].as_py(), starts[each.as_py()].as_py()) for each in largest]
            self.found.holes = sorted([*self.found.holes, *new], reverse=True)[:HOLES_MAX]
        self._offset = offsets[-1].as_py()

    def _add_times(self, times: Array) -> None:
        """Inter-arrival times and delays: from the second record of the partition on."""
        pa, pc = _arrow()
        start = 1 if self._time is None else 0
        before = pa.array([times[0].as_py() if self._time is None else self._time], pa.int64())
        steps = pc.subtract(times, pa.concat_arrays([before, times[:-1]]))[start:]
        self.found.gaps.add_all(pc.max_element_wise(steps, 0))
        highest = pc.cumulative_max(times, start=self._time_max)
        earlier = pa.array([times[0].as_py() if self._time_max is None else self._time_max], pa.int64())
        delays = pc.subtract(pa.concat_arrays([earlier, highest[:-1]]), times)
        self.found.delays.add_all(delays.filter(pc.greater(delays, 0)))
        self._time, self._time_max = times[-1].as_py(), highest[-1].as_py()

    def _add_sample(self, batch: pa.RecordBatch, sizes: Array) -> None:
        """Compress the first records of the Arrow batch with each codec."""
        _, pc = _arrow()
        count = max(1, pc.sum(pc.less_equal(pc.cumulative_sum(sizes), SAMPLE_BYTES)).as_py())
        rows = batch.slice(0, count).to_pydict()
        records = [
            Record(
                Offset(number),
                Millis(min(max(time, NO_TIMESTAMP), TIMESTAMP_MS_MAX)),
                key,
                value,
                tuple((each["key"], each["value"]) for each in headers or ()),
            )
            for number, (time, key, value, headers) in enumerate(
                zip(rows["timestampMs"], rows["key"], rows["value"], rows["headers"], strict=True)
            )
        ]
        for codec in Codec:
            self.found.sample[codec.name.lower()] += len(build_batch(records, codec))


def _arrow() -> tuple[Any, Any]:
    """pyarrow and its functions. Both are imported late: the job first says if they are missing."""
    return import_module("pyarrow"), import_module("pyarrow.compute")


def _times(batch: pa.RecordBatch) -> Array:
    """The times of those records that have one, in ms and in their order."""
    _, pc = _arrow()
    column: Array = batch.column("timestampMs")
    return column.filter(pc.not_equal(column, NO_TIMESTAMP))


def _lengths(column: Array) -> Array:
    _, pc = _arrow()
    return pc.fill_null(pc.binary_length(column), 0).cast("int64")


def _header_sizes(headers: Array) -> Array:
    """Bytes of the names and values of each row's headers."""
    pa, pc = _arrow()
    entries = headers.values
    sizes = pc.add(_lengths(entries.field("key")), _lengths(entries.field("value")))
    sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    ends = headers.offsets
    return pc.subtract(sums.take(ends[1:]), sums.take(ends[:-1]))


def _row(found: object) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.record_batch([pa.array([json.dumps(found)], pa.string())], names=["found"])


def _least(one: int | None, other: int | None) -> int | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _most(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)
