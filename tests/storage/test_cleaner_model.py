"""A compacted log driven at random against dictionaries: appends, transactions, cleanings, restarts, crashes.

After any steps, a read_committed reader that keeps the last value of each key has the state of the model. Before a
tombstone's horizon it also sees the deletion. Producers continue with their sequences."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from testbed.fake_disk import SimulatedCrash
from tests.fakes.log_start import delete_old_segments
from tests.storage.cleaning_bench import (
    COMPACTED,
    DAY,
    CleaningBench,
    batches_of,
    clean,
    last_offsets,
    make_cleaner,
    table,
    visible,
)
from tidelog.types import Millis, Offset, ProducerId

KEYS = st.integers(0, 6).map(lambda number: b"k%d" % number)
PRODUCERS = st.integers(1, 3)
SEEDS = st.integers(0, 2**32 - 1)
CONFIG = replace(
    COMPACTED, segment_bytes=500, delete_retention_ms=DAY, file_delete_delay_ms=0, producer_id_expiration_ms=10**12
)


@dataclass
class Model:
    """The state that a reader should have. offsets: of the last committed record of each key."""

    values: dict[bytes | None, bytes | None] = field(default_factory=dict)
    offsets: dict[bytes | None, int] = field(default_factory=dict)
    pending: dict[int, list[tuple[bytes, bytes | None, int]]] = field(default_factory=dict)

    def put(self, key: bytes, value: bytes | None, offset: int) -> None:
        if offset > self.offsets.get(key, -1):
            self.values[key], self.offsets[key] = value, offset


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = CleaningBench(CONFIG)
        self.model = Model()
        self.counter = 0

    def value(self) -> bytes:
        self.counter += 1
        return b"%05d" % self.counter + b"." * (self.counter * 31 % 90)

    # --- producers ------------------------------------------------------------------------------------------------

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4), deletes=st.sets(st.integers(0, 3)))
    def put(self, keys: list[bytes], deletes: set[int]) -> None:
        records = [(key, None if n in deletes else self.value()) for n, key in enumerate(keys)]
        last = self.bench.put(*records)
        for n, (key, value) in enumerate(records):
            self.model.put(key, value, last - len(records) + 1 + n)

    @rule(keys=st.lists(KEYS, min_size=4, max_size=12))
    def put_one_by_one(self, keys: list[bytes]) -> None:
        for n, key in enumerate(keys):
            self.put([key], {0} if n % 3 == 2 else set())

    @rule(producer=PRODUCERS, keys=st.lists(KEYS, min_size=1, max_size=3), commit=st.booleans())
    def transact_whole(self, producer: int, keys: list[bytes], commit: bool) -> None:
        self.transact(producer, keys)
        self.transact(producer, keys[:1])
        self.end_one(producer, commit)

    @rule(producer=PRODUCERS, keys=st.lists(KEYS, min_size=1, max_size=3))
    def transact(self, producer: int, keys: list[bytes]) -> None:
        records = [(key, self.value()) for key in keys]
        last = self.bench.produce(producer, *records, transactional=True)
        pending = self.model.pending.setdefault(producer, [])
        pending += [(key, value, last - len(records) + 1 + n) for n, (key, value) in enumerate(records)]

    @precondition(lambda self: self.model.pending)
    @rule(choice=st.integers(0, 2), commit=st.booleans())
    def end_transaction(self, choice: int, commit: bool) -> None:
        self.end_one(sorted(self.model.pending)[choice % len(self.model.pending)], commit)

    def end_one(self, producer: int, commit: bool) -> None:
        self.bench.end(producer, commit=commit, timestamp=self.bench.clock.now)
        for key, value, offset in self.model.pending.pop(producer):
            if commit:
                self.model.put(key, value, offset)

    # --- the node -------------------------------------------------------------------------------------------------

    @rule(roll=st.booleans())
    def settle(self, roll: bool) -> None:
        self.bench.settle(roll=roll)

    @rule(days=st.integers(0, 2), map_bytes=st.sampled_from([769, 1 << 16]), ends=st.booleans())
    def clean(self, days: int, map_bytes: int, ends: bool) -> None:
        while ends and self.model.pending:
            self.end_transaction(days, ends)
        self.bench.settle()
        self.bench.clock.now += days * DAY
        clean(self.bench.log, self.bench.clock.now, make_cleaner(map_bytes=map_bytes))

    @rule(call=st.integers(1, 120), seed=SEEDS)
    def crash_in_a_cleaning(self, call: int, seed: int) -> None:
        self.bench.settle()
        self.bench.disk.crash_at_call(self.bench.disk.calls + call)
        try:
            clean(self.bench.log, self.bench.clock.now)
            self.bench.disk.heal()
        except SimulatedCrash:
            self.bench.disk.crash(random.Random(seed))
            self.bench.reopen()
            assert self.bench.log.damage is None, self.bench.log.damage
            self.bench.settle(roll=False)

    @rule()
    def restart(self) -> None:
        self.bench.settle(roll=False)
        self.bench.restart_clean()
        assert self.bench.directory.identity.was_clean
        self.bench.settle(roll=False)

    @rule()
    def kill(self) -> None:
        self.bench.kill()
        assert self.bench.log.damage is None, self.bench.log.damage
        self.bench.settle(roll=False)

    @rule()
    def remove_old_files(self) -> None:
        delete_old_segments(self.bench.log, Millis(self.bench.clock.now))
        self.bench.directory.remove_deleted_files()

    # --- checks ---------------------------------------------------------------------------------------------------

    @invariant()
    def a_reader_has_what_the_model_has(self) -> None:
        log = self.bench.log
        if log.last_stable_offset < log.log_end_offset:
            return
        found = visible(log)
        assert table(found) == {key: value for key, value in self.model.values.items() if value is not None}
        reported = last_offsets(found)
        for key, offset in self.model.offsets.items():
            if self.model.values[key] is not None:
                assert reported[key] == offset

    @invariant()
    def offsets_grow_and_segments_do_not_overlap(self) -> None:
        end = -1
        for segment in self.bench.log.segments:
            assert segment.base_offset > end or end == -1
            end = max(end, segment.base_offset - 1)
        end = -1
        for batch in batches_of(self.bench.log):
            assert batch.base_offset > end
            end = batch.last_offset
        assert end < self.bench.log.log_end_offset

    @invariant()
    def every_offset_is_found(self) -> None:
        log = self.bench.log
        for batch in batches_of(log)[::3]:
            read = log.read(Offset(batch.last_offset), 1, up_to=log.log_end_offset)
            assert bytes(read.records) == bytes(batch.buffer)

    @invariant()
    def sequences_go_on(self) -> None:
        states = {state.producer_id: state for state in self.bench.log.producers.state.active_producers()}
        for producer, sequence in self.bench.sequences.items():
            assert states[ProducerId(producer)].last_sequence in (sequence - 1, -1), "-1: only a marker of it is left"


CompactedLog.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
test_compacted_log = CompactedLog.TestCase
