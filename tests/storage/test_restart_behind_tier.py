"""A log that is emptied and goes on behind records in the remote tier: with their epochs and producers, or not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from storage.log.truncation_ticket import RemotePart
from testbed.fake_disk import SimulatedCrash
from tests.storage.workbench import NOW, SMALL, Bench, contents, stamped
from tidelog.errors import OffsetMovedToTieredStorage, OffsetOutOfRange
from tidelog.records.producer_snapshot import ProducerSnapshot, encode_snapshot
from tidelog.types import EpochStart, LeaderEpoch, Offset, ProducerId

TIERED = replace(SMALL, segment_bytes=400, remote_storage=True)
START, LOCAL = Offset(40), Offset(100)
EPOCHS = (EpochStart(LeaderEpoch(2), START), EpochStart(LeaderEpoch(5), Offset(70)))
OPEN = ProducerSnapshot(ProducerId(7), 3, 11, Offset(90), 1, NOW, 0, Offset(89))
"""A producer with a transaction that began at offset 89."""
IDLE = ProducerSnapshot(ProducerId(8), 0, 4, Offset(60), 0, NOW, -1, Offset(-1))
REMOTE = RemotePart(START, EPOCHS, encode_snapshot([OPEN, IDLE]))


def emptied(bench: Bench) -> None:
    ticket = bench.log.begin_truncation(LOCAL, remote=REMOTE)
    assert ticket is not None
    ended = False
    while not ended:
        ticket.run()
        ended = bench.log.truncation_ran(ticket, None)


def old_log() -> Bench:
    """A replica that was away for so long that all of its records are in the remote tier only."""
    bench = Bench(TIERED)
    for number in range(12):
        bench.follow(stamped(number, b"%02d" % number + b"." * 60, epoch=1))
    bench.commit()
    bench.log.advance_high_watermark(Offset(12))
    return bench


def is_restarted(bench: Bench) -> bool:
    log = bench.log
    assert log.damage is None, log.damage
    if log.log_end_offset < LOCAL:
        return False
    assert (log.log_start_offset, log.local_log_start_offset, log.high_watermark) == (START, LOCAL, LOCAL)
    assert log.epochs.entries == EPOCHS
    assert log.last_epoch == 5
    producers = {each.producer_id: each.to_snapshot() for each in log.producers.state.active_producers()}
    assert producers == {7: OPEN, 8: IDLE}
    assert log.last_stable_offset == 89, "a transaction that began in the remote tier is open"
    return True


def test_a_log_goes_on_behind_what_the_remote_tier_has() -> None:
    bench = old_log()
    emptied(bench)
    assert is_restarted(bench)
    with pytest.raises(OffsetMovedToTieredStorage):
        bench.log.read(START, 100, up_to=LOCAL)
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(Offset(START - 1), 100, up_to=LOCAL)
    for again in (bench.kill, bench.restart_clean, bench.crash):
        again()
        assert is_restarted(bench)
    bench.follow(stamped(100, b"new", epoch=5))
    bench.commit()
    for again in (bench.kill, bench.restart_clean, bench.crash):
        log = again()
        assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (START, LOCAL, 101)
        assert log.epochs.entries == EPOCHS


def test_a_new_log_begins_so_too() -> None:
    bench = Bench(TIERED)
    emptied(bench)
    assert is_restarted(bench)
    emptied(bench)
    assert is_restarted(bench), "a snapshot at the same offset is replaced"


def crashes() -> Iterator[Bench]:
    """A log after a power loss at each call of the disk during the restart."""
    for call in range(1, 200):
        bench = old_log()
        bench.disk.crash_at_call(bench.disk.calls + call)
        try:
            emptied(bench)
        except SimulatedCrash:
            bench.disk.crash(random.Random(call))
            bench.reopen()
            yield bench
        else:
            return
    raise AssertionError("it never ended")


def test_a_power_loss_at_any_call_of_the_disk_leaves_all_of_it_or_an_earlier_log() -> None:
    """An earlier log ends below the local start and does not know of the remote part: the follower asks again."""
    before = after = 0
    for bench in crashes():
        if is_restarted(bench):
            after += 1
        else:
            before += 1
            log = bench.log
            assert log.log_end_offset <= START
            assert log.local_log_start_offset == log.log_start_offset <= log.log_end_offset
            for number, found in enumerate(contents(log)):
                assert b"%02d." % number in found
            assert not log.producers.state.active_producers()
            emptied(bench)
            assert is_restarted(bench)
    assert before > 10
    assert after > 0
