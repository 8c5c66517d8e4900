"""The five codecs of a batch, each through its library, in the framing that Kafka's clients read.

    gzip     RFC 1952; several consecutive members are read as one
    snappy   written in xerial's framing (blocks of 32 KiB); read: that, and one bare block
    lz4      one frame of independent blocks (Java's reader rejects linked ones), without content size or checksum;
             in v0 with the old header checksum (lz4_header.py)
    zstd     RFC 8878, in v2 only; several frames are read as one; with or without content size

Invariants: decompression never uses much more memory than the caller's limit, whatever the data claims. Truncated or
corrupt data, and data with trailing bytes, raise CorruptRecord. A library is imported when its codec is first used.
Source: KIP-57 (lz4), KIP-110 (zstd), KIP-390 (levels); the framing of snappy-java's SnappyOutputStream; lz4's frame
format 1.6.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.errors import CorruptRecord, InvalidConfig, RecordTooLarge, UnsupportedCompressionType
from tidelog.records.v2.lz4_header import with_old_checksum, with_right_checksum
from tidelog.types import Codec

if TYPE_CHECKING:
    import zstandard

Input: TypeAlias = bytes | bytearray | memoryview

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The default limit: a hundred times the default `max.message.bytes`, and small enough for any node's memory."""

LEVELS: Final = {
    Codec.GZIP: (1, 9, 6),
    Codec.LZ4: (1, 17, 1),
    Codec.ZSTD: (-131072, 22, 3),
}
"""Lowest, highest and default level of the codecs with levels (KIP-390; lz4 from level 3 on is its slow, tighter
mode)."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_SIZE: Final = struct.Struct(">i")

_ZSTD_EXPANSION_SHIFT: Final = 15
"""4 bytes of zstd can expand to a block of 128 KiB, 2**15 times as much. The input is fed in pieces that cannot expand
beyond the limit, so that at most twice the limit is in memory."""
_ZSTD_PIECE_BYTES_MIN: Final = 64
"""With limits below 2 MiB the excess may be these 2 MiB: smaller pieces would only cost calls."""
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27
"""The window of level 22, and the maximum of Kafka's reader; a frame may claim up to 2 TiB. A window's memory is
allocated, but only touched as far as output fills it, so a small limit uses little memory."""
_ZSTD_SIZE_UNKNOWN: Final = 2**64 - 1
_ZSTD_HEADER_BYTES_MAX: Final = 18
_LZ4_STEP_BYTES_MIN: Final = 1024
_GZIP_PIECE_BYTES_MIN: Final = 4096
"""The library returns a copy of the bytes after a member. Pieces that start small for each member keep the cost of a
stream of many empty members linear instead of quadratic."""

_per_thread = threading.local()


def compress(codec: Codec, data: Input, level: int | None = None, *, magic: int = 2) -> bytes:
    """Return the compressed form of `data`. level: within `LEVELS`; None for the codec's default. magic: format that
    the result becomes part of.

    Raises InvalidConfig for a level that the codec does not have, UnsupportedCompressionType for zstd below v2 and if
    the codec's library is missing.
    """
    level = checked_level(checked_codec(codec, magic), level)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            gzip = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            return gzip.compress(data) + gzip.flush()
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            frame: bytes = codec_library(codec).compress(
                data, compression_level=lz4_level(level), block_linked=False, store_size=False
            )
            return with_old_checksum(frame) if magic == 0 else frame
        case Codec.ZSTD:
            return _zstd_compressor(level).compress(data)


def checked_codec(codec: Codec, magic: int) -> Codec:
    """Return the codec if the format supports it. Raises UnsupportedCompressionType for zstd in v0 and v1 (KIP-110)."""
    if codec is Codec.ZSTD and magic < 2:
        raise UnsupportedCompressionType(f"format v{magic} has no codec zstd: use gzip, snappy or lz4, or format v2")
    return codec


def lz4_level(level: int) -> int:
    """Return lz4's own number for a level: all levels below 3 are its fast mode, 0."""
    return level if level > 2 else 0


def checked_level(codec: Codec, level: int | None) -> int:
    """Return the level to use; None for the codec's default. Raises InvalidConfig for a level that does not exist."""
    low, high, default = LEVELS.get(codec, (0, 0, 0))
    if level is None:
        return default
    if codec not in LEVELS:
        raise InvalidConfig(
            f"codec {codec.name.lower()} has no compression levels, but level {level} was given: omit it"
        )
    if not low <= level <= high:
        raise InvalidConfig(f"codec {codec.name.lower()} has levels {low} to {high}, but level {level} was given")
    return level


