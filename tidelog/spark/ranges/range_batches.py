"""The records of offset ranges as Arrow batches, in the blocking form that a Spark task needs. Only the columns of the
query are built, without an object per record.

Not here: fetching (reading.py, remote_reading.py), which ranges there are (planning.py), rows and columns
(tidelog/records/arrow_columns.py).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from itertools import takewhile
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog.record_exchange import AbortedStart
from tidelog.records import RecordBatch
from tidelog.records.arrow_columns import TableBuilder
from tidelog.spark.options.query_options import QueryOptions
from tidelog.spark.ranges.planning import OffsetRange, TaskRanges
from tidelog.spark.ranges.reading import RangeReader
from tidelog.spark.ranges.remote_reading import RemoteRangeReader
from tidelog.spark.ranges.worker_store import remote_reader
from tidelog.spark.ranges.worker_transport import worker_loop, worker_transport
from tidelog.types import Offset

ROWS_PER_BATCH: Final = 10_000
"""Rows of one Arrow batch: 2,000 to 50,000 cost Spark the least per row."""
ROWS_PER_BATCH_MAX: Final = 50_000
"""Most rows of one Arrow batch: a record batch with more of them is split."""
BYTES_PER_BATCH: Final = 32 << 20
"""Bytes of keys and values after which an Arrow batch is closed early, so that large records keep memory bounded."""


class ColumnBuilder:
    """Gathers records until they fill an Arrow batch: each record of a range once, in order, control records never."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._table = TableBuilder(columns)

    def add(self, within: OffsetRange, batch: RecordBatch) -> bool:
        """Decode what a batch has of this range; one that is rejected leaves no row behind. Returns whether an Arrow
        batch is full.

        Raises CorruptRecord if it fails its checksum or structure, RecordTooLarge, UnsupportedCompressionType.
        """
        if _is_left_out(within, batch):
            return False  # nothing of it is decoded: it is as if its transaction had been aborted
        key = within.topic_partition
        self._table.add(key.topic, key.partition, batch, start=within.start, end=within.end)
        return self._table.rows >= ROWS_PER_BATCH or self._table.size >= BYTES_PER_BATCH

    def take(self) -> Iterator[pa.RecordBatch]:
        """The rows gathered so far, as Arrow batches of at most ROWS_PER_BATCH_MAX rows; none if there are no rows."""
        size = self._table.size
        whole = self._table.take()
        self._table.expect(size)  # the next one has about as many: its memory grows in one step
        for first in range(0, whole.num_rows, ROWS_PER_BATCH_MAX):
            yield whole.slice(first, ROWS_PER_BATCH_MAX)


def _is_left_out(within: OffsetRange, batch: RecordBatch) -> bool:
    """Whether the batch belongs to a transaction that was not decided when the snapshot was taken."""
    return (
        bool(within.left_out)
        and batch.is_transactional
        and any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset for each in within.left_out
        )
    )


def range_batches(
    query: QueryOptions, columns: tuple[str, ...], partition: InputPartition | None
) -> Iterator[pa.RecordBatch]:
    """The records of a task, range after range, with these columns. Connections are opened at the first batch, and kept
    for the next task if all was read. Raises as `RangeReader.read` and `ColumnBuilder`."""
    if not isinstance(partition, TaskRanges):  # Spark reads a query without tasks once, with None
        return
    batches = _batches(query, columns, partition.ranges)
    loop = worker_loop()
    try:
        while (batch := loop.run_until_complete(_next(batches))) is not None:
            yield batch
    finally:
        loop.run_until_complete(batches.aclose())


async def _batches(
    query: QueryOptions, columns: tuple[str, ...], ranges: Sequence[OffsetRange]
) -> AsyncGenerator[pa.RecordBatch, None]:
    async with NodesOfQuery(query) as nodes, aclosing(read_ranges(query, columns, ranges, nodes)) as batches:
        async for batch in batches:
            yield batch


async def read_ranges(
    query: QueryOptions, columns: tuple[str, ...], ranges: Sequence[OffsetRange], nodes: NodesOfQuery
) -> AsyncGenerator[pa.RecordBatch, None]:
    """The records of these ranges, one after the other, on the running loop. Close it. Raises as `range_batches`."""
    builder = ColumnBuilder(columns)
    history = remote_reader(query, nodes.aborted_behind)
    for index, one in enumerate(ranges):
        reader: RemoteRangeReader | RangeReader = history
        if one.remote is None:
            reader = await nodes.reader()
            if index == 0 or ranges[index - 1].remote is not None:
                reader.begin(list(takewhile(lambda each: each.remote is None, ranges[index:])))
        # A reader that is left open would keep its fetches under way on a loop that nothing runs.
        async with aclosing(reader.read(one, partial(builder.add, one))) as decoded:
            async for _ in decoded:
                for batch in builder.take():
                    yield batch
    for batch in builder.take():
        yield batch


class NodesOfQuery:
    """The connection of a task to the nodes, opened when it is first needed: history may need none. Use it inside
    `async with`."""

    def __init__(self, query: QueryOptions) -> None:
        self._query, self._stack = query, AsyncExitStack()
        self._reader: RangeReader | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def reader(self) -> RangeReader:
        if self._reader is None:
            connection = self._query.connection
            transport = await self._stack.enter_async_context(worker_transport(connection))
            self._reader = await self._stack.enter_async_context(
                RangeReader(
                    connection.bootstrap,
                    fetch_bytes=self._query.fetch_bytes,
                    isolation=connection.isolation,
                    rack=connection.rack,
                    transport=transport,
                )
            )
        return self._reader

    async def aborted_behind(self, wanted: OffsetRange, offset: Offset) -> Sequence[AbortedStart]:
        """As `RangeReader.aborted_behind`."""
        return await (await self.reader()).aborted_behind(wanted, offset)


async def _next(batches: AsyncGenerator[pa.RecordBatch, None]) -> pa.RecordBatch | None:
    return await anext(batches, None)
