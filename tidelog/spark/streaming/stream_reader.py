"""The reader of a streaming query, as Spark calls it.

PySpark 4.3 keeps one Python process for the reader on the driver (python_streaming_source_runner.py) and makes another
reader of the same options in each task. What Spark's MicroBatchExecution and its wrapper of a Python reader call, seen
with Spark 4.3:

  first start             getDefaultReadLimit, initialOffset, latestOffset, reportLatestOffset, then the batch:
                          initialOffset again, partitions: the start may be chosen again in between. Batch 0 runs even
                          if it is empty: initialOffset is not called again in this run
  restart, batch 0 is     getDefaultReadLimit, initialOffset, partitions up to the logged end: nothing but the reader
  logged, not committed   knows where batch 0 began, so the start is pinned on the cluster
  restart, batch n > 0    partitions of the logged batch, then latestOffset; initialOffset is never called again
  is logged only
  restart, all committed  latestOffset from the last end
  each next batch         latestOffset(start), reportLatestOffset; if there is something: commit(start), partitions.
  Thus
                          latestOffset(start) says as well that all below `start` is processed and committed
  availableNow            prepareForTriggerAvailableNow comes before all others, also before a logged batch is repeated;
                          the query ends when latestOffset returns `start`. commit is not called for the last batch
  once                    latestOffset with ReadAllAvailable, one batch
  end of the query        the process is ended; stop is not called
  processAllAvailable     returns once latestOffset has returned `start`; a batch that waits for minOffsetsPerTrigger is
                          not waited for
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource_internal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.client.machine import LoopThread
from tidelog.spark.options.query_options import StreamOptions
from tidelog.spark.ranges.planning import TaskRanges
from tidelog.spark.ranges.range_batches import range_batches
from tidelog.spark.streaming.read_ahead import ReadAhead, Rows
from tidelog.spark.streaming.stream_offsets import StreamOffset, parse_offset
from tidelog.spark.streaming.stream_session import StreamSession


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Chooses offsets and plans batches on the driver, with connections that stay open; reads a range in each task.

    The constructor connects to nothing: Spark also makes readers only to send them to tasks.
    """

    def __init__(self, options: StreamOptions, columns: tuple[str, ...]) -> None:
        self._options, self._columns = options, columns
        self._thread: LoopThread | None = None
        self._session: StreamSession | None = None
        self._read_ahead = ReadAhead(options.query, columns)
        self._rows: Rows | None = None
        """Of the batch that was planned last, until Spark takes them."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the query begins, pinned on the cluster before it is returned."""
        session, thread = self._open()
        return thread.run(session.initial()).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The end of the next batch; `start` if there is nothing to read, or too little yet."""
        session, thread = self._open()
        may_wait = not isinstance(limit, ReadAllAvailable)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return thread.run(session.advance(parse_offset(start), most, may_wait=may_wait)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit of a batch. PySpark has none of several parts: the reader applies `minOffsetsPerTrigger` itself,
        unless Spark asks for all that is there."""
        limits = self._options.limits
        if limits.offsets_max is not None:
            return ReadMaxRows(limits.offsets_max)
        if limits.offsets_min is not None:
            return ReadMinRows(limits.offsets_min)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of the partitions at the last `latestOffset`, for the progress of the query."""
        latest = self._session.latest if self._session is not None else None
        return None if latest is None else latest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Record the ends at which the query ends. Topics and partitions that are created later are not read."""
        session, thread = self._open()
        thread.run(session.freeze())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """What each task of the batch reads."""
        session, thread = self._open()
        tasks, self._rows = thread.run(self._planned(session, parse_offset(start), parse_offset(end)))
        if self._rows is not None:
            self.__class__ = _ReaderWithRows
        return tasks

    async def _planned(
        self, session: StreamSession, start: StreamOffset, end: StreamOffset
    ) -> tuple[list[TaskRanges], Rows | None]:
        tasks = await session.plan(start, end)
        return tasks, await self._read_ahead.take(tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a task as Arrow batches; called there."""
        return range_batches(self._options.query, self._columns, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the progress of the query to its group, beside the query."""
        session, thread = self._open()
        thread.run(session.processed(parse_offset(end)))

    def stop(self) -> None:
        """Close the connections."""
        session, thread = self._session, self._thread
        self._session = self._thread = None
        if session is not None and thread is not None:
            thread.run(session.close())
            thread.stop()

    def _open(self) -> tuple[StreamSession, LoopThread]:
        if self._session is None or self._thread is None:
            thread, session = LoopThread("tidelog stream"), StreamSession(self._options, read_ahead=self._read_ahead)
            try:
                thread.run(session.start())
            except BaseException:
                thread.run(session.close())
                thread.stop()
                raise
            self._thread, self._session = thread, session
        return self._session, self._thread


class _ReaderWithRows(TidelogStreamReader):
    """The reader between a plan whose rows were read ahead and Spark's question for them. Spark asks only its wrapper
    of simple readers, and calls that differently else: the reader says to be one for this moment."""

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch] | None:  # noqa: ARG002, N802
        """The rows of the batch that was just planned."""
        self.__class__ = TidelogStreamReader  # type: ignore[assignment]  # the base again
        rows, self._rows = self._rows, None
        return None if rows is None else iter(rows)


if hasattr(datasource_internal, "_SimpleStreamReaderWrapper"):  # else tasks read all batches
    datasource_internal._SimpleStreamReaderWrapper.register(_ReaderWithRows)
