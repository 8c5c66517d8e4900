"""The options that batch queries and streaming queries share. Pure.

Not here: where a batch ends (batch_options.py), the rate and the identity of a stream (stream_options.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.spark.options.connection_options import (
    CONNECTION_NAMES,
    FETCH_NAMES,
    ConnectionOptions,
    connection_options,
)
from tidelog.spark.options.offset_bounds import START_NAMES, Bound, offset_bound
from tidelog.spark.options.option_values import boolean, choice, positive
from tidelog.spark.options.topic_selection import SELECTION_NAMES, TopicSelection, topic_selection
from tidelog.types import Offset

FETCH_BYTES: Final = 4 << 20
FETCH_BYTES_MAX: Final = 1 << 30

QUERY_NAMES: Final = (
    *CONNECTION_NAMES,
    *FETCH_NAMES,
    *SELECTION_NAMES,
    *START_NAMES,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "includeTimestampMs",
    "fetchBytes",
)

OF_THE_SINK: Final = {
    "topic": 'it names the topic of the sink; the source reads "subscribe", "subscribePattern" or "assign"',
    "exactlyOnce": "it belongs to the sink",
    "tidelog.sink.id": "it belongs to the sink",
    "tidelog.transaction.timeout.ms": "it belongs to the sink",
    "kafka.transaction.timeout.ms": "it belongs to the sink",
}
"""Options of the sink, refused with the reason."""


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """The options of a query of the source. past_the_last_is_latest: a partition without a record at or after the
    starting time is read from its end; otherwise the query fails. min_partitions: tasks in all, at least about so many;
    None: by size. records_per_partition_max: most offsets of a task. fetch_bytes: most bytes of one fetch of a task."""

    connection: ConnectionOptions
    selection: TopicSelection
    starting: Bound
    past_the_last_is_latest: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    records_per_partition_max: int | None = None
    include_headers: bool = False
    include_timestamp_ms: bool = False
    fetch_bytes: int = FETCH_BYTES


def query_options(given: Mapping[str, str], *, start: Offset) -> QueryOptions:
    """The shared options. given: by canonical names. start: EARLIEST or LATEST, where no start is given.

    Raises InvalidConfig with the option, its value and the valid values.
    """
    strategy = choice(given, "startingOffsetsByTimestampStrategy", default="error", among=("error", "latest"))
    return QueryOptions(
        connection=connection_options(given),
        selection=topic_selection(given),
        starting=offset_bound(given, "starting", default=start),
        past_the_last_is_latest=strategy == "latest",
        fail_on_data_loss=boolean(given, "failOnDataLoss", default=True),
        min_partitions=positive(given, "minPartitions"),
        records_per_partition_max=positive(given, "maxRecordsPerPartition"),
        include_headers=boolean(given, "includeHeaders", default=False),
        include_timestamp_ms=boolean(given, "includeTimestampMs", default=False),
        fetch_bytes=positive(given, "fetchBytes", most=FETCH_BYTES_MAX) or FETCH_BYTES,
    )
