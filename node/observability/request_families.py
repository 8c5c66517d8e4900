"""Metrics of requests, listeners, quotas and security. No label comes from a caller without a bound."""

from __future__ import annotations

from typing import Final

from node.observability.metric_sources import MetricSources
from node.observability.metric_text import Alert, Distribution, Metric, MetricTable, no_labels
from node.quotas.throttle import Quotas
from node.runtime.request_meter import BOUNDS_MS, RequestMeter
from node.security.audit_log import AuditLog
from node.security.certificate_expiry import CertificateExpiry
from node.security.sasl_authenticator import SaslAuthenticator

_SECONDS: Final = 1e-9

QUOTAS_NAMED_MAX: Final = 20
"""Entities whose waits are read. They are named as in their quotas, never by a client that only a default holds for:
clients choose their ids. The log names those (node/quotas/throttle_log.py)."""


def is_used(meter: RequestMeter) -> bool:
    """True if the API has had requests; others have no samples."""
    return bool(meter.request_bytes or meter.answered or meter.failed or meter.streams_open or meter.streams_ended)


REQUESTS: Final = MetricTable[RequestMeter](
    "Requests",
    lambda m: {"method": m.api},
    Metric(
        "tidelog_requests_total",
        "Requests answered: calls, and messages of streams; the outcome is `ok`, or the error of one that failed as a "
        "whole",
        lambda m: {"ok": m.answered, **m.failed} if m.answered else m.failed,
        "an outcome other than `ok` that rises steadily: look up the error's name in client.md",
        by=("outcome",),
    ),
    Metric(
        "tidelog_request_errors_total",
        "Errors in answers, of whole requests and of single entries",
        lambda m: m.errors,
        "a healthy cluster has none but those of starts and elections (`BROKER_NOT_AVAILABLE`, "
        "`COORDINATOR_LOAD_IN_PROGRESS`, `NOT_LEADER_OR_FOLLOWER`, `FENCED_LEADER_EPOCH`), of joining groups "
        "(`REBALANCE_IN_PROGRESS`, `MEMBER_ID_REQUIRED`) and of its clients' mistakes",
        by=("error",),
        alerts=(
            Alert(
                "TidelogDefects",
                "sum by (instance, method) "
                '(increase(tidelog_request_errors_total{error="UNKNOWN_SERVER_ERROR"}[15m])) > 0',
                "{{ $labels.method }} failed {{ $value }} times by a defect on {{ $labels.instance }}",
                0,
                command="tidelog cluster status",
            ),
        ),
    ),
    Metric(
        "tidelog_request_seconds",
        "Time from the arrival of a request until its last answer is known; of fetches by the method: "
        "`Data.FetchStream.follower` is of followers, `Data.Fetch` and `Data.FetchStream` of consumers",
        lambda m: Distribution(m.times, (m.queue_ns + m.local_ns + m.remote_ns) * _SECONDS),
        "the phases below say where the time goes; a fetch waits for records as long as it asks to",
        bounds=tuple(bound / 1_000 for bound in BOUNDS_MS),
        alerts=(
            Alert(
                "TidelogProduceSlow",
                "histogram_quantile(0.99, sum by (instance, le) "
                '(rate(tidelog_request_seconds_bucket{method=~"Data.Produce|Data.ProduceStream"}[5m]))) > 1',
                "produce requests to {{ $labels.instance }} take {{ $value }} s",
                10,
                command="tidelog top",
            ),
        ),
    ),
    Metric(
        "tidelog_request_phase_seconds_total",
        "Time of requests by its parts, as Kafka names them: `queue` until a handler starts (0 over gRPC), `local` "
        "work on the loop, `remote` waiting for acks, records or the controller, `send` until the answer is written",
        lambda m: {
            "queue": m.queue_ns * _SECONDS,
            "local": m.local_ns * _SECONDS,
            "remote": m.remote_ns * _SECONDS,
            "send": m.send_ns * _SECONDS,
        },
        "`local`: the node lacks processor time. `remote` of produce: a slow disk or follower. `queue`: memory, or a "
        "client that sends faster than it may. `send`: a client that does not read",
        by=("phase",),
    ),
    Metric("tidelog_request_bytes_total", "Bytes of requests", lambda m: m.request_bytes, "none: load by method"),
    Metric("tidelog_response_bytes_total", "Bytes of answers", lambda m: m.response_bytes, "none: load by method"),
    Metric(
        "tidelog_streams_open",
        "Streams open now",
        lambda m: m.streams_open if m.streams_open or m.streams_ended else None,
        "`Data.FetchStream`: one for each consumer and follower; far more: clients that do not close theirs",
    ),
    Metric(
        "tidelog_streams_ended_total",
        "Streams that ended: `ok`, `ended` (the caller left) or the error's name",
        lambda m: m.streams_ended,
        "many with an error: look up its name in client.md",
        by=("outcome",),
    ),
    names=("method",),
)

