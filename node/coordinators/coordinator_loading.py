"""Loading a coordinator: its partition is read from the log start to the log end, and replayed into an empty machine.

The loop is not blocked: records that are not in the page cache are read on another thread, and after some milliseconds
of replay other tasks run.

Invariants:
  1. The machine becomes active in the turn of the loop in which its replay has reached the log end, so that it has
     applied all of the log, transaction markers that were appended meanwhile included.
  2. Checksums are verified. Damage is reported like damage that a reader finds, so that another replica is elected.
Not here: when a partition is loaded (runtime.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from node.coordinators.coordinator_figures import CoordinatorMeter
from node.coordinators.partition_coordinator import PartitionCoordinator
from node.replicas.own_log_check import ensure_sound
from node.runtime.work import run_in
from replication.controller.image import ClusterImage
from replication.coordination.coordinator_machine import CoordinatorMachine, TransactionalProducer
from storage.isolation import FetchIsolation
from storage.log.cold_read import ReadTicket
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.segment.abstract_index import CorruptIndex
from storage.segment.batch_walk import BrokenChain
from tidelog.clock import Clock
from tidelog.errors import (
    CorruptLog,
    CorruptRecord,
    RecordTooLarge,
    TidelogError,
    UnreadableCoordinatorRecord,
    UnsupportedCompressionType,
)
from tidelog.records import EndTxnMarker, RecordBatch, decode_control, iter_batches
from tidelog.types import Millis, Offset

_log = logging.getLogger("node.coordinators")

CHUNK_BYTES: Final = 1 << 20
"""Bytes of one read."""

TURN_MS: Final = 4
"""After this time of replay other tasks run."""

RECORDS_PER_CHECK: Final = 32
BYTES_PER_CHECK: Final = 4_096
"""The clock is read after this many bytes of values, with some added for each record: every 100 us or so."""

PROGRESS_MS: Final = 5_000
"""Interval of the log lines about the progress of one load."""

READ_TRIES_MAX: Final = 4
"""Attempts to read a chunk on another thread. Then it is read on the loop, which names the error."""


class Loading:
    """Loads the coordinators of one kind."""

    def __init__(
        self,
        *,
        clock: Clock,
        image: Callable[[], ClusterImage],
        damaged: Callable[[Log, TidelogError], None],
        meter: CoordinatorMeter,
    ) -> None:
        """image: returns the newest image. damaged: called with a log in which damage was found."""
        self._clock, self._image, self._damaged, self._meter = clock, image, damaged, meter

    async def load(self, coordinator: PartitionCoordinator) -> None:
        """Load a coordinator, unless its leadership ends meanwhile. A failure is reported to the coordinator."""
        replay = _Replay(coordinator, self._clock)
        try:
            if await replay.run():
                self._meter.loaded(replay.duration_ms, replay.records)
                level = logging.INFO if replay.records else logging.DEBUG
                _log.log(level, "%s: loaded %d records in %d ms", coordinator, replay.records, replay.duration_ms)
                coordinator.loaded(replay.machine, self._image())
        except (CorruptLog, UnreadableCoordinatorRecord) as error:
            _log.error("%s: not loaded, serves nothing: %s", coordinator, error.message)
            if not coordinator.ended:
                coordinator.unreadable(error)
            if isinstance(error, CorruptLog):
                self._damaged(coordinator.log, error)
        except TidelogError as error:
            if not coordinator.ended:
                coordinator.suspend(error.message)
        except Exception as defect:  # noqa: BLE001 - the other coordinators are not affected
            coordinator.defect_found(defect)


class _Replay:
    """One load."""

    def __init__(self, coordinator: PartitionCoordinator, clock: Clock) -> None:
        self.machine: CoordinatorMachine[Any, Any] = coordinator.kind.new_machine(coordinator.partition)
        self.records = 0
        self._coordinator, self._clock = coordinator, clock
        self._began = self._turn_began = self._reported = clock.monotonic_ms()
        self._next = self._log.log_start_offset
        self._unchecked = 0
        """Bytes since the clock was last read (see BYTES_PER_CHECK)."""
        self._turn_is_new = True
        """True if nothing was replayed in this turn of the loop."""

    @property
    def _log(self) -> Log:
        """It may move to another log directory meanwhile."""
        return self._coordinator.log

    @property
    def duration_ms(self) -> int:
        """Time since the start of the load."""
        return self._clock.monotonic_ms() - self._began

    async def run(self) -> bool:
        """Replay up to the log end. Returns False if the leadership ended. Raises UnreadableCoordinatorRecord,
        CorruptLog, KafkaStorageError."""
        while not self._coordinator.ended:
            if self._next >= self._log.log_end_offset:
                if self._turn_is_new:
                    return True
                await self._next_turn()  # the first decisions of the machine may take a whole turn
                continue
            read = await self._read()
            ensure_sound(self._log, self._next, read)
            for batch in iter_batches(read.records):
                await self._replay(batch)
            self._next = max(read.next_offset, Offset(self._next + 1))
        return False

    async def _read(self) -> LogRead:
        """The next batches, without waiting for the disk on the loop."""
        ready: ReadTicket | None = None
        try:
            for _ in range(READ_TRIES_MAX):
                found = self._log.try_fetch(self._next, CHUNK_BYTES, FetchIsolation.LOG_END, ready)
                if isinstance(found, LogRead):
                    return found
                if ready is not None:
                    ready.release()
                ready = found
                try:
                    await run_in(self._log.directory.reader, ready.run)
                except (OSError, BrokenChain, CorruptIndex, TidelogError):
                    break
                self._turn_began = self._clock.monotonic_ms()
        finally:
            if ready is not None:
                ready.release()
        return self._log.fetch(self._next, CHUNK_BYTES, FetchIsolation.LOG_END)

    async def _replay(self, batch: RecordBatch) -> None:
        producer = TransactionalProducer(batch.producer_id, batch.producer_epoch)
        try:
            for record in batch.records():
                if record.offset < self._log.log_start_offset:
                    continue
                if batch.is_control:
                    marker = decode_control(record)
                    if isinstance(marker, EndTxnMarker):
                        self.machine.apply_marker(producer, committed=marker.committed)
                else:
                    decoded = self._coordinator.kind.decode(record.key, record.value)
                    self.machine.apply(decoded, record.offset, producer if batch.is_transactional else None)
                self.records += 1
                self._turn_is_new = False
                self._unchecked += BYTES_PER_CHECK // RECORDS_PER_CHECK + len(record.value or b"")
                if self._unchecked >= BYTES_PER_CHECK:
                    self._unchecked = 0
                    await self._yield(record.offset)
                    if self._coordinator.ended:
                        return
        except (UnreadableCoordinatorRecord, CorruptRecord, UnsupportedCompressionType, RecordTooLarge) as error:
            raise UnreadableCoordinatorRecord(
                f"{self._coordinator.name}, batch at offset {batch.base_offset}: {error.message}. The coordinator of "
                "this partition serves nothing; the others are not affected. Run the version that wrote the record, or "
                "examine it with tidelog log dump"
            ) from error

    async def _yield(self, offset: Offset) -> None:
        now = self._clock.monotonic_ms()
        if now - self._turn_began < TURN_MS:
            return
        if now - self._reported >= PROGRESS_MS:
            self._reported = now
            _log.info("loading the %s: at offset %d of %d", self._coordinator, offset, self._log.log_end_offset)
        await self._next_turn()

    async def _next_turn(self) -> None:
        await self._clock.sleep_ms(0)
        self._turn_began = Millis(self._clock.monotonic_ms())
        self._turn_is_new = True
