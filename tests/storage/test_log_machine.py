"""A log on the worst allowed disk, driven at random against a list: append, flush, roll, truncate, crash, reopen.

After every crash: everything reported as durable exists, nothing exists that was never appended, truncated records stay
truncated, offsets and epochs agree with the batches, and every offset can be looked up. Covers scenarios 1 and 3 as far
as one log shows them, and log-append-roll-flush.txt (append, maybeRoll, flush)."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from storage.log.flush import FlushTicket
from testbed.fake_disk import SimulatedCrash
from tests.fakes.log_start import latest_epoch
from tests.storage.workbench import SMALL, Bench, batch, contents, stamped
from tidelog.errors import CorruptLog
from tidelog.records.v2.batch import RecordBatch
from tidelog.types import LeaderEpoch, Offset

SEEDS = st.integers(0, 2**32 - 1)
CRASH_IN = st.one_of(st.none(), st.none(), st.integers(1, 40))
"""The number of the disk call at which the machine stops; usually none."""


@dataclass(frozen=True)
class Stored:
    base: int
    last: int
    data: bytes


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(SMALL)
        self.model: list[Stored] = []
        self.end = 0
        self.durable_offset = 0
        self.epoch = 0
        self.counter = 0
        self.ticket: FlushTicket | None = None
        self.ticket_ran = False

    # --- steps ----------------------------------------------------------------------------------------------------

    def attempt(
        self, work: Callable[[], None], crash_in: int | None, seed: int, also: list[Stored], floor: int
    ) -> bool:
        """Run one step, possibly with a crash in it. also: batches that may exist after a crash. floor: offsets below
        it that were durable must exist. Returns True if the step ended."""
        disk = self.bench.disk
        if crash_in is not None:
            disk.crash_at_call(disk.calls + crash_in)
        try:
            work()
        except SimulatedCrash:
            self.durable_offset = min(self.durable_offset, floor)
            self.recover(random.Random(seed), also)
            return False
        disk.heal()
        return True

    def value(self) -> bytes:
        self.counter += 1
        return b"%06d" % self.counter + b"." * (self.counter * 37 % 150)

    @rule(records=st.integers(1, 4), crash_in=CRASH_IN, seed=SEEDS)
    def lead(self, records: int, crash_in: int | None, seed: int) -> None:
        sent = batch(*(self.value() for _ in range(records)))
        data = bytearray(sent)
        data[0:8] = self.end.to_bytes(8)
        data[12:16] = self.epoch.to_bytes(4)
        stored = Stored(self.end, self.end + records - 1, bytes(data))

        def work() -> None:
            info = self.bench.log.append(sent, assign_offsets=True, leader_epoch=LeaderEpoch(self.epoch))
            assert (info.first_offset, info.last_offset) == (stored.base, stored.last)

        if self.attempt(work, crash_in, seed, [stored], self.durable_offset):
            self.model.append(stored)
            self.end = stored.last + 1

    @rule(holes=st.lists(st.integers(0, 3), min_size=1, max_size=4), crash_in=CRASH_IN, seed=SEEDS)
    def follow(self, holes: list[int], crash_in: int | None, seed: int) -> None:
        base, added = self.end, []
        for hole in holes:
            base += hole
            added.append(Stored(base, base, stamped(base, self.value(), epoch=self.epoch)))
            base += 1

        def work() -> None:
            data = b"".join(stored.data for stored in added)
            self.bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(self.epoch))

        if self.attempt(work, crash_in, seed, added, self.durable_offset):
            self.model.extend(added)
            self.end = base

    @rule()
    def begin_epoch(self) -> None:
        self.epoch += 1
        self.bench.log.begin_epoch(LeaderEpoch(self.epoch))

    @precondition(lambda self: self.ticket is None)
    @rule(crash_in=CRASH_IN, seed=SEEDS)
    def begin_flush(self, crash_in: int | None, seed: int) -> None:
        def work() -> None:
            self.ticket, self.ticket_ran = self.bench.log.begin_flush(), False

        self.attempt(work, crash_in, seed, [], self.durable_offset)

    @precondition(lambda self: self.ticket is not None and not self.ticket_ran)
    @rule(crash_in=CRASH_IN, seed=SEEDS)
    def run_flush(self, crash_in: int | None, seed: int) -> None:
        def work() -> None:
            assert self.ticket is not None
            self.ticket.run()
            self.ticket_ran = True

        self.attempt(work, crash_in, seed, [], self.durable_offset)

    @precondition(lambda self: self.ticket is not None and self.ticket_ran)
    @rule()
    def finish_flush(self) -> None:
        assert self.ticket is not None
        self.bench.log.finish_flush(self.ticket)
        self.ticket = None
        assert self.bench.log.durable_offset >= self.durable_offset
        self.durable_offset = self.bench.log.durable_offset

    @rule(crash_in=CRASH_IN, seed=SEEDS)
    def commit(self, crash_in: int | None, seed: int) -> None:
        if self.attempt(self.bench.commit, crash_in, seed, [], self.durable_offset):
            assert self.bench.log.durable_offset == self.end
            self.durable_offset = self.end

    @rule(crash_in=CRASH_IN, seed=SEEDS)
    def checkpoint(self, crash_in: int | None, seed: int) -> None:
        self.attempt(self.bench.directory.write_checkpoints, crash_in, seed, [], self.durable_offset)

    @precondition(lambda self: self.end > 0)
    @rule(where=st.floats(0, 1), crash_in=CRASH_IN, seed=SEEDS)
    def truncate(self, where: float, crash_in: int | None, seed: int) -> None:
        offset = int(where * self.end)
        kept = [stored for stored in self.model if stored.last < offset]
        end = kept[-1].last + 1 if kept else 0

        if self.attempt(lambda: self.bench.log.truncate_to(Offset(offset)), crash_in, seed, [], end):
            assert end <= self.bench.log.log_end_offset <= offset, "at the end of a batch, or the start of a segment"
            self.model, self.end = kept, self.bench.log.log_end_offset
            self.durable_offset = min(self.durable_offset, self.end)

    @rule(crash_in=CRASH_IN, seed=SEEDS)
    def restart_clean(self, crash_in: int | None, seed: int) -> None:
        if self.ticket is not None:
            self.bench.log.abandon_flush(self.ticket)
            self.ticket = None

        def work() -> None:
            self.bench.restart_clean()

        if self.attempt(work, crash_in, seed, [], self.durable_offset):
            assert self.bench.directory.identity.was_clean
            assert self.bench.directory.notes == []
            self.agree_after_restart([], whole=True)

    @rule()
    def kill(self) -> None:
        self.ticket = None
        self.bench.kill()
        self.agree_after_restart([], whole=True)

    @rule(seed=SEEDS)
    def power_failure(self, seed: int) -> None:
        self.recover(random.Random(seed), [])

    # --- checks ---------------------------------------------------------------------------------------------------

    def recover(self, rng: random.Random, also: list[Stored]) -> None:
        self.ticket = None
        self.bench.disk.crash(rng)
        for crash_in in (rng.randrange(1, 60), None):  # the first recovery may be interrupted as well
            if crash_in is not None and rng.random() < 0.5:
                self.bench.disk.crash_at_call(self.bench.disk.calls + crash_in)
            try:
                self.bench.reopen()
                self.bench.disk.heal()
                break
            except SimulatedCrash:
                self.bench.disk.crash(rng)
        self.agree_after_restart(also, whole=False)

    def agree_after_restart(self, also: list[Stored], *, whole: bool) -> None:
        """The remaining log is a prefix of the previous one, and reaches at least up to the durable offset."""
        log = self.bench.log
        assert log.damage is None, log.damage
        expected = [*self.model, *also]
        found = contents(log)
        assert found == [stored.data for stored in expected[: len(found)]]
        if whole:
            assert len(found) == len(self.model)
        assert all(stored.last < log.log_end_offset for stored in self.model if stored.last < self.durable_offset)
        self.model = expected[: len(found)]
        reached = self.model[-1].last + 1 if self.model else 0
        starts = [stored.base for stored in also]  # of a segment that was to contain them: the log may end there
        assert reached <= log.log_end_offset <= max([self.end, reached, *starts])
        self.end = log.log_end_offset
        assert log.durable_offset == self.end, "recovery makes everything that it keeps durable"
        self.durable_offset = self.end
        self.epoch = max(self.epoch, latest_epoch(log))

    @invariant()
    def the_log_is_the_model(self) -> None:
        log = self.bench.log
        assert log.log_end_offset == self.end
        assert log.durable_offset <= self.end
        assert log.durable_offset >= self.durable_offset
        assert contents(log) == [stored.data for stored in self.model]

    @invariant()
    def epochs_agree_with_the_batches(self) -> None:
        log = self.bench.log
        entries = log.epochs.entries
        for stored in self.model:
            epoch = max((entry.epoch for entry in entries if entry.start_offset <= stored.base), default=-1)
            assert epoch == RecordBatch(stored.data).partition_leader_epoch
        assert log.last_epoch == (RecordBatch(self.model[-1].data).partition_leader_epoch if self.model else -1)

    @invariant()
    def every_offset_is_found(self) -> None:
        log = self.bench.log
        for segment in log.segments[:-1]:
            segment.close()  # closed segments read their indexes from the files, as after a restart
        for stored in self.model[:: max(1, len(self.model) // 8)]:
            for offset in (stored.base, stored.last):
                read = log.read(Offset(offset), 1, up_to=log.log_end_offset)
                assert bytes(read.records) == stored.data


LogMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_log_machine = LogMachine.TestCase


def test_the_machine_notices_a_lost_record() -> None:
    """A check of the checks: the model rejects a log that lost durable records."""
    machine = LogMachine()
    machine.lead(1, None, 0)
    machine.commit(None, 0)
    path = machine.bench.segment_path
    machine.bench.disk.kill()
    file = machine.bench.disk.open(path)
    file.truncate(0)
    file.sync()
    machine.bench.reopen()
    try:
        machine.agree_after_restart([], whole=False)
    except (AssertionError, CorruptLog):
        return
    raise AssertionError("the loss went unnoticed")
