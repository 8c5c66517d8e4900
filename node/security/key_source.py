"""Where the keys of an identity provider come from: a file, or an address of HTTP or HTTPS. Blocking; used on a worker.

Invariants: an answer is bounded in size, and each wait for the network in time; `abort` ends an attempt from another
thread. Redirects and proxies are not followed: the keys come from the address that the configuration names.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from socket import SHUT_RDWR, socket
from typing import Final
from urllib.parse import unquote, urlsplit

from node.security.json_web_keys import KEY_SET_BYTES_MAX, UnusableKeys

SOCKET_S: Final = 5.0
"""Limit for one wait: for the connection, or for the next bytes."""


def is_file(url: str) -> bool:
    """Whether the URL names a file."""
    return url.startswith("file:")


def path_of(url: str) -> str:
    """The path of a `file:` URL."""
    return unquote(urlsplit(url).path)


def file_state(path: str) -> tuple[int, int, int]:
    """What changes when a file is replaced or written."""
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return 0, 0, 0  # reading it says why
    return status.st_ino, status.st_mtime_ns, status.st_size


def read_key_file(path: str) -> bytes:
    """The document in a file. Raises UnusableKeys."""
    try:
        with Path(path).open("rb") as file:
            return _bounded(file.read(KEY_SET_BYTES_MAX + 1))
    except UnusableKeys:
        raise
    except (OSError, ValueError) as error:
        raise UnusableKeys(f"it cannot be read ({_reason(error)})") from None


class HttpReading:
    """One GET request."""

    def __init__(self, url: str, ca_file: str) -> None:
        """ca_file: the authorities for https; empty: those of the system."""
        self._url, self._ca_file = urlsplit(url), ca_file
        self._socket: socket | None = None
        self._aborted = False

    def run(self) -> bytes:
        """The document. Raises UnusableKeys."""
        if self._aborted:
            raise UnusableKeys("the attempt was ended")
        try:
            connection = self._connection()
            try:
                return self._get(connection)
            finally:
                connection.close()
        except UnusableKeys:
            raise
        except (OSError, HTTPException, ValueError) as error:
            raise UnusableKeys(f"it cannot be fetched ({_reason(error)})") from None

    def abort(self) -> None:
        """End the request soon; called from another thread, also after it has ended."""
        self._aborted = True
        if (present := self._socket) is not None:
            with suppress(OSError):  # it has ended
                socket.shutdown(present, SHUT_RDWR)  # not that of SSLSocket, which is for its own thread

    def _connection(self) -> HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return HTTPConnection(host, port, timeout=SOCKET_S)
        context = ssl.create_default_context(cafile=self._ca_file or None)
        return HTTPSConnection(host, port, timeout=SOCKET_S, context=context)

    def _get(self, connection: HTTPConnection) -> bytes:
        connection.connect()
        self._socket = connection.sock
        if self._aborted:
            raise UnusableKeys("the attempt was ended")
        target = f"{self._url.path or '/'}{'?' + self._url.query if self._url.query else ''}"
        connection.request("GET", target, headers={"Accept": "application/jwk-set+json, application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            moved = ". It is not followed: name the final address" if 300 <= answer.status < 400 else ""
            raise UnusableKeys(f"it was answered with HTTP status {answer.status}{moved}")
        return _bounded(answer.read(KEY_SET_BYTES_MAX + 1))


def _bounded(data: bytes) -> bytes:
    if len(data) > KEY_SET_BYTES_MAX:
        raise UnusableKeys(f"it has more than {KEY_SET_BYTES_MAX} bytes")
    return data


def _reason(error: Exception) -> str:
    """The cause of a failure, without anything that the other side sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__ if isinstance(error, HTTPException | ValueError) else str(error) or type(error).__name__