def decompress(codec: Codec, data: Input, max_bytes: int = DECOMPRESSED_BYTES_MAX, *, magic: int = 2) -> bytes:
    """Return the decompressed data. magic: format that `data` is part of.

    Raises CorruptRecord for incomplete or corrupt data, RecordTooLarge if the result exceeds `max_bytes`,
    UnsupportedCompressionType for zstd below v2 and if the codec's library is missing.
    """
    if magic < 2:
        checked_codec(codec, magic)
        if codec is Codec.LZ4 and magic == 0:
            data = with_right_checksum(data)
    return _DECOMPRESSORS[codec](data, max_bytes)


def _decompress_none(data: Input, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise _too_large(Codec.NONE, max_bytes)
    return bytes(data)


def _decompress_gzip(data: Input, max_bytes: int) -> bytes:
    view, position, left = memoryview(data), 0, max_bytes
    parts: list[bytes] = []
    while True:
        member, step = zlib.decompressobj(16 + zlib.MAX_WBITS), _GZIP_PIECE_BYTES_MIN
        while not member.eof:
            piece = view[position : position + step]
            if not piece:
                raise _damaged(Codec.GZIP, "the stream is truncated")
            try:
                parts.append(member.decompress(piece, left + 1))
            except zlib.error as error:
                raise _damaged(Codec.GZIP, str(error)) from error
            left -= len(parts[-1])
            if left < 0:
                raise _too_large(Codec.GZIP, max_bytes)
            position, step = position + len(piece), 4 * step
        position -= len(member.unused_data)
        if position == len(view):
            return b"".join(parts)


def _compress_snappy(data: Input) -> bytes:
    view = memoryview(data)
    starts = range(0, len(view), XERIAL_BLOCK_BYTES)
    return XERIAL_HEADER + b"".join(xerial_block(view[start : start + XERIAL_BLOCK_BYTES]) for start in starts)


def xerial_block(data: memoryview) -> bytes:
    """Return one block of xerial's framing, preceded by its size."""
    block = bytes(codec_library(Codec.SNAPPY).snappy.compress_raw(data))
    return _BLOCK_SIZE.pack(len(block)) + block


def _decompress_snappy(data: Input, max_bytes: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes, max_bytes)
    position, left = len(XERIAL_HEADER), max_bytes
    if len(view) < position:
        raise _damaged(Codec.SNAPPY, "the stream header is truncated")
    parts = []
    while position < len(view):
        start = position + _BLOCK_SIZE.size
        if start > len(view):
            raise _damaged(Codec.SNAPPY, "the size of a block is truncated")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position = start + size
        if size < 0 or position > len(view):
            raise _damaged(Codec.SNAPPY, f"a block claims {size} bytes, {len(view) - start} are left")
        parts.append(_decompress_snappy_block(view[start:position], left, max_bytes))
        left -= len(parts[-1])
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, left: int, max_bytes: int) -> bytes:
    """Decompress one block. left: the part of the limit max_bytes that previous blocks have not used. The block's size
    field is checked before the block is expanded."""
    cramjam = codec_library(Codec.SNAPPY)
    try:
        if cramjam.snappy.decompress_raw_len(block) > left:
            raise _too_large(Codec.SNAPPY, max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, str(error)) from error


def _decompress_lz4(data: Input, max_bytes: int) -> bytes:
    frame = codec_library(Codec.LZ4).LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = max_bytes
    step = max(4 * len(data), _LZ4_STEP_BYTES_MIN)
    while True:
        try:
            parts.append(frame.decompress(data, max_length=min(step, left + 1)))
        except RuntimeError as error:
            raise _damaged(Codec.LZ4, str(error)) from error
        left -= len(parts[-1])
        if left < 0:
            raise _too_large(Codec.LZ4, max_bytes)
        if frame.eof:
            break
        if frame.needs_input:
            raise _damaged(Codec.LZ4, "the frame is truncated")
        data, step = b"", 4 * step
    if frame.unused_data:
        raise _damaged(Codec.LZ4, f"{len(frame.unused_data)} bytes follow the frame")
    return b"".join(parts)


