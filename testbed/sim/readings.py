"""Compares what one reader received from one partition with what is committed: all of it, once, in order, nothing else.

Invariants: a reader receives no record twice. It skips only what it may not see (aborted transactions with
read_committed) and what cleaning may have removed. Not here: what is committed (ledger.py), the reads (workload.py,
consumers.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.sim.ledger import Ledger, Violation, identity
from tidelog.client.consumer_record import ConsumerRecord
from tidelog.records.v2.record import Record
from tidelog.types import NO_TIMESTAMP


def in_log(found: ConsumerRecord) -> Record:
    """What a consumer returned, as it is in the log."""
    timestamp = NO_TIMESTAMP if found.timestamp is None else found.timestamp
    return Record(found.offset, timestamp, found.key, found.value, found.headers)


@dataclass(slots=True)
class Reading:
    """What one reader received. decided: it reads with read_committed. position: its next offset."""

    ledger: Ledger
    decided: bool = False
    position: int = 0
    count: int = 0
    keep: list[bytes | None] | None = None  # the received values, if a test keeps them
    astray: bool = False  # it continued from records that an unclean election removed

    @property
    def end(self) -> int:
        """The offset that it can reach now."""
        return self.ledger.stable if self.decided else self.ledger.end

    @property
    def complete(self) -> bool:
        """Whether it has received everything that it can receive now."""
        if self.astray or self.position >= self.end:
            return True
        return self.ledger.passed_over(self.position, self.end, decided=self.decided) is None

    def got(self, record: Record) -> None:
        """The reader received a record."""
        ledger, offset = self.ledger, int(record.offset)
        self.count += 1
        if self.keep is not None:
            self.keep.append(identity(record))
        if ledger.loss is not None and ledger.values.get(offset) != identity(record):
            self.astray |= ledger.loss.explains(offset, identity(record))
        if ledger.lossy or self.astray:
            self.position = max(self.position, offset + 1)
            return
        if offset not in ledger.values:
            raise Violation(f"a reader of {ledger.name} was given offset {offset}, which is not committed")
        if ledger.values[offset] != identity(record):
            raise Violation(
                f"a reader of {ledger.name} was given {record.value!r} at offset {offset}, where "
                f"{ledger.values[offset]!r} is committed"
            )
        if self.decided and (offset in ledger.aborted or offset >= ledger.stable):
            raise Violation(
                f"a reader of decided transactions of {ledger.name} was given offset {offset}, of one that is "
                f"{'aborted' if offset in ledger.aborted else 'open'}, or after one"
            )
        if offset < self.position:
            raise Violation(f"a reader of {ledger.name} at {self.position} was given offset {offset}")
        self.reached(offset)
        self.position = offset + 1

    def reached(self, offset: int) -> None:
        """The next position of the reader: it must have received everything before."""
        gone = self.ledger.passed_over(self.position, offset, decided=self.decided)
        if gone is not None and not self.astray:
            raise Violation(
                f"a reader of {self.ledger.name} was to continue at {offset}, from {self.position} on, without being "
                f"given offset {gone}"
            )
        self.position = max(self.position, offset)
