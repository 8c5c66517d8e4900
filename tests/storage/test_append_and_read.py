"""Every accepted append can be read: by a consumer's decoder, at the next start, and by a follower.

The tests build batches of all formats and codecs, change some of their bytes, and correct the checksums, as a faulty or
hostile client would. What a leader accepts must stay readable; what it rejects leaves no trace. The same holds for
batches sent to a follower."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.append_info import LogAppendInfo, Origin
from storage.log_config import LogConfig
from tests.storage.workbench import NOW, Bench, batch, stamped
from tidelog.errors import InvalidRecord, InvalidTimestamp, TidelogError
from tidelog.records import RecordBatchBuilder, iter_batches
from tidelog.records.legacy.message_builder import MessageSetBuilder
from tidelog.records.v2 import fast_paths, record
from tidelog.records.v2.checksum import crc32c
from tidelog.records.v2.compression import compress, decompress
from tidelog.records.v2.control import EndTxnMarker, control_batch
from tidelog.records.v2.header import HEADER, HEADER_BYTES, BatchHeader
from tidelog.types import Codec, LeaderEpoch, Millis, TimestampType

CONFIG: Final = LogConfig(index_interval_bytes=100)
EPOCH: Final = LeaderEpoch(3)
_FIRST_RESERVED: Final = {0: (3, 8), 1: (4, 8), 2: (7, 16)}
RESERVED: Final = [(magic, 1 << bit) for magic, bits in _FIRST_RESERVED.items() for bit in range(*bits)]
"""Attribute bits without a meaning, by format."""


def messages(magic: int, codec: Codec = Codec.NONE, count: int = 3) -> bytes:
    """Plain messages of v0 or v1, or a wrapper around them."""
    builder = MessageSetBuilder(magic, codec)
    for number in range(count):
        builder.append(key=b"k", value=b"value %d" % number, timestamp=Millis(NOW + number if magic else -1))
    return builder.build()


def sent(magic: int, codec: Codec = Codec.NONE, *, producer: int = -1) -> bytes:
    """What a client sends."""
    if magic < 2:
        return messages(magic, codec)
    epoch, sequence = (0, 0) if producer >= 0 else (-1, -1)
    builder = RecordBatchBuilder(codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    for number in range(3):
        headers = ((("h", b"x"),), (), (("h", None), ("ü", b"")))[number]
        builder.append(key=b"k", value=b"value %d" % number, timestamp=Millis(NOW + number), headers=headers)
    return builder.build()


def with_right_checksum(data: bytes) -> bytes:
    """The same bytes with the checksum of the first batch or message recomputed; unchanged if they are too short."""
    if len(data) < HEADER_BYTES and data[16:17] not in (b"\0", b"\1"):
        return data
    found = bytearray(data)
    end = min(len(found), max(0, 12 + struct.unpack_from(">i", found, 8)[0]))
    if found[16] == 2:
        struct.pack_into(">I", found, 17, crc32c(found[21:end]))
    else:
        struct.pack_into(">I", found, 12, zlib.crc32(found[16:end]))
    return bytes(found)


def with_attributes(data: bytes, bits: int) -> bytes:
    """The same bytes with more attribute bits set."""
    found = bytearray(data)
    if found[16] == 2:
        struct.pack_into(">H", found, 21, struct.unpack_from(">H", found, 21)[0] | bits)
    else:
        found[17] |= bits
    return with_right_checksum(bytes(found))


def append(bench: Bench, data: bytes, origin: Origin = Origin.CLIENT) -> LogAppendInfo:
    return bench.log.append(data, assign_offsets=True, leader_epoch=EPOCH, origin=origin)


def consumed(bench: Bench, *, decode: bool = True) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """All records of the log, decoded as a consumer does, with the compiled and the reference reader."""
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    for data in bench.contents():
        for each in iter_batches(data, partial_tail="raise"):
            each.ensure_valid()
            if not decode:
                found.append((each.header.base_offset, each.header.length, None, None))
                continue
            records = each.record_list()
            if each.magic == 2:
                given = each.count, each.base_offset, each.base_timestamp, each.append_time
                assert list(record.decode_records(bytes(each.payload()), *given)) == records
                assert fast_paths.record_list(each.payload(), *given) == records
            found += [(one.offset, one.timestamp, one.key, one.value) for one in records]
    return found


def sound(magic: int, base: int, epoch: int) -> bytes:
    """A batch that may follow, as a leader sends it."""
    if magic == 2:
        return stamped(base, epoch=epoch)
    builder = MessageSetBuilder(magic, base_offset=base)
    builder.append(key=b"k", value=b"behind", timestamp=Millis(NOW if magic else -1))
    return builder.build()


def must_last(bench: Bench, *, decode: bool = True) -> None:
    """Check that every reader sees the same records, after each kind of stop, and on a follower."""
    end = bench.log.log_end_offset
    log = bench.log
    found = consumed(bench, decode=decode)
    if decode and not log.config.compact:
        assert [offset for offset, *_ in found] == list(range(end))
    batches = bench.contents()
    bench.follow(sound(log.config.magic, end, max(EPOCH, log.last_epoch)))
    bench.commit()
    behind = bench.contents()
    assert behind[: len(batches)] == batches
    assert len(behind) == len(batches) + 1

    follower = Bench(log.config)
    for data in behind:
        follower.follow(data)
    follower.commit()
    for each in (bench, follower):
        for again in (each.kill, each.crash, each.restart_clean):
            again()
            assert each.log.damage is None
            assert each.log.log_end_offset == end + 1
            assert each.contents() == behind
            assert consumed(each, decode=decode)[: len(found)] == found


def must_agree(data: bytes, config: LogConfig, origin: Origin = Origin.CLIENT) -> bool:
    """Append as a leader. Returns whether it was accepted."""
    bench = Bench(config)
    try:
        append(bench, data, origin)
    except TidelogError:
        assert (bench.log.log_end_offset, bench.log.size, bench.directory.offline) == (0, 0, None)
        return False
    must_last(bench)
    return True


# --- reserved attribute bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "bit"), RESERVED)
def test_a_client_may_not_set_reserved_attribute_bits(magic: int, bit: int) -> None:
    """A later version may give them a meaning that today's readers do not know."""
    bench = Bench(replace(CONFIG, magic=magic))
    with pytest.raises(InvalidRecord, match="reserved"):
        append(bench, with_attributes(sent(magic), bit))
    assert (bench.log.log_end_offset, bench.log.size) == (0, 0)
    append(bench, sent(magic))
    must_last(bench)


