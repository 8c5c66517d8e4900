"""The quick walk over a segment and the verifier agree on every byte: what is sound, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import pytest

from storage.segment import sound_pieces as quick
from storage.segment.batch_walk import BrokenChain, Link
from storage.segment.epoch_cache import epoch_due
from storage.segment.sound_pieces import sound_pieces
from storage.segment.verifier import SegmentRules, sound_batches
from testbed.fake_disk import FakeDisk
from tidelog.records import Record, build_batch, build_message_set
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES
from tidelog.types import Buffer, Codec, EpochStart, LeaderEpoch, Millis, Offset

NOW = 1_700_000_000_000
START, END = Offset(10), Offset(20)
EPOCHS = (
    EpochStart(LeaderEpoch(2), Offset(3)),
    EpochStart(LeaderEpoch(3), Offset(12)),
    EpochStart(LeaderEpoch(5), Offset(14)),
)


def records(offset: int, size: int = 5, count: int = 2) -> list[Record]:
    return [Record(Offset(offset + at), Millis(NOW - offset - at), b"key", b"v" * size) for at in range(count)]


def batch(offset: int, epoch: int, size: int = 5, codec: Codec = Codec.NONE) -> bytes:
    return build_batch(records(offset, size), codec, leader_epoch=LeaderEpoch(epoch))


BATCHES = [batch(10, 2), batch(12, 3), batch(14, 5, codec=Codec.ZSTD), batch(17, 5)]
"""Of three leader epochs, with a hole that retention by key would leave."""


class Walked(NamedTuple):
    """What a walk has found. batches: position, size, last offset and largest timestamp of each."""

    data: bytes
    batches: list[tuple[int, int, Offset, Millis]]
    problem: str | None = None


def quickly(data: Buffer, epochs: tuple[EpochStart, ...] = EPOCHS) -> Walked:
    file = FakeDisk().open("/00000000000000000010.log", create=True)
    file.pwritev([data], 0)
    batches: list[tuple[int, int, Offset, Millis]] = []
    try:
        pieces = list(sound_pieces(file, len(data), START, END, epochs, lambda *each: batches.append(each)))
    except BrokenChain as broken:
        return Walked(b"", [], str(broken))
    return Walked(b"".join(bytes(each) for each in pieces), batches)


def verified(data: Buffer, epochs: tuple[EpochStart, ...] = EPOCHS) -> Walked:
    file = FakeDisk().open("/00000000000000000010.log", create=True)
    file.pwritev([data], 0)
    rules = SegmentRules(START, END, partial(epoch_due, epochs))
    parts: list[bytes] = []
    batches: list[tuple[int, int, Offset, Millis]] = []
    try:
        for each in sound_batches(file, Link(0, len(data), START), rules):
            header = each.header
            parts.append(bytes(each.buffer))
            batches.append((header.position, header.size, header.last_offset, header.max_timestamp))
    except BrokenChain as broken:
        return Walked(b"", [], str(broken))
    return Walked(b"".join(parts), batches)


def with_checksum(data: bytearray, at: int, size: int) -> None:
    data[at + CRC_AT : at + ATTRIBUTES_AT] = crc32c(data[at + ATTRIBUTES_AT : at + size]).to_bytes(4, "big")


def test_sound_batches_are_taken_without_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes several times as long."""
    data = b"".join(BATCHES)
    due = verified(data)
    monkeypatch.setattr(quick, "sound_batches", None)
    assert quickly(data) == due
    assert quickly(data).data == data


@pytest.mark.parametrize("repaired", [False, True], ids=["damaged", "with a correct checksum"])
def test_every_flipped_bit_is_judged_as_the_verifier_judges_it(repaired: bool) -> None:
    """With a correct checksum it is the error of a writer: impossible counts, offsets, codecs."""
    at, refused = len(BATCHES[0]), 0
    for changed in BATCHES[1:3]:
        for position in range(at, at + (HEADER_BYTES if repaired else len(changed))):
            for bit in range(8):
                data = bytearray(b"".join(BATCHES))
                data[position] ^= 1 << bit
                if repaired:
                    with_checksum(data, at, len(changed))
                due = verified(data)
                refused += due.problem is not None
                assert quickly(data) == due, (position, bit)
        at += len(changed)
    assert refused > 2 * 8 * 16, "most of them are wrong"


@pytest.mark.parametrize("claimed", [HEADER_BYTES - 13, 10**6])
def test_a_checksum_does_not_make_an_impossible_length_right(claimed: int) -> None:
    """Of the bytes that are there it is correct."""
    data = bytearray(b"".join(BATCHES))
    at = len(data) - len(BATCHES[-1])
    data[at + 8 : at + 12] = claimed.to_bytes(4, "big")
    with_checksum(data, at, 12 + claimed)
    assert verified(data).problem is not None
    assert quickly(data) == verified(data)


@pytest.mark.parametrize("end", range(1, sum(map(len, BATCHES))))
def test_a_segment_that_is_cut_anywhere_is_judged_as_the_verifier_judges_it(end: int) -> None:
    data = b"".join(BATCHES)[:end]
    assert quickly(data) == verified(data)


def test_a_batch_in_which_the_log_starts_may_have_an_earlier_epoch() -> None:
    """Its epoch has left the cache with the log start; the verifier knows that, and is asked."""
    epochs = (EpochStart(LeaderEpoch(2), Offset(11)), *EPOCHS[1:])
    data = b"".join([batch(10, 1), *BATCHES[1:]])
    assert quickly(data, epochs) == verified(data, epochs)
    assert quickly(data, epochs).data == data


def test_a_log_that_knows_no_epochs_takes_all() -> None:
    data = b"".join(BATCHES)
    assert quickly(data, ()) == verified(data, ())
    assert quickly(data, ()).data == data


def only_large() -> bytes:
    return b"".join(batch(10 + 2 * at, 2 if at == 0 else 3 if at == 1 else 5, 400) for at in range(4))


def with_messages() -> bytes:
    """A log that began with an older Kafka: those messages have no leader epoch."""
    return bytes(build_message_set(records(10), 1)) + b"".join(BATCHES[1:])


def messages_between() -> bytes:
    return BATCHES[0] + bytes(build_message_set(records(12), 1)) + b"".join(BATCHES[2:])


@pytest.mark.parametrize("piece_bytes", [1, HEADER_BYTES, 100, 250, 1 << 20])
@pytest.mark.parametrize("segment", [lambda: b"".join(BATCHES), only_large, with_messages, messages_between])
def test_pieces_end_between_batches_of_any_size_and_format(
    monkeypatch: pytest.MonkeyPatch, segment: Callable[[], bytes], piece_bytes: int
) -> None:
    monkeypatch.setattr(quick, "PIECE_BYTES", piece_bytes)
    data = segment()
    assert quickly(data) == verified(data)
    assert quickly(data).data == data
