"""Comparing replicas: whatever the order in which they are read, the first difference is found, and only that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.jobs.replica_comparison import (
    AuditedBatch,
    AuditedRecord,
    BatchComparison,
    CompactedComparison,
    Difference,
)
from tidelog.types import LeaderEpoch, NodeId, Offset, ProducerId

NODES = (NodeId(0), NodeId(1), NodeId(2))


def batch(base: int, size: int = 5, *, epoch: int = 0, checksum: int | None = None, data: bytes = b"x") -> AuditedBatch:
    crc = base * 7 if checksum is None else checksum
    return AuditedBatch(
        Offset(base), Offset(base + size - 1), LeaderEpoch(epoch), crc, data + bytes((epoch, size, crc & 255))
    )


def compare(
    comparison: Any, replicas: Sequence[Sequence[Any]], ends: Sequence[int], pick: Callable[[Any], Any]
) -> None:
    """Feed what the comparison asks for, one to three items at a time, in an order that `pick` chooses."""
    left = {node: list(items) for node, items in zip(NODES, replicas, strict=False)}
    closed: set[NodeId] = set()
    while len(closed) < len(left):
        hungry = [node for node in comparison.hungry() if node not in closed]
        node = pick(hungry or [node for node in left if node not in closed])
        items = left[node]
        if items:
            count = pick([1, 2, 3])
            comparison.feed(node, items[:count])
            del items[:count]
        else:
            comparison.close(node, Offset(ends[node]))
            closed.add(node)
    comparison.finish()


def log(count: int) -> list[AuditedBatch]:
    return [batch(number * 5) for number in range(count)]


@given(st.integers(0, 12), st.data())
def test_equal_replicas_have_no_difference(count: int, data: st.DataObject) -> None:
    comparison = BatchComparison(NODES)
    lags = [data.draw(st.integers(0, count)) for _ in NODES]
    replicas = [log(count - lag) for lag in lags]
    compare(comparison, replicas, [5 * len(each) for each in replicas], lambda of: data.draw(st.sampled_from(of)))
    assert comparison.difference is None
    assert comparison.compared == sorted(map(len, replicas))[1], "on two replicas at least"


CHANGES: dict[str, Callable[[list[AuditedBatch], int], None]] = {
    "missing": lambda items, at: items.pop(at),  # type: ignore[dict-item]
    "epoch": lambda items, at: items.__setitem__(at, batch(at * 5, epoch=3)),
    "checksum": lambda items, at: items.__setitem__(at, batch(at * 5, checksum=1, data=b"y")),
    "bytes": lambda items, at: items.__setitem__(at, batch(at * 5, data=b"y")),
    "bounds": lambda items, at: items.__setitem__(at, batch(at * 5, 4)),
}


@given(st.integers(1, 12), st.sampled_from(sorted(CHANGES)), st.data())
def test_the_first_difference_is_named(count: int, kind: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, count - 1))
    node = data.draw(st.sampled_from(NODES))
    replicas = [log(count) for _ in NODES]
    CHANGES[kind](replicas[node], at)
    for later in range(at + 1, count):  # differences behind the first one are not named
        if data.draw(st.booleans()):
            replicas[(node + 1) % 3][later] = batch(later * 5, data=b"z")
    comparison = BatchComparison(NODES)
    compare(comparison, replicas, [count * 5] * 3, lambda of: data.draw(st.sampled_from(of)))
    assert isinstance(comparison.difference, Difference)
    assert (comparison.difference.offset, comparison.difference.kind) == (at * 5, kind)
    others = {what for other, what in comparison.difference.found.items() if other != node}
    assert len(others) == 1
    if kind != "bytes":
        assert comparison.difference.found[node] not in others


def test_a_difference_names_the_replicas_on_both_sides() -> None:
    comparison = BatchComparison(NODES)
    compare(comparison, [log(2), log(2), [batch(0), batch(5, checksum=255)]], [10] * 3, lambda of: of[0])
    assert str(comparison.difference) == (
        "checksum at offset 5: nodes 0, 1 have offsets 5..9, epoch 0, checksum 00000023, 4 bytes; node 2 has offsets "
        "5..9, epoch 0, checksum 000000ff, 4 bytes"
    )


def test_what_retention_removed_on_one_replica_is_not_missing() -> None:
    comparison = BatchComparison(NODES[:2])
    comparison.begin_at(NODES[1], Offset(10))
    compare(comparison, [log(4), log(4)[2:]], [20, 20], lambda of: of[0])
    assert (comparison.difference, comparison.compared) == (None, 2)


# --- compaction -------------------------------------------------------------------------------------------------------


def record(offset: int, key: str, value: str | None = "v", *, producer: int | None = None) -> AuditedRecord:
    owner = None if producer is None else ProducerId(producer)
    digest = f"{key}{value}{offset}".encode()
    return AuditedRecord(Offset(offset), LeaderEpoch(0), digest, key.encode(), value is None, owner)


def marker(offset: int, producer: int, *, committed: bool) -> AuditedRecord:
    return AuditedRecord(
        Offset(offset), LeaderEpoch(0), b"m", None, producer=ProducerId(producer), is_committed=committed
    )


def compared(*replicas: Sequence[AuditedRecord], ends: Sequence[int] | None = None) -> CompactedComparison:
    comparison = CompactedComparison(NODES[: len(replicas)])
    compare(comparison, replicas, ends or [100] * len(replicas), lambda of: of[0])
    return comparison


keys = st.sampled_from("abcd")
values = st.sampled_from(["v", "w", None])
written = st.lists(st.tuples(keys, values, st.none() | st.integers(1, 2), st.booleans()), max_size=25)


def log_of(sent: Sequence[tuple[str, str | None, int | None, bool]]) -> list[AuditedRecord]:
    """Records and, where the last flag of an entry is set, the end of its producer's transaction."""
    records: list[AuditedRecord] = []
    open_ones: set[int] = set()
    for key, value, producer, ends in sent:
        records.append(record(len(records), key, value, producer=producer))
        if producer is not None:
            open_ones.add(producer)
            if ends:
                records.append(marker(len(records), producer, committed=value != "w"))
                open_ones.discard(producer)
    return records


