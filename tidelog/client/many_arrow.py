"""Rows of Arrow tables as the columns of many records.

Invariants: no Python object is created for a row but its bytes. All rows are checked before the first is queued.
Not here: the way of the records into batches (many_records.py), Arrow's buffers (records/arrow_columns.py).
"""

from __future__ import annotations

from array import array
from typing import Any

from tidelog.client.accumulator import checked_headers
from tidelog.client.many_records import RecordColumns
from tidelog.client.options import partition_index
from tidelog.client.routing import NO_PARTITION
from tidelog.errors import InvalidRecord, InvalidRequest, InvalidTimestamp, UnknownTopicOrPartition
from tidelog.records.arrow_columns import (
    TABLE_COLUMNS,
    TIMESTAMP_MS,
    binary_list,
    header_list,
    millisecond_list,
    table_schema,
)
from tidelog.records.v2.records_buffer import TIMESTAMP_MS_MAX, bad_timestamp
from tidelog.types import NO_TIMESTAMP


def columns_of_table(table: Any, partition: object) -> RecordColumns:
    """Return the rows of a pyarrow table or record batch, or of an object with Arrow's C interface.

    partition: that of all rows; None to use the column `partition`. Raises InvalidRequest without pyarrow, without a
    column value or for an unknown column; TypeError for another object; InvalidRecord, InvalidTimestamp or
    UnknownTopicOrPartition for a row.
    """
    table_schema()  # raises without pyarrow
    import pyarrow as pa

    if not isinstance(table, pa.Table | pa.RecordBatch):
        if not hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__arrow_c_array__"):
            raise TypeError(f"expected an Arrow table or record batch, not {type(table).__name__}")
        table = pa.table(table) if hasattr(table, "__arrow_c_stream__") else pa.record_batch(table)
    names = table.schema.names
    for name in names:
        if (name not in TABLE_COLUMNS and name != TIMESTAMP_MS) or names.count(name) > 1:
            raise InvalidRequest(
                f"column {name!r}: use each of {', '.join(TABLE_COLUMNS)}, {TIMESTAMP_MS} at most once"
            )
    if "value" not in names:
        raise InvalidRequest("the table has no column value")
    chosen = None if partition is None else partition_index(partition)
    return RecordColumns(
        binary_list(table["value"], "value"),
        binary_list(table["key"], "key") if "key" in names else None,
        [checked_headers(row) for row in header_list(table["headers"])] if "headers" in names else None,
        partition=chosen,
        partitions=_partitions(table["partition"]) if "partition" in names and chosen is None else None,
        timestamps=_timestamps([table[name] for name in (TIMESTAMP_MS, "timestamp") if name in names]),
    )


def _timestamps(columns: list[Any]) -> list[Any] | None:
    """The time of each row, from the first of these columns that is not null; None for now. Raises InvalidTimestamp."""
    filled = [column for column in columns if column.null_count < len(column)]
    if not filled:
        return None
    times, *others = map(millisecond_list, filled)
    if others and filled[0].null_count:
        times = [other if time is None else time for time, other in zip(times, others[0], strict=True)]
    row = next(
        (row for row, time in enumerate(times) if time is not None and not NO_TIMESTAMP <= time <= TIMESTAMP_MS_MAX),
        None,
    )
    if row is not None:
        raise InvalidTimestamp(f"row {row}: {bad_timestamp(times[row] or 0).message}; null for now")
    return times


def _partitions(column: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_integer(column.type):
        raise InvalidRecord(f"the column partition is {column.type}: use int32")
    chosen = column.cast(pa.int64()).to_pylist()
    row = next((row for row, each in enumerate(chosen) if each is not None and not 0 <= each < 1 << 31), None)
    if row is not None:
        raise UnknownTopicOrPartition(f"row {row}: partition {chosen[row]} does not exist: use 0 or above, or null")
    return array("i", [NO_PARTITION if each is None else each for each in chosen])
