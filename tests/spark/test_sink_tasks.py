"""The protocol of the sink on a real cluster: retries, zombies, speculation, drivers that die at each step.

A read_committed consumer sees each row of the input once, whatever fails. What cannot be repeated exactly is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from node.process.local_cluster import LocalCluster
from tests.spark.sink_runs import SinkRun, batch_by_topic, batch_of, committed, options_of
from tidelog import sync
from tidelog.client.admin import Admin
from tidelog.client.sync_transaction import SyncTransaction
from tidelog.client.transaction_core import PreparedTransaction
from tidelog.errors import (
    InvalidRequest,
    ProducerFenced,
    RequestTimedOut,
    TransactionAborted,
    TransactionOutcomeUnknown,
)
from tidelog.spark.sink.batch_progress import BatchRecord, driver_group
from tidelog.spark.sink.sink_errors import BatchNotCommitted, DifferentRetry, OutdatedBatch
from tidelog.spark.sink.sink_options import SinkOptions
from tidelog.spark.sink.sink_task import TaskOutcome

pytestmark = pytest.mark.integration

NUMBERS = count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 500}
    with LocalCluster(tmp_path_factory.mktemp("sink"), settings=settings) as cluster:
        cluster.wait_healthy()
        yield cluster


@pytest.fixture
def sink(cluster: LocalCluster) -> Sink:
    return Sink(cluster)


class Sink:
    """A topic of its own, and the runs of one query that writes to it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.name = f"sink-{next(NUMBERS)}"
        cluster.create_topic(self.name, 2, min_insync_replicas="2")
        self._runs = count()

    def options(self, **more: str) -> SinkOptions:
        return options_of(self.cluster, topic=self.name, **more)

    def run(self, *, is_streaming: bool = True) -> SinkRun:
        return SinkRun(self.options(), self.name, f"run {next(self._runs)}", is_streaming)

    def committed(self) -> Counter[str]:
        return committed(self.cluster, self.name)


class Died(Exception):
    """The process of a task or of a driver ends."""