def _decompress_zstd(data: Input, max_bytes: int) -> bytes:
    library = codec_library(Codec.ZSTD)
    decompressor = _zstd_decompressor()
    view, position, left = memoryview(data), 0, max_bytes
    step = max(_ZSTD_PIECE_BYTES_MIN, max_bytes >> _ZSTD_EXPANSION_SHIFT)
    parts: list[bytes] = []
    _check_zstd_claims(view, left, max_bytes)
    frame = decompressor.decompressobj()
    while position < len(view):
        piece = view[position : position + step]
        try:
            parts.append(frame.decompress(piece))
        except library.ZstdError as error:
            raise _damaged(Codec.ZSTD, str(error)) from error
        left -= len(parts[-1])
        if left < 0:
            raise _too_large(Codec.ZSTD, max_bytes)
        position += len(piece)
        if frame.eof:
            position -= len(frame.unused_data)
            if position == len(view):
                return b"".join(parts)
            _check_zstd_claims(view[position:], left, max_bytes)
            frame = decompressor.decompressobj()
    raise _damaged(Codec.ZSTD, "the frame is truncated")


def _check_zstd_claims(frame: memoryview, left: int, max_bytes: int) -> None:
    """Reject a frame by the size and the window in its header, before memory is allocated for them."""
    library = codec_library(Codec.ZSTD)
    try:
        claims = library.get_frame_parameters(frame[:_ZSTD_HEADER_BYTES_MAX])
    except library.ZstdError as error:
        raise _damaged(Codec.ZSTD, str(error)) from error
    if left < claims.content_size != _ZSTD_SIZE_UNKNOWN:
        raise _too_large(Codec.ZSTD, max_bytes)
    if claims.window_size > _ZSTD_WINDOW_BYTES_MAX:
        raise RecordTooLarge(
            f"the records were compressed with a window of {claims.window_size} bytes (zstd), the maximum is "
            f"{_ZSTD_WINDOW_BYTES_MAX}: compress them with a smaller window"
        )


_DECOMPRESSORS: Final[dict[Codec, Callable[[Input, int], bytes]]] = {
    Codec.NONE: _decompress_none,
    Codec.GZIP: _decompress_gzip,
    Codec.SNAPPY: _decompress_snappy,
    Codec.LZ4: _decompress_lz4,
    Codec.ZSTD: _decompress_zstd,
}


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """Return a compressor, one per thread and level: it must not be shared, and creating one is expensive."""
    compressors: dict[int, zstandard.ZstdCompressor] = _per_thread.__dict__.setdefault("zstd_compressors", {})
    if level not in compressors:
        compressors[level] = codec_library(Codec.ZSTD).ZstdCompressor(level=level)
    return compressors[level]


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    made: zstandard.ZstdDecompressor | None = _per_thread.__dict__.get("zstd_decompressor")
    if made is None:
        made = codec_library(Codec.ZSTD).ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
        _per_thread.zstd_decompressor = made
    return made


_MODULES: Final = {
    Codec.SNAPPY: ("cramjam", "cramjam"),
    Codec.LZ4: ("lz4.frame", "lz4"),
    Codec.ZSTD: ("zstandard", "zstandard"),
}
"""Per codec, the module that implements it and the package that contains the module."""

_libraries: dict[Codec, Any] = {}


def codec_library(codec: Codec) -> Any:
    """Return the codec's module, imported on first use. Raises UnsupportedCompressionType, naming the missing
    package."""
    found = _libraries.get(codec)
    if found is None:
        import importlib

        module, package = _MODULES[codec]
        try:
            found = _libraries[codec] = importlib.import_module(module)
        except ImportError as error:
            raise UnsupportedCompressionType(
                f"codec {codec.name.lower()} needs the package {package}, which cannot be imported: install {package}"
            ) from error
    return found


def _damaged(codec: Codec, reason: str) -> CorruptRecord:
    return CorruptRecord(
        f"the records cannot be decompressed as {codec.name.lower()}: {reason}; "
        "they are corrupt or were written by a faulty producer"
    )


def _too_large(codec: Codec, max_bytes: int) -> RecordTooLarge:
    return RecordTooLarge(
        f"the records exceed {max_bytes} bytes when decompressed ({codec.name.lower()}): "
        "send smaller batches, or read with a higher limit"
    )
