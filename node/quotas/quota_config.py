"""The node's settings of client quotas and of limits of open calls, by Kafka's names where Kafka has them."""

from __future__ import annotations

from node.quotas.client_quotas import SAMPLE_MS, SAMPLES
from node.quotas.open_calls import CALLS_MAX
from tidelog.settings import number, setting
from tidelog.types import INT32_MAX, Millis
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class QuotaConfig:
    """The window of client quotas, and limits of open calls."""

    samples: int = setting("quota.window.num", SAMPLES, number(2, 1_000))
    """an idle client may use the quota of this many intervals at once (security.md, Quotas)"""
    sample_ms: Millis = setting("quota.window.size.seconds", SAMPLE_MS, number(1, 3_600, unit="s", scale=1_000))
    """the length of one interval"""
    calls_per_ip: int = setting("max.open.calls.per.ip", CALLS_MAX, number(1, INT32_MAX))
    """open calls and streams of one peer address; further ones are refused with `THROTTLING_QUOTA_EXCEEDED`"""
    calls_per_principal: int = setting("max.open.calls.per.principal", CALLS_MAX, number(1, INT32_MAX))
    """open calls and streams of one authenticated principal; further ones are refused with
    `THROTTLING_QUOTA_EXCEEDED`"""
