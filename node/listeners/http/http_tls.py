"""TLS of the HTTP port: the files and the rules of a listener that has TLS. A certificate is asked for, not required:
scrapers have none, and a person may log in with a password instead."""

from __future__ import annotations

import ssl

from node.api.caller import ANONYMOUS
from node.listeners.kafka.kafka_tls import KafkaTls
from tidelog.errors import ClientCertificateRejected, ClusterAuthorizationFailed


class HttpTls(KafkaTls):
    """TLS of the HTTP port."""

    def principal_of(self, certificate: bytes | None) -> str | None:
        """Whose certificate it is (DER); None if there is none, or it names nobody."""
        if certificate is None or not self.requires_certificate:
            return None
        try:
            identity = self.identity(certificate)
        except (ClientCertificateRejected, ClusterAuthorizationFailed):  # the visitor can log in instead
            return None
        # A node's certificate without a subject: nobody that could be named in the audit log.
        return None if identity.principal == ANONYMOUS else identity.principal

    def _made(self) -> ssl.SSLContext:
        context = super()._made()
        if self.requires_certificate:
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
