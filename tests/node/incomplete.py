"""A caller that begins messages and never completes them, in frames of HTTP/2: gRPC keeps what has arrived."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final

from tidelog.types import Endpoint

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
_FRAME_BYTES: Final = 16_384
_WINDOW: Final = 65_535


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers_of(path: str) -> bytes:
    """The header block of a gRPC call, without compression."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "node",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    return b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )


class EndlessSender:
    """One connection with calls of which each has sent all of a message but its last byte, as far as the node lets it.
    `sent` counts the bytes of messages."""

    def __init__(self, path: str, calls: int, message_bytes: int, *, host: str = "127.0.0.1") -> None:
        """host: the address from which it connects."""
        self._path, self._message_bytes, self._host = path, message_bytes, host
        self._left = {1 + 2 * number: message_bytes - 1 for number in range(calls)}
        self._windows = dict.fromkeys(self._left, _WINDOW)
        self._window, self._initial = _WINDOW, _WINDOW
        self.sent = 0
        self.closed = False
        """The node has closed the connection."""

    async def run(self, address: Endpoint) -> None:
        """Send until the node closes the connection."""
        reader, writer = await asyncio.open_connection(address.host, address.port, local_addr=(self._host, 0))
        try:
            writer.write(PREFACE + frame(SETTINGS, 0, 0, b""))
            for stream in self._left:
                writer.write(frame(HEADERS, 4, stream, headers_of(self._path)))
                prefix = struct.pack(">BI", 0, self._message_bytes)
                writer.write(frame(DATA, 0, stream, prefix))
                self._spend(stream, len(prefix))
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    await self._send(writer)
                    await self._take(reader, writer)
        finally:
            self.closed = True
            writer.close()

    def _spend(self, stream: int, size: int) -> None:
        self._windows[stream] -= size
        self._window -= size

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        for stream, left in self._left.items():
            while (size := min(left, self._windows[stream], self._window, _FRAME_BYTES)) > 0:
                writer.write(frame(DATA, 0, stream, bytes(size)))
                self._spend(stream, size)
                left -= size
                self.sent += size
                await writer.drain()
            self._left[stream] = left

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One frame of the node."""
        head = await reader.readexactly(9)
        size, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
        payload = await reader.readexactly(size)
        if kind == WINDOW_UPDATE and stream == 0:
            self._window += int.from_bytes(payload, "big")
        elif kind == WINDOW_UPDATE and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & 1:
            for at in range(0, size, 6):
                name, value = struct.unpack_from(">HI", payload, at)
                if name == 4:  # INITIAL_WINDOW_SIZE, for open streams too
                    for each in self._windows:
                        self._windows[each] += value - self._initial
                    self._initial = value
            writer.write(frame(SETTINGS, 1, 0, b""))
        elif kind == PING and not flags & 1:
            writer.write(frame(PING, 1, 0, payload))