def then_fails(*batches: list[str]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        yield batch_of(rows)
    raise Died


def interrupted(first: list[str], meanwhile: Callable[[], object], rest: list[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a task in whose midst something else happens."""
    yield batch_of(first)
    meanwhile()
    yield batch_of(rest)


def test_tasks_of_the_first_batch_leave_the_commit_to_the_driver_and_later_ones_commit(sink: Sink) -> None:
    run = sink.run()
    assert run.task(0, 0, ["a", "b"]).outcome is TaskOutcome.PREPARED
    assert run.task(0, 1, ["c"]).outcome is TaskOutcome.PREPARED
    assert sink.committed() == Counter()
    run.commit()
    assert sink.committed() == Counter("abc")
    assert run.task(1, 0, ["d"]).outcome is TaskOutcome.COMMITTED
    assert run.task(1, 1, []).outcome is TaskOutcome.EMPTY
    assert sink.committed() == Counter("abcd"), "before the driver's part"
    run.commit()
    sink.run().batch(2, [["e"], ["f"]])
    assert sink.committed() == Counter("abcdef")


@pytest.mark.parametrize("batch", [0, 1])
def test_a_task_that_fails_before_its_end_has_written_nothing(sink: Sink, batch: int) -> None:
    run = sink.run()
    if batch:
        run.batch(0, [["x"]])
    with pytest.raises(Died):
        run.attempt(batch, 0, then_fails(["a"], ["b"]))
    run.batch(batch, [["a", "b"], ["c"]])
    assert sink.committed() - Counter("x" * batch) == Counter("abc")


def test_a_repeated_task_writes_nothing_and_its_rows_may_have_another_order(sink: Sink) -> None:
    run = sink.run()
    run.batch(0, [["x"]])
    run.attempt(1, 0, ["a", "b", "b"])  # its executor is lost before it reports
    assert run.task(1, 0, ["b", "a", "b"]).outcome is TaskOutcome.REPEATED
    run.commit()
    assert sink.committed() == Counter("xabb")


@pytest.mark.parametrize("other", [["a", "b", "c"], ["a"], ["a", "a"], []])
def test_a_repeated_task_with_other_rows_is_refused(sink: Sink, other: list[str]) -> None:
    run = sink.run()
    run.batch(0, [["x"]])
    run.attempt(1, 0, ["a", "b"])
    with pytest.raises(DifferentRetry, match=rf"sink partition 0 of batch 1 of sink '{sink.name}'.*2 rows"):
        run.attempt(1, 0, other)
    assert sink.committed() == Counter("xab")


@pytest.mark.parametrize("batch", [0, 1])
def test_a_later_attempt_fences_the_earlier_one(sink: Sink, batch: int) -> None:
    """As with speculation, and with an executor that was given up but still runs."""
    run = sink.run()
    if batch:
        run.batch(0, [["x"]])
    with pytest.raises((ProducerFenced, TransactionAborted)):
        run.attempt(batch, 0, interrupted(["a"], lambda: run.task(batch, 0, ["a", "b"]), ["b"]))
    run.commit()
    assert sink.committed() - Counter("x" * batch) == Counter("ab")


def test_a_speculative_attempt_that_begins_after_a_prepared_one_costs_a_restart_and_nothing_else(sink: Sink) -> None:
    run = sink.run()
    run.task(0, 0, ["a"])
    run.task(0, 1, ["b"])
    with pytest.raises(Died):
        run.attempt(0, 1, then_fails(["b"]))  # it is killed, since the other one has succeeded
    with pytest.raises(BatchNotCommitted, match=r"1 of 2 transactions .* sink partition 1; they were aborted"):
        run.commit()
    sink.run().batch(0, [["a"], ["b"]])
    assert sink.committed() == Counter("ab")


def test_a_late_attempt_of_an_earlier_batch_is_recognized(sink: Sink) -> None:
    run = sink.run()
    run.batch(0, [["a"]])
    run.batch(1, [["b"]])
    assert run.attempt(1, 0, ["b"]).outcome is TaskOutcome.REPEATED
    with pytest.raises(OutdatedBatch, match=r"has committed batch 1"):
        run.attempt(0, 0, ["a"])
    run.batch(2, [["c"]])
    assert sink.committed() == Counter("abc")


def test_a_checkpoint_that_goes_back_is_refused(sink: Sink) -> None:
    run = sink.run()
    for batch in range(3):
        run.batch(batch, [[f"{batch}"]])
    for partition in (0, 1):
        with pytest.raises(OutdatedBatch, match=r"start it again: it continues .* another tidelog\.sink\.id"):
            sink.run().attempt(0, partition, ["0"])
    assert sink.committed() == Counter("012")


# --- restarts -----------------------------------------------------------------------------------------------------


def crashed(sink: Sink, tasks: int) -> None:
    """A run that has committed batch 0 and, of batch 1, which has rows 0 to 5, the last task only."""
    run = sink.run()
    run.batch(0, [["x"]])
    run.attempt(1, tasks - 1, rows_of(tasks)[tasks - 1])


def rows_of(tasks: int) -> list[list[str]]:
    return [[str(row) for row in range(6) if row % tasks == partition] for partition in range(tasks)]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_restart_with_as_many_tasks_writes_what_is_missing(sink: Sink, tasks: int) -> None:
    crashed(sink, tasks)
    sink.run().batch(1, rows_of(tasks))
    assert sink.committed() == Counter("x012345")


@pytest.mark.parametrize(("before", "now"), [(3, 2), (3, 1), (2, 3), (2, 1), (1, 3)])
def test_a_restart_with_other_tasks_is_refused_and_the_former_number_still_works(
    sink: Sink, before: int, now: int
) -> None:
    crashed(sink, before)
    with pytest.raises(DifferentRetry, match=rf"sink partition {before - 1}"):
        sink.run().batch(1, rows_of(now))
    assert sink.committed() == Counter(["x", *rows_of(before)[before - 1]])
    sink.run().batch(1, rows_of(before))
    run = sink.run()
    run.batch(2, [["y"], ["z"], [], []])
    assert sink.committed() == Counter("x012345yz")


def test_another_number_of_tasks_is_fine_where_no_task_had_committed_or_the_same_rows_remain(sink: Sink) -> None:
    run = sink.run()
    run.task(0, 3, ["d"])  # prepared, and left behind
    sink.run().batch(0, [["a", "b"], ["c", "d"]])
    run = sink.run()
    run.batch(1, [["e"]])
    run.attempt(2, 0, ["f"])
    sink.run().batch(2, [["f"], ["g"], ["h"]])
    assert sink.committed() == Counter("abcdefgh")


@pytest.mark.parametrize("claimed", [False, True])
def test_a_zombie_of_an_earlier_run_with_more_tasks_commits_nothing(sink: Sink, claimed: bool) -> None:
    """Its task has begun before, or begins after, the driver of the new run has committed the batch."""
    old, new = sink.run(), sink.run()
    old.batch(0, [["x"], ["y"], ["z"]])
    divided = [["0", "2"], ["1"]]
    if claimed:
        new.batch(1, divided)
        with pytest.raises(DifferentRetry, match="the batch was committed by 2 tasks"):
            old.attempt(1, 2, ["2"])
    else:
        with pytest.raises((ProducerFenced, TransactionAborted)):
            old.attempt(1, 2, interrupted(["2"], partial(new.batch, 1, divided), ["late"]))
    new.batch(2, [["3"]])
    with pytest.raises(OutdatedBatch):
        old.attempt(1, 2, ["2"])
    assert sink.committed() == Counter("xyz0123")


def test_a_zombie_that_begins_while_the_driver_commits_leaves_the_decision_to_its_own(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has fenced its sink partition and has read its entry already."""
    old, new = sink.run(), sink.run()
    old.batch(0, [["x"], ["y"], ["z"]])
    end, begun, late = Admin.end_prepared_transaction, count(), list[TaskOutcome]()

    async def end_later(self: Admin, *args: Any, **more: Any) -> None:
        if not next(begun):
            late.append((await asyncio.to_thread(old.attempt, 1, 2, ["2"])).outcome)
        await end(self, *args, **more)

    monkeypatch.setattr(Admin, "end_prepared_transaction", end_later)
    new.batch(1, [["0", "2"], ["1"]])
    assert late == [TaskOutcome.PREPARED]
    new.batch(2, [["3"], ["4"], ["5"]])
    assert sink.committed() == Counter("xyz012345")


def test_a_driver_of_an_earlier_run_cannot_commit_what_its_tasks_prepared(sink: Sink) -> None:
    old, new = sink.run(), sink.run()
    for partition, row in enumerate("012"):
        old.task(0, partition, [row])
    new.batch(0, [["0", "2"], ["1"]])
    with pytest.raises(DifferentRetry, match="committed the whole batch"):
        old.commit()
    new.batch(1, [["3"]])
    assert sink.committed() == Counter("0123")


def test_a_batch_that_spark_has_not_noted_is_repeated_without_effect(sink: Sink) -> None:
    sink.run().batch(0, [["a", "b"], ["c"], []])
    run = sink.run()
    run.batch(0, [["b", "a"], ["c"]])
    assert sink.committed() == Counter("abc")
    with pytest.raises(DifferentRetry, match="the batch was committed by 2 tasks"):
        sink.run().batch(0, [["a", "b"], ["c"], ["d"]])
    with pytest.raises(DifferentRetry, match=r"1 tasks with 2 rows.*2 tasks and 3 rows"):
        sink.run().batch(0, [["a", "b"]])
    assert run.task(1, 0, ["d"]).outcome is TaskOutcome.COMMITTED, "of the run that repeated the batch"
    run.commit()
    assert sink.committed() == Counter("abcd")


# --- two drivers at once ------------------------------------------------------------------------------------------


def begin_elsewhere(sink: Sink, batch: int) -> None:
    """As the driver of another query with this sink id, which begins to commit the batch."""
    record = BatchRecord(batch, "elsewhere", 3, 0, is_complete=False).to_offset()
    with sync.Admin(sink.cluster.bootstrap) as admin:
        admin.alter_group_offsets(driver_group(sink.name), {(sink.name, 0): record})


def test_a_driver_that_another_one_overtakes_commits_nothing(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two queries on copies of one checkpoint have other tasks: each would commit those that the other has not."""
    run, listed = sink.run(), Admin.list_transactions

    async def overtaken(self: Admin, **given: Any) -> Any:
        await asyncio.to_thread(begin_elsewhere, sink, 0)
        return await listed(self, **given)

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "list_transactions", overtaken)
        with pytest.raises(BatchNotCommitted, match=r"run elsewhere has begun to commit batch 0.*stop one of them"):
            run.batch(0, [["a"], ["b"]])
    assert sink.committed() == Counter()


def test_a_driver_does_not_replace_the_record_of_another_one(sink: Sink) -> None:
    run = sink.run()
    run.batch(0, [["x"]])
    assert run.task(1, 0, ["a"]).outcome is TaskOutcome.COMMITTED
    begin_elsewhere(sink, 1)
    with pytest.raises(BatchNotCommitted, match=r"run elsewhere has begun to commit batch 1"):
        run.commit()
    sink.run().batch(1, [["a"]])
    assert sink.committed() == Counter("xa")


# --- several topics -----------------------------------------------------------------------------------------------


def a_topic_again(cluster: LocalCluster, topic: str, group: str) -> None:
    """Delete the topic, with its offsets in the group, and create it again."""
    with sync.Admin(cluster.bootstrap) as admin:
        admin.delete_topic(topic)
        cluster.wait_until(
            lambda: topic not in {place.topic for place in admin.list_group_offsets(group)},
            within_s=20,
            what=f"the offset of {topic} is gone",
        )
        admin.create_topic(topic, partitions=1, replication_factor=3)


@pytest.mark.parametrize("deleted", [0, 1])
@pytest.mark.parametrize("batch", [0, 1])
def test_the_memory_of_a_sink_outlives_one_of_its_topics(sink: Sink, deleted: int, batch: int) -> None:
    """The last batch has rows for two topics; it is complete or, the second one, not recorded by the driver."""
    cluster, topics = sink.cluster, [f"{sink.name}-a", f"{sink.name}-b"]
    for topic in topics:
        cluster.create_topic(topic, 1)
    run, restarted = (replace(sink.run(), options=replace(sink.options(), topic=None)) for _ in range(2))
    rows = [iter([batch_by_topic([("x", topics[0]), ("y", topics[1])])]) for _ in range(4)]
    run.task(0, 0, rows[0])
    run.commit()
    if batch:
        run.attempt(1, 0, rows[1])
    kept = topics[1 - deleted]
    before = committed(cluster, kept)
    a_topic_again(cluster, topics[deleted], driver_group(sink.name))
    assert restarted.task(batch, 0, rows[2]).outcome is TaskOutcome.REPEATED
    restarted.commit()
    assert committed(cluster, kept) == before
    if batch:
        with pytest.raises(OutdatedBatch):
            restarted.attempt(0, 0, rows[3])


# --- batch writes with a number -----------------------------------------------------------------------------------


def test_numbered_writes_share_ids_and_each_number_is_written_once(sink: Sink) -> None:
    """As in foreachBatch with tidelog.sink.id and tidelog.sink.batch: each write is a run of its own."""
    for batch, divided in enumerate([["a"], ["b"]], start=5):
        sink.run(is_streaming=False).batch(batch, [divided, ["c"]])
    with sync.Admin(sink.cluster.bootstrap) as admin:
        ids = {each.transactional_id for each in admin.list_transactions() if sink.name in each.transactional_id}
    assert ids == {f"{sink.name}-task-0", f"{sink.name}-task-1"}
    sink.run(is_streaming=False).batch(6, [["b"], ["c"]])
    complete = (
        r"\. The earlier write is complete, and its rows stay.*another tidelog\.sink\.id, or with a larger "
        r"tidelog\.sink\.batch\. Nothing of this attempt is (written|committed)\.$"
    )
    for other, said in (
        ([["other"], ["c"]], rf"partition 0 of batch 6 of sink '{sink.name}': an earlier .* has as many others"),
        ([["b"], ["c"], ["d"]], r"partition 2 of batch 6 .* committed by 2 tasks of run .* wrote this sink partition"),
        ([["b"]], rf"^batch 6 of sink '{sink.name}': this attempt has 1 tasks with 1 rows.* with 2 tasks and 2 rows"),
    ):
        with pytest.raises(DifferentRetry, match=said + complete):
            sink.run(is_streaming=False).batch(6, other)
    with pytest.raises(OutdatedBatch, match=r"has committed batch 6\. The number in tidelog\.sink\.batch must grow"):
        sink.run(is_streaming=False).batch(5, [["a"], ["c"]])
    assert sink.committed() == Counter("acbc")


def test_a_numbered_write_that_is_repeated_with_other_tasks_is_refused(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one run of a query, too: a function of foreachBatch may catch an error and write again."""
    sink.run(is_streaming=False).batch(0, [["x"]])
    run = sink.run(is_streaming=False)
    for partition, rows in enumerate(rows_of(3)):
        run.task(1, partition, rows)
    end, is_ended = Admin.end_prepared_transaction, asyncio.Event()

    async def end_one(self: Admin, prepared: PreparedTransaction, *, committed: bool) -> None:
        if prepared.transactional_id.endswith("2"):
            await end(self, prepared, committed=committed)
            is_ended.set()
        await is_ended.wait()
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(Admin, "end_prepared_transaction", end_one)
        with pytest.raises(Died):
            run.commit(aborts=False)
    with pytest.raises(DifferentRetry, match=r"Repeat the write with the same tidelog\.sink\.id"):
        sink.run(is_streaming=False).batch(1, rows_of(2))
    sink.run(is_streaming=False).batch(1, rows_of(3))
    assert sink.committed() == Counter("x012345")


# --- the transaction timeout --------------------------------------------------------------------------------------


def timed_out(sink: Sink, partition: int) -> None:
    with sync.Admin(sink.cluster.bootstrap) as admin:

        def is_aborted() -> bool:
            states = {each.transactional_id: each.state for each in admin.list_transactions()}
            return states.get(f"{sink.name}-task-{partition}") == "CompleteAbort"

        sink.cluster.wait_until(is_aborted, within_s=20, what="the transaction timeout")


@pytest.mark.parametrize(("is_streaming", "advice"), [(True, "set maxOffsetsPerTrigger"), (False, "write fewer rows")])
def test_a_batch_that_takes_longer_than_the_timeout_is_told_what_helps(
    sink: Sink, is_streaming: bool, advice: str
) -> None:
    run = sink.run(is_streaming=is_streaming)
    run.options = sink.options(**{"tidelog.transaction.timeout.ms": "4s"})
    run.task(0, 0, ["a"])
    timed_out(sink, 0)
    with pytest.raises(BatchNotCommitted, match=rf"takes longer than the timeout, {advice}"):
        run.commit()
    sink.run(is_streaming=is_streaming).batch(0, [["a"]])
    assert sink.committed() == Counter("a")


def test_a_task_that_takes_longer_than_the_timeout_is_told_what_helps(sink: Sink) -> None:
    run = sink.run()
    run.batch(0, [["x"]])
    run.options = sink.options(**{"tidelog.transaction.timeout.ms": "4s"})
    with pytest.raises(TransactionAborted, match=r"tidelog\.transaction\.timeout\.ms \(4000 ms\).*repartition"):
        run.attempt(1, 0, interrupted(["a"], lambda: timed_out(sink, 0), ["b"]))
    sink.run().batch(1, [["a", "b"]])
    assert sink.committed() == Counter("xab")


# --- the driver dies ----------------------------------------------------------------------------------------------

STEPS = (
    "alter_group_offsets",
    "list_transactions",
    "abort_transaction",
    "list_group_offsets",
    "end_prepared_transaction",
)


class Deadly:
    """Requests of the driver after which, or instead of which, it dies."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        """Requests until it dies; None: it lives."""
        self.is_sent = True
        for step in STEPS:
            patch.setattr(Admin, step, self._deadly(getattr(Admin, step)))

    def _deadly(self, request: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*args: Any, **more: Any) -> Any:
            if self.left is None:
                return await request(*args, **more)
            self.left -= 1
            if self.left > 0 or (self.left == 0 and self.is_sent):
                answer = await request(*args, **more)
            if self.left <= 0:
                raise Died
            return answer

        return call


@pytest.mark.parametrize("is_sent", [True, False])
def test_the_driver_may_die_at_each_of_its_requests(sink: Sink, monkeypatch: pytest.MonkeyPatch, is_sent: bool) -> None:
    """Each run dies one request later than the one before, and nothing is aborted, until one commits the batch."""
    crashed(sink, 3)
    deadly = Deadly(monkeypatch)
    deadly.is_sent = is_sent
    for lives in count(1):
        run = sink.run()
        for partition, rows in enumerate(rows_of(3)):
            run.task(1, partition, rows)
        deadly.left = lives
        try:
            run.commit(aborts=False)
        except Died:
            continue
        finally:
            deadly.left = None
        break
    assert lives > 8
    assert sink.committed() == Counter("x012345")


def test_a_transaction_whose_end_has_no_answer_is_named(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    run = sink.run()
    run.task(0, 0, ["a"])
    run.task(0, 1, ["b"])
    end = Admin.end_prepared_transaction

    async def lose_one(self: Admin, prepared: PreparedTransaction, *, committed: bool) -> None:
        await end(self, prepared, committed=committed)
        if committed and prepared.transactional_id.endswith("1"):
            raise RequestTimedOut("no answer")

    monkeypatch.setattr(Admin, "end_prepared_transaction", lose_one)
    with pytest.raises(BatchNotCommitted, match=r"1 of 2 transactions .* sink partition 1; their outcome is not known"):
        run.commit()
    sink.run().batch(0, [["a"], ["b"]])
    assert sink.committed() == Counter("ab")


def test_an_abort_ends_what_tasks_left_open(sink: Sink) -> None:
    run = sink.run()
    reports = [run.attempt(0, 0, ["a"]), run.attempt(0, 2, ["c"])]
    run.attempt(0, 1, ["b"])  # its report is lost
    run.abort(reports, missing=[1, 3])
    with sync.Admin(sink.cluster.bootstrap) as admin:
        states = {each.transactional_id: each.state for each in admin.list_transactions()}
    assert [states[f"{sink.name}-task-{partition}"] for partition in range(3)] == [
        "CompleteAbort",
        "Empty",
        "CompleteAbort",
    ]
    sink.run().batch(0, [["a", "b", "c"]])
    assert sink.committed() == Counter("abc")


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_task_whose_commit_has_no_answer_finds_out(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    run = sink.run()
    run.batch(0, [["x"]])
    leave = SyncTransaction.__exit__

    def unanswered(self: SyncTransaction, *how: Any) -> None:
        monkeypatch.setattr(SyncTransaction, "__exit__", leave)
        if is_committed:
            leave(self, *how)
        else:
            self.abort()
        raise TransactionOutcomeUnknown("no answer")

    monkeypatch.setattr(SyncTransaction, "__exit__", unanswered)
    if is_committed:
        assert run.attempt(1, 0, ["a"]).outcome is TaskOutcome.COMMITTED
    else:
        with pytest.raises(TransactionOutcomeUnknown):
            run.attempt(1, 0, ["a"])
    run.batch(1, [["a"]])
    assert sink.committed() == Counter("xa")


def test_a_group_that_something_else_uses_is_not_taken_for_the_sinks(sink: Sink) -> None:
    with sync.Admin(sink.cluster.bootstrap) as admin:
        admin.alter_group_offsets(f"{sink.name}-task-0", {(sink.name, 0): 7})
    with pytest.raises(InvalidRequest, match=r"did not commit: use another tidelog\.sink\.id"):
        sink.run().attempt(0, 0, ["a"])


# --- at random ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 6))])
def test_random_failures_of_tasks_and_drivers(sink: Sink, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each batch is tried until a driver commits it and Spark notes that. Tasks fail before, within and after their
    work, have twins, and change their number; drivers die at a random request, before or after it."""
    rng = Random(seed)
    deadly = Deadly(monkeypatch)
    expected: Counter[str] = Counter()
    run = sink.run()
    for batch in range(5):
        rows = [f"{batch}:{row % 7}" for row in range(rng.randrange(1, 12))]
        expected.update(rows)
        tasks = rng.randrange(1, 4)
        for tries in range(60):
            divided = [rng.sample(part := rows[each::tasks], len(part)) for each in range(tasks)]
            try:
                for partition, part in enumerate(divided):
                    a_task(rng, run, batch, partition, part)
                deadly.left, deadly.is_sent = rng.choice([None, rng.randrange(1, 12)]), rng.random() < 0.5
                run.commit(aborts=rng.random() < 0.7)
                if rng.random() < 0.8:
                    break  # Spark has noted the batch
            except (Died, ProducerFenced, TransactionAborted, BatchNotCommitted):
                pass
            except DifferentRetry:
                assert tries, "a first attempt is no retry"
            finally:
                deadly.left = None
            if rng.random() < 0.2:
                tasks = rng.randrange(1, 4)
            run = sink.run()
        else:
            settle(sink, batch, rows)
            run = sink.run()
        assert sink.committed() <= expected, "nothing twice"
    assert sink.committed() == expected


def a_task(rng: Random, run: SinkRun, batch: int, partition: int, rows: list[str]) -> None:
    half = len(rows) // 2
    match rng.randrange(8):
        case 0:
            with pytest.raises(Died):
                run.attempt(batch, partition, then_fails(rows[:half]))
        case 1:
            run.attempt(batch, partition, rows)  # the report is lost
        case 2:
            with pytest.raises((ProducerFenced, TransactionAborted)):
                run.attempt(batch, partition, interrupted(rows, lambda: run.task(batch, partition, rows), ["late"]))
            return
        case 3:
            raise Died
    run.task(batch, partition, rows)


def settle(sink: Sink, batch: int, rows: list[str]) -> None:
    """Find the number of tasks with which the batch was begun."""
    for tasks in (1, 2, 3):
        try:
            sink.run().batch(batch, [rows[each::tasks] for each in range(tasks)])
        except DifferentRetry:
            continue
        return
    raise AssertionError(f"batch {batch} is refused whatever the number of tasks is")
