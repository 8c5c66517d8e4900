"""The driver's part of an exactly-once write: the record of each batch and, in the first batch of a run, the commit.

In the first batch of a run an earlier run may have committed a part of the same batch, with other tasks. The tasks have
left their transactions open; the driver ends them after it has compared the batch with what is committed:
  1. it records that this run begins to commit the batch: tasks of earlier runs that begin from now on read it, and
     commit nothing;
  2. it fences the sink partitions that this batch does not write: tasks of earlier runs that have begun cannot commit;
  3. it reads the entries of all sink partitions. An entry of this batch must be one whose task reported the same rows;
     otherwise all transactions are aborted and the batch is refused;
  4. it reads the record again: another driver that has begun to commit meanwhile must be alone;
  5. it commits the transactions, and records that the batch is complete.
A failure between these steps leaves entries from which the next run continues (docs/decisions/0021).
Not here: tasks (task_writer.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from tidelog.client.admin import Admin
from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import TidelogError, TransactionalIdNotFound
from tidelog.spark.options.connection_options import ConnectionOptions
from tidelog.spark.sink.batch_progress import (
    BatchRecord,
    TaskEntry,
    driver_group,
    entry_of,
    last_committed,
    partition_of,
    record_of,
    record_places,
    task_id,
    task_pattern,
    total_rows,
)
from tidelog.spark.sink.sink_errors import NOT_COMMITTED, BatchNotCommitted, DifferentRetry, OutdatedBatch
from tidelog.spark.sink.sink_task import TaskOutcome, TaskReport
from tidelog.types import TopicPartition

_log = logging.getLogger("tidelog.spark")

AT_ONCE: Final = 16
"""Requests to coordinators under way at a time."""

Offsets = Mapping[TopicPartition, CommittedOffset | None]
Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchCommit:
    """Commits or aborts one batch."""

    def __init__(self, connection: ConnectionOptions, reports: Sequence[TaskReport]) -> None:
        """reports: of tasks of one batch, at least one."""
        self._connection, self._reports = connection, reports
        task = reports[0].task
        self._advice = task.advice
        self._sink_id, self._run_id, self._batch_id = task.sink_id, task.run_id, task.batch_id
        self._group = driver_group(self._sink_id)
        self._what = f"batch {self._batch_id} of sink {self._sink_id!r}"

    async def commit(self) -> None:
        """Commit the batch. Raises DifferentRetry, OutdatedBatch: nothing of this attempt is committed.
        BatchNotCommitted: a part of it may be; the next run continues. The last error of a coordinator."""
        async with self._admin() as admin:
            offsets = await admin.list_group_offsets(self._group)
            record = record_of(last_committed(offsets), self._group)
            if record is not None and record.batch_id > self._batch_id:
                raise OutdatedBatch(
                    f"{self._what} cannot be committed: batch {record.batch_id} is recorded. Another query or job has "
                    "the same sink id, or this one was started twice: stop one of them. Nothing of this attempt is "
                    "committed."
                )
            if record is not None and record.is_complete and record.batch_id == self._batch_id:
                self._ensure_complete_already(record)
            elif any(report.driver_decides for report in self._reports):
                await self._decide(admin, record, offsets)
            else:
                self._ensure_still_ours(record)
            rows = total_rows(report.summary for report in self._reports)
            done = BatchRecord(self._batch_id, self._run_id, len(self._reports), rows, is_complete=True)
            await self._note(admin, done, offsets)

    async def abort(self, missing: Iterable[int]) -> None:
        """Abort what tasks have left open. missing: sink partitions whose tasks did not report; what they have open is
        aborted as well. Failures are logged: the next run or the transaction timeout aborts what is left."""
        async with self._admin() as admin:
            await _each(self._open_reports(), lambda report: self._abort_one(admin, report))
            await _each(missing, lambda partition: self._fence(admin, partition))

    # --- the first batch of a run ---------------------------------------------------------------------------------

    async def _decide(self, admin: Admin, record: BatchRecord | None, offsets: Offsets) -> None:
        """Compare the batch with what earlier runs committed of it, and commit the open transactions."""
        tasks, rows = (0, 0) if record is None else (record.tasks, record.rows)
        await self._note(admin, BatchRecord(self._batch_id, self._run_id, tasks, rows, is_complete=False), offsets)
        known = await self._known_partitions(admin)
        written = {report.task.partition: report for report in self._reports if report.outcome is not TaskOutcome.EMPTY}
        fenced = await _each(sorted(known - written.keys()), lambda partition: self._fence(admin, partition))
        failures = [error for error in fenced if error is not None]
        if failures:
            raise BatchNotCommitted(
                f"{self._what}: {len(failures)} sink partitions of earlier runs could not be fenced, and nothing of "
                f"this attempt is committed: {failures[0].message} {self._advice.repeat}."
            ) from failures[0]
        entries = await _each(sorted(known), lambda partition: self._entry(admin, partition))
        for partition, entry in zip(sorted(known), entries, strict=True):
            self._ensure_expected(partition, entry, written.get(partition), tasks)
        self._ensure_still_ours(record_of(last_committed(await admin.list_group_offsets(self._group)), self._group))
        await self._commit_open(admin)

    async def _commit_open(self, admin: Admin) -> None:
        prepared = self._open_reports()
        ended = await _each(prepared, lambda report: self._commit_one(admin, report))
        failures = [(report, error) for report, error in zip(prepared, ended, strict=True) if error is not None]
        if not failures:
            return
        report, cause = failures[0]
        why = (
            "they were aborted: by the transaction timeout, if the batch took longer than "
            "tidelog.transaction.timeout.ms; by a later attempt of the task; or by another query or job with the same "
            "sink id"
            if isinstance(cause, NOT_COMMITTED)
            else "their outcome is not known"
        )
        raise BatchNotCommitted(
            f"{self._what}: {len(failures)} of {len(prepared)} transactions were not committed, for example that of "
            f"sink partition {report.task.partition}; {why} ({cause.message}). {self._advice.repeat}: what is "
            f"missing is written then. If the batch takes longer than the timeout, {self._advice.shorter}; or raise "
            "the option and the nodes' transaction.max.timeout.ms."
        ) from cause

    def _ensure_expected(self, partition: int, entry: TaskEntry | None, report: TaskReport | None, tasks: int) -> None:
        """Raises DifferentRetry or OutdatedBatch if an earlier run has committed what this attempt does not repeat."""
        if entry is None or entry.batch_id < self._batch_id:
            return
        if entry.batch_id > self._batch_id:
            raise OutdatedBatch(
                f"{self._what} cannot be committed: sink partition {partition} has committed batch {entry.batch_id}. "
                f"{self._advice.outdated}. Nothing more of this attempt is committed."
            )
        if report is not None and report.outcome in (TaskOutcome.REPEATED, TaskOutcome.COMMITTED):
            return
        earlier = f", which had {tasks} tasks in the batch before" if tasks else ""
        raise DifferentRetry(
            f"{self._what}: this attempt has {len(self._reports)} tasks, and an earlier one (run {entry.run_id}"
            f"{earlier}) committed {entry.summary.rows} rows as sink partition {partition}, which this attempt does "
            f"not repeat. {self._advice.repeat}; use at least {partition + 1} tasks, and the code and settings of the "
            f"earlier attempt; after this batch the number of tasks may change. {self._advice.lost}. Nothing more of "
            "this attempt is committed."
        )

    def _ensure_complete_already(self, record: BatchRecord) -> None:
        """The sink has committed the batch, but Spark did not note that: nothing may be left to commit."""
        rows = total_rows(report.summary for report in self._reports)
        if not self._open_reports() and rows == record.rows:
            _log.info("%s was committed by an earlier run; its %d rows are the same", self._what, rows)
            return
        raise DifferentRetry(
            f"{self._what}: this attempt has {len(self._reports)} tasks with {rows} rows, and an earlier one (run "
            f"{record.run_id}) has committed the whole batch, with {record.tasks} tasks and {record.rows} rows. "
            f"{self._advice.complete}. Nothing of this attempt is committed."
        )

    def _ensure_still_ours(self, record: BatchRecord | None) -> None:
        """Raises BatchNotCommitted if another driver has begun to commit since this run did."""
        if record is None or record.run_id == self._run_id:
            return
        raise BatchNotCommitted(
            f"{self._what}: run {record.run_id} has begun to commit batch {record.batch_id} of the same sink id, so "
            f"this run ({self._run_id}) ends. Two queries or jobs have one sink id, or one was started twice: stop one "
            "of them. What tasks have committed stays; the other run finds it."
        )

    # --- requests -------------------------------------------------------------------------------------------------

    def _admin(self) -> Admin:
        return Admin(self._connection.bootstrap, **self._connection.of_client)

    def _open_reports(self) -> list[TaskReport]:
        return [report for report in self._reports if report.prepared is not None]

    async def _note(self, admin: Admin, record: BatchRecord, offsets: Offsets) -> None:
        """Commit the record. Without a topic there is nothing to record: no run has written a row."""
        topics = {topic for report in self._reports for topic in report.topics}
        if places := record_places(topics, record, offsets):
            await admin.alter_group_offsets(self._group, dict.fromkeys(sorted(places), record.to_offset()))

    async def _known_partitions(self, admin: Admin) -> set[int]:
        """The sink partitions of all runs: their transactional ids outlive their entries."""
        listed = await admin.list_transactions(pattern=task_pattern(self._sink_id))
        found = (partition_of(self._sink_id, each.transactional_id) for each in listed)
        return {partition for partition in found if partition is not None}

    async def _entry(self, admin: Admin, partition: int) -> TaskEntry | None:
        group = task_id(self._sink_id, partition)
        return entry_of(last_committed(await admin.list_group_offsets(group)), group)

    async def _fence(self, admin: Admin, partition: int) -> TidelogError | None:
        try:
            await admin.abort_transaction(task_id(self._sink_id, partition))
        except TransactionalIdNotFound:
            return None
        except TidelogError as error:
            _log.warning("sink partition %d of sink %r was not fenced: %s", partition, self._sink_id, error.message)
            return error
        return None

    @staticmethod
    async def _commit_one(admin: Admin, report: TaskReport) -> TidelogError | None:
        assert report.prepared is not None, "it is among the open ones"
        try:
            await admin.end_prepared_transaction(report.prepared, committed=True)
        except TidelogError as error:
            return error
        return None

    @staticmethod
    async def _abort_one(admin: Admin, report: TaskReport) -> None:
        assert report.prepared is not None, "it is among the open ones"
        try:
            await admin.end_prepared_transaction(report.prepared, committed=False)
        except TidelogError as error:
            _log.warning("the transaction of %s was not aborted: %s", report.task, error.message)


async def _each(items: Iterable[Item], work: Callable[[Item], Awaitable[Result]]) -> list[Result]:
    """Do the work for all items, `AT_ONCE` at a time, and return the results in their order. When all have ended,
    raises the first TidelogError that the work raised."""
    places = asyncio.Semaphore(AT_ONCE)
    raised: list[TidelogError] = []

    async def one(item: Item) -> list[Result]:
        async with places:
            try:
                return [await work(item)]
            except TidelogError as error:
                raised.append(error)
                return []

    found = await asyncio.gather(*(one(item) for item in items))
    if raised:
        raise raised[0]
    return [result for each in found for result in each]
