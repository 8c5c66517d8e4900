"""Helpers of the compaction tests: a compacted log, cleaning rounds, and the records that readers see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage.directory.log_cleaner import LogCleaner
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log_config import LogConfig
from storage.segment.agreed_indexes import AGREEMENT_FILE
from tests.storage.workbench import NOW, SMALL, Bench
from tidelog.errors import TidelogError
from tidelog.records import (
    EndTxnMarker,
    Record,
    RecordBatch,
    RecordBatchBuilder,
    control_batch,
    decode_control,
    iter_batches,
)
from tidelog.types import Codec, LeaderEpoch, Millis, Offset

COMPACTED = replace(SMALL, compact=True, delete=False, min_cleanable_ratio=0.0, segment_bytes=600)
DAY = 86_400_000

Fields = tuple[bytes | None, bytes | None]


def make_cleaner(troubles: list[TidelogError] | None = None, *, map_bytes: int = 1 << 20) -> LogCleaner:
    """A cleaner without throttling."""
    reported = troubles if troubles is not None else []
    return LogCleaner(map_bytes=map_bytes, bytes_per_second=1 << 50, on_failure=reported.append)


def clean(logs: Log | Iterable[Log], now: int = NOW, cleaner: LogCleaner | None = None) -> int:
    """Run one round on the dirtiest log. Returns the number of pieces; 0 if no log is worth a cleaning."""
    cleaner = cleaner or make_cleaner()
    piece = cleaner.begin([logs] if isinstance(logs, Log) else logs, Millis(now))
    pieces = 0
    while piece is not None:
        pieces += 1
        try:
            outcome: int | BaseException = piece.work()
        except Exception as error:  # noqa: BLE001 - whatever the work raises is its outcome
            outcome = error
        piece = cleaner.settle(outcome, Millis(now), started=Millis(0), ended=Millis(0))
    return pieces


class CleaningBench(Bench):
    """A compacted log, with shorthands for appends of producers."""

    def __init__(self, config: LogConfig = COMPACTED, **kwargs: object) -> None:
        super().__init__(config, **kwargs)  # type: ignore[arg-type]
        self.sequences: dict[int, int] = {}

    def put(self, *records: Fields, timestamp: int = NOW, codec: Codec = Codec.NONE) -> int:
        """Append one batch. Returns its last offset."""
        builder = RecordBatchBuilder(codec=codec)
        for key, value in records:
            builder.append(key=key, value=value, timestamp=timestamp)
        return self._append(builder.build())

    def produce(
        self, producer: int, *records: Fields, transactional: bool = False, timestamp: int = NOW, epoch: int = 0
    ) -> int:
        """Append one batch of an idempotent producer. Returns its last offset."""
        sequence = self.sequences.get(producer, 0)
        builder = RecordBatchBuilder(
            producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=transactional
        )
        for key, value in records:
            builder.append(key=key, value=value, timestamp=timestamp)
        self.sequences[producer] = sequence + len(records)
        return self._append(builder.build())

    def end(self, producer: int, *, commit: bool, timestamp: int = NOW, epoch: int = 0, coordinator: int = 0) -> int:
        """Append the marker that ends the producer's transaction. Returns its offset."""
        data = control_batch(
            EndTxnMarker(commit, coordinator),
            timestamp=timestamp,
            base_offset=self.log.log_end_offset,
            leader_epoch=0,
            producer_id=producer,
            producer_epoch=epoch,
        )
        return self.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0)).last_offset

    def _append(self, data: bytes) -> int:
        return self.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(0)).last_offset

    def settle(self, *, roll: bool = True) -> None:
        """Make everything durable and committed. roll: also close the active segment."""
        if roll and self.log.active.size:
            self.log.roll(Millis(self.clock.now))
        self.commit()
        self.log.advance_high_watermark(self.log.log_end_offset)


def batches_of(log: Log) -> list[RecordBatch]:
    """Every batch of every segment."""
    return [
        batch
        for segment in log.segments
        for batch in iter_batches(segment.file.pread(segment.size, 0), partial_tail="raise")
    ]


def records_of(log: Log) -> list[Record]:
    """Every record except markers, aborted or not."""
    return [record for batch in batches_of(log) if not batch.is_control for record in batch.records()]


def markers_of(log: Log) -> list[int]:
    """The offsets of all markers that still have a record."""
    return [batch.base_offset for batch in batches_of(log) if batch.is_control and batch.count]


def visible(log: Log, isolation: FetchIsolation = FetchIsolation.LAST_STABLE_OFFSET) -> list[Record]:
    """The records that a consumer of this isolation reads from the log start on."""
    offset, end, found = log.log_start_offset, log.end_for(isolation), []
    while offset < end:
        read = log.fetch(offset, 500, isolation)
        if not len(read.records):
            break
        aborted = sorted(read.aborted, key=lambda transaction: transaction.first_offset)
        hidden: set[int] = set()
        for batch in iter_batches(read.records):
            batch.ensure_valid()
            while aborted and aborted[0].first_offset <= batch.last_offset:
                hidden.add(aborted.pop(0).producer_id)
            if batch.is_control:
                marker = [decode_control(record) for record in batch.records()]
                if marker and isinstance(marker[0], EndTxnMarker) and not marker[0].committed:
                    hidden.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in hidden):
                found += [record for record in batch.records() if record.offset >= offset]
        offset = read.next_offset
    return found


def table(records: Sequence[Record]) -> dict[bytes | None, bytes | None]:
    """The expected values: the last record of each key; a tombstone deletes the key."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def last_offsets(records: Sequence[Record]) -> dict[bytes | None, Offset]:
    """The offset of each key's last record."""
    return {record.key: record.offset for record in records}


def forget_agreements(bench: CleaningBench) -> None:
    """Kill the process and delete the agreements of the transaction indexes, as in a directory written by Kafka."""
    bench.directory.write_checkpoints()
    bench.files.remove(f"{bench.log.path}/{AGREEMENT_FILE}")
    bench.kill()
    bench.settle(roll=False)
