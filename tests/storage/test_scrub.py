"""The scrub reads closed segments again, finds each kind of corruption, and repairs indexes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.directory.log_directory import LogDirectory
from storage.directory.scrub import Scrub
from storage.directory.scrub_segment import Finding, FindingKind
from storage.recovery.loaded import Damage
from storage.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from tests.storage.kafka_vectors import open_directory, unpack
from tests.storage.scrub_world import SEGMENTS, WEEK, World
from tests.storage.workbench import NOW, TP, Deferred
from tidelog.records.v2.header import HEADER_BYTES, LEADER_EPOCH_AT, MAGIC_AT
from tidelog.types import Millis, Offset


def test_a_sound_log_is_read_once_and_nothing_is_found() -> None:
    world = World()
    assert world.one_round() == []
    closed = world.log.segments[:-1]
    assert world.scrub.segments_read == len(closed)
    assert world.scrub.bytes_read == sum(segment.size for segment in closed)
    for _ in range(100):
        world.tick()
    assert world.scrub.segments_read == len(closed), "not again before its interval"
    world.tick(WEEK)
    world.tick()
    assert world.one_round() == []
    assert world.scrub.segments_read == 2 * len(closed)


def test_a_flipped_payload_bit_is_damage_of_its_batch() -> None:
    world = World()
    world.rot(1, HEADER_BYTES + 10)
    [finding] = world.one_round()
    base = world.log.segments[1].base_offset
    assert finding.kind is FindingKind.LOG
    assert not finding.repaired
    assert (finding.path, finding.position) == (world.path(1), 0)
    assert (finding.first_offset, finding.end_offset) == (base, base + 1)
    assert "CRC" in finding.reason or "checksum" in finding.reason
    assert "not repaired" in str(finding)


def test_batches_after_damage_are_checked_as_well() -> None:
    world = World()
    size = world.log.segments[1].size
    world.rot(1, HEADER_BYTES + 10)
    world.rot(1, size - 1)
    assert [finding.kind for finding in world.one_round()] == [FindingKind.LOG] * 2


def test_a_broken_length_is_damage_up_to_the_end_of_the_segment() -> None:
    world = World()
    world.rot(2, 8)  # the batch claims 16 MiB
    [finding] = world.one_round()
    assert finding.kind is FindingKind.LOG
    assert finding.end_offset == world.log.segments[3].base_offset


@pytest.mark.parametrize("which", [0, 3, -1])
@pytest.mark.parametrize(("byte", "bit"), [(0, 0), (5, 3), (7, 4), (7, 7)])
def test_a_batch_that_reaches_into_the_next_segment_is_damage_at_its_position(which: int, byte: int, bit: int) -> None:
    """No checksum covers its base offset, so the claimed offset is not used: its epoch is not compared with that of
    another offset, and the next start does not look for the damage there."""
    world = World()
    world.bench.directory.write_checkpoints()
    batch = list(world.log.segments[1].walk())[which]
    world.rot(1, batch.position + byte, bit=bit)
    rotten = world.data(1)
    [finding] = world.one_round()
    assert (finding.kind, finding.position, finding.repaired) == (FindingKind.LOG, batch.position, False)
    assert (finding.first_offset, finding.end_offset) == (batch.base_offset, batch.last_offset + 1)
    assert world.data(1) == rotten
    damage = Damage(finding.path, finding.position, finding.first_offset, finding.end_offset, finding.reason)
    world.log.lost.note(damage)
    world.bench.directory.keep_damage(world.log, accepted=False)
    world.bench.kill()
    assert world.bench.log.damage is not None, "the next start finds it too"
    assert world.bench.log.damage.first_offset == batch.base_offset


@pytest.mark.parametrize("bit", [0, 1])
def test_a_flipped_magic_is_damage(bit: int) -> None:
    world = World()
    world.rot(1, MAGIC_AT, bit=bit)
    rotten = world.data(1)
    [finding] = world.one_round()
    assert (finding.kind, finding.repaired) == (FindingKind.LOG, False)
    assert finding.first_offset == world.log.segments[1].base_offset
    assert world.data(1) == rotten, "the log's bytes are unchanged"


@pytest.mark.parametrize(("number", "bit"), [(0, 0), (3, 2), (3, 6)])
def test_a_wrong_epoch_is_damage_of_its_batch(number: int, bit: int) -> None:
    world = World()
    world.rot(number, LEADER_EPOCH_AT + 3, bit=bit)
    rotten, batch = world.data(number), next(iter(world.log.segments[number].walk()))
    [finding] = world.one_round()
    assert (finding.kind, finding.repaired) == (FindingKind.HEADER, False)
    assert (finding.first_offset, finding.end_offset) == (batch.base_offset, batch.last_offset + 1)
    assert world.data(number) == rotten


def test_of_many_batches_that_contradict_the_epoch_cache_the_first_is_reported() -> None:
    """The cache may be wrong, for the whole segment."""
    world = World()
    second = world.log.read(Offset(1), 1, up_to=Offset(2))
    for position in (0, len(second.records)):
        world.rot(0, position + LEADER_EPOCH_AT + 3, bit=0)
    before = world.data(0)
    assert [(finding.kind, finding.first_offset) for finding in world.one_round()] == [(FindingKind.HEADER, 0)]
    assert world.data(0) == before


def spoil(world: World, kind: str, change: Callable[[bytearray], None]) -> None:
    """Change an index file of the second segment."""
    world.log.segments[1].close()
    data = bytearray(world.data(1, kind))
    assert len(data) > 12
    change(data)
    file = world.disk.open(world.path(1, kind))
    file.truncate(0)
    file.pwritev([bytes(data)], 0)
    file.close()


def flip(position: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        data[position] ^= 1

    return change


def shorten(size: int) -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        del data[len(data) - size :]

    return change


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (INDEX_SUFFIX, flip(7)),
        (INDEX_SUFFIX, flip(1)),
        (INDEX_SUFFIX, flip(4)),
        (INDEX_SUFFIX, lambda data: data.__setitem__(slice(8, 12), data[0:4])),
        (INDEX_SUFFIX, shorten(3)),
        (INDEX_SUFFIX, lambda data: data.extend(b"\0\0\0\7\0\1\0\0")),
        (INDEX_SUFFIX, lambda data: data.extend(bytes(8))),
        (TIME_INDEX_SUFFIX, flip(7)),
        (TIME_INDEX_SUFFIX, flip(11)),
        (TIME_INDEX_SUFFIX, shorten(5)),
        (TIME_INDEX_SUFFIX, shorten(12)),
        (TIME_INDEX_SUFFIX, lambda data: data.extend(data[-12:])),
        (TIME_INDEX_SUFFIX, lambda data: data.clear()),
    ],
)
def test_a_wrong_index_is_rebuilt(kind: str, change: Callable[[bytearray], None]) -> None:
    world = World()
    before = {suffix: world.data(1, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
    spoil(world, kind, change)
    [finding] = world.one_round()
    assert finding.kind is (FindingKind.OFFSET_INDEX if kind == INDEX_SUFFIX else FindingKind.TIME_INDEX)
    assert finding.repaired
    assert finding.path == world.path(1, kind)
    for suffix, data in before.items():
        assert world.data(1, suffix) == data
    assert not any("rebuilt" in name for name in world.disk.list(world.log.path))
    assert world.one_round() == []


def scrub_once(directory: LogDirectory) -> tuple[int, list[Finding]]:
    """Run one round over all logs of a directory. Returns the number of segments read, and the findings."""
    found: list[Finding] = []
    now = 0
    scrub = Scrub(
        directory,
        directory.executor,
        rate_max=1 << 30,
        interval_ms=WEEK,
        monotonic_ms=lambda: Millis(now),
        on_finding=lambda _directory, _log, finding: found.append(finding),
        on_failure=lambda error: pytest.fail(error.message),
    )
    while now < 5_000 or scrub.waiting:
        now += 1_000
        scrub.tick(Millis(now))
    return scrub.segments_read, found


@pytest.mark.parametrize("archive", ["cluster", "unclean", "old"])
def test_logs_written_by_kafka_are_sound(archive: str, tmp_path: Path) -> None:
    """All segments of three brokers: every format, cleaned ones, transactions, and indexes by an older rule."""
    directory = open_directory(unpack(archive, tmp_path), archive, NOW)
    read, found = scrub_once(directory)
    assert read == sum(len(log.segments) - 1 for log in directory.logs.values()) > 50
    assert found == []
    directory.close()


def test_every_byte_of_a_closed_segment_is_checked() -> None:
    """The scrub finds any single flipped bit of a .log, or repairs its effect: none passes as sound."""
    world = World()
    chance = random.Random(3)
    whole = world.data(1)
    for position in sorted({chance.randrange(len(whole)) for _ in range(150)} | set(range(61))):
        world.rot(1, position, bit=chance.randrange(8))
        scrub = world.scrub = world.new_scrub(1 << 20)
        findings = world.one_round()
        assert scrub.segments_read == SEGMENTS - 1
        assert findings, f"the change of byte {position} was not noticed"
        if all(finding.repaired for finding in findings):
            assert world.data(1) == whole
        file = world.disk.open(world.path(1))
        file.pwritev([whole], 0)
        file.close()


def test_the_rate_is_limited() -> None:
    world = World(rate=400)
    total = sum(segment.size for segment in world.log.segments[:-1])
    ticks = 0
    while world.scrub.segments_read < SEGMENTS - 1:
        world.tick(500)
        ticks += 1
        assert world.scrub.bytes_read <= 200 * ticks + 2 * 130, "half a second's worth, and the batch in which it ends"
    assert ticks >= total // 400


def test_a_rate_of_0_reads_nothing() -> None:
    world = World(rate=0)
    for _ in range(100):
        world.tick()
    assert world.scrub.bytes_read == 0


def test_the_longest_unread_segment_is_read_first() -> None:
    world = World(rate=1_000)
    world.tick()
    assert world.scrub.segments_read <= 1
    first_round = world.scrub.segments_read
    world.one_round()
    assert world.scrub.segments_read > first_round
    while len(world.log.segments) < SEGMENTS + 2:
        world.bench.lead(b"y" * 50, epoch=5, timestamp=NOW + 1_000)
    world.bench.commit()
    read_before = world.scrub.segments_read
    world.tick(60_000)
    world.one_round()
    assert world.scrub.segments_read == read_before + 2, "only those that were never read"


def test_a_short_interval_is_observed() -> None:
    """A search without closed segments delays the next one by the interval, not by a minute."""
    world = World(interval_ms=0)
    for _ in range(10):
        world.tick()
    while len(world.log.segments) < SEGMENTS + 1:
        world.bench.lead(b"y" * 50, epoch=5, timestamp=NOW + 1_000)
    world.bench.commit()
    read_before = world.scrub.segments_read
    for _ in range(3):
        world.tick()
    assert world.scrub.segments_read > read_before


@pytest.mark.parametrize("what", ["truncated", "deleted", "emptied"])
def test_a_segment_that_changes_while_it_is_read_is_no_finding(what: str) -> None:
    executor = Deferred()
    world = World(executor=executor)
    world.rot(1, HEADER_BYTES + 10)
    world.rot(3, 5, kind=INDEX_SUFFIX)
    world.tick()
    for _ in range(2):
        executor.run_one()
    if what == "truncated":
        world.log.truncate_to(Offset(world.log.segments[1].base_offset + 3))
    elif what == "deleted":
        world.bench.directory.delete_log(TP)
    else:
        world.log.truncate_fully_and_start_at(Offset(100))
    for _ in range(20):
        executor.run_all()
        world.tick()
    assert world.findings == []
    assert world.bench.directory.offline is None


def test_a_read_error_seen_only_once_is_no_finding() -> None:
    """The bytes in the segment are right when the owner checks them: the read had failed."""
    world = World(rate=200)
    world.rot(0, HEADER_BYTES + 10)
    while world.scrub.bytes_read == 0:
        world.tick()
    assert world.scrub.segments_read == 0, "it is in the middle of the segment, after the bad batch"
    world.rot(0, HEADER_BYTES + 10)
    while world.scrub.segments_read == 0:
        world.tick()
    assert world.findings == []


def test_an_unreadable_disk_takes_the_directory_offline() -> None:
    world = World()
    world.disk.fail("read", world.path(2), times=-1)
    for _ in range(5):
        world.tick()
    assert world.bench.directory.offline is not None
    assert len(world.troubles) == 1


@pytest.mark.parametrize(
    ("position", "reason"),
    [(9, "belongs to producer"), (25, "no abort marker"), (1, "version"), (19, "no abort marker")],
)
def test_a_wrong_transaction_index_is_reported(position: int, reason: str, tmp_path: Path) -> None:
    """Of the `txn` topic of Kafka's cluster: the next start rebuilds it."""
    root = unpack("cluster", tmp_path)
    paths = sorted(path for path in (root / "txn-0").glob("*.txnindex") if path.stat().st_size)
    directory = open_directory(root, "cluster", NOW)
    log = next(log for name, log in directory.logs.items() if str(name) == "txn-0")
    closed = {segment.base_offset for segment in log.segments[:-1]}
    path = next(path for path in paths if int(path.name.split(".")[0]) in closed)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    _, found = scrub_once(directory)
    [finding] = found
    assert finding.kind is FindingKind.TRANSACTION_INDEX
    assert not finding.repaired
    assert finding.path == str(path)
    assert reason in finding.reason
    directory.close()
