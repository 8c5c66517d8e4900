"""Rows of a small micro-batch, read by the process of the reader while Spark writes the batch into its checkpoint.

To run a task with its Python worker takes longer than to read some records. Spark keeps rows that come with the plan of
a batch as a block, and its task takes them from there without Python; if the block is lost, the task reads its ranges.

Invariants:
  1. The rows are those that the task would read: of the same ranges, by the same reader.
  2. Nothing here fails a batch: what is not read in time, or is large, is left to the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

import pyarrow as pa

from tidelog.clock import Clock, MachineClock
from tidelog.errors import TidelogError
from tidelog.spark.options.query_options import QueryOptions
from tidelog.spark.ranges.planning import OFFSETS_TOGETHER, TaskRanges
from tidelog.spark.ranges.range_batches import NodesOfQuery, read_ranges
from tidelog.spark.ranges.worker_transport import close_kept_transport

_log = logging.getLogger("tidelog.spark")

BYTES_MAX: Final = 1 << 20
"""Of the rows of a batch: they pass through the driver, and stay there until the next ones."""
WAIT_S: Final = 1
"""How long the plan of a batch waits for its rows."""

PAUSE_MS: Final = 5
"""Before a batch is read: Spark gets the answer that chose it first, which the reading would hold up for some
milliseconds, since both take turns on Python's lock. Then Spark writes its log for much longer than this."""

Rows = list[pa.RecordBatch]


class ReadAhead:
    """Reads one batch at a time. Use it on one event loop; `close` last."""

    def __init__(self, query: QueryOptions, columns: tuple[str, ...], clock: Clock | None = None) -> None:
        self._query, self._columns = query, columns
        self._clock: Clock = clock or MachineClock()
        self._part: TaskRanges | None = None
        """What is being read."""
        self._reading: asyncio.Task[Rows | None] | None = None
        self._nodes: NodesOfQuery | None = None
        """Stays open from batch to batch while all are read."""
        self._are_large = False
        """Whether the records of the query have turned out to be too large."""

    async def begin(self, tasks: Sequence[TaskRanges]) -> None:
        """A batch with these tasks was chosen: read it if it is one short task."""
        await self._stop()
        if len(tasks) == 1 and not self._are_large and _is_short(tasks[0]):
            self._part = tasks[0]
            self._reading = asyncio.create_task(self._read(tasks[0]), name="tidelog stream read ahead")

    async def take(self, tasks: Sequence[TaskRanges]) -> Rows | None:
        """The rows of a batch with these tasks; None if the tasks have to read them."""
        rows = None
        if self._reading is not None and list(tasks) == [self._part]:
            done, _ = await asyncio.wait([self._reading], timeout=WAIT_S)
            defect = self._reading.exception() if done else None
            if defect is not None:  # no error of the cluster, which `_read` logs: if it matters, the task fails with it
                _log.warning("a batch could not be read ahead, its task reads it", exc_info=defect)
            elif done:
                rows = self._reading.result()
        await self._stop()
        return rows

    async def close(self) -> None:
        """End; what is being read is left out."""
        await self._stop()
        await self._disconnect()

    async def _stop(self) -> None:
        reading, self._reading, self._part = self._reading, None, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])

    async def _disconnect(self) -> None:
        nodes, self._nodes = self._nodes, None
        if nodes is not None:
            await nodes.__aexit__(None, None, None)
            await close_kept_transport()

    async def _read(self, part: TaskRanges) -> Rows | None:
        self._nodes = self._nodes or NodesOfQuery(self._query)
        rows: Rows = []
        is_whole = False
        try:
            await self._clock.sleep_ms(PAUSE_MS)
            async with aclosing(read_ranges(self._query, self._columns, part.ranges, self._nodes)) as batches:
                async for batch in batches:
                    rows.append(batch)
                    self._are_large = sum(each.nbytes for each in rows) > BYTES_MAX
                    if self._are_large:
                        return None
            is_whole = True
        except TidelogError as error:
            _log.info("a batch could not be read ahead, its task reads it: %s", error.message)
        finally:
            if not is_whole:
                await self._disconnect()
        return rows if is_whole and rows else None


def _is_short(part: TaskRanges) -> bool:
    return sum(one.length for one in part.ranges) <= OFFSETS_TOGETHER and all(one.remote is None for one in part.ranges)
