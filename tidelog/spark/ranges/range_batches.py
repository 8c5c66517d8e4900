"""The records of offset ranges as Arrow batches, in the blocking form that a Spark task needs.

Not here: fetching (reading.py), the columns (column_builder.py), which ranges there are (planning.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from functools import partial

import pyarrow as pa

from tidelog.spark.options.connection_options import ConnectionOptions
from tidelog.spark.ranges.column_builder import ColumnBuilder
from tidelog.spark.ranges.planning import OffsetRange
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.ranges.worker_loop import worker_loop
from tidelog.spark.ranges.worker_transport import worker_transport


def range_batches(
    connection: ConnectionOptions, columns: tuple[str, ...], wanted: Sequence[OffsetRange], *, fetch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, one after the other, with these columns. Connections are opened at the first batch,
    and kept for the next task if all was read.

    fetch_bytes: most that one fetch returns. Raises as `RangeReader.read` and `ColumnBuilder`.
    """
    batches = _batches(connection, columns, wanted, fetch_bytes)
    loop = worker_loop()
    try:
        while (batch := loop.run_until_complete(_next(batches))) is not None:
            yield batch
    finally:
        loop.run_until_complete(batches.aclose())


async def _batches(
    connection: ConnectionOptions, columns: tuple[str, ...], wanted: Sequence[OffsetRange], fetch_bytes: int
) -> AsyncGenerator[pa.RecordBatch, None]:
    builder = ColumnBuilder(columns)
    async with (
        worker_transport(connection) as transport,
        RangeReader(
            connection.bootstrap,
            fetch_bytes=fetch_bytes,
            isolation=connection.isolation,
            rack=connection.rack,
            transport=transport,
        ) as reader,
    ):
        reader.announce({one.topic_partition.topic for one in wanted})
        for one in wanted:
            async with aclosing(reader.read(one, partial(builder.add, one))) as decoded:
                async for _ in decoded:
                    for batch in builder.take():
                        yield batch
    for batch in builder.take():
        yield batch


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)
