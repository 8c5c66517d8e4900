"""A ledger with the batches that were added to it."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.sim.ledger import Cleanup, Ledger
from testbed.sim.readings import Reading
from testbed.sim.workload import IDENTITY
from tidelog.records import RecordBatch, build_batch, iter_batches
from tidelog.records.v2.control import EndTxnMarker, control_batch
from tidelog.records.v2.record import Record
from tidelog.types import Millis, Offset


class Book:
    """A ledger and the batches that were added to it."""

    def __init__(self, **configs: str) -> None:
        self.cleanup = Cleanup()
        self.cleanup.widen({key.replace("_", "."): value for key, value in configs.items()})
        self.ledger = Ledger("t-0", self.cleanup)
        self.batches: list[RecordBatch] = []

    def _add(self, data: bytes) -> Book:
        (batch,) = iter_batches(data)
        self.ledger.add(batch)
        self.batches.append(batch)
        return self

    def put(self, *pairs: tuple[bytes | None, bytes | None], producer: int = -1, epoch: int = 0) -> Book:
        """Add a batch of keys and values; a record without a value is a tombstone."""
        end = self.ledger.end
        records = [
            Record(Offset(end + i), Millis(0), key, value, () if value else ((IDENTITY, b"t%d" % (end + i)),))
            for i, (key, value) in enumerate(pairs)
        ]
        return self._add(
            build_batch(
                records,
                base_offset=end,
                leader_epoch=0,
                producer_id=producer,
                producer_epoch=epoch if producer >= 0 else -1,
                base_sequence=0 if producer >= 0 else -1,
                is_transactional=producer >= 0,
            )
        )

    def decide(self, producer: int, epoch: int, *, commit: bool, coordinator: int = 0) -> Book:
        marker = EndTxnMarker(commit, coordinator)
        end = self.ledger.end
        return self._add(
            control_batch(
                marker, timestamp=0, base_offset=end, leader_epoch=0, producer_id=producer, producer_epoch=epoch
            )
        )

    def gone(self) -> list[int]:
        return [offset for offset in self.ledger.values if self.ledger.may_be_gone(offset)]

    def give(self, offsets: Sequence[int], *, decided: bool = False, position: int = 0) -> Reading:
        reading = Reading(self.ledger, decided, position)
        records = {int(record.offset): record for batch in self.batches for record in batch.records()}
        for offset in offsets:
            reading.got(records[offset])
        return reading
