"""How much one batch of a stream reads: limits over all partitions, shared among them. Pure; times come from outside.

Source: Spark's Kafka source (KafkaMicroBatchStream), whose options these are.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.spark.options.query_options import TriggerLimits
from tidelog.types import Millis, Offset, TopicPartition


def share_rate(
    backlogs: Mapping[TopicPartition, tuple[Offset, Offset]], offsets_max: int | None
) -> dict[TopicPartition, Offset]:
    """Where the batch ends in each partition.

    backlogs: the first offset to read and the end of the log, which is not below it. offsets_max: None: read all.
    A partition gets a part of the limit in proportion to its backlog, at least one offset if it has any: a small
    partition does not starve beside large ones, and a batch exceeds the limit by less than the number of partitions.
    """
    total = sum(end - begin for begin, end in backlogs.values())
    if offsets_max is None or total <= offsets_max:
        return {key: end for key, (_, end) in backlogs.items()}
    return {
        key: Offset(begin + min(end - begin, max(1, offsets_max * (end - begin) // total))) if end > begin else end
        for key, (begin, end) in backlogs.items()
    }


class TriggerGate:
    """Delays a batch until enough offsets are there (`minOffsetsPerTrigger`), at most for `maxTriggerDelay`. As in
    Spark's Kafka source, the first batch after a start is not delayed."""

    def __init__(self, limits: TriggerLimits) -> None:
        self._limits = limits
        self._last_at: Millis | None = None

    def is_open(self, available: int, now: Millis) -> bool:
        """Whether a batch may begin. available: offsets that are not read. now: monotonic."""
        least = self._limits.offsets_min
        if least is None or available >= least or self._last_at is None:
            return True
        return now - self._last_at >= self._limits.delay_ms_max

    def note_batch(self, now: Millis) -> None:
        """A batch with data begins."""
        self._last_at = now
