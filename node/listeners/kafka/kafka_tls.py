"""TLS of a listener of Kafka's protocol: the context of its handshakes, which follows the files.

Each handshake takes the present files: they are looked at when its first message arrives. A connection counts from
before its handshake on: otherwise callers that never end theirs would be bounded by nothing.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final, cast

from node.listener_settings import ListenerTls
from node.listeners.kafka.kafka_connection import KafkaConnection, ListenerState
from node.listeners.listener_certificates import CallerIdentity, ListenerCertificates
from node.security.authorizer import AuditTrail
from tidelog.clock import Clock

_log = logging.getLogger("node.tls")

HANDSHAKE_MS: Final = 10_000
"""Timeout of a handshake, and of the end of a connection."""

PIECE_BYTES: Final = 64 << 10
"""Bytes that are encrypted, or read to be decrypted, at once. OpenSSL keeps as much memory for a connection, in each
direction, as its largest piece has needed."""


class KafkaTls(ListenerCertificates):
    """TLS of one listener."""

    def __init__(self, listener: str, config: ListenerTls, clock: Clock) -> None:
        """Read the files. Raises InvalidConfig."""
        super().__init__(listener, config, clock)
        self._context = self._made()
        self.context: Final = self._context
        """Of the socket. A handshake continues with the present one."""
        self.read_buffer: Final = bytearray(PIECE_BYTES)
        """Where the sockets of all connections read: OpenSSL takes what has arrived before another one reads."""

    def identity(self, certificate: bytes | None, *, has_sasl: bool = False) -> CallerIdentity:
        """Who connects; as `identity_of`. certificate: as it was sent (DER); None: there is none."""
        pem = b"" if certificate is None else ssl.DER_cert_to_PEM_cert(certificate).encode()
        return self.identity_of(pem, has_sasl=has_sasl)

    def lifetime_ms(self, certificate: bytes | None) -> int:
        """How long a connection may last: at most until the certificate of its client has expired."""
        age_ms = self._config.age_ms_max
        if certificate is None or not self.requires_certificate:
            return age_ms
        pem = ssl.DER_cert_to_PEM_cert(certificate).encode()
        return min(age_ms, self._principals.of(pem).expires_ms - self._clock.wall_ms())

    def refused(self, address: str, error: ssl.SSLError, audit: AuditTrail) -> None:
        """Count a failed handshake."""
        reason = f"the TLS handshake failed: {error}"
        audit.authentication_failed(listener=self._listener, address=address, mechanism="SSL", reason=reason)

    def _made(self) -> ssl.SSLContext:
        """A context with the present files. Raises ssl.SSLError, OSError if they are being replaced."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._config.certificate_file, self._config.key_file)
        if self.requires_certificate:
            assert self.pem.ca is not None, "the configuration names the file"
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.pem.ca.decode("ascii", "ignore"))
        context.sni_callback = self._begin
        return context

    def _begin(self, handshake: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """The first message of a handshake has arrived."""
        with self._lock:
            self._refresh()
            if self._is_new:
                try:
                    self._context, self._is_new = self._made(), False
                except (ssl.SSLError, OSError) as error:  # replaced once more: the next handshake looks again
                    _log.warning("listener %r keeps its certificate for now: %s", self._listener, error)
            handshake.context = self._context


class TlsConnection(SSLProtocol):
    """The socket of a connection with TLS. What asyncio makes by itself tells nobody of a handshake before its end, has
    a buffer of 256 KiB for each connection, and encrypts an answer as a whole, although its client may not read it."""

    max_size = PIECE_BYTES

    def __init__(self, connection: KafkaConnection, shared: ListenerState, tls: KafkaTls) -> None:
        waiter: Any = None  # nobody waits for the handshake
        timeout_s: Any = HANDSHAKE_MS / 1_000
        super().__init__(
            asyncio.get_running_loop(),
            connection,
            tls.context,
            waiter,
            server_side=True,
            ssl_handshake_timeout=timeout_s,
            ssl_shutdown_timeout=timeout_s,
        )
        self._ssl_buffer, self._ssl_buffer_view = tls.read_buffer, memoryview(tls.read_buffer)
        self._connection, self._shared, self._tls = connection, shared, tls
        self._host = self._address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected. The handshake begins, unless there are too many connections."""
        self._host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        self._address = f"{self._host}:{port}"
        if self._shared.accept(self._connection, transport, self._address):
            # It tells of each byte that the system does not take, and again when the last one has left.
            cast("asyncio.WriteTransport", transport).set_write_buffer_limits(high=0)
            super().connection_made(transport)
        else:
            transport.close()

    def _do_write(self) -> None:
        """Encrypt piece by piece what the socket takes. asyncio calls it with all that is to be written, and when it
        has read."""
        own: Any = self  # typeshed knows the fields of an earlier Python
        backlog = own._write_backlog
        try:
            while backlog and not own._ssl_writing_paused:
                data = memoryview(backlog[0])
                count = own._sslobj.write(data[:PIECE_BYTES])
                own._write_buffer_size -= count
                if count < len(data):
                    backlog[0] = data[count:]
                else:
                    backlog.popleft()
                if own._outgoing.pending >= PIECE_BYTES:
                    own._transport.write(own._outgoing.read())
        except ssl.SSLWantReadError:  # TLS needs a message of the client first
            pass
        own._process_outgoing()

    def resume_writing(self) -> None:
        """The socket has taken all that it was given."""
        self._ssl_writing_paused = False
        self._do_write()

    def _do_flush(self) -> None:
        """End TLS. What is still to be written is encrypted before, as a whole: it would be sent behind the end."""
        if self._write_backlog:
            super()._do_write()  # type: ignore[misc]
        super()._do_flush()  # type: ignore[misc]

    def _get_write_buffer_size(self) -> int:
        """What has not left: by this asyncio tells the connection when to write. It counts only what waits above the
        socket, so that an answer of any size would have left at once, and its memory be free, though nobody reads it.
        """
        below = cast("asyncio.WriteTransport | None", self._transport)
        size: int = super()._get_write_buffer_size()  # type: ignore[misc]  # typeshed does not know it
        return size if below is None else size + below.get_write_buffer_size()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is closed, after the handshake or instead of it."""
        if isinstance(exc, ssl.SSLError):  # nothing else tells the operator which client has the wrong files
            text = f"TLS with {self._address} failed: {exc}"
            self._shared.log.closed(f"TLS failed, {exc.reason}", self._host, text, logger=_log)
            if self._connection not in self._shared.connections:  # else the handshake was done
                self._tls.refused(self._address, exc, self._shared.boundary.audit)
        super().connection_lost(exc)
        self._shared.accepted.pop(self._connection, None)
