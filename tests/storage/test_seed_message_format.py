"""The rules of the seed document message-format-and-validation.txt that a log shows: one file of [Offset MessageSize
Message], wrappers with their last offset, reads from an offset on, and the checks of leader and follower."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log_config import LogConfig
from tests.records.reference import iter_records
from tests.storage.workbench import NOW, SMALL, Bench, batch, contents
from tidelog.errors import CorruptLog, CorruptRecord, InvalidRecord, OffsetsNotMonotonic, RecordTooLarge
from tidelog.records import Record, build_batch, build_message_set, iter_batches
from tidelog.types import Codec, EpochStart, LeaderEpoch, Millis, Offset

CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4]
ALL = Offset(1 << 40)

each_old = pytest.mark.parametrize("magic", [0, 1])


def records(count: int, *, first: int = 0, size: int = 30, time: int = NOW) -> list[Record]:
    return [Record(Offset(i), Millis(time + i), b"k%d" % i, b"v" * size) for i in range(first, first + count)]


def message_set(magic: int, count: int, codec: Codec = Codec.NONE, **more: int) -> bytes:
    if magic == 2:
        return build_batch(records(count, **more), codec)
    return build_message_set(records(count, **more), magic, codec)


def lead(bench: Bench, data: bytes, epoch: int = 0) -> int:
    return bench.log.append(data, assign_offsets=True, leader_epoch=LeaderEpoch(epoch)).last_offset


def change_format(bench: Bench, magic: int) -> None:
    """Change the topic's message.format: the log continues in another one."""
    bench.config = replace(bench.config, magic=magic)
    bench.log.reconfigure(bench.config)


def mixed() -> Bench:
    """One log with wrappers and plain messages of v0 and v1 and with batches of v2, in many segments."""
    bench = Bench(replace(SMALL, segment_bytes=700))
    for magic in (0, 1, 2, 1, 0, 2):
        change_format(bench, magic)
        for i, codec in enumerate(CODECS):
            lead(bench, message_set(magic, 3 + i, codec, time=NOW + bench.log.log_end_offset))
    return bench


# --- offsets -----------------------------------------------------------------------------------------------------


@each_old
def test_a_wrapper_has_the_offset_of_its_last_message(magic: int) -> None:
    bench = Bench(replace(SMALL, magic=magic))
    assert lead(bench, message_set(magic, 5, Codec.GZIP)) == 4
    assert lead(bench, message_set(magic, 3, Codec.GZIP)) == 7
    outer = [found for data in bench.contents() for found in iter_batches(data)]
    assert [(found.base_offset, found.last_offset) for found in outer] == [(0, 4), (5, 7)]


