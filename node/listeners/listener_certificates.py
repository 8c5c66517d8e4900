"""The certificate of a listener, which follows its files, and who is at the other end of a connection with one.

Invariants: a certificate that was replaced on disk is used by the next connection, without a restart. Files that cannot
be used are logged once and change nothing. An identity comes from the certificate that the TLS library has verified,
never from what a caller sends. It ends with the certificate: only full handshakes are verified, and a caller may resume
the session of an earlier connection (RFC 8446, section 2.2).
Not here: handshakes (node/listeners/grpc/server_tls.py, node/listeners/kafka/kafka_tls.py).
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from node.api.caller import ANONYMOUS
from node.listener_settings import ListenerTls
from node.security.certificate_expiry import CertificateExpiry
from node.security.principals import USER, CertificatePrincipals
from tidelog.clock import Clock
from tidelog.errors import ClientCertificateRejected, ClusterAuthorizationFailed, InvalidConfig
from tidelog.security.tls_files import Pem, TlsFiles
from tidelog.values import dataclass

_log = logging.getLogger("node.tls")


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The identity of a caller. is_node: it may be a node: it has a node's certificate, or none is required."""

    principal: str = ANONYMOUS
    is_node: bool = True


UNPROVED: Final = CallerIdentity()
"""The caller of a listener that requires no certificate."""


class ListenerCertificates:
    """The files of one listener, and the principals of its callers."""

    def __init__(self, listener: str, config: ListenerTls, clock: Clock) -> None:
        """Read the files. Raises InvalidConfig."""
        self._listener, self._config, self._clock = listener, config, clock
        self._files = _read(listener, config)
        self._is_new = False
        """Whether the TLS library does not have the present files yet."""
        self.expiry = CertificateExpiry(listener, config.certificate_file, clock)
        self.expiry.read(self._certificate())
        self._principals = CertificatePrincipals(config.mapping_rules)
        self._lock = threading.Lock()

    @property
    def requires_certificate(self) -> bool:
        """Whether callers must have a certificate."""
        return self._config.requires_certificate

    @property
    def pem(self) -> Pem:
        """The contents of the files."""
        return self._files.pem

    def identity_of(self, certificate: bytes, *, has_sasl: bool = False) -> CallerIdentity:
        """Who has this certificate, in PEM form, which was verified. has_sasl: SASL says who, and the certificate is
        only checked. A node may have a certificate with an empty subject, as of authorities that name hosts as
        alternatives only: what it asks as a client, it asks as anonymous. Raises ClusterAuthorizationFailed if the
        certificate belongs to no principal, ClientCertificateRejected if it has expired since the connection was
        made."""
        if not self._config.requires_certificate:
            return UNPROVED
        try:
            holder = self._principals.of(certificate)
        except ValueError as error:
            raise ClusterAuthorizationFailed(
                f"listener {self._listener!r}: the caller's certificate cannot be read ({error}). Replace it by one "
                "with a subject in standard form (RFC 5280)"
            ) from None
        if self._clock.wall_ms() >= holder.expires_ms:
            raise ClientCertificateRejected(
                f"listener {self._listener!r}: the caller's certificate has expired since it connected. Replace it"
            )
        if has_sasl:
            return UNPROVED
        if holder.principal is None:
            raise ClusterAuthorizationFailed(
                f"listener {self._listener!r}: no rule of ssl.principal.mapping.rules matches the subject of the "
                "caller's certificate. Add a rule, for example DEFAULT as the last one"
            )
        if holder.principal != USER:
            return CallerIdentity(holder.principal, holder.is_node)
        if not holder.is_node:
            raise ClusterAuthorizationFailed(
                f"listener {self._listener!r}: the caller's certificate names nobody: its subject, or what "
                "ssl.principal.mapping.rules make of it, is empty. Replace it by one with a subject"
            )
        return UNPROVED

    def look(self) -> None:
        """Read the files if they have changed, and log if the certificate expires soon. Reads the disk; thread-safe."""
        with self._lock:
            self._refresh()
            self.expiry.look()

    def _refresh(self) -> None:
        """Read the files if they have changed. The caller holds the lock."""
        try:
            if not self._files.refresh():
                return
        except InvalidConfig as error:
            _log.error(
                "listener %r keeps its certificate: the files have changed and cannot be used: %s",
                self._listener,
                error.message,
            )
            return
        self._is_new = True
        _log.info("listener %r uses the certificate that was replaced on disk", self._listener)
        self.expiry.read(self._certificate())

    def _certificate(self) -> bytes:
        assert self._files.pem.certificate is not None, "the configuration names the file"
        return self._files.pem.certificate


def _read(listener: str, config: ListenerTls) -> TlsFiles:
    try:
        return TlsFiles(config.files)
    except InvalidConfig as error:
        raise InvalidConfig(f"listener {listener!r}: {error.message}") from None
