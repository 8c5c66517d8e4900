"""Checks receipts of one partition against the batches of its replicas, and distinguishes removal from loss.

A receipt names a batch by offset and checksum. Retention removes the start of a log, compaction single records, and
both leave a trace: the log start offset, and later records behind the hole. What is missing without such a trace is
lost. A receipt has no key: a record that a compacted topic has no more is taken as compacted, and the comparison of the
replicas shows whether they agree on the last record of each key.

Not here: reading (audit.py), the comparison of replicas (replica_comparison.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from tidelog.client.receipt import Receipt
from tidelog.records.v2.batch import RecordBatch
from tidelog.types import NodeId, Offset


class Verdict(Enum):
    """What became of an acknowledged record."""

    PRESENT = "present"
    """The batch is in the log, with the checksum of the receipt."""
    REWRITTEN = "rewritten"
    """The record is in the log, in a batch that compaction has rewritten: its checksum cannot be compared."""
    EXPIRED = "expired"
    """Below the log start offset: deleted by retention, or by a request to delete records."""
    COMPACTED = "compacted"
    """Probably removed by compaction."""
    TOPIC_DELETED = "topic-deleted"
    """The topic was deleted, and possibly created again: it has another id, or there is none of this name."""
    LOST = "lost"
    """The offset is missing without any of these causes."""
    ALTERED = "altered"
    """Other bytes are at this offset."""
    UNKNOWN = "unknown"
    """No replica could be read there."""

    @property
    def is_failure(self) -> bool:
        """True if an acknowledged record is not in the log, or cannot be shown to be, without a legal cause."""
        return self in (Verdict.LOST, Verdict.ALTERED, Verdict.UNKNOWN)


@dataclass(frozen=True, slots=True)
class ReceiptVerdict:
    """The verdict on one receipt."""

    line: int
    """Number of the line in the file, from 1."""
    receipt: Receipt
    verdict: Verdict
    detail: str
    nodes: tuple[NodeId, ...] = ()
    """Replicas that have the record."""


@dataclass(frozen=True, slots=True)
class FiledReceipt:
    """A receipt and its line in the file, from 1."""

    line: int
    receipt: Receipt


class ReceiptCheck:
    """The receipts of one partition, against the batches of each replica."""

    def __init__(self, receipts: Sequence[FiledReceipt], *, compacted: bool) -> None:
        self._receipts = sorted(receipts, key=lambda filed: filed.receipt.offset)
        self._offsets = [filed.receipt.offset for filed in self._receipts]
        self._compacted = compacted
        self._found: list[dict[NodeId, tuple[Verdict, str]]] = [{} for _ in self._receipts]

    def note(self, node: NodeId, batch: RecordBatch, *, is_valid: bool, offsets: Collection[Offset] | None) -> None:
        """A replica has this batch. is_valid: its bytes have the checksum of its header. offsets: of its records; None:
        all of its range."""
        header = batch.header
        first = bisect_left(self._offsets, header.base_offset)
        last = bisect_right(self._offsets, header.last_offset)
        for index in range(first, last):
            found = self._judge(self._receipts[index].receipt, batch, is_valid, offsets)
            if found is not None:
                self._found[index][node] = found

    def _judge(
        self, receipt: Receipt, batch: RecordBatch, is_valid: bool, offsets: Collection[Offset] | None
    ) -> tuple[Verdict, str] | None:
        header = batch.header
        if not is_valid:
            return Verdict.ALTERED, f"the bytes of the batch do not have its checksum {header.crc:08x}"
        same_place = (header.base_offset, header.last_offset) == (receipt.base_offset, receipt.last_offset)
        if same_place and header.crc == receipt.checksum:
            if header.leader_epoch == receipt.leader_epoch:
                return Verdict.PRESENT, ""
            return Verdict.PRESENT, f"written again in leader epoch {header.leader_epoch}"
        if self._compacted and same_place and _is_rewritten(batch):
            is_there = offsets is None or receipt.offset in offsets
            return (Verdict.REWRITTEN, "its batch was rewritten by compaction") if is_there else None
        stored = f"checksum {header.crc:08x} in leader epoch {header.leader_epoch}"
        return Verdict.ALTERED, f"offsets {header.base_offset}..{header.last_offset} have {stored}"

    def verdicts(
        self, leader: NodeId | None, read: Collection[NodeId], log_start: Offset, end: Offset
    ) -> list[ReceiptVerdict]:
        """The verdicts, by offset. leader: whose log consumers read; None if it could not be read. read: the replicas
        that were read to `end`. log_start: of the leader, or else the smallest of the replicas that were read. end: up
        to where records are committed."""
        return [
            self._verdict(filed, found, leader, read, log_start, end)
            for filed, found in zip(self._receipts, self._found, strict=True)
        ]

    def _verdict(
        self,
        filed: FiledReceipt,
        found: dict[NodeId, tuple[Verdict, str]],
        leader: NodeId | None,
        read: Collection[NodeId],
        log_start: Offset,
        end: Offset,
    ) -> ReceiptVerdict:
        offset = filed.receipt.offset
        whole = tuple(sorted(node for node, (kind, _) in found.items() if not kind.is_failure))

        def verdict(kind: Verdict, detail: str) -> ReceiptVerdict:
            if kind.is_failure and whole:
                detail += f"; it is still on {'nodes' if len(whole) > 1 else 'node'} {', '.join(map(str, whole))}"
            return ReceiptVerdict(filed.line, filed.receipt, kind, detail, whole)

        if offset < log_start:
            return verdict(Verdict.EXPIRED, f"the log starts at offset {log_start}")
        judge = leader if leader in found else None
        if judge is None and leader is None and found:
            judge = min(found, key=lambda node: (found[node][0].is_failure, node))
        if judge is not None:
            kind, detail = found[judge]
            return verdict(kind, detail)
        if not read or (leader is not None and leader not in read):
            return verdict(Verdict.UNKNOWN, "no replica could be read at this offset")
        if offset >= end:
            return verdict(Verdict.LOST, f"the committed log ends at offset {end}")
        if self._compacted:
            return verdict(Verdict.COMPACTED, "no record at this offset, later ones are there")
        return verdict(Verdict.LOST, "no replica has a batch at this offset" if not found else "the leader lacks it")


def _is_rewritten(batch: RecordBatch) -> bool:
    """Whether compaction has written the batch again: records are missing, or the time is set from which tombstones may
    be removed (KIP-534). A batch that loses nothing keeps its bytes."""
    header = batch.header
    return header.record_count <= header.last_offset_delta or batch.delete_horizon_ms is not None