@each_old
def test_a_fetch_from_inside_a_wrapper_returns_it_whole(magic: int) -> None:
    """The broker finds the first message whose offset is not below the requested one."""
    bench = Bench(replace(SMALL, magic=magic))
    for _ in range(3):
        lead(bench, message_set(magic, 5, Codec.GZIP))
    for offset in range(15):
        read = bench.log.read(Offset(offset), 1, up_to=ALL)
        assert [found.last_offset for found in iter_batches(read.records)] == [offset // 5 * 5 + 4]
        assert read.next_offset == offset // 5 * 5 + 5


@each_old
def test_a_wrapper_with_relative_offsets_is_not_compressed_again(magic: int) -> None:
    """KIP-31: v1 keeps the compressed bytes, v0 has absolute offsets inside and is compressed again."""
    bench = Bench(replace(SMALL, magic=magic))
    lead(bench, message_set(magic, 1))
    data = message_set(magic, 5, Codec.GZIP)
    lead(bench, data)
    stored = bench.contents()[1]
    assert (stored[12:] == data[12:]) == (magic == 1)
    assert [record.offset for record in iter_records(stored)] == [1, 2, 3, 4, 5]


def test_several_compressed_messages_are_joined_and_the_size_is_checked() -> None:
    """KAFKA-1718: the joined message may be larger than any that was sent."""
    parts = [
        build_message_set([Record(Offset(0), NOW, b"k", bytes(range(n, n + 100)) * 3)], 1, Codec.GZIP) for n in (0, 9)
    ]
    bench = Bench(LogConfig(magic=1))
    assert lead(bench, b"".join(parts)) == 1
    (joined,) = bench.contents()
    (outer,) = iter_batches(joined)
    assert (outer.codec, outer.count) == (Codec.GZIP, 2)
    small = Bench(LogConfig(magic=1, max_message_bytes=max(map(len, parts))))
    with pytest.raises(RecordTooLarge):
        lead(small, b"".join(parts))
    assert small.log.bytes_rejected == sum(map(len, parts))
    with pytest.raises(InvalidRecord, match="2 batches"):
        lead(Bench(), message_set(2, 1) + message_set(2, 1))


# --- reading -----------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_a_read_is_limited_by_bytes_and_offset_and_begins_at_the_right_message(data: st.DataObject) -> None:
    """Log.read(startOffset, maxLength, maxOffset): the same messages as a walk over the whole log."""
    bench = mixed()
    whole = [found for chunk in contents(bench.log) for found in iter_batches(chunk)]
    assert {found.magic for found in whole} == {0, 1, 2}
    ends = [found.last_offset + 1 for found in whole]
    offset = data.draw(st.integers(0, ends[-1] - 1))
    up_to = data.draw(st.sampled_from([end for end in ends if end > offset]))
    limit = data.draw(st.integers(0, 900))
    read = bench.log.read(Offset(offset), limit, up_to=Offset(up_to))
    got = [(found.last_offset, bytes(found.buffer)) for found in iter_batches(read.records)]
    expected = [found for found in whole if offset <= found.last_offset < up_to]
    assert got == [(found.last_offset, bytes(found.buffer)) for found in expected[: len(got)]]
    assert got or not expected
    if len(read.records) > limit:
        assert len(got) == 1, "above the limit there is one message, and no more"
    assert read.next_offset == got[-1][0] + 1


def test_lookups_by_time_in_a_log_of_all_formats() -> None:
    """KIP-32, KIP-33: v0 has no timestamp and is never found by one."""
    bench = mixed()
    everything = [record for data in bench.contents() for record in iter_records(data)]
    for timestamp in range(NOW - 1, NOW + 90):
        expected = next((record for record in everything if record.timestamp >= timestamp), None)
        found = bench.log.offset_for_timestamp(timestamp, up_to=ALL)
        assert (None if found is None else found[:2]) == (expected and (expected.offset, expected.timestamp))


@pytest.mark.parametrize("how", ["clean", "killed", "killed after a commit", "without indexes"])
def test_a_log_of_all_formats_is_loaded_unchanged(how: str) -> None:
    bench = mixed()
    before = (bench.contents(), bench.log.log_end_offset, bench.log.epochs.entries)
    if how == "clean":
        bench.restart_clean()
        assert bench.log.notes == ()
    elif how == "without indexes":
        bench.directory.close_clean()
        for name in bench.files.list("/data/orders-0"):
            if name.endswith("index"):
                bench.files.remove(f"/data/orders-0/{name}")
        bench.reopen()
    else:
        if how != "killed":
            bench.commit()
        bench.kill()
    assert (bench.contents(), bench.log.log_end_offset, bench.log.epochs.entries) == before
    assert bench.log.damage is None
    assert lead(bench, message_set(2, 1)) == before[1]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 70), st.booleans())
def test_a_log_of_all_formats_can_be_truncated_anywhere(offset: int, restarted: bool) -> None:
    """A wrapper that contains the offset is removed whole."""
    bench = mixed()
    kept = [found for data in bench.contents() for found in iter_batches(data) if found.last_offset < offset]
    bench.log.truncate_to(Offset(offset))
    if restarted:
        bench.kill()
    assert b"".join(bench.contents()) == b"".join(bytes(found.buffer) for found in kept)
    assert bench.log.log_end_offset == min(offset, kept[-1].last_offset + 1 if kept else offset)


