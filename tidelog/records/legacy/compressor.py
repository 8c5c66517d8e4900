"""Compression piece by piece; builds a wrapper's value without an intermediate copy.

Invariants: the output decompresses (`decompress`) to the input. Memory stays at one block of the codec, for any length.
Not here: compression of whole buffers (compression.py).
Source: Kafka's CompressionType, which wraps a stream around MessageWriter; the framings of compression.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator

from tidelog.errors import UnsupportedCompressionType
from tidelog.records.v2.compression import (
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Input,
    checked_codec,
    checked_level,
    codec_library,
    lz4_level,
    xerial_block,
)
from tidelog.records.v2.lz4_header import with_old_checksum
from tidelog.types import Codec


def compressed(codec: Codec, pieces: Iterable[Input], level: int | None = None, *, magic: int) -> Iterator[bytes]:
    """Return the compressed form of `pieces`, in pieces. magic: format that the result becomes part of.

    Raises InvalidConfig for a level that the codec does not have, UnsupportedCompressionType for zstd, which needs v2,
    or if the codec's library is missing.
    """
    level = checked_level(checked_codec(codec, magic), level)
    match codec:
        case Codec.GZIP:
            gzip = zlib.compressobj(level, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
            return _framed(b"", pieces, gzip.compress, gzip.flush)
        case Codec.SNAPPY:
            return _snappy(pieces)
        case Codec.LZ4:
            library = codec_library(codec)
            frame = library.LZ4FrameCompressor(compression_level=lz4_level(level), block_linked=False)
            header = bytes(frame.begin())
            return _framed(with_old_checksum(header) if magic == 0 else header, pieces, frame.compress, frame.flush)
        case _:
            raise UnsupportedCompressionType(f"codec {codec.name.lower()} has no streaming compressor: use compress")


def _framed(
    header: bytes, pieces: Iterable[Input], compress: Callable[[Input], bytes], flush: Callable[[], bytes]
) -> Iterator[bytes]:
    yield header
    yield from map(compress, pieces)
    yield flush()


def _snappy(pieces: Iterable[Input]) -> Iterator[bytes]:
    """Yield xerial's framing: every full block at once, the rest at the end."""
    yield XERIAL_HEADER
    block = bytearray()
    for piece in pieces:
        block += piece
        full = len(block) - len(block) % XERIAL_BLOCK_BYTES
        with memoryview(block) as view:
            for start in range(0, full, XERIAL_BLOCK_BYTES):
                yield xerial_block(view[start : start + XERIAL_BLOCK_BYTES])
        del block[:full]
    if block:
        yield xerial_block(memoryview(block))
