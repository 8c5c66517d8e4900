"""JSON-RPC over a WebSocket (RFC 6455) on this machine, as pages in development mode and browsers speak it."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

from node.process.local_cluster import HOST

_ANSWER_S: Final = 60.0
_TEXT: Final = 0x1
_CLOSE: Final = 0x8
_FINAL: Final = 0x80
_MASKED: Final = 0x80
_SHORT_MAX: Final = 125
_IN_2_BYTES: Final = 126
_IN_8_BYTES: Final = 127


class Refused(Exception):
    """The other side ended the conversation, or answered with an error; the text is what it said."""


class JsonRpc:
    """One connection; it asks one thing at a time."""

    def __init__(self, port: int, path: str) -> None:
        """Raises OSError if nothing listens there yet, Refused if it is no WebSocket."""
        self._socket = socket.create_connection((HOST, port), _ANSWER_S)
        self._reader = self._socket.makefile("rb")
        self._asked = 0
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {HOST}:{port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        )
        self._socket.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        status = self._reader.readline().decode()
        if " 101 " not in status:
            self.close()
            raise Refused(f"{path}: {status.strip() or 'no answer'}")
        while self._reader.readline().strip():
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def ask(self, method: str, **params: object) -> Any:
        """The result of a method. Raises Refused."""
        self._asked += 1
        self._send(json.dumps({"id": self._asked, "method": method, "params": params}).encode())
        while True:
            answer = json.loads(self._message())
            if answer.get("id") != self._asked:
                continue  # a notification, which nobody has asked for
            if "error" in answer:
                raise Refused(f"{method}: {answer['error']}")
            return answer["result"]

    def _send(self, text: bytes) -> None:
        mask = os.urandom(4)  # a server closes the connection of a client that does not mask
        # The shortest form of the length: a server closes the connection over a longer one too.
        if len(text) <= _SHORT_MAX:
            head = struct.pack(">BB", _FINAL | _TEXT, _MASKED | len(text))
        else:
            head = struct.pack(">BBH", _FINAL | _TEXT, _MASKED | _IN_2_BYTES, len(text))
        self._socket.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(text)))

    def _message(self) -> bytes:
        """The next message, whose frames may be many."""
        parts: list[bytes] = []
        while True:
            kind, length = struct.unpack(">BB", self._exactly(2))
            if length == _IN_2_BYTES:
                (length,) = struct.unpack(">H", self._exactly(2))
            elif length == _IN_8_BYTES:
                (length,) = struct.unpack(">Q", self._exactly(8))
            body = self._exactly(length)
            if kind & 0xF == _CLOSE:
                raise Refused(f"the connection is closed: {body[2:].decode(errors='replace')}")
            if kind & 0x8:
                continue  # a ping, which no answer is owed within the minute of a test
            parts.append(body)
            if kind & _FINAL:
                return b"".join(parts)

    def _exactly(self, count: int) -> bytes:
        data = self._reader.read(count)
        if len(data) < count:
            raise Refused("the connection ended within a message")
        return data
