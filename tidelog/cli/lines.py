"""Reads lines of standard input or of a file, plain or gzip, without delay.

Invariant: memory is bounded by the maximum line length.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog.errors import InvalidRequest

CHUNK_BYTES: Final = 256 * 1024
GZIP_MAGIC: Final = b"\x1f\x8b"

Read = Callable[[], bytes]
"""Return the next bytes, or none at the end. Blocks until some are available."""


@contextmanager
def opened(path: Path | None, *, is_needed: bool = True) -> Iterator[Read]:
    """Open standard input or a file. Raises InvalidRequest if standard input is closed, OSError. is_needed: False for
    an empty input."""
    if not is_needed:
        yield lambda: b""
        return
    if path is not None:
        with path.open("rb", buffering=0) as file:
            yield lambda: file.read(CHUNK_BYTES) or b""
        return
    if sys.stdin is None:
        raise InvalidRequest("standard input is closed: pass the lines there, or name a file with --input")
    try:
        number = sys.stdin.fileno()
    except OSError:  # standard input was replaced by a buffer
        yield lambda: sys.stdin.buffer.read(CHUNK_BYTES)
        return
    yield lambda: os.read(number, CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class Line:
    """What stands between two delimiters, without them."""

    number: int
    """From 1 on."""
    content: bytes
    is_too_long: bool = False
    """It is longer than a record may be; its content is left out."""


async def lines(
    read: Read, *, packed_name: str | None, line_bytes_max: int, delimiter: bytes = b"\n", strips_return: bool = True
) -> AsyncIterator[Line]:
    """Yield lines without line ends.

    packed_name: name of the source in messages, if it may be gzip (detected by its first two bytes); None: never gzip.
    strips_return: remove a carriage return before the delimiter too. Raises InvalidRequest for corrupt gzip.
    """
    chunks = _chunks(read)
    if packed_name is not None:
        chunks = _unpacked(chunks, packed_name)
    number, rest, is_too_long = 1, bytearray(), False
    async for chunk in chunks:
        searched = max(0, len(rest) - len(delimiter) + 1)  # a long line is not searched again with each chunk
        rest += chunk
        if rest.find(delimiter, searched) >= 0:
            *whole, last = bytes(rest).split(delimiter)
            for content in whole:
                if strips_return:
                    content = content.removesuffix(b"\r")
                is_too_long = is_too_long or len(content) > line_bytes_max
                yield Line(number, b"" if is_too_long else content, is_too_long)
                number, is_too_long = number + 1, False
            rest = bytearray(last)
        if len(rest) > line_bytes_max + len(delimiter):
            # Only so much is kept as may be the beginning of the delimiter.
            rest, is_too_long = rest[-len(delimiter) :], True
    is_too_long = is_too_long or len(rest) > line_bytes_max
    if is_too_long or rest:
        yield Line(number, b"" if is_too_long else bytes(rest), is_too_long)


async def _chunks(read: Read) -> AsyncIterator[bytes]:
    while chunk := await _in_a_free_thread(read):
        yield chunk


def _in_a_free_thread(read: Read) -> asyncio.Future[bytes]:
    """Call `read` in a daemon thread, and return the future of its result. The call can be abandoned: an interrupt must
    end the command even if no input arrives from a terminal or pipe."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[bytes] = loop.create_future()

    def settle(chunk: bytes, error: OSError | None) -> None:
        if outcome.done():
            return
        if error is None:
            outcome.set_result(chunk)
        else:
            outcome.set_exception(error)

    def work() -> None:
        chunk, failure = b"", None
        try:
            chunk = read()
        except OSError as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: the call was abandoned
            loop.call_soon_threadsafe(settle, chunk, failure)

    threading.Thread(target=work, name="tidelog input", daemon=True).start()
    return outcome


async def _unpacked(chunks: AsyncIterator[bytes], name: str) -> AsyncIterator[bytes]:
    """Yield the bytes unchanged or, if they start like gzip, decompressed: all members, one after the other."""
    head = b""
    async for chunk in chunks:
        head += chunk
        if len(head) >= len(GZIP_MAGIC):
            break
    if not head.startswith(GZIP_MAGIC):
        yield head
        async for chunk in chunks:
            yield chunk
        return
    member = None
    packed = head
    try:
        while packed:
            if member is None:
                packed = packed.lstrip(b"\0")  # a member may be padded with zeros to a block
                member = zlib.decompressobj(wbits=31) if packed else None
            else:
                yield member.decompress(packed, CHUNK_BYTES)
                packed = member.unconsumed_tail or member.unused_data
                member = None if member.eof else member
            packed = packed or await anext(chunks, b"")
    except zlib.error as error:
        raise InvalidRequest(f"{name} is corrupt gzip ({error}): the lines before the damage were sent") from None
    if member is not None:
        raise InvalidRequest(f"{name} is truncated gzip: the lines that it contains were sent")
