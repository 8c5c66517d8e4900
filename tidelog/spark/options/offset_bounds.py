"""Where a query starts and where it ends: offsets or times, for all partitions or for each. Pure.

As in Spark's Kafka source, `startingTimestamp` wins over `startingOffsetsByTimestamp`, and both win over
`startingOffsets`; the same holds for the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tidelog.errors import InvalidConfig
from tidelog.spark.options.option_values import MOMENT_MS_MAX, moment_ms, per_partition
from tidelog.types import EARLIEST, LATEST, Offset, TopicPartition

START_NAMES: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
END_NAMES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a query. Exactly one field is set."""

    everywhere: Offset | None = None
    """EARLIEST or LATEST, for all partitions."""
    offsets: Mapping[TopicPartition, Offset] | None = None
    """An offset, EARLIEST or LATEST for each partition."""
    timestamp_ms: int | None = None
    """The first record at or after this time, in all partitions."""
    times: Mapping[TopicPartition, int] | None = None
    """A time for each partition."""


def offset_bound(given: Mapping[str, str], side: Literal["starting", "ending"], *, default: Offset) -> Bound:
    """One bound of the query. given: by canonical names. default: EARLIEST or LATEST. Raises InvalidConfig."""
    if (moment := moment_ms(given, f"{side}Timestamp")) is not None:
        return Bound(timestamp_ms=moment)
    if (text := given.get(f"{side}OffsetsByTimestamp")) is not None:
        times = per_partition(f"{side}OffsetsByTimestamp", text, lowest=0, highest=MOMENT_MS_MAX)
        return Bound(times=times)
    text = given.get(f"{side}Offsets")
    if text is None:
        return Bound(everywhere=default)
    match text.strip().lower():
        case "earliest":
            return Bound(everywhere=EARLIEST)
        case "latest":
            return Bound(everywhere=LATEST)
    if not text.lstrip().startswith("{"):
        raise InvalidConfig(
            f"option '{side}Offsets' is {text!r}; it must be earliest, latest or, in each partition, an offset: "
            '{"topic": {"0": 23, "1": -2}}'
        )
    offsets = per_partition(f"{side}Offsets", text, lowest=EARLIEST)
    return Bound(offsets={partition: Offset(number) for partition, number in offsets.items()})