@pytest.mark.parametrize(("magic", "bit"), RESERVED)
def test_stored_batches_with_reserved_attribute_bits_are_read(magic: int, bit: int) -> None:
    """A directory from Kafka may contain them: its brokers accept them, and its readers ignore them."""
    bench = Bench(replace(CONFIG, magic=magic))
    base = bytearray(sent(magic) if magic == 2 else messages(magic, count=1))
    if magic == 2:
        struct.pack_into(">i", base, 12, EPOCH)
    bench.follow(with_attributes(bytes(base), bit))
    must_last(bench)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_with_reserved_attribute_bits_is_rejected_even_if_it_is_rebuilt(magic: int, codec: Codec) -> None:
    """Also if the leader would decompress it and rebuild it without them."""
    data = with_attributes(messages(magic, codec), 0x40)
    for config in (CONFIG, replace(CONFIG, magic=0), replace(CONFIG, magic=1)):
        with pytest.raises(InvalidRecord, match="reserved"):
            append(Bench(config), data)


def test_a_producer_id_below_minus_one_is_rejected() -> None:
    data = bytearray(sent(2, producer=5))
    struct.pack_into(">q", data, 43, -5)
    with pytest.raises(InvalidRecord, match="producer id -5"):
        append(Bench(CONFIG), with_right_checksum(bytes(data)))


def test_a_follower_rejects_offsets_after_which_no_offset_fits() -> None:
    """The next offset would not fit into 64 bits."""
    for base in (2**63 - 1, 2**63 - 3):
        bench = Bench(CONFIG)
        with pytest.raises(TidelogError, match="offset"):
            bench.follow(struct.pack(">q", base) + stamped(0, b"a", b"b", b"c", epoch=EPOCH)[8:])
        assert (bench.log.log_end_offset, bench.log.size) == (0, 0)
        must_last(bench)


# --- any bytes --------------------------------------------------------------------------------------------------------

KINDS: Final = [
    *((2, codec) for codec in Codec),
    *((magic, codec) for magic in (0, 1) for codec in (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)),
]
NUMBERS: Final = st.sampled_from(
    [0, 1, 2, 3, 4, 5, 7, 8, 0x10, 0x18, 0x20, 0x30, 0x40, 0x7F, 0x80, 0xFF, -1, -2, 2**15 - 1, 2**31 - 1, 2**63 - 1]
)
BASES: Final = st.sampled_from([0, 1, 100, -1, -(2**63), 2**31 - 10, 2**31, 2**40, 2**63 - 100, 2**63 - 1])
FIELDS: Final = {"attributes": 6, "delta": 7, "base timestamp": 8, "max timestamp": 9, "id": 10, "epoch": 11}
FIELDS.update({"sequence": 12, "count": 13, "base offset": 1, "leader epoch": 3})
WIDTHS: Final = {1: 64, 3: 32, 6: 16, 7: 32, 8: 64, 9: 64, 10: 64, 11: 16, 12: 32, 13: 32}


