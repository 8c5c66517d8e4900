"""Writes the rows of one task, in one transaction or without.

Invariants: the rows of a sink partition in a batch are committed once, together with the entry that says so. A task
whose rows are committed already compares them and writes nothing. Of two attempts the coordinator lets the later one
continue: it fences the earlier one when it begins.
Not here: what the driver compares and commits (batch_commit.py), names of ids and groups (batch_progress.py).
Source: KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from tidelog import sync
from tidelog.client.batch_delivery import BatchDelivery
from tidelog.client.many_records import RecordColumns
from tidelog.client.sync_transaction import SyncTransaction
from tidelog.errors import TidelogError, TransactionAborted, TransactionOutcomeUnknown
from tidelog.spark.sink.batch_progress import (
    BatchRecord,
    RowSummary,
    TaskEntry,
    driver_group,
    entry_of,
    entry_places,
    last_committed,
    record_of,
)
from tidelog.spark.sink.row_digest import WORD, digest_of
from tidelog.spark.sink.sink_columns import SinkColumns
from tidelog.spark.sink.sink_errors import NOT_COMMITTED, DifferentRetry, OutdatedBatch
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.sink_task import SinkTask, TaskOutcome, TaskReport

_log = logging.getLogger("tidelog.spark")


class TaskWriter:
    """Writes rows. Pickled to the executors; connects there."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._options, self._columns = options, columns

    def write(self, task: SinkTask, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of a task exactly once, and say what happened.

        Raises DifferentRetry, OutdatedBatch; TransactionAborted with the reason, ProducerFenced if a later attempt of
        the task has begun: nothing is written then. TransactionOutcomeUnknown: the next attempt finds out.
        """
        pending: list[TaskReport] = []
        try:
            return self._write_in_transaction(task, batches, pending)
        except TransactionOutcomeUnknown:
            if pending and self._is_committed(pending[0]):
                return pending[0]
            raise
        except TransactionAborted as error:
            if not isinstance(error.__cause__, NOT_COMMITTED):
                raise
            raise TransactionAborted(
                f"{task}: its transaction was aborted by a later attempt of the task, by another query or job with the "
                "same sink id, or because it was open longer than tidelog.transaction.timeout.ms "
                f"({self._options.transaction_timeout_ms} ms). In the last case divide the rows among more tasks "
                f"(repartition); {task.advice.shorter}; or raise the option and the nodes' transaction.max.timeout.ms. "
                f"Nothing of this attempt is written. Cause: {error.__cause__.message}"
            ) from error

    def send(self, task: SinkTask, batches: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of a task without a transaction: a repeated task writes them again. Raises the error of the
        first record that was not acknowledged."""
        with self._producer() as producer:
            waiting: deque[BatchDelivery] = deque()
            rows = 0
            for topic, columns in self._records(batches):
                rows += len(columns)
                waiting.append(producer.enqueue_columns(topic, columns))
                while waiting and waiting[0].done():
                    _ensure_acknowledged(waiting.popleft())
            producer.flush()
            for delivery in waiting:
                _ensure_acknowledged(delivery)
        return TaskReport(task, TaskOutcome.SENT, RowSummary(rows))

    def _write_in_transaction(
        self, task: SinkTask, batches: Iterator[pa.RecordBatch], pending: list[TaskReport]
    ) -> TaskReport:
        """pending: receives the report before the commit."""
        with self._producer(task) as producer, producer.transaction() as txn:
            entry = _entry_in(txn, task)
            record = None if task.is_single_run else _record_in(txn, task)
            _ensure_not_outdated(task, entry, record)
            if entry is not None and entry.batch_id == task.batch_id:
                rows, topics = self._summarized(self._records(batches))
                _ensure_same(task, entry, rows, record)
                _log.info("%s was committed by an earlier attempt; its %d rows are the same", task, rows.rows)
                return TaskReport(task, TaskOutcome.REPEATED, rows, topics, driver_decides=_decides(task, record))
            rows, topics = self._summarized(self._queued(txn, batches))
            if not topics:
                return TaskReport(task, TaskOutcome.EMPTY, rows, driver_decides=_decides(task, record))
            if record is not None and _is_complete(task, record):
                raise DifferentRetry(
                    f"{task} has {rows.rows} rows in this attempt, but the batch was committed by {record.tasks} "
                    f"tasks of run {record.run_id}, none of which wrote this sink partition. {task.advice.complete}. "
                    "Nothing of this attempt is written."
                )
            pending.append(TaskReport(task, TaskOutcome.COMMITTED, rows, topics))
            return self._ended(txn, record, pending[0])

    @staticmethod
    def _ended(txn: SyncTransaction, record: BatchRecord | None, report: TaskReport) -> TaskReport:
        """Add the entry; leave the transaction to the driver, or to the end of the block, which commits it."""
        task, entry = report.task, _entry(report).to_offset()
        txn.send_offsets(dict.fromkeys(sorted(entry_places(report.topics)), entry), task.transactional_id)
        if not _decides(task, record):
            return report
        prepared = txn.prepare()
        return TaskReport(task, TaskOutcome.PREPARED, report.summary, report.topics, prepared, driver_decides=True)

    def _is_committed(self, report: TaskReport) -> bool:
        """Whether the transaction whose outcome is unknown was committed: it has ended when the next one begins."""
        with self._producer(report.task) as producer, producer.transaction() as txn:
            return _entry_in(txn, report.task) == _entry(report)

    def _records(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, RecordColumns]]:
        for batch in batches:
            yield from self._columns.records(batch)

    def _queued(self, txn: SyncTransaction, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, RecordColumns]]:
        for topic, columns in self._records(batches):
            yield topic, columns
            txn.enqueue_columns(topic, columns)  # after its digest: null timestamps become the present time here

    @staticmethod
    def _summarized(records: Iterator[tuple[str, RecordColumns]]) -> tuple[RowSummary, tuple[str, ...]]:
        """The rows, and their topics."""
        rows, digest, topics = 0, 0, set[str]()
        for topic, columns in records:
            topics.add(topic)
            rows += len(columns)
            times: Any = columns.timestamps
            digest += digest_of(topic, columns.values, columns.keys, columns.headers, times, columns.partitions)
        return RowSummary(rows, digest & WORD), tuple(sorted(topics))

    def _producer(self, task: SinkTask | None = None) -> sync.Producer:
        """A producer. task: of its transactions; None: it has none."""
        options = self._options
        connection = options.connection
        more: dict[str, Any] = {}
        if task is not None:
            more["transactional_id"] = task.transactional_id
            more["transaction_timeout_ms"] = options.transaction_timeout_ms
        return sync.Producer(
            connection.bootstrap,
            **connection.of_client,
            compression=options.compression,
            linger_ms=options.linger_ms,
            batch_bytes=options.batch_bytes,
            buffer_bytes=options.buffer_bytes,
            record_bytes_max=options.record_bytes_max,
            delivery_timeout_ms=options.delivery_timeout_ms,
            **more,
        )