LISTENERS: Final = MetricTable[MetricSources](
    "Connections",
    no_labels,
    Metric(
        "tidelog_connections",
        "Open connections by listener",
        lambda n: n.connections,
        "near `max.connections`: close connections that are not needed (`ss -tn sport = :PORT` names their addresses), "
        "or raise the limit of open files",
        by=("listener",),
    ),
    Metric(
        "tidelog_calls_refused_total",
        "Calls and streams refused by a limit of open calls per address or principal",
        lambda n: None if n.calls is None else n.calls.refused,
        "a client opens more than `max.open.calls.per.ip` or `max.open.calls.per.principal`: correct it, or raise them",
    ),
    Metric(
        "tidelog_fetch_sessions",
        "Incremental fetch sessions of clients of Kafka",
        lambda n: None if n.fetch_sessions is None else len(n.fetch_sessions),
        "at `max.incremental.fetch.session.cache.slots` while evictions rise: raise it",
    ),
    Metric(
        "tidelog_fetch_session_partitions",
        "Partitions of these sessions",
        lambda n: None if n.fetch_sessions is None else n.fetch_sessions.partitions,
        "none: memory of the sessions, some 100 bytes each",
    ),
    Metric(
        "tidelog_fetch_session_evictions_total",
        "Fetch sessions that were ended to make place for others",
        lambda n: None if n.fetch_sessions is None else n.fetch_sessions.evictions,
        "grows steadily: raise `max.incremental.fetch.session.cache.slots`",
    ),
)


def _waits(quotas: Quotas) -> dict[tuple[str, ...], float]:
    longest: dict[tuple[str, ...], float] = {}
    for each in quotas.limits.throttled(QUOTAS_NAMED_MAX):  # the longest wait of an entity comes first
        key = each.quota.value, _entity(each.named.user), _entity(each.named.client_id)
        longest.setdefault(key, each.wait_ms / 1_000)
    return longest


def _entity(name: str | None) -> str:
    return "" if name is None else name or "(default)"


QUOTAS: Final = MetricTable[Quotas](
    "Quotas",
    no_labels,
    Metric(
        "tidelog_quota_exceeded_total",
        "Charges that exceeded a client quota",
        lambda q: {quota.value: totals.exceeded for quota, totals in q.limits.totals.items()},
        "log lines `exceeds the quota` name the clients; raise the quota, or let them send less",
        by=("quota",),
    ),
    Metric(
        "tidelog_quota_throttle_seconds_total",
        "Waits that followed from exceeded quotas",
        lambda q: {quota.value: totals.wait_ms / 1_000 for quota, totals in q.limits.totals.items()},
        "as above",
        by=("quota",),
    ),
    Metric(
        "tidelog_quota_wait_seconds",
        f"How long the clients of a quota must wait now, the longest wait; of the {QUOTAS_NAMED_MAX} longest waits. "
        "`(default)` for a default, empty for any",
        _waits,
        "above the clients' `delivery.timeout.ms`: their records expire; raise that quota",
        by=("quota", "user", "client_id"),
    ),
    Metric(
        "tidelog_quota_waiting",
        "Calls and streams that wait because of a quota",
        lambda q: q.waiting,
        "none: the quotas hold",
    ),
    Metric(
        "tidelog_quota_entities",
        "Users and client ids whose use is tracked, at most 10,000",
        lambda q: q.limits.tracked,
        "at 10,000: clients choose ever new ids; give the quota to users",
    ),
)

AUDIT: Final = MetricTable[AuditLog](
    "The audit log",
    no_labels,
    Metric(
        "tidelog_audit_events_total",
        "Events for the audit log, also those that were only counted there: `denied`, `authentication_failed`, "
        "`change`",
        lambda a: a.counts,
        "`authentication_failed` or `denied` rises quickly: a client has a wrong password, certificate or rule, or "
        "someone tries; the audit log names address, principal and resource",
        by=("event",),
        alerts=(
            Alert(
                "TidelogAuthenticationFailures",
                'rate(tidelog_audit_events_total{event="authentication_failed"}[5m]) > 1',
                "{{ $value }} failed authentications a second at {{ $labels.instance }}",
                5,
                command="tidelog user list",
            ),
        ),
    ),
)

SASL: Final = MetricTable[SaslAuthenticator](
    "SASL",
    no_labels,
    Metric(
        "tidelog_sasl_sessions",
        "SASL sessions that are valid, at most 50,000",
        lambda s: len(s.sessions),
        "near 50,000: clients log in for each request; let them keep their connections",
    ),
    Metric(
        "tidelog_sasl_handshakes",
        "SASL handshakes under way, and failed ones whose answer is delayed, at most 2,048",
        lambda s: s.handshakes_under_way,
        "near 2,048: addresses begin handshakes and do not end them, or guess passwords; restrict who can reach the "
        "port",
    ),
)

CERTIFICATES: Final = MetricTable[CertificateExpiry](
    "Certificates",
    lambda c: {"listener": c.listener},
    Metric(
        "tidelog_certificate_not_after_seconds",
        "When the certificate of a listener expires",
        lambda c: c.not_after_s,
        "replace the files `ssl.certificate.file` and `ssl.key.file`: no restart is needed",
        unit="seconds since 1970",
        alerts=(
            Alert(
                "TidelogCertificateExpires",
                "tidelog_certificate_not_after_seconds - time() < 30 * 86400",
                "the certificate of listener {{ $labels.listener }} of {{ $labels.instance }} expires within a month",
                60,
                command="openssl x509 -noout -subject -enddate -in FILE",
            ),
        ),
    ),
    names=("listener",),
)
