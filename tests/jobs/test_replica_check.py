"""The batches of one replica: which may follow each other."""

from __future__ import annotations

from collections.abc import Sequence

from tests.storage.workbench import Bench
from tidelog.jobs.replica_check import ReplicaCheck
from tidelog.records import iter_batches
from tidelog.records.v2.batch import RecordBatch
from tidelog.types import Offset


def batches() -> Sequence[RecordBatch]:
    """Of offsets 0 to 2, 3 to 5 and 6 to 8."""
    bench = Bench()
    for _ in range(3):
        bench.lead(b"a", b"b", b"c")
    return list(iter_batches(b"".join(bench.contents())))


def problems(start: int, shown: Sequence[RecordBatch]) -> list[str]:
    """start: of the log."""
    check = ReplicaCheck(compacted=False)
    check.skip_to(Offset(start))
    for batch in shown:
        check.check(batch)
    return [str(each) for each in check.problems]


def test_a_log_may_start_within_a_batch() -> None:
    """`tidelog topic delete-records` names any offset, and the batch with it is shown whole."""
    _, second, third = batches()
    assert problems(4, [second, third]) == []


def test_a_batch_of_deleted_records_alone_is_a_problem_and_so_is_one_that_comes_again() -> None:
    first, second, third = batches()
    assert problems(4, [first, second, third]) == [
        "offsets at offset 0: the batch begins at 0, the batch before it ends at 3"
    ]
    assert problems(4, [second, second, third]) == [
        "offsets at offset 3: the batch begins at 3, the batch before it ends at 5"
    ]
