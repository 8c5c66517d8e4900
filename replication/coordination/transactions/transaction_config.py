"""Settings of transaction coordinators, with Kafka's names and defaults."""

from __future__ import annotations

from tidelog.settings import millis, setting
from tidelog.types import INT32_MAX, Millis
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Times of transactions, in ms."""

    transaction_max_timeout_ms: Millis = setting("transaction.max.timeout.ms", Millis(900_000), millis(1, INT32_MAX))
    """the largest transaction timeout of a producer; a larger one is refused with `INVALID_TRANSACTION_TIMEOUT`"""
    transactional_id_expiration_ms: Millis = setting("transactional.id.expiration.ms", Millis(604_800_000), millis(1))
    """a transactional id without an open transaction is forgotten when nothing changed it for this long"""
    abort_timed_out_interval_ms: Millis = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms", Millis(10_000), millis(1)
    )
    """interval of aborting transactions whose timeout has passed"""
    remove_expired_interval_ms: Millis = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms", Millis(3_600_000), millis(1)
    )
    """interval of forgetting expired transactional ids"""
