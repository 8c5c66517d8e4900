"""Appends on a follower: offsets are unchanged, grow within the append, and start at or above the log end.

append-as-leader.txt and log-append-roll-flush.txt (assignOffsets = false). The code in these documents overwrites the
first offset before it checks it, so that its check never fails; here each invalid order is rejected."""

from __future__ import annotations

import pytest

from storage.segment.segment_bases import SPAN_MAX
from tests.storage.workbench import NOW, Bench, stamped
from tidelog.errors import CorruptRecord, OffsetsNotMonotonic, TidelogError
from tidelog.records.v2.checksum import crc32c
from tidelog.types import INT32_MAX, EpochStart, LeaderEpoch, Offset

CRC_AT, LAST_DELTA_AT = 17, 23
"""Positions in a batch of format v2."""


def with_ten(epoch: int = 0) -> Bench:
    """A follower's log that ends at offset 10."""
    bench = Bench()
    bench.follow(*(stamped(i, b"%d" % i, epoch=epoch) for i in range(10)))
    return bench


def refused(
    bench: Bench, *batches: bytes, error: type[TidelogError] = OffsetsNotMonotonic, match: str | None = None
) -> None:
    before = (bench.log.log_end_offset, bench.log.size, bench.log.epochs.entries, len(bench.contents()))
    with pytest.raises(error, match=match):
        bench.follow(*batches)
    assert (bench.log.log_end_offset, bench.log.size, bench.log.epochs.entries, len(bench.contents())) == before


def test_offsets_below_the_log_end_are_rejected() -> None:
    refused(with_ten(), stamped(9, b"again"), match="below the log end 10")


def test_a_batch_that_begins_below_the_log_end_is_rejected() -> None:
    refused(with_ten(), stamped(8, b"8", b"9", b"10", b"11"), match="below the log end 10")


def test_a_batch_at_the_log_end_is_stored_unchanged() -> None:
    bench = with_ten()
    data = stamped(10, b"ten", b"eleven", epoch=0)
    assert bench.follow(data) == 11
    assert bench.contents()[-1] == data
    assert bench.log.log_end_offset == 12


def test_holes_are_accepted() -> None:
    """Compaction leaves holes, before an append and within it."""
    bench = with_ten()
    bench.follow(stamped(15, b"a"), stamped(30, b"b"))
    assert bench.log.log_end_offset == 31
    read = bench.log.read(Offset(11), 1, up_to=Offset(31))
    assert bytes(read.records) == stamped(15, b"a")


def test_decreasing_offsets_reject_the_whole_append() -> None:
    refused(with_ten(), stamped(10, b"a"), stamped(12, b"b"), stamped(11, b"c"), match="ends at 12")


def test_repeated_offsets_within_an_append_are_rejected() -> None:
    refused(with_ten(), stamped(10, b"a"), stamped(10, b"b"))


def test_overlapping_batches_within_an_append_are_rejected() -> None:
    refused(with_ten(), stamped(10, b"a", b"b", b"c"), stamped(12, b"d"))


def test_the_first_append_may_start_anywhere() -> None:
    bench = Bench()
    bench.follow(stamped(7, b"a"))
    assert bench.log.log_end_offset == 8


def test_a_corrupt_batch_rejects_the_whole_append() -> None:
    bad = bytearray(stamped(11, b"b"))
    bad[-2] ^= 1
    refused(with_ten(), stamped(10, b"a"), bytes(bad), stamped(12, b"c"), error=CorruptRecord)


def test_a_decreasing_epoch_is_rejected() -> None:
    """The checksum does not cover the epoch: accepting a smaller one would empty the epoch cache."""
    bench = with_ten(epoch=5)
    refused(bench, stamped(10, b"a", epoch=4), error=CorruptRecord, match="epoch 4")
    refused(bench, stamped(10, b"a", epoch=6), stamped(11, b"b", epoch=5), error=CorruptRecord, match="epoch 5")
    refused(bench, stamped(10, b"a", epoch=-1), error=CorruptRecord, match="epoch -1")


def test_a_partial_batch_at_the_end_is_dropped() -> None:
    bench = with_ten()
    assert bench.follow(stamped(10, b"a"), stamped(11, b"b")[:-1]) == 10
    assert bench.log.log_end_offset == 11


@pytest.mark.parametrize("wrong", [0, 17, 1 << 30])
def test_an_epoch_that_contradicts_the_leaders_entries_is_rejected(wrong: int) -> None:
    """A bit flipped on the leader's disk: the checksum is correct, and the next replica's epoch cache would be
    wrong."""
    bench = with_ten(epoch=0)
    epochs = [EpochStart(LeaderEpoch(0), Offset(0)), EpochStart(LeaderEpoch(1), Offset(11))]
    data = stamped(10, b"a") + stamped(11, b"b", epoch=wrong)
    with pytest.raises(CorruptRecord, match=f"offset 11 has leader epoch {wrong}, but the epoch there is 1"):
        bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(1), epochs=epochs)
    assert bench.log.log_end_offset == 10
    assert bench.log.epochs.entries == (EpochStart(LeaderEpoch(0), Offset(0)),)


