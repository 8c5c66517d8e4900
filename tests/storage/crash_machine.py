"""A log on the fake disk, driven at random. Every call that changes the disk is a crash point.

Before each such call, a copy of the disk loses power (or only its process dies), the log is opened on the copy, and the
model checks the result. One run of a few steps therefore has hundreds of crash points.
Not here: the expected state (log_model.py), the choice of steps (crash_runs.py), the kinds of logs
(test_crash_points.py), proof that the checks can fail (test_crash_bugs.py)."""

from __future__ import annotations

import errno
import functools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, ClassVar

from storage.append_info import Origin
from storage.checkpoints.checkpoint_file import LEADER_EPOCH_CHECKPOINT, read_epochs
from storage.directory.log_cleaner import LogCleaner, Piece, measure_log
from storage.directory.log_directory import LogDirectory
from storage.log.flush import FlushTicket
from storage.log.log import Log
from storage.log.retention import count_deletable
from storage.log_config import LogConfig
from testbed.fake_disk import FakeDisk, SimulatedCrash
from tests.fakes.log_start import delete_old_segments, delete_records, latest_epoch
from tests.storage.cleaning_bench import make_cleaner
from tests.storage.crash_runs import Machine, booleans, floats, integers, lists, one_of, rule
from tests.storage.log_model import LogModel, Stored, decisions_end, is_new, present_offsets, read_all
from tests.storage.workbench import SMALL, TP, Bench, SetClock
from tidelog.errors import TidelogError
from tidelog.records.batches import iter_batches
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.records.legacy.message_set import stamp_message
from tidelog.records.v2.builder import RecordBatchBuilder
from tidelog.records.v2.control import EndTxnMarker, control_batch
from tidelog.types import Codec, Durability, EpochStart, LeaderEpoch, Millis, Offset

HARMLESS = frozenset({"read", "map"})
"""Operations before which the disk is in the same state as before the previous operation."""
BASE = replace(SMALL, segment_bytes=1_200, segment_index_bytes=240, file_delete_delay_ms=0)
KEYS = lists(integers(0, 5), 1, 4)
SHARE = floats(0, 1)


def open_log(disk: FakeDisk, config: LogConfig) -> tuple[LogDirectory, Log]:
    directory = LogDirectory("/data", files=disk, clock=SetClock(), rng=random.Random(7))
    return directory, directory.load_logs(lambda _tp, _id: config)[TP]


def step(method: Callable[..., None]) -> Callable[..., None]:
    """A rule that a planned disk failure may end. The directory is then offline, and its process restarts."""

    @functools.wraps(method)
    def run(self: CrashMachine, **arguments: Any) -> None:
        try:
            method(self, **arguments)
        except TidelogError:
            if not self.faulty:
                raise
            if self.bench.directory.offline is None and not self.bench.log.closed:
                self.refused()
        if self.bench.directory.offline is not None or self.bench.log.closed:
            assert self.faulty, self.bench.directory.offline
            self.restart()
            self.returned(whole=False)

    return run


