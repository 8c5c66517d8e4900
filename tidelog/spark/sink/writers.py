"""The writers of a batch and of a stream, as Spark calls them.

Spark makes a writer on the driver for each write and each micro-batch, and pickles it to the tasks. It calls `commit`
and `abort` of a stream on another writer, in another process: a writer remembers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidelog.client.machine import secure_rng
from tidelog.errors import InvalidConfig, InvalidRequest
from tidelog.spark.sink.batch_commit import BatchCommit
from tidelog.spark.sink.sink_columns import SinkColumns
from tidelog.spark.sink.sink_options import SINK_BATCH, SINK_ID, SinkOptions
from tidelog.spark.sink.sink_task import SINK_ID_PREFIX, SinkTask, TaskReport, batch_task, reports_of, streaming_task
from tidelog.spark.sink.task_writer import TaskWriter


class _Writer:
    """What both writers have: the tasks' part, and how a batch fails. Pickled to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._tasks = TaskWriter(options, SinkColumns(schema, options.topic))

    def _write(self, task: Callable[[], SinkTask], rows: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of the task that this process runs. Raises as `TaskWriter`."""
        if not self._options.exactly_once:
            return self._tasks.send(SinkTask("", "", 0, 0), rows)
        return self._tasks.write(task(), rows)

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once and (reports := reports_of(messages)):
            asyncio.run(BatchCommit(self._options.connection, reports).commit())

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        # Without a report nothing is known of the batch: what its tasks left open ends by its timeout, or with the
        # next run.
        if self._options.exactly_once and (reports := reports_of(messages)):
            missing = [partition for partition, message in enumerate(messages) if message is None]
            asyncio.run(BatchCommit(self._options.connection, reports).abort(missing))


class TidelogStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises InvalidConfig for the columns and `tidelog.sink.batch`, InvalidRequest for the output mode
        "complete"."""
        if overwrite:
            raise InvalidRequest(
                'the tidelog sink appends to a log and cannot replace what is in it: use outputMode("append"), with a '
                "watermark for aggregations, or write the results of each batch in foreachBatch"
            )
        if options.sink_batch is not None:
            raise InvalidConfig(
                f"option {SINK_BATCH!r} is for batch writes, also in foreachBatch: Spark numbers the batches of a "
                f"streaming query; remove it ({SINK_ID!r} can stay)"
            )
        super().__init__(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:  # type: ignore[override]  # as the Arrow base
        """Write the rows of one task. Raises as `TaskWriter`."""
        return self._write(lambda: streaming_task(self._options.sink_id), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """All tasks of the batch have ended: record it, and end the transactions that they left open."""
        self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """The batch has failed: abort what its tasks left open."""
        self._abort(messages)


class TidelogBatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a frame."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises InvalidConfig for the columns, InvalidRequest for the mode "overwrite"."""
        if overwrite:
            raise InvalidRequest(
                'the tidelog sink appends to a log and cannot replace what is in it: use mode("append"); to begin with '
                "an empty topic, create a new one"
            )
        super().__init__(options, schema)
        self._run_id = f"{secure_rng().getrandbits(128):032x}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:  # type: ignore[override]  # as the Arrow base
        """Write the rows of one task. Raises as `TaskWriter`."""
        return self._write(self._task, iterator)

    def _task(self) -> SinkTask:
        options = self._options
        sink_id = options.sink_id or SINK_ID_PREFIX + self._run_id
        return batch_task(sink_id, self._run_id, options.sink_batch or 0, is_single_run=options.sink_id is None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have ended: compare, and end their transactions."""
        # No other run can have written with the id of this one: its tasks have committed by themselves.
        if self._options.sink_id is not None:
            self._commit(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The write has failed: abort what its tasks left open. What tasks have committed stays."""
        self._abort(messages)