def decided(records: Sequence[AuditedRecord]) -> tuple[dict[int, bool | None], int]:
    """Whether the record at each offset is committed, aborted (False) or undecided (None); the last stable offset."""
    state: dict[int, bool | None] = {each.offset: True for each in records if each.producer is None}
    for place, each in enumerate(records):
        if each.producer is None or each.is_committed is not None:
            continue
        end = next((m for m in records[place:] if m.is_committed is not None and m.producer == each.producer), None)
        state[each.offset] = None if end is None else end.is_committed
    undecided = [offset for offset, known in state.items() if known is None]
    return state, min(undecided, default=len(records))


def cleaned(records: Sequence[AuditedRecord], up_to: int, *, tombstones: bool) -> list[AuditedRecord]:
    """The slow twin of the cleaner: what one round up to `up_to` leaves of a log."""
    state, stable = decided(records)
    up_to = min(up_to, stable)
    last = {each.key: each.offset for each in records if each.offset < up_to and state.get(each.offset)}
    left = []
    for each in records:
        is_data = each.is_committed is None
        if each.offset < up_to and is_data:
            if not state[each.offset] or last[each.key] != each.offset:
                continue
            if each.is_tombstone and tombstones:
                continue
        left.append(each)
    return left


@given(written, st.data())
def test_replicas_that_were_cleaned_at_different_times_are_equal(sent: Any, data: st.DataObject) -> None:
    records = log_of(sent)
    bounds = st.integers(0, len(records))
    replicas = [cleaned(records, data.draw(bounds), tombstones=data.draw(st.booleans())) for _ in NODES]
    comparison = CompactedComparison(NODES)
    compare(comparison, replicas, [len(records)] * 3, lambda of: data.draw(st.sampled_from(of)))
    assert comparison.difference is None, comparison.difference


@given(written, st.data())
def test_the_last_committed_value_of_a_key_may_not_be_missing(sent: Any, data: st.DataObject) -> None:
    records = log_of(sent)
    state, _ = decided(records)
    last = {each.key: each for each in records if each.is_committed is None and state[each.offset]}
    lost = [each for each in last.values() if not each.is_tombstone]
    if not lost:
        return
    victim = data.draw(st.sampled_from(lost))
    node = data.draw(st.sampled_from(NODES))
    replicas = [cleaned(records, data.draw(st.integers(0, len(records))), tombstones=False) for _ in NODES]
    replicas[node] = [each for each in replicas[node] if each.offset != victim.offset]
    comparison = CompactedComparison(NODES)
    compare(comparison, replicas, [len(records)] * 3, lambda of: data.draw(st.sampled_from(of)))
    assert comparison.difference is not None
    assert (comparison.difference.offset, comparison.difference.kind) == (victim.offset, "missing")
    assert comparison.difference.found[node] is None


def test_records_at_one_offset_must_be_equal() -> None:
    difference = compared([record(0, "a"), record(1, "b")], [record(0, "a"), record(1, "b", "other")]).difference
    assert difference is not None
    assert (difference.offset, difference.kind) == (1, "bytes")


def test_a_record_is_not_replaced_by_one_of_an_aborted_transaction() -> None:
    whole = [record(0, "a"), record(1, "a", "w", producer=1), marker(2, 1, committed=False)]
    difference = compared(whole, whole[1:]).difference
    assert difference is not None
    assert (difference.offset, difference.found[NODES[1]]) == (0, None)


def test_a_record_of_an_open_transaction_may_not_be_missing() -> None:
    whole = [record(0, "a"), record(1, "b", producer=1)]
    difference = compared(whole, whole[:1]).difference
    assert difference is not None
    assert difference.offset == 1


def test_a_replica_that_lags_is_not_judged_by_what_may_lie_behind_its_end() -> None:
    whole = [record(0, "a"), record(1, "b"), record(2, "a")]
    assert compared(whole, whole[1:2], ends=[3, 2]).difference is None


def test_keys_beyond_the_limit_are_counted() -> None:
    comparison = CompactedComparison(NODES[:2], keys_max=3)
    whole = [record(offset, f"k{offset}") for offset in range(5)]
    compare(comparison, [whole, []], [5, 5], lambda of: of[0])
    assert comparison.uncompared_keys == 2
    assert comparison.difference is not None