def test_a_rejected_epoch_starts_no_segment_and_keeps_no_earlier_batch() -> None:
    """Also if the append would roll, would span several segments, or would start a segment after a hole."""
    epochs, far = [EpochStart(LeaderEpoch(0), Offset(0))], 10 + INT32_MAX
    too_many = b"".join(stamped(10 + i, b"x" * 300, epoch=9 * (i == 7)) for i in range(8))
    for data in (stamped(10, b"x" * 1_500, epoch=9), too_many, stamped(far, b"x", epoch=9)):
        bench = with_ten(epoch=0)
        with pytest.raises(CorruptRecord, match="the epoch there is 0"):
            bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(0), epochs=epochs)
        assert bench.log.log_end_offset == 10
        assert [segment.base_offset for segment in bench.log.segments] == [0]


def test_the_batches_own_epochs_build_the_cache() -> None:
    bench = Bench()
    bench.follow(stamped(0, b"a", epoch=2), stamped(1, b"b", epoch=2), stamped(2, b"c", epoch=7))
    assert bench.log.epochs.entries == (EpochStart(LeaderEpoch(2), Offset(0)), EpochStart(LeaderEpoch(7), Offset(2)))
    assert bench.log.last_epoch == 7


def test_epochs_passed_with_the_append_build_the_cache() -> None:
    """A fetch response contains the epoch entries of its range; the first may begin below it."""
    bench = with_ten(epoch=1)
    epochs = [EpochStart(LeaderEpoch(1), Offset(0)), EpochStart(LeaderEpoch(4), Offset(11))]
    data = stamped(10, b"a", epoch=1) + stamped(11, b"b", epoch=4)
    bench.log.append(data, assign_offsets=False, leader_epoch=LeaderEpoch(4), epochs=epochs)
    assert bench.log.epochs.entries == tuple(epochs)


def test_an_epoch_that_began_before_this_log_starts_at_the_log_start() -> None:
    bench = Bench()
    bench.log.truncate_fully_and_start_at(Offset(50))
    epochs = [EpochStart(LeaderEpoch(3), Offset(20))]
    bench.log.append(stamped(50, b"a", epoch=3), assign_offsets=False, leader_epoch=LeaderEpoch(3), epochs=epochs)
    assert bench.log.epochs.entries == (EpochStart(LeaderEpoch(3), Offset(50)),)


def test_an_own_epoch_without_records_is_removed_and_other_starts_stay() -> None:
    """The replica led epoch 5 without records; the next leader's batch at its log end still belongs to epoch 3."""
    for epochs in ([], [EpochStart(LeaderEpoch(3), Offset(0))]):
        bench = with_ten(epoch=3)
        bench.log.begin_epoch(LeaderEpoch(5))
        bench.log.append(stamped(10, b"a", epoch=3), assign_offsets=False, leader_epoch=LeaderEpoch(6), epochs=epochs)
        assert bench.log.epochs.entries == (EpochStart(LeaderEpoch(3), Offset(0)),)


def test_an_epoch_that_begins_in_a_hole_begins_at_the_leaders_offset() -> None:
    bench = with_ten(epoch=3)
    epochs = [EpochStart(LeaderEpoch(4), Offset(12))]
    bench.log.append(stamped(15, b"a", epoch=4), assign_offsets=False, leader_epoch=LeaderEpoch(4), epochs=epochs)
    assert bench.log.epochs.entries[-1] == EpochStart(LeaderEpoch(4), Offset(12))


def test_the_result_spans_all_batches() -> None:
    bench = with_ten()
    data = [stamped(12, b"a", timestamp=NOW + 9), stamped(13, b"b", b"c", timestamp=NOW + 5)]
    info = bench.log.append(b"".join(data), assign_offsets=False, leader_epoch=LeaderEpoch(0))
    assert (info.first_offset, info.last_offset, info.record_count) == (12, 14, 3)
    assert info.max_timestamp == NOW + 9
    assert info.valid_bytes == sum(map(len, data))


@pytest.mark.parametrize("hole", [INT32_MAX - 6, INT32_MAX - 5, INT32_MAX - 4, INT32_MAX, INT32_MAX + 1])
def test_a_hole_and_a_batch_that_fit_into_no_segment_are_no_loss(hole: int) -> None:
    """The next segment begins at the log end, or else at the batch. Recovery takes neither for a lost segment."""
    bench, far = Bench(), stamped(hole, *(b"x" for _ in range(6)))
    bench.follow(far)
    bench.commit()
    for again in (bench.kill, bench.crash, bench.restart_clean):
        again()
        assert bench.log.damage is None
        assert (bench.log.log_end_offset, bench.contents()) == (hole + 6, [far])


@pytest.mark.parametrize("span", [SPAN_MAX + 1, INT32_MAX])
def test_a_batch_of_more_offsets_than_a_leader_can_write_is_rejected(span: int) -> None:
    data = bytearray(stamped(11, b"x"))
    data[LAST_DELTA_AT : LAST_DELTA_AT + 4] = span.to_bytes(4, "big")
    data[CRC_AT : CRC_AT + 4] = crc32c(data[CRC_AT + 4 :]).to_bytes(4, "big")
    refused(with_ten(), bytes(data), error=CorruptRecord, match="no leader can write")


def test_offsets_too_far_apart_for_one_segment_are_spread_over_several() -> None:
    bench = Bench()
    far = [stamped(0, b"a"), stamped(2**31 + 5, b"b"), stamped(2**33, b"c")]
    bench.follow(*far)
    assert bench.contents() == far
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2**31 + 5, 2**33]
    bench.kill()
    assert bench.contents() == far