# --- checks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_wrong_checksum_is_rejected_by_leader_and_follower(magic: int, codec: Codec) -> None:
    """The checksum covers what follows it; the broker sets offset and size, which it does not cover."""
    good = message_set(magic, 1, codec)
    for position in (17, len(good) // 2, len(good) - 1):
        bad = bytearray(good)
        bad[position] ^= 0x10
        for assign in (True, False):
            bench = Bench(replace(SMALL, magic=magic))
            with pytest.raises(CorruptRecord):
                bench.log.append(bytes(bad), assign_offsets=assign, leader_epoch=LeaderEpoch(0))
            assert bench.log.size == 0


@each_old
def test_a_follower_stores_its_leaders_bytes_with_their_epochs(magic: int) -> None:
    """assignOffsets false: offsets stay as given; epochs come with the response, the bytes have none."""
    leader, follower = Bench(replace(SMALL, magic=magic)), Bench(replace(SMALL, magic=magic))
    for epoch in (0, 3, 4):
        for codec in CODECS:
            lead(leader, message_set(magic, 4, codec), epoch)
    while follower.log.log_end_offset < leader.log.log_end_offset:
        read = leader.log.read(follower.log.log_end_offset, 300, up_to=ALL)
        info = follower.log.append(read.records, assign_offsets=False, leader_epoch=LeaderEpoch(9), epochs=read.epochs)
        assert info.last_offset == read.next_offset - 1
    assert follower.contents() == leader.contents()
    assert follower.log.epochs.entries == leader.log.epochs.entries != ()
    assert [segment.size for segment in follower.log.segments] == [segment.size for segment in leader.log.segments]
    follower.kill()
    assert follower.log.epochs.entries == leader.log.epochs.entries
    assert follower.log.last_epoch == 4


@each_old
def test_without_epochs_from_its_leader_the_epoch_in_force_stays(magic: int) -> None:
    bench = Bench(replace(SMALL, magic=magic))
    epochs = (EpochStart(LeaderEpoch(2), Offset(0)),)
    bench.log.append(message_set(magic, 2), assign_offsets=False, leader_epoch=LeaderEpoch(2), epochs=epochs)
    info = bench.log.append(message_set(magic, 2, first=2), assign_offsets=False, leader_epoch=LeaderEpoch(7))
    assert bench.log.epochs.entries == epochs
    assert info.last_leader_epoch == bench.log.last_epoch == 2


@each_old
def test_offsets_that_do_not_grow_are_rejected(magic: int) -> None:
    """offsetsMonotonic, and firstOffset < nextOffset: "Out of order offsets"."""
    bench = Bench(replace(SMALL, magic=magic))
    first, second = message_set(magic, 3), message_set(magic, 3, first=3)
    for data in (second + first, first + first, message_set(magic, 3, Codec.GZIP) * 2):
        with pytest.raises(OffsetsNotMonotonic):
            bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0))
    bench.follow(first, second)
    with pytest.raises(OffsetsNotMonotonic, match="below the log end 6"):
        bench.follow(second)
    assert bench.follow(message_set(magic, 1, first=20)) == 20, "holes are accepted"


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_size_below_the_smallest_message_is_corrupt_and_a_short_rest_is_not(magic: int) -> None:
    """makeNextOuter: fewer than 12 bytes, or fewer than the size says, end it; a size below the smallest raises."""
    good = message_set(magic, 1)
    for rest in (good[:11], good[:12], good[:-1]):
        bench = Bench(replace(SMALL, magic=magic))
        info = bench.log.append(good + rest, assign_offsets=False, leader_epoch=LeaderEpoch(0))
        assert info.valid_bytes == len(good)
    small = bytearray(message_set(magic, 1, first=1))
    small[8:12] = (13).to_bytes(4)
    bench = Bench(replace(SMALL, magic=magic))
    with pytest.raises(CorruptRecord):
        bench.log.append(good + bytes(small), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    assert bench.log.size == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_a_v2_batch_with_a_flipped_magic_is_found_by_every_walk(magic: int) -> None:
    """Goal: a byte that no checksum covers is not trusted. Method: the magic of a stored v2 batch becomes an older one,
    and a read reports its position."""
    bench = Bench(replace(SMALL, segment_bytes=1 << 20))
    for i in range(10):
        lead(bench, batch(b"x" * 20, b"y" * 20, timestamp=NOW + i))
    third = sum(len(data) for data in bench.contents()[:2])
    bench.commit()
    bench.disk.open(bench.segment_path).pwritev([bytes([magic])], third + 16)
    with pytest.raises(CorruptLog, match=f"byte {third}"):
        bench.log.read(Offset(4), 1, up_to=ALL)
    assert bench.log.damage is not None
    assert (bench.log.damage.first_offset, bench.log.damage.position) == (4, third)
    assert bench.log.read(Offset(0), 1, up_to=ALL).next_offset == 2
