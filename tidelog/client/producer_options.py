"""Validation of a producer's options that belong together.

Not here: options that stand alone (options.py).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from tidelog.client.options import at_least, codec_of, text, whole_number, yes_or_no
from tidelog.client.producer_events import Policy
from tidelog.client.transaction_core import TransactionPolicy
from tidelog.errors import InvalidConfig
from tidelog.records import RecordBatchBuilder
from tidelog.types import Acks, Codec

_log = logging.getLogger("tidelog.producer")


def checked_idempotence(acks: Acks, enable_idempotence: bool) -> bool:
    """Return whether records are sent with idempotence. Raises InvalidConfig."""
    yes_or_no(enable_idempotence=enable_idempotence)
    if enable_idempotence and acks is not Acks.ALL:
        _log.info("acks=%d: records are sent without idempotence, which needs acks=all", acks)
    return enable_idempotence and acks is Acks.ALL


def checked_receipts(acks: Acks, receipts: bool) -> bool:
    """Return whether receipts are requested. Raises InvalidConfig."""
    yes_or_no(receipts=receipts)
    if receipts and acks is Acks.NONE:
        raise InvalidConfig('receipts=True needs acks="all" or 1: with acks=0 the node does not answer')
    return receipts


def checked_codec(compression: str | Codec, level: int | None) -> Codec:
    """Return the codec. Raises UnsupportedCompressionType, and for a level that it does not have InvalidConfig."""
    if level is not None:
        whole_number("compression_level", level)
    codec = codec_of(compression)
    RecordBatchBuilder(codec, level=level)  # rejects the level
    return codec


def checked_policy(policy: Policy, on_unknown: str) -> Policy:
    """Return the policy with this option. Raises InvalidConfig."""
    at_least(0, linger_ms=policy.linger_ms)
    at_least(1, batch_bytes=policy.batch_bytes, request_timeout_ms=policy.request_timeout_ms)
    at_least(1, retry_backoff_ms=policy.retry_backoff_ms, retry_backoff_ms_max=policy.retry_backoff_ms_max)
    at_least(policy.linger_ms + 1, delivery_timeout_ms=policy.delivery_timeout_ms)
    if on_unknown not in ("raise", "resend"):
        raise InvalidConfig(f'on_unknown={on_unknown!r}: use "raise" or "resend"')
    return replace(policy, resend_unknown=on_unknown == "resend")


def checked_transactions(
    policy: Policy, transactional_id: object, transaction_timeout_ms: int, max_block_ms: int, *, idempotent: bool
) -> TransactionPolicy:
    """Return the policy of a transactional producer. idempotent: its records are sent with idempotence. Raises
    TypeError, InvalidRequest, InvalidConfig."""
    name = text("transactional_id", transactional_id)
    if not name:
        raise InvalidConfig("transactional_id is empty: give each running producer an id of its own, or None for none")
    if not idempotent:
        raise InvalidConfig(
            f'transactional_id={name!r}: transactions need acks="all" and enable_idempotence=True, the defaults'
        )
    at_least(1, transaction_timeout_ms=transaction_timeout_ms)
    return TransactionPolicy(
        name, transaction_timeout_ms, max_block_ms, policy.retry_backoff_ms, policy.retry_backoff_ms_max
    )
