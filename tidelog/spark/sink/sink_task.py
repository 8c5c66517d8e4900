"""The writer of a task of a batch, and its report to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tidelog.client.transaction_core import PreparedTransaction
from tidelog.errors import InvalidRequest
from tidelog.spark.sink.batch_progress import RowSummary, task_id
from tidelog.spark.sink.sink_errors import STREAM_ADVICE, WRITE_ADVICE, SinkAdvice

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property of the tasks of a streaming query: the id that its checkpoint keeps."""
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
"""The job group of a streaming query is the id of its run: another one at each start."""

SINK_ID_PREFIX: Final = "spark-sink-"
"""Sinks without an id of their own begin with this, for ACLs."""


@dataclass(frozen=True, slots=True)
class SinkTask:
    """A sink partition in a batch."""

    sink_id: str
    run_id: str
    """Id of the run: a start of the query or, in a batch write, the write."""
    batch_id: int
    partition: int
    is_single_run: bool = False
    """True if no other run can have written with this sink id."""
    is_streaming: bool = True
    """True for a batch of a streaming sink."""

    @property
    def transactional_id(self) -> str:
        """The id of all its transactions, in any batch and run; also the group of its entry."""
        return task_id(self.sink_id, self.partition)

    @property
    def advice(self) -> SinkAdvice:
        """What errors of its batch advise."""
        return STREAM_ADVICE if self.is_streaming else WRITE_ADVICE

    def __str__(self) -> str:
        return f"sink partition {self.partition} of batch {self.batch_id} of sink {self.sink_id!r}"


class TaskOutcome(Enum):
    """What a task has done with its rows."""

    COMMITTED = "it has committed them"
    REPEATED = "an earlier attempt had committed the same rows"
    PREPARED = "they are in an open transaction, which the driver ends"
    EMPTY = "there are none"
    SENT = "they are written without a transaction"


@dataclass(frozen=True, slots=True)
class TaskReport(WriterCommitMessage):
    """What a task reports."""

    task: SinkTask
    outcome: TaskOutcome
    summary: RowSummary
    topics: tuple[str, ...] = ()
    """The topics of its rows."""
    prepared: PreparedTransaction | None = None
    """Its open transaction."""
    driver_decides: bool = False
    """The driver's record is not of this run: it must compare the batch with what earlier runs have committed."""


def streaming_task(sink_id: str | None) -> SinkTask:
    """The task that this process runs, in a micro-batch. sink_id: None: that of the query."""
    context = _context()
    query, batch, run = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
    if query is None or batch is None or run is None:
        raise InvalidRequest(
            f"Spark has set no {QUERY_ID}, {BATCH_ID} and {RUN_ID} for this task: the tidelog sink is exactly once "
            'only in micro-batches of a streaming query; set exactlyOnce="false", or write in foreachBatch'
        )
    return SinkTask(sink_id or SINK_ID_PREFIX + query, run, int(batch), context.partitionId())


def batch_task(sink_id: str, run_id: str, batch_id: int, *, is_single_run: bool) -> SinkTask:
    """The task that this process runs, in a batch write."""
    return SinkTask(sink_id, run_id, batch_id, _context().partitionId(), is_single_run, is_streaming=False)


def reports_of(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    """The reports among the messages that Spark has collected; a task that did not end has none."""
    return [message for message in messages if isinstance(message, TaskReport)]


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise InvalidRequest("the tidelog sink writes in tasks of Spark only; use tidelog.Producer elsewhere")
    return context
