"""TLS of a gRPC listener: credentials that follow their files, and the certificates of callers."""

from __future__ import annotations

from typing import Any, Final, cast

import grpc

from node.listeners.listener_certificates import CallerIdentity, ListenerCertificates

STREAM_GRACE_MS: Final = 10_000
"""How long the open calls and streams of a connection may continue after it has reached its maximum age."""

_CERTIFICATE: Final = "x509_pem_cert"
"""Key of gRPC's auth context: the verified certificate of the caller."""


class ServerTls(ListenerCertificates):
    """TLS of one listener."""

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for the port. gRPC's default is TLS 1.2 and 1.3."""
        return grpc.dynamic_ssl_server_credentials(
            self._configuration(),
            cast("Any", self._changed),
            require_client_authentication=self._config.requires_certificate,
        )

    def options(self) -> list[tuple[str, int]]:
        """gRPC's options of the server: how long a connection may last."""
        return [
            ("grpc.max_connection_age_ms", self._config.age_ms_max),
            ("grpc.max_connection_age_grace_ms", STREAM_GRACE_MS),
        ]

    def identity(self, call: Any, *, has_sasl: bool = False) -> CallerIdentity:
        """The identity of the caller: see `identity_of`."""
        certificates = call.auth_context().get(_CERTIFICATE, ()) if self.requires_certificate else ()
        return self.identity_of(certificates[0] if certificates else b"", has_sasl=has_sasl)

    def _changed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new certificate, None if it is the same. gRPC calls this before each handshake, on its own threads."""
        with self._lock:
            self._refresh()
            if not self._is_new:
                return None
            self._is_new = False
            return self._configuration()

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pem = self.pem
        assert pem.key is not None and pem.certificate is not None, "the configuration names both files"
        ca = pem.ca if self._config.requires_certificate else None
        return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], ca)
