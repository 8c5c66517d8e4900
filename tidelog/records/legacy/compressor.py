"""Streaming compression directly into a sink; builds a wrapper's value without an intermediate copy.

Invariants: the output decompresses (`decompress`) to the input. Memory stays at one block of the codec, for any length.
Not here: compression of whole buffers (compression.py).
Source: Kafka's CompressionType, which wraps a stream around MessageWriter; the framings of compression.py.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Protocol

from tidelog.errors import UnsupportedCompressionType
from tidelog.records.legacy.buffering_output_stream import Sink
from tidelog.records.v2.compression import (
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    checked_codec,
    checked_level,
    codec_library,
    lz4_level,
    xerial_block,
)
from tidelog.records.v2.lz4_header import with_old_checksum
from tidelog.types import Codec

_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class Compressor(Protocol):
    """Accepts bytes and writes the compressed form to its sink; complete after `close`, which keeps the sink open."""

    def write(self, data: bytes | memoryview, /) -> object: ...

    def close(self) -> None: ...


def open_compressor(codec: Codec, sink: Sink, level: int | None = None, *, magic: int) -> Compressor:
    """Return a compressor that writes into `sink`. magic: format that the result becomes part of.

    Raises InvalidConfig for a level that the codec does not have, UnsupportedCompressionType for zstd, which needs v2,
    or if the codec's library is missing.
    """
    level = checked_level(checked_codec(codec, magic), level)
    match codec:
        case Codec.GZIP:
            return _Gzip(sink, level)
        case Codec.SNAPPY:
            return _Snappy(sink)
        case Codec.LZ4:
            return _Lz4(sink, level, old_checksum=magic == 0)
        case _:
            raise UnsupportedCompressionType(f"codec {codec.name.lower()} has no streaming compressor: use compress")


class _Gzip:
    def __init__(self, sink: Sink, level: int) -> None:
        self._sink = sink
        self._gzip = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)

    def write(self, data: bytes | memoryview, /) -> None:
        self._sink.write(self._gzip.compress(data))

    def close(self) -> None:
        self._sink.write(self._gzip.flush())


class _Snappy:
    """Xerial's framing: every full block is written at once, the rest on close."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._block = bytearray()
        sink.write(XERIAL_HEADER)

    def write(self, data: bytes | memoryview, /) -> None:
        self._block += data
        position, full = 0, len(self._block) - len(self._block) % XERIAL_BLOCK_BYTES
        with memoryview(self._block) as view:
            while position < full:
                self._sink.write(xerial_block(view[position : position + XERIAL_BLOCK_BYTES]))
                position += XERIAL_BLOCK_BYTES
        del self._block[:full]

    def close(self) -> None:
        if self._block:
            self._sink.write(xerial_block(memoryview(self._block)))


class _Lz4:
    def __init__(self, sink: Sink, level: int, *, old_checksum: bool) -> None:
        self._sink = sink
        library = codec_library(Codec.LZ4)
        self._frame: Any = library.LZ4FrameCompressor(compression_level=lz4_level(level), block_linked=False)
        header = bytes(self._frame.begin())
        sink.write(with_old_checksum(header) if old_checksum else header)

    def write(self, data: bytes | memoryview, /) -> None:
        self._sink.write(self._frame.compress(data))

    def close(self) -> None:
        self._sink.write(self._frame.flush())
