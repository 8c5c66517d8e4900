"""Verdicts on receipts: what is there, what was removed by right, and what is lost."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.receipt import Receipt
from tidelog.errors import InvalidRequest
from tidelog.jobs.audit import read_receipts
from tidelog.jobs.receipt_check import FiledReceipt, ReceiptCheck, ReceiptVerdict, Verdict
from tidelog.jobs.replica_check import ReplicaCheck, audited_records
from tidelog.records import RecordBatch, RecordBatchBuilder, stamp
from tidelog.types import Durability, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId

LEADER, FOLLOWER = NodeId(0), NodeId(1)
SIZE = 3


def stored(base: int, value: bytes = b"v", *, epoch: int = 2, records: int = SIZE) -> RecordBatch:
    builder = RecordBatchBuilder()
    for number in range(records):
        builder.append(key=b"k", value=value + b"%d" % (base + number), timestamp=1_700_000_000_000)
    data = bytearray(builder.build())
    stamp(data, 0, base_offset=base, leader_epoch=epoch)
    return RecordBatch(bytes(data))


def receipt(batch: RecordBatch, offset: int) -> Receipt:
    header = batch.header
    return Receipt(
        "orders",
        TopicId(UUID(int=7)),
        PartitionIndex(0),
        Offset(offset),
        header.leader_epoch,
        header.base_offset,
        header.last_offset,
        header.crc,
        (LEADER, FOLLOWER),
        (LEADER, FOLLOWER),
        Durability.FSYNC,
    )


def judged(
    receipts: list[Receipt],
    leader: list[RecordBatch],
    follower: list[RecordBatch] | None = None,
    *,
    log_start: int = 0,
    end: int = 100,
    compacted: bool = False,
    leads: bool = True,
) -> list[ReceiptVerdict]:
    check = ReceiptCheck([FiledReceipt(line, each) for line, each in enumerate(receipts, 1)], compacted=compacted)
    read = [
        node for node, batches in ((LEADER, leader if leads else None), (FOLLOWER, follower)) if batches is not None
    ]
    for node, batches in ((LEADER, leader), (FOLLOWER, follower or [])):
        audit = ReplicaCheck(compacted=compacted)
        for batch in batches:
            is_valid = audit.check(batch)
            offsets = {each.offset for each in audited_records(batch)} if is_valid and compacted else None
            check.note(node, batch, is_valid=is_valid, offsets=offsets)
    return check.verdicts(LEADER if leads else None, read, Offset(log_start), Offset(end))


def verdict(*args: object, **options: object) -> Verdict:
    [found] = judged(*args, **options)  # type: ignore[arg-type]
    return found.verdict


@given(st.sets(st.integers(0, 20), min_size=1), st.data())
def test_every_record_of_a_stored_batch_is_present(numbers: set[int], data: st.DataObject) -> None:
    log = [stored(number * SIZE) for number in sorted(numbers)]
    chosen = data.draw(st.lists(st.sampled_from(log), max_size=9))
    receipts = [receipt(batch, batch.header.base_offset + data.draw(st.integers(0, SIZE - 1))) for batch in chosen]
    found = judged(receipts, log, log)
    assert [each.verdict for each in found] == [Verdict.PRESENT] * len(receipts)
    assert all(each.nodes == (LEADER, FOLLOWER) for each in found)
    assert sorted(each.line for each in found) == list(range(1, len(receipts) + 1))


def test_what_lies_below_the_log_start_has_expired() -> None:
    assert verdict([receipt(stored(3), 4)], [stored(6)], log_start=6) is Verdict.EXPIRED
    assert verdict([receipt(stored(3), 4)], [stored(3)], log_start=4) is Verdict.PRESENT


def test_a_hole_above_the_log_start_is_a_loss() -> None:
    assert verdict([receipt(stored(3), 4)], [stored(0), stored(6)]) is Verdict.LOST


def test_an_offset_above_the_end_is_a_loss_even_on_a_compacted_topic() -> None:
    for compacted in (False, True):
        [found] = judged([receipt(stored(30), 31)], [stored(0)], end=3, compacted=compacted)
        assert (found.verdict, found.detail) == (Verdict.LOST, "the committed log ends at offset 3")


def test_other_bytes_are_an_alteration_that_names_the_replica_with_the_right_ones() -> None:
    [found] = judged([receipt(stored(0), 1)], [stored(0, b"w")], [stored(0)])
    assert found.verdict is Verdict.ALTERED
    assert found.nodes == (FOLLOWER,)
    assert found.detail.endswith("it is still on node 1")


def test_a_flipped_bit_is_an_alteration() -> None:
    data = bytearray(stored(0).buffer)
    data[-2] ^= 1
    [found] = judged([receipt(stored(0), 1)], [RecordBatch(bytes(data))])
    assert (found.verdict, "do not have its checksum" in found.detail) == (Verdict.ALTERED, True)


def test_the_same_bytes_in_another_epoch_are_present() -> None:
    [found] = judged([receipt(stored(0), 1)], [stored(0, epoch=5)])
    assert (found.verdict, found.detail) == (Verdict.PRESENT, "written again in leader epoch 5")


def test_compaction_is_told_from_loss() -> None:
    left = RecordBatchBuilder()
    left.append(key=b"k", value=b"v2", timestamp=1_700_000_000_000)
    data = bytearray(left.build())
    stamp(data, 0, base_offset=2, leader_epoch=2)
    rest = RecordBatch(bytes(data))
    assert verdict([receipt(stored(0), 1)], [rest, stored(3)], compacted=True) is Verdict.COMPACTED
    assert verdict([receipt(stored(0), 1)], [stored(0, b"w"), stored(3)], compacted=True) is Verdict.ALTERED, (
        "a batch that lost no record keeps its bytes"
    )


def test_without_a_leader_any_replica_proves_it_and_none_proves_a_loss() -> None:
    assert verdict([receipt(stored(0), 1)], [], [stored(0)], leads=False) is Verdict.PRESENT
    assert verdict([receipt(stored(0), 1)], [], None, leads=False) is Verdict.UNKNOWN


def test_a_line_that_is_no_receipt_is_named() -> None:
    good = receipt(stored(0), 1).to_json()
    assert [each.line for each in read_receipts([good, "\n", good], "r.jsonl")] == [1, 3]
    with pytest.raises(InvalidRequest, match=r"r\.jsonl, line 2: a receipt"):
        read_receipts([good, json.dumps({"receipt": 1})], "r.jsonl")


# --- one replica by itself --------------------------------------------------------------------------------------------


def problems(*batches: RecordBatch, compacted: bool = False, end: int | None = None) -> list[tuple[str, int]]:
    check = ReplicaCheck(compacted=compacted)
    for batch in batches:
        check.check(batch)
    if end is not None:
        check.end_at(Offset(end))
    return [(each.kind, each.offset) for each in check.problems]


def test_a_replica_is_checked_by_itself() -> None:
    assert problems(stored(0), stored(3), end=6) == []
    assert problems(stored(0), stored(6)) == [("hole", 3)]
    assert problems(stored(0), stored(6), compacted=True) == []
    assert problems(stored(3), stored(0)) == [("offsets", 0)]
    assert problems(stored(0, epoch=3), stored(3, epoch=2)) == [("epoch", 3)]
    assert problems(stored(0), end=6) == [("hole", 3)]


def test_problems_beyond_the_limit_are_counted() -> None:
    check = ReplicaCheck(compacted=False)
    for number in range(30):
        check.check(stored(number * SIZE * 2))
    assert (check.problem_count, len(check.problems), check.batches) == (29, 10, 30)
    assert LeaderEpoch(2) == stored(0).partition_leader_epoch
