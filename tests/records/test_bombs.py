"""Decompression bombs of 1 GiB in every codec and format are rejected within the caller's limit; the memory is
measured.

Each bomb repeats one piece of the codec's own framing, so that it is cheap to build; a small one of the same kind is
decompressed first, to show that the input is valid.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest

from tidelog.errors import CorruptRecord, RecordTooLarge
from tidelog.records import AppendRules, RecordBatch, analyze, assign_offsets, crc32c
from tidelog.records.batches import batch_at
from tidelog.records.v2.compression import compress, decompress
from tidelog.records.v2.lz4_header import with_old_checksum
from tidelog.types import Codec

GIB = 1024**3
KIB = 1024
LIMIT = 1024 * KIB


def gzip_bomb(size: int) -> bytes:
    """One member; a deflate block that ends at a byte border encodes 32 KiB of zeros repeatedly."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = deflate.compress(bytes(32 * KIB)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    again = deflate.compress(bytes(32 * KIB)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    crc = 0
    for _ in range(min(size, 64 * KIB) // (32 * KIB)):
        crc = zlib.crc32(bytes(32 * KIB), crc)
    trailer = struct.pack("<II", crc, size & 0xFFFFFFFF)
    return bytes.fromhex("1f8b08000000000000ff") + first + again * (size // (32 * KIB) - 1) + b"\x03\x00" + trailer


def snappy_bomb(size: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(32 * KIB)))
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    return header + (struct.pack(">i", len(block)) + block) * (size // (32 * KIB))


def lz4_bomb(size: int) -> bytes:
    frame: bytes = lz4.frame.compress(bytes(64 * KIB), block_linked=False, store_size=False)
    return frame[:7] + frame[7:-4] * (size // (64 * KIB)) + frame[-4:]


def lz4_bomb_of_old(size: int) -> bytes:
    return with_old_checksum(lz4_bomb(size))


def zstd_bomb(size: int) -> bytes:
    """A frame of blocks that repeat one byte 128 KiB times in four bytes; the last block has its bit set."""
    header = bytes.fromhex("28b52ffd 00 58".replace(" ", ""))
    block = 128 * KIB << 3 | 1 << 1
    count = size // (128 * KIB)
    return header + (block.to_bytes(3, "little") + b"\0") * (count - 1) + (block | 1).to_bytes(3, "little") + b"\0"


BOMBS: dict[str, tuple[Codec, int, Callable[[int], bytes]]] = {
    "gzip": (Codec.GZIP, 2, gzip_bomb),
    "snappy": (Codec.SNAPPY, 2, snappy_bomb),
    "lz4": (Codec.LZ4, 2, lz4_bomb),
    "lz4 in v0": (Codec.LZ4, 0, lz4_bomb_of_old),
    "zstd": (Codec.ZSTD, 2, zstd_bomb),
}
small = {"gzip": 64 * KIB, "zstd": 256 * KIB}

each_bomb = pytest.mark.parametrize("name", BOMBS)


@each_bomb
def test_a_small_input_of_each_kind_is_valid(name: str) -> None:
    codec, magic, bomb = BOMBS[name]
    size = small.get(name, 128 * KIB)
    assert decompress(codec, bomb(size), magic=magic) == bytes(size)


@each_bomb
def test_a_gibibyte_is_rejected(name: str) -> None:
    codec, magic, bomb = BOMBS[name]
    data = bomb(GIB)
    assert len(data) < GIB // 20
    with pytest.raises(RecordTooLarge):
        decompress(codec, data, LIMIT, magic=magic)


MEASURED = """
import pathlib, resource, sys
from tidelog.errors import RecordTooLarge
from tidelog.records.v2.compression import compress, decompress
from tidelog.types import Codec
codec, magic, limit = Codec(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
data = pathlib.Path(sys.argv[4]).read_bytes()
decompress(codec, compress(codec, bytes(100), magic=magic), magic=magic)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, data, limit, magic=magic)
except RecordTooLarge:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@each_bomb
def test_the_memory_of_the_process_stays_near_the_limit(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Resident memory, which includes the libraries', in a process of its own. Snappy's size is known before it is
    expanded; the others may use twice the limit while the pieces are joined, lz4 in v0 a copy of its input."""
    codec, magic, bomb = BOMBS[name]
    file = tmp_path_factory.mktemp("bomb") / "data"
    data = bomb(GIB)
    file.write_bytes(data)
    command = [sys.executable, "-c", MEASURED, str(int(codec)), str(magic), str(LIMIT), str(file)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    copies = 2 * len(data) if magic == 0 else 0
    assert int(result.stdout) * KIB < 8 * LIMIT + copies


# --- where they would go off -------------------------------------------------------------------------------------


def in_batch(codec: Codec, payload: bytes, count: int = 1) -> bytearray:
    header = struct.pack(">qiibIhiqqqhii", 0, 49 + len(payload), 0, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count)
    data = bytearray(header + payload)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def in_wrapper(magic: int, codec: Codec, payload: bytes) -> bytearray:
    body = struct.pack(">bb", magic, codec) + bytes(8 * magic) + struct.pack(">ii", -1, len(payload)) + payload
    return bytearray(struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body)


@each_bomb
def test_neither_reading_nor_appending_expands_a_bomb(name: str) -> None:
    codec, magic, bomb = BOMBS[name]
    payload = bomb(GIB)
    packed = in_wrapper(magic, codec, payload) if magic < 2 else in_batch(codec, payload)
    facts = analyze(packed)
    with pytest.raises(RecordTooLarge):
        batch_at(packed).records(max_bytes=LIMIT)
    rules = AppendRules(magic=magic, decompressed_bytes_max=LIMIT)
    with pytest.raises(RecordTooLarge):
        assign_offsets(packed, facts, rules, first_offset=0, leader_epoch=0, now=0)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_a_bomb_inside_a_wrapper_inside_a_wrapper_is_not_reached(magic: int, codec: Codec) -> None:
    """Nested wrappers are rejected, so the inner one is never decompressed."""
    inner = in_wrapper(magic, Codec.SNAPPY, b"\xff\xff\xff\xff\x0f")
    with pytest.raises(CorruptRecord, match="compressed itself"):
        batch_at(in_wrapper(magic, codec, compress(codec, inner, magic=magic))).records(max_bytes=LIMIT)


def test_a_batch_that_declares_two_billion_records_uses_no_memory() -> None:
    data = in_batch(Codec.NONE, b"\x0c\x00\x00\x00\x01\x01\x00", count=2**31 - 1)
    batch = RecordBatch(data)
    batch.ensure_valid()
    with pytest.raises(CorruptRecord, match="record 2 of"):
        list(batch.records())


def test_a_record_that_declares_two_billion_headers_uses_no_memory() -> None:
    data = in_batch(Codec.NONE, b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f")
    with pytest.raises(CorruptRecord, match="record 1 of 1"):
        list(RecordBatch(data).records())
