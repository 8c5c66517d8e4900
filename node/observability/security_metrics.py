"""Metrics of authentication and authorization: events of the audit log, and sessions and handshakes of SASL,
and when certificates expire.

No label comes from a caller. Errors by their name are in the metrics of requests (request_metrics.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from node.security.audit_log import AuditLog
from node.security.certificate_expiry import CertificateExpiry
from node.security.sasl_authenticator import SaslAuthenticator


class SecurityCollector(Collector):
    """Collects from the audit log, the authenticator and the certificates of a node."""

    def __init__(
        self, audit: AuditLog, sasl: SaslAuthenticator, certificates: Sequence[CertificateExpiry] = ()
    ) -> None:
        self._audit, self._sasl, self._certificates = audit, sasl, certificates

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "tidelog_audit_events",
            "Events for the audit log, also those that were only counted there",
            labels=("event",),
        )
        for event, count in self._audit.counts.items():
            events.add_metric((event,), count)
        yield events
        yield GaugeMetricFamily("tidelog_sasl_sessions", "SASL sessions that are valid", value=len(self._sasl.sessions))
        yield GaugeMetricFamily(
            "tidelog_sasl_handshakes",
            "SASL handshakes under way, and failed ones whose answer is delayed",
            value=self._sasl.handshakes_under_way,
        )
        ends = GaugeMetricFamily(
            "tidelog_certificate_not_after_seconds",
            "When the certificate of a listener expires, seconds since 1970",
            labels=("listener",),
        )
        for certificate in self._certificates:
            if certificate.not_after_s is not None:
                ends.add_metric((certificate.listener,), certificate.not_after_s)
        yield ends
