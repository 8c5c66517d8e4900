"""The figures of a profile: of each partition and of each topic. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tidelog.jobs.log_histogram import LogHistogram
from tidelog.jobs.range_profile import RangeProfile

PERCENTILES: Final = (50, 90, 99, 99.9)
TOP_KEYS: Final = 10


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """The keys of the records."""

    distinct: int = 0
    """How many there are, without null."""
    top: tuple[tuple[bytes | None, int], ...] = ()
    """The most frequent ones, each with its number of records; null is one of them."""

    def share_of_top(self, records: int, count: int) -> float:
        """The share of all records that have one of the `count` most frequent keys."""
        return sum(times for _, times in self.top[:count]) / records if records else 0.0


@dataclass(slots=True)
class PartitionProfile:
    """A partition, or a whole topic, whose offsets are the sums of those of its partitions."""

    topic: str
    partition: int | None
    """None: the whole topic."""
    log_start: int = 0
    """The first offset of the log when the job began."""
    log_end: int = 0
    start: int = 0
    """The first offset that was to be read."""
    found: RangeProfile = field(default_factory=RangeProfile)
    keys: KeyCounts = field(default_factory=KeyCounts)

    @property
    def name(self) -> str:
        """Topic and partition, as in other outputs."""
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    @property
    def bytes(self) -> int:
        """Total bytes of keys, values and headers."""
        return self.found.key_bytes + self.found.value_bytes + self.found.header_bytes

    @property
    def absent_offsets(self) -> int:
        """Offsets of the range that no record has, at its edges as well."""
        return self.log_end - self.start - self.found.records

    @property
    def per_second(self) -> float | None:
        """Records a second, between the first and the last time; None if there is no such span."""
        found = self.found
        if found.time_min is None or found.time_max is None or found.time_max == found.time_min:
            return None
        return found.records / (found.time_max - found.time_min) * 1000

    def compression(self) -> dict[str, float]:
        """How many times smaller the sample becomes with each codec."""
        sample = self.found.sample
        return {codec: sample["none"] / size for codec, size in sample.items() if size}

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON, with percentiles instead of histograms."""
        found = self.found
        return {
            "topic": self.topic,
            **({} if self.partition is None else {"partition": self.partition}),
            "logStartOffset": self.log_start,
            "logEndOffset": self.log_end,
            "startOffset": self.start,
            "records": found.records,
            "bytes": self.bytes,
            "keyBytes": found.key_bytes,
            "valueBytes": found.value_bytes,
            "headerBytes": found.header_bytes,
            "nullKeys": found.null_keys,
            "nullValues": found.null_values,
            "nullTimestamps": found.null_times,
            "timestampMin": found.time_min,
            "timestampMax": found.time_max,
            "recordsPerSecond": self.per_second,
            "sizeBytes": _distribution(found.sizes),
            "interArrivalMs": _distribution(found.gaps),
            "delay": {
                "lateRecords": found.delays.count,
                "share": found.delays.count / found.records if found.records else 0.0,
                "ms": _distribution(found.delays),
            },
            "keys": {
                "distinct": self.keys.distinct,
                "shareOfTop1": self.keys.share_of_top(found.records, 1),
                "shareOfTop10": self.keys.share_of_top(found.records, TOP_KEYS),
                "top": [{"key": key_text(key), "records": times} for key, times in self.keys.top],
            },
            "gaps": {
                "holes": found.hole_count,
                "absentOffsets": self.absent_offsets,
                "largest": [{"offset": start, "size": size} for size, start in found.holes],
            },
            "compressionRatio": self.compression(),
        }


@dataclass(frozen=True, slots=True)
class TopicProfile:
    """A topic: all of it, and each partition."""

    whole: PartitionProfile
    partitions: Sequence[PartitionProfile]
    unit_ms: int
    """The unit of time in `moments`."""

    @property
    def moments(self) -> Counter[int]:
        """Records by time, in units."""
        return self.whole.found.moments

    @property
    def skew(self) -> float:
        """The records of the largest partition, relative to the mean of all partitions; 1: all are of one size."""
        counts = [each.found.records for each in self.partitions]
        return max(counts) * len(counts) / sum(counts) if sum(counts) else 1.0


def topic_profile(partitions: Sequence[PartitionProfile], keys: KeyCounts, unit_ms: int) -> TopicProfile:
    """The profile of a topic. partitions: of one topic, at least one. keys: of all of them together."""
    whole = PartitionProfile(partitions[0].topic, None, keys=keys)
    for each in partitions:
        whole.log_start += each.log_start
        whole.log_end += each.log_end
        whole.start += each.start
        whole.found.merge(each.found)
    return TopicProfile(whole, partitions, unit_ms)


def key_text(key: bytes | None) -> str | None:
    """A key for people: text, or hexadecimal digits if it is none."""
    if key is None:
        return None
    text = key.decode("utf-8", errors="replace")
    return text if text.isprintable() and "\ufffd" not in text else f"0x{key.hex()}"


def _distribution(histogram: LogHistogram) -> dict[str, Any]:
    percentiles = {f"p{percent:g}": histogram.percentile(percent) for percent in PERCENTILES}
    return {"mean": round(histogram.mean(), 3), **percentiles, "max": histogram.max}