class CrashMachine(Machine):
    """A log and its model, with the state of its producers, its flusher and its cleaner."""

    config: ClassVar[LogConfig] = BASE

    def __init__(self) -> None:
        self.bench = Bench(self.config)
        self.model = LogModel(fsync=self.config.durability is Durability.FSYNC)
        self.rng = random.Random(0)
        self.epoch = 0
        self.counter = 0
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.ticket: FlushTicket | None = None
        self.ticket_ran = False
        self.cleaner: LogCleaner | None = None
        self.piece: Piece | None = None
        self.outcome: int | BaseException | None = None
        self.faulty = self.losing = self.lowered = False
        self.bench.disk.on_call = self.crash_here

    # --- crashing -------------------------------------------------------------------------------------------------

    def crash_here(self, operation: str) -> None:
        """Open the log as if the machine had stopped before this call, and check it."""
        if operation in HARMLESS:
            return
        type(self).points += 1
        twin = self.bench.disk.twin()
        killed = self.rng.random() < 0.25
        twin.kill() if killed else twin.crash(self.rng)
        if self.rng.random() < 0.1:
            killed = False
            self.crash_in_recovery(twin)
        _, log = open_log(twin, self.config)
        right = self.model.judge(log, whole=killed and not self.losing)
        if self.rng.random() < 0.1:
            self.crash_again(twin, log, right)

    def crash_in_recovery(self, twin: FakeDisk) -> None:
        twin.crash_at_call(self.rng.randrange(1, 40))
        with suppress(SimulatedCrash):
            open_log(twin, self.config)
        twin.crash(self.rng)

    def crash_again(self, twin: FakeDisk, log: Log, right: LogModel) -> None:
        """Everything that recovery reported as durable is durable, as is everything appended and flushed afterwards. A
        truncation that recovery completed need not be durable before anything else is."""
        before = replace(
            right,
            batches=left_behind(right, log),
            floor=None,
            new_start=log.log_start_offset,
            start=log.log_start_offset,
        )
        before.durable_offset = log.log_end_offset if before.fsync else log.recovery_point
        allowed = [before]
        if self.rng.random() < 0.6:
            model = replace(before, also=[])
            adopt(right, model, log)
            epoch = max(0, latest_epoch(log)) + self.rng.randrange(2)
            data, added = self.made([0], model.end, epoch)
            log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(epoch))
            model.batches.extend(added)
            model.end = added[-1].last + 1
            allowed.insert(0, model)
            if self.rng.random() < 0.5:
                log.flush()
                model.durable_offset = model.end
                allowed = [model]
        twin.crash(self.rng)
        _, log = open_log(twin, self.config)
        troubles = []
        for model in allowed:
            try:
                model.judge(log, whole=False)
                return
            except AssertionError as trouble:
                troubles.append(trouble)
        raise AssertionError(*troubles)

    @contextmanager
    def changing(self, **changes: object) -> Iterator[None]:
        """While a step is in progress, the model allows its result and the state before it."""
        for name, value in changes.items():
            setattr(self.model, name, value)
        yield
        self.model.also, self.model.floor, self.model.start = [], None, self.model.new_start
        if "new_start" in changes:
            self.model.refused_start = None

    def refused(self) -> None:
        """The disk was full: the log is unchanged and continues. Only its start may have moved. It may report less than
        before as durable until the next flush."""
        model, log = self.model, self.bench.log
        self.lowered |= log.durable_offset < model.durable_offset
        assert log.log_start_offset in (model.start, model.new_start)
        if log.log_start_offset != model.new_start:
            model.refused_start = model.new_start
        model.also, model.floor = [], None
        model.start = model.new_start = log.log_start_offset
        assert log.log_end_offset == model.end
        self.settle_model()

    # --- appending ------------------------------------------------------------------------------------------------

    def value(self, key: int) -> bytes | None:
        self.counter += 1
        if self.config.compact and (self.counter + key) % 5 == 0:
            return None
        return b"%06d" % self.counter + b"." * (self.counter * 37 % 100)

    def timestamp(self) -> Millis:
        return Millis(self.bench.clock.now + self.counter * 7 % 11)

    def made(
        self, keys: list[int], base: int, epoch: int, producer: int = -1, *, transactional: bool = False
    ) -> tuple[bytes, list[Stored]]:
        """Batches as a producer sends them, and as a leader stores them."""
        if self.config.magic < 2:
            return self.messages(keys, base, max(0, epoch))
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        builder = RecordBatchBuilder(
            codec=Codec.SNAPPY if self.counter % 4 == 0 else Codec.NONE,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        for key in keys:
            builder.append(key=b"k%d" % key, value=self.value(key), timestamp=self.timestamp())
        if producer >= 0:
            self.sequences[producer] = sequence + len(keys)
        sent = builder.build()
        return sent, [stamped(sent, base, max(0, epoch))]

    def messages(self, keys: list[int], base: int, epoch: int) -> tuple[bytes, list[Stored]]:
        """A message set: plain messages, or one wrapper around them."""
        codec = Codec.SNAPPY if self.counter % 3 == 0 else Codec.NONE
        builder = MessageSetBuilder(self.config.magic, codec)
        for key in keys:
            builder.append(key=b"k%d" % key, value=self.value(key), timestamp=self.timestamp())
        sent = builder.build()
        stored, data = [], bytearray(sent)
        for number, message in enumerate(iter_batches(sent)):
            at = message.header.position
            stamp_message(data, at, offset=base + (number if codec is Codec.NONE else len(keys) - 1))
            stored.append(Stored.of(bytes(data[at : at + message.size]), epoch))
        return sent, stored

    def append(self, sent: bytes, added: list[Stored], *, origin: Origin = Origin.CLIENT) -> None:
        with self.changing(also=added):
            info = self.bench.log.append(sent, assign_offsets=True, leader_epoch=LeaderEpoch(self.epoch), origin=origin)
        assert (info.first_offset, info.last_offset) == (added[0].base, added[-1].last)
        self.model.batches.extend(added)
        self.model.end = added[-1].last + 1

    @rule(keys=KEYS)
    @step
    def lead(self, keys: list[int]) -> None:
        self.append(*self.made(keys, self.model.end, self.epoch))

    @rule(when=lambda self: self.config.magic == 2, keys=KEYS, producer=integers(0, 2))
    @step
    def lead_idempotent(self, keys: list[int], producer: int) -> None:
        self.append(*self.made(keys, self.model.end, self.epoch, producer))

    @rule(when=lambda self: self.config.magic == 2, keys=KEYS, producer=integers(10, 12))
    @step
    def lead_in_transaction(self, keys: list[int], producer: int) -> None:
        made = self.made(keys, self.model.end, self.epoch, producer, transactional=True)
        self.open.add(producer)
        self.append(*made)

    @rule(when=lambda self: bool(self.open), committed=booleans(), which=integers(0, 2))
    @step
    def end_transaction(self, committed: bool, which: int) -> None:
        producer = sorted(self.open)[which % len(self.open)]
        marker = control_batch(
            EndTxnMarker(committed, 0), timestamp=self.timestamp(), producer_id=producer, producer_epoch=0
        )
        self.append(marker, [stamped(marker, self.model.end, self.epoch)], origin=Origin.COORDINATOR)
        self.open.discard(producer)

    @rule(holes=lists(integers(0, 3), 1, 3), epochs=integers(0, 1))
    @step
    def follow(self, holes: list[int], epochs: int) -> None:
        """A fetch response, which may reach into the next epoch."""
        base, parts, added = self.model.end, [], []
        starts = [EpochStart(LeaderEpoch(self.epoch), Offset(base))]
        for number, hole in enumerate(holes):
            base += hole
            if epochs and number == 1:
                self.epoch += 1
                starts.append(EpochStart(LeaderEpoch(self.epoch), Offset(base)))
            parts.append(self.fetched(base))
            added.append(Stored.of(parts[-1], self.epoch))
            base += 1
        with self.changing(also=added):
            self.bench.log.append(
                b"".join(parts), assign_offsets=False, leader_epoch=LeaderEpoch(self.epoch), epochs=starts
            )
        self.model.batches.extend(added)
        self.model.end = base

    def fetched(self, base: int) -> bytes:
        """One record as a follower receives it."""
        key, value, timestamp = b"k0", self.value(0), self.timestamp()
        if self.config.magic < 2:
            messages = MessageSetBuilder(self.config.magic, base_offset=base)
            messages.append(key=key, value=value, timestamp=timestamp)
            return messages.build()
        builder = RecordBatchBuilder(base_offset=Offset(base), leader_epoch=LeaderEpoch(self.epoch))
        builder.append(key=key, value=value, timestamp=timestamp)
        return builder.build()

    @rule(batches=lists(KEYS, 4, 8))
    @step
    def fill(self, batches: list[list[int]]) -> None:
        """Enough records for one or two segments."""
        for keys in batches:
            self.append(*self.made(keys, self.model.end, self.epoch))

    @rule()
    @step
    def begin_epoch(self) -> None:
        self.epoch += 1
        self.bench.log.begin_epoch(LeaderEpoch(self.epoch))

    @rule()
    @step
    def roll(self) -> None:
        log, now = self.bench.log, Millis(self.bench.clock.now)
        log.guard("rolling", lambda: log.roll(now))

    # --- becoming durable -----------------------------------------------------------------------------------------

    @rule(when=lambda self: self.ticket is None, everything=booleans())
    @step
    def begin_flush(self, everything: bool) -> None:
        self.ticket, self.ticket_ran = self.bench.log.begin_flush(everything=everything), False

    @rule(when=lambda self: self.ticket is not None and not self.ticket_ran)
    @step
    def run_flush(self) -> None:
        assert self.ticket is not None
        try:
            self.ticket.run()
        except OSError as error:
            self.bench.log.abandon_flush(self.ticket)
            raise self.bench.directory.fail("flushing", error) from error
        self.ticket_ran = True

    @rule(when=lambda self: self.ticket is not None and self.ticket_ran)
    @step
    def finish_flush(self) -> None:
        assert self.ticket is not None
        self.bench.log.finish_flush(self.ticket)
        self.ticket = None
        self.note_durable()

    def note_durable(self) -> None:
        log = self.bench.log
        self.model.durable_offset = max(
            self.model.durable_offset, log.durable_offset if self.model.fsync else log.recovery_point
        )
        self.model.ghost = None

    @rule(committed=booleans())
    @step
    def commit(self, committed: bool) -> None:
        if self.model.fsync:
            self.bench.commit()
        else:
            self.bench.log.flush()
        if self.bench.directory.offline is None:
            assert self.faulty or self.bench.log.durable_offset == self.bench.log.recovery_point == self.model.end
            self.note_durable()
            if committed and self.bench.log.durable_offset == self.model.end:
                self.bench.log.advance_high_watermark(Offset(self.model.end))

    @rule(when=lambda self: not self.model.fsync)
    @step
    def commit_ahead(self) -> None:
        """All replicas have the records in their page caches: the high watermark passes the durable offset."""
        self.bench.log.advance_high_watermark(Offset(self.model.end))

    @rule(when=lambda self: self.ticket is None and self.model.end > self.truncation_limit, where=SHARE, keys=KEYS)
    @step
    def truncate_under_a_flush(self, where: float, keys: list[int]) -> None:
        """A flush begins, the log is truncated and appended to, and the flush ends (scenarios 2 and 3)."""
        log = self.bench.log
        self.ticket = log.begin_flush(everything=True)
        self.truncate_at(where)
        if self.ticket is not None:
            try:
                self.ticket.run()
            except OSError as error:
                log.abandon_flush(self.ticket)
                raise self.bench.directory.fail("flushing", error) from error
            self.append(*self.made(keys, self.model.end, self.epoch))
            log.finish_flush(self.ticket)
            self.ticket = None
            self.note_durable()

    @rule(when=lambda self: not self.faulty, keys=KEYS, skip=integers(0, 2))
    def fsync_fails(self, keys: list[int], skip: int) -> None:
        """Scenario 14: the next process finds bytes in the page cache that the disk never received."""
        self.faulty = True
        self.bench.disk.fail("sync", "/data/orders-0", skip=skip)
        self.lead_and_flush(keys=keys)
        if self.faulty:
            self.restart()
            self.returned(whole=False)

    @step
    def lead_and_flush(self, keys: list[int]) -> None:
        self.append(*self.made(keys, self.model.end, self.epoch))
        self.bench.log.flush()
        self.note_durable()

    @rule()
    @step
    def checkpoint(self) -> None:
        self.bench.directory.write_checkpoints()
        self.bench.directory.remove_deleted_files()

    @rule(
        when=lambda self: not self.faulty,
        operation=one_of("sync", "sync", "sync", "write", "sync_directory", "rename", "remove", "open"),
        skip=integers(0, 12),
        error=one_of(errno.EIO, errno.ENOSPC),
    )
    def disk_will_fail(self, operation: str, skip: int, error: int) -> None:
        """Scenario 14: to the next process this failed call may look successful."""
        self.faulty = True
        self.bench.disk.fail(operation, "/data", skip=skip, error=error)

    # --- taking away ----------------------------------------------------------------------------------------------

    @property
    def truncation_limit(self) -> int:
        """Offsets below this are not truncated: they may be compacted, or contain the markers that compaction relied
        on, and are committed then."""
        return max(self.model.compacted_to, self.model.decided_to, self.model.start)

    @rule(when=lambda self: self.model.end > self.truncation_limit, where=SHARE)
    @step
    def truncate(self, where: float) -> None:
        self.truncate_at(where)

    def truncate_at(self, where: float) -> None:
        low = self.truncation_limit
        offset = low + int(where * (self.model.end - low))
        present = present_offsets(self.bench.log) if self.config.compact else None
        left = [
            stored
            for stored in self.model.batches
            if stored.last < offset and (present is None or stored.is_in(present))
        ]
        floor = max(left[-1].last + 1 if left else 0, self.model.start)
        with self.changing(floor=min(floor, self.model.end)):
            self.bench.log.truncate_to(Offset(offset))
        assert self.bench.log.log_end_offset in (floor, offset, self.model.end)
        self.took_back([stored for stored in self.model.batches if stored.last < offset])

    @rule(where=floats(-1, 1.2))
    @step
    def empty(self, where: float) -> None:
        """The leader's log starts elsewhere: empty this log and set its start."""
        offset = max(0, self.model.start + int(where * (self.model.end - self.model.start)))
        with self.changing(floor=0, new_start=offset):
            self.bench.log.truncate_fully_and_start_at(Offset(offset))
        assert (self.bench.log.log_start_offset, self.bench.log.log_end_offset) == (offset, offset)
        self.took_back([])

    def took_back(self, kept: list[Stored]) -> None:
        log, model = self.bench.log, self.model
        assert log.durable_offset <= log.log_end_offset
        if log.log_end_offset < model.end:
            model.refused_start = None
        model.batches, model.end = known_to(log, kept), log.log_end_offset
        model.durable_offset = min(model.durable_offset, model.end)
        model.start = model.new_start = log.log_start_offset
        model.ghost = None
        self.settle_model()
        epochs = read_epochs(self.bench.disk.twin(), f"{log.path}/{LEADER_EPOCH_CHECKPOINT}") or ()
        assert all(entry.start_offset <= log.log_end_offset for entry in (*epochs, *log.epochs.entries))

    def settle_model(self) -> None:
        """After a truncation or a restart, producers continue from what the log knows of them. A producer is unknown if
        compaction has removed all of its batches."""
        model, log = self.model, self.bench.log
        if model.compacted_to:
            present = present_offsets(log)
            model.batches = [
                stored for stored in model.batches if stored.is_in(present) or stored.base >= model.compacted_to
            ]
            model.compacted_to = min(model.compacted_to, model.end)
            model.decided_to = min(model.decided_to, model.end)
        known = {state.producer_id: state for state in log.producers.state.active_producers()}
        self.sequences = {id_: state.last_sequence + 1 for id_, state in known.items()}
        self.open = {id_ for id_, state in known.items() if state.transaction_start >= 0}

    @rule(where=SHARE)
    @step
    def delete_records(self, where: float) -> None:
        self.move_start(where)

    def move_start(self, where: float) -> None:
        log = self.bench.log
        offset = log.log_start_offset + int(where * (log.high_watermark - log.log_start_offset))
        with self.changing(new_start=offset):
            delete_records(log, Offset(offset))
        assert log.log_start_offset == offset

    @rule(
        when=lambda self: self.config.magic == 2,
        keys=KEYS,
        producer=integers(20, 60),
        where=SHARE,
        rolls=booleans(),
        retains=booleans(),
    )
    @step
    def lead_once_and_delete(self, keys: list[int], producer: int, where: float, rolls: bool, retains: bool) -> None:
        """A producer writes, and the log start moves past its batch: the log still knows the producer."""
        log, now = self.bench.log, Millis(self.bench.clock.now)
        self.append(*self.made(keys, self.model.end, self.epoch, producer))
        if rolls:
            log.guard("rolling", lambda: log.roll(now))
        self.commit_all()
        self.move_start(where)
        if retains:
            self.delete_old()

    @rule(milliseconds=integers(0, 3_000))
    def pass_time(self, milliseconds: int) -> None:
        self.bench.clock.now += milliseconds

    @rule()
    @step
    def retain(self) -> None:
        self.delete_old()

    def delete_old(self) -> None:
        """Delete old segments that are committed and durable."""
        log, now = self.bench.log, Millis(self.bench.clock.now)
        limit = min(log.high_watermark, log.recovery_point)
        count = 0
        if log.front.cleaning is None:
            count = count_deletable(
                log.segments,
                log.config,
                now=now,
                log_start=log.log_start_offset,
                log_end=log.log_end_offset,
                limit=limit,
            )
        first = log.log_end_offset if count == len(log.segments) else log.segments[count].base_offset
        start = max(log.log_start_offset, first) if count else log.log_start_offset
        assert start in (log.log_start_offset, first) and (not count or first <= limit)
        with self.changing(new_start=start):
            assert delete_old_segments(log, now) == count
        assert log.log_start_offset == start

    # --- compaction -----------------------------------------------------------------------------------------------

    @rule(when=lambda self: self.config.compact and self.piece is None)
    @step
    def begin_cleaning(self) -> None:
        self.cleaner, self.outcome = make_cleaner(), None
        self.may_compact()
        self.piece = self.cleaner.begin([self.bench.log], Millis(self.bench.clock.now))

    @rule(when=lambda self: self.piece is not None and self.outcome is None)
    @step
    def run_cleaning(self) -> None:
        self.run_piece()

    def run_piece(self) -> None:
        """Run one piece of the cleaner, as on another thread."""
        assert self.piece is not None
        try:
            self.outcome = self.piece.work()
        except Exception as error:  # noqa: BLE001 - whatever the work raises is its outcome
            self.outcome = error

    @rule(when=lambda self: self.outcome is not None)
    @step
    def settle_cleaning(self) -> None:
        self.settle_piece()

    def settle_piece(self) -> None:
        assert self.cleaner is not None and self.outcome is not None
        self.may_compact()
        outcome, self.outcome = self.outcome, None
        now = Millis(self.bench.clock.now)
        self.piece = self.cleaner.settle(outcome, now, started=Millis(0), ended=Millis(0))
        assert self.faulty or not self.cleaner.uncleanable, self.cleaner.uncleanable

    def may_compact(self) -> None:
        log, now = self.bench.log, Millis(self.bench.clock.now)
        cleanable = measure_log(log, now)
        if cleanable.dirty_bytes:
            assert cleanable.end <= min(log.last_stable_offset, log.recovery_point)
            self.model.compacted_to = max(self.model.compacted_to, cleanable.end)
            self.model.decided_to = max(self.model.decided_to, decisions_end(self.model.batches, cleanable.end))

    @rule(when=lambda self: self.config.compact)
    @step
    def clean(self) -> None:
        """Run a whole cleaning round, if none is in progress."""
        self.commit_all()
        if self.piece is None and self.bench.directory.offline is None:
            self.cleaner = make_cleaner()
            self.may_compact()
            self.piece = self.cleaner.begin([self.bench.log], Millis(self.bench.clock.now))
        while self.piece is not None and self.bench.directory.offline is None:
            if self.outcome is None:
                self.run_piece()
            self.settle_piece()

    def commit_all(self) -> None:
        self.bench.log.flush()
        self.note_durable()
        self.bench.log.advance_high_watermark(Offset(self.model.end))

    # --- restarting -----------------------------------------------------------------------------------------------

    @rule()
    @step
    def restart_clean(self) -> None:
        if self.ticket is not None:
            self.bench.log.abandon_flush(self.ticket)
            self.ticket = None
        self.drop_work()
        self.bench.restart_clean()
        self.returned(whole=True)
        self.model.ghost = None
        assert self.faulty or self.bench.directory.identity.was_clean
        # never synced; in progress when the process stopped
        harmless = ("is not a producer snapshot", "a cleaning was interrupted")
        reported = [note for note in self.bench.directory.notes if not any(word in note for word in harmless)]
        assert self.faulty or not reported, reported

    @rule()
    def kill(self) -> None:
        self.restart()
        self.returned(whole=True)

    @rule(fate=integers(0, 2**32 - 1))
    def power_failure(self, fate: int) -> None:
        self.drop_work()
        self.bench.disk.heal()
        self.faulty, self.losing = False, True
        self.bench.crash(fate)
        self.returned(whole=False)
        self.losing = False

    def restart(self) -> None:
        """The process dies; the disk works again."""
        self.drop_work()
        self.bench.disk.heal()
        self.faulty = False
        self.bench.kill()

    def drop_work(self) -> None:
        self.ticket = self.piece = self.outcome = self.cleaner = None

    def returned(self, *, whole: bool) -> None:
        log = self.bench.log
        ghost = None if self.model.floor is None else replace(self.model, ghost=None)
        right = self.model.judge(log, whole=whole)
        adopt(right, self.model, log)
        self.model.ghost = ghost or self.model.ghost
        self.epoch = max(self.epoch, latest_epoch(log))
        self.settle_model()

    def teardown(self) -> None:
        self.bench.disk.on_call = None
        self.bench.disk.heal()
        if self.bench.directory.offline is None and self.model.still():
            if self.lowered:
                self.bench.log.flush()
            self.model.judge_open(self.bench.log)


def stamped(sent: bytes, base: int, epoch: int) -> Stored:
    """A v2 batch as a leader stores it: the checksum does not cover offset and epoch."""
    data = bytearray(sent)
    data[0:8] = base.to_bytes(8)
    data[12:16] = epoch.to_bytes(4)
    return Stored.of(bytes(data), epoch)


def left_behind(model: LogModel, log: Log) -> list[Stored]:
    """The batches for the model to continue with. In a compacted log that was partly emptied, records that had been
    superseded by records that are gone now are gone as well."""
    if model.floor is None or not model.compacted_to:
        return model.batches
    found = read_all(log)
    present = found.offsets()
    return [
        stored
        if stored.last >= log.log_end_offset
        else replace(stored, records=tuple(record for record in stored.records if record.offset in found.records))
        for stored in model.batches
        if stored.last >= log.log_end_offset or stored.is_in(present)
    ]


def known_to(log: Log, batches: list[Stored]) -> list[Stored]:
    """The state without the producers that a newly created log does not know."""
    if not is_new(log):
        return batches
    known = {-1, *(state.producer_id for state in log.producers.state.active_producers())}
    return [stored for stored in batches if stored.producer[0] in known]


def adopt(before: LogModel, model: LogModel, log: Log) -> None:
    """Let the model continue with the contents of a restarted log, which `before` has checked."""
    end = log.log_end_offset
    model.batches = known_to(log, [stored for stored in [*left_behind(before, log), *before.also] if stored.last < end])
    model.end = end
    model.durable_offset = end if model.fsync else log.recovery_point
    model.start = model.new_start = log.log_start_offset
    model.also, model.floor, model.refused_start = [], None, None
