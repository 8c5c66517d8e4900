"""A segment file that another program truncated or removed while the log is open: every read of a lost offset raises,
every other offset can be read, and the scrub reports the loss."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storage.directory.scrub_segment import Finding, FindingKind
from storage.isolation import FetchIsolation
from storage.log.log import Log
from storage.log.log_read import LogRead
from storage.recovery.loaded import Damage
from storage.segment.batch_walk import BrokenChain
from tests.storage.scrub_world import World
from tests.storage.workbench import Bench, Deferred
from tidelog.errors import CorruptLog
from tidelog.records import iter_batches
from tidelog.types import Offset

LARGE = 1 << 20
TRIES_MAX = 8


def truncate(bench: Bench, path: str, size: int) -> None:
    """Truncate a file from outside."""
    file = bench.disk.open(path)
    file.truncate(size)
    file.close()


def read(log: Log, offset: int, max_bytes: int) -> LogRead:
    """Read as a node does: through tickets if the bytes are not in memory."""
    ticket = None
    for _ in range(TRIES_MAX):
        found = log.try_fetch(Offset(offset), max_bytes, FetchIsolation.LOG_END, ticket)
        if isinstance(found, LogRead):
            return found
        ticket = found
        try:
            ticket.run()
        except (OSError, BrokenChain):
            break
        finally:
            ticket.release()
    return log.fetch(Offset(offset), max_bytes, FetchIsolation.LOG_END)


def readable(log: Log, max_bytes: int) -> list[int]:
    """The offsets that a reader receives by reading each of them."""
    found = []
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            result = read(log, offset, max_bytes)
        except CorruptLog:
            continue
        batches = list(iter_batches(result.records))
        for batch in batches:
            batch.ensure_valid()
        assert sum(batch.header.size for batch in batches) == len(result.records), "whole batches"
        assert (batches[0].base_offset, batches[-1].next_offset) == (offset, result.next_offset)
        found.append(offset)
    return found


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("max_bytes", [1, LARGE])
@pytest.mark.parametrize("number", [1, -1])
@pytest.mark.parametrize("into", [0, 1, 12, 60, 61, 62, 100])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_lost_offsets_are_rejected_and_the_rest_can_be_read(
    number: int, which: int, into: int, max_bytes: int, *, cold: bool
) -> None:
    world = World()
    log, segment = world.log, world.log.segments[number]
    batch = list(segment.walk())[which]
    end = log.log_end_offset if number == -1 else world.log.segments[number + 1].base_offset
    if cold:
        world.disk.is_cold = lambda _: True
        if number != -1:
            segment.close()
    truncate(world.bench, segment.path, batch.position + into)
    left = [*range(batch.base_offset), *range(end, log.log_end_offset)]
    assert readable(log, max_bytes) == left
    assert log.damage is not None
    assert (log.damage.first_offset, log.damage.end_offset) == (batch.base_offset, end)
    assert log.damage.position == batch.position


@pytest.mark.parametrize("cold", [False, True])
def test_a_removed_file_is_damage_of_its_segment_alone(*, cold: bool) -> None:
    world = World()
    log, segment = world.log, world.log.segments[1]
    if cold:
        world.disk.is_cold = lambda _: True
    segment.close()
    world.disk.remove(segment.path)
    end = log.segments[2].base_offset
    assert readable(log, LARGE) == [*range(segment.base_offset), *range(end, log.log_end_offset)]
    assert log.damage is not None
    assert (log.damage.first_offset, log.damage.end_offset) == (segment.base_offset, end)
    assert world.bench.directory.offline is None


def found_by_scrub(world: World) -> tuple[FindingKind, int, int]:
    [finding] = world.one_round()
    assert isinstance(finding, Finding)
    return finding.kind, finding.first_offset, finding.end_offset


@pytest.mark.parametrize("into", [0, 1, 12, 61, 100])
@pytest.mark.parametrize("which", [0, 3, -1])
def test_the_scrub_reports_a_shorter_file(which: int, into: int) -> None:
    world = World()
    segment, end = world.log.segments[1], world.log.segments[2].base_offset
    batch = list(segment.walk())[which]
    truncate(world.bench, segment.path, batch.position + into)
    assert found_by_scrub(world) == (FindingKind.LOG, batch.base_offset, end)


@pytest.mark.parametrize("closed", [False, True])
def test_the_scrub_reports_a_removed_file(*, closed: bool) -> None:
    """Also a file that is still open here: the next start would not find it."""
    world = World()
    segment, end = world.log.segments[1], world.log.segments[2].base_offset
    if closed:
        segment.close()
    world.disk.remove(segment.path)
    assert found_by_scrub(world) == (FindingKind.LOG, segment.base_offset, end)
    assert world.bench.directory.offline is None


@pytest.mark.parametrize("compact", [False, True])
def test_offsets_missing_before_the_next_segment_are_damage_unless_compaction_removed_them(*, compact: bool) -> None:
    """The last batches were truncated while the node was stopped: closed segments are not read after a clean stop."""
    world = World()
    segment, end = world.log.segments[1], world.log.segments[2].base_offset
    batch = list(segment.walk())[-2]
    world.bench.directory.close_clean()
    truncate(world.bench, segment.path, batch.position)
    world.bench.config = replace(world.bench.config, compact=compact)
    world.bench.reopen()
    assert world.log.damage is None
    world.scrub = world.new_scrub(1 << 20)
    if compact:
        assert [finding.kind for finding in world.one_round() if finding.kind is FindingKind.LOG] == []
        return
    assert found_by_scrub(world) == (FindingKind.LOG, batch.base_offset, end)
    left = [*range(batch.base_offset), *range(end, world.log.log_end_offset)]
    assert readable(world.log, LARGE) == left


def test_a_file_that_is_removed_before_its_flush_is_a_disk_failure() -> None:
    """Its bytes were not durable: the log directory cannot be trusted."""
    world = World()
    world.bench.lead(b"not flushed", epoch=5)
    world.log.active.close()
    world.disk.remove(world.log.active.path)
    world.bench.commit()
    assert world.bench.directory.offline is not None
    assert not isinstance(world.log.damage, Damage)


@pytest.mark.parametrize("truncates", [False, True])
def test_a_file_that_is_removed_while_the_scrub_confirms_a_finding_is_damage(*, truncates: bool) -> None:
    executor = Deferred()
    world = World(executor=executor)
    world.rot(0, 100)
    world.tick()
    while not world.scrub.segments_read:
        path, segment = world.path(0), world.log.segments[0]
        if not world.findings and segment.size and world.disk.size(path):
            segment.close()
            if truncates:
                truncate(world.bench, path, 10)
            else:
                world.disk.remove(path)
        executor.run_one()
        world.tick()
    assert [finding.kind for finding in world.findings][:1] == [FindingKind.LOG]
