"""ListTransactionsResponse, versions 0 to 2. Generated from ListTransactionsResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_compact_length,
    write_compact_string,
)
from tidelog.types import ProducerId

_w_ih = Struct(">ih").pack
_w_q = Struct(">q").pack


class TransactionState(Structure):
    """A structure of ListTransactionsResponse."""

    __slots__ = ("transactional_id", "producer_id", "transaction_state")
    __match_args__ = ("transactional_id", "producer_id", "transaction_state")

    def __init__(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        transaction_state: str,
    ) -> None:
        # The transactional id.
        self.transactional_id: Final = transactional_id
        # The producer id.
        self.producer_id: Final = producer_id
        # The current transaction state of the producer.
        self.transaction_state: Final = transaction_state


class ListTransactionsResponse(Structure):
    """The message."""

    __slots__ = ("throttle_time_ms", "error_code", "unknown_state_filters", "transaction_states")
    __match_args__ = ("throttle_time_ms", "error_code", "unknown_state_filters", "transaction_states")

    def __init__(
        self,
        throttle_time_ms: int,
        error_code: int,
        unknown_state_filters: tuple[str, ...],
        transaction_states: tuple[TransactionState, ...],
    ) -> None:
        # The duration in milliseconds for which the request was throttled due to a quota violation, or zero if the
        # request did not violate any quota.
        self.throttle_time_ms: Final = throttle_time_ms
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # Set of state filters provided in the request which were unknown to the transaction coordinator.
        self.unknown_state_filters: Final = unknown_state_filters
        # The current state of the transaction for the transactional id.
        self.transaction_states: Final = transaction_states


def _write_transaction_state_0(out: Output, value: TransactionState) -> None:
    write_compact_string(out, value.transactional_id)
    out += _w_q(value.producer_id)
    write_compact_string(out, value.transaction_state)
    out.append(0)


def _write_list_transactions_response_0(out: Output, value: ListTransactionsResponse) -> None:
    out += _w_ih(value.throttle_time_ms, value.error_code)
    write_array(out, value.unknown_state_filters, write_compact_length, write_compact_string)
    write_array(out, value.transaction_states, write_compact_length, _write_transaction_state_0)
    out.append(0)


LIST_TRANSACTIONS_RESPONSE: Final = MessageCodec(
    ListTransactionsResponse,
    66,
    readers={},
    writers={
        0: _write_list_transactions_response_0,
        1: _write_list_transactions_response_0,
        2: _write_list_transactions_response_0,
    },
    flexible_from=0,
)
