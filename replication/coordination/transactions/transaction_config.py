"""Settings of transaction coordinators, with Kafka's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.types import Millis


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Times of transactions, in ms."""

    transaction_max_timeout_ms: Millis = Millis(900_000)
    """`transaction.max.timeout.ms`: the largest transaction timeout that a producer may ask for"""
    transactional_id_expiration_ms: Millis = Millis(604_800_000)
    """`transactional.id.expiration.ms`: a transactional id without an open transaction is removed when nothing changed
    it for this long"""
    abort_timed_out_interval_ms: Millis = Millis(10_000)
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`: the least time between two rounds that abort
    transactions whose timeout has passed"""
    remove_expired_interval_ms: Millis = Millis(3_600_000)
    """`transaction.remove.expired.transaction.cleanup.interval.ms`: the least time between two rounds that remove
    expired transactional ids"""