def _again(task: SinkTask) -> str:
    return (
        "A retry must have the rows of the attempt before it: read from a replayable source, use no functions that are "
        "not deterministic, and keep the number of tasks (spark.sql.shuffle.partitions, repartition) until the batch "
        f"is complete. {task.advice.lost}. Nothing of this attempt is written."
    )


def _entry(report: TaskReport) -> TaskEntry:
    return TaskEntry(report.task.batch_id, report.task.run_id, report.summary)


def _entry_in(txn: SyncTransaction, task: SinkTask) -> TaskEntry | None:
    return entry_of(last_committed(txn.committed_offsets(task.transactional_id)), task.transactional_id)


def _record_in(txn: SyncTransaction, task: SinkTask) -> BatchRecord | None:
    """The record of the driver. An offset under way does not count: the driver commits none in a transaction."""
    group = driver_group(task.sink_id)
    return record_of(last_committed(txn.committed_offsets(group, require_stable=False)), group)


def _decides(task: SinkTask, record: BatchRecord | None) -> bool:
    """Whether the driver ends the transaction: unless it has completed a batch of this run, earlier runs may have
    committed a part of the present one."""
    if task.is_single_run:
        return False
    return record is None or record.run_id != task.run_id or not record.is_complete


def _ensure_not_outdated(task: SinkTask, entry: TaskEntry | None, record: BatchRecord | None) -> None:
    latest = max((each.batch_id for each in (entry, record) if each is not None), default=-1)
    if latest > task.batch_id:
        raise OutdatedBatch(
            f"{task} cannot be written: the sink has committed batch {latest}. {task.advice.outdated}. Nothing of this "
            "batch is written."
        )


def _is_complete(task: SinkTask, record: BatchRecord | None) -> bool:
    """Whether all of the batch is committed: what remains to be done differs from that for a part of it."""
    return record is not None and record.is_complete and record.batch_id == task.batch_id


def _ensure_same(task: SinkTask, entry: TaskEntry, rows: RowSummary, record: BatchRecord | None) -> None:
    if entry.summary == rows:
        return
    what = (
        f"{entry.summary.rows} rows, and this attempt has {rows.rows}"
        if entry.summary.rows != rows.rows
        else f"{rows.rows} rows, and this attempt has as many others"
    )
    advice = (
        f"{task.advice.complete}. Nothing of this attempt is written." if _is_complete(task, record) else _again(task)
    )
    raise DifferentRetry(f"{task}: an earlier attempt (run {entry.run_id}) has committed {what}. {advice}")


def _ensure_acknowledged(delivery: BatchDelivery) -> None:
    error: TidelogError | None = delivery.exception()
    if error is not None:
        raise error