def _wrapped(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


@st.composite
def changed_batches(draw: st.DrawFn) -> tuple[bytes, LogConfig]:
    """Bytes of a client, changed, with a correct checksum, and the topic they are for."""
    magic, codec = draw(st.sampled_from(KINDS))
    data = sent(magic, codec, producer=draw(st.sampled_from([-1, -1, 7])))
    how = draw(st.sampled_from(["fields", "records", "bytes"]))
    if magic == 2 and how == "fields":
        fields = list(HEADER.unpack_from(data))
        for at in draw(st.lists(st.sampled_from(sorted(FIELDS.values())), min_size=1, max_size=2)):
            fields[at - 1] = _wrapped(draw(BASES if at == FIELDS["base offset"] else NUMBERS), WIDTHS[at])
        data = HEADER.pack(*fields) + data[HEADER_BYTES:]
    elif magic == 2 and how == "records":
        header = BatchHeader(0, *HEADER.unpack_from(data))
        plain = data[HEADER_BYTES:]
        if codec:
            payload = compress(codec, _changed(draw, bytes(decompress(codec, plain, 1 << 20))))
        else:
            payload = _changed(draw, plain)
        header = header._replace(length=HEADER_BYTES - 12 + len(payload))
        data = HEADER.pack(*header[1:]) + payload
    else:
        data = data[:16] + _changed(draw, data[16:])
    kept = draw(st.sampled_from([magic, magic, magic, 0, 1, 2]))
    stored = draw(st.sampled_from([None, None, None, Codec.NONE, Codec.GZIP, Codec.LZ4]))
    stamps = draw(st.sampled_from([TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME]))
    return with_right_checksum(data), replace(CONFIG, magic=kept, codec=stored, timestamp_type=stamps)


def _changed(draw: st.DrawFn, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, min(len(found) - 1, 60)))
        found[at] = draw(st.one_of(st.integers(0, 255), st.just(found[at] ^ (1 << draw(st.integers(0, 7))))))
    return bytes(found)


@settings(max_examples=300)
@given(changed_batches())
def test_batches_that_a_leader_accepts_stay_readable(case: tuple[bytes, LogConfig]) -> None:
    must_agree(*case)


@settings(max_examples=100)
@given(changed_batches())
def test_batches_of_a_coordinator_stay_readable(case: tuple[bytes, LogConfig]) -> None:
    must_agree(*case, origin=Origin.COORDINATOR)


@settings(max_examples=300)
@given(changed_batches())
def test_batches_that_a_follower_accepts_stay_readable(case: tuple[bytes, LogConfig]) -> None:
    """A follower checks headers and checksums; its leader has checked the records."""
    data, config = case
    bench = Bench(replace(config, compact=True))  # holes before it are valid
    try:
        bench.follow(data)
    except TidelogError:
        assert (bench.log.log_end_offset, bench.log.size, bench.directory.offline) == (0, 0, None)
        return
    must_last(bench, decode=False)


@pytest.mark.parametrize("at", range(16, HEADER_BYTES))
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_each_flipped_header_bit_is_rejected_or_readable(at: int, codec: Codec) -> None:
    """Every bit after base offset, length and epoch is flipped, and the checksum is corrected."""
    for producer in (-1, 7):
        for bit in range(8):
            data = bytearray(sent(2, codec, producer=producer))
            data[at] ^= 1 << bit
            must_agree(with_right_checksum(bytes(data)), CONFIG)


def test_only_coordinators_append_markers() -> None:
    marker = control_batch(
        EndTxnMarker(committed=False, coordinator_epoch=0), timestamp=NOW, producer_id=7, producer_epoch=0
    )
    assert must_agree(marker, CONFIG, Origin.COORDINATOR)
    assert not must_agree(marker, CONFIG)


def test_a_client_may_not_claim_log_append_time() -> None:
    for magic, config in ((2, CONFIG), (1, replace(CONFIG, magic=1))):
        with pytest.raises(InvalidTimestamp):
            append(Bench(config), with_attributes(sent(magic), 0x08))


def test_unchanged_client_batches_are_accepted() -> None:
    """Otherwise the properties above would be vacuous."""
    assert must_agree(batch(b"a"), CONFIG)
    for magic, codec in KINDS:
        assert must_agree(sent(magic, codec), replace(CONFIG, magic=magic))
    assert must_agree(sent(2, producer=7), CONFIG)
