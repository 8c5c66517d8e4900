"""ListTransactionsRequest, versions 0 to 2. Generated from ListTransactionsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_nullable_compact_string,
    read_numbers,
    skip_tags,
)

_r_q = Struct(">q").unpack_from


class ListTransactionsRequest(Structure):
    """The message."""

    __slots__ = ("state_filters", "producer_id_filters", "duration_filter", "transactional_id_pattern")
    __match_args__ = ("state_filters", "producer_id_filters", "duration_filter", "transactional_id_pattern")

    def __init__(
        self,
        state_filters: tuple[str, ...],
        producer_id_filters: tuple[int, ...],
        duration_filter: int = -1,
        transactional_id_pattern: str | None = None,
    ) -> None:
        # The transaction states to filter by: if empty, all transactions are returned; if non-empty, then only
        # transactions matching one of the filtered states will be returned.
        self.state_filters: Final = state_filters
        # The producerIds to filter by: if empty, all transactions will be returned; if non-empty, only transactions
        # which match one of the filtered producerIds will be returned.
        self.producer_id_filters: Final = producer_id_filters
        # Duration (in millis) to filter by: if < 0, all transactions will be returned; otherwise, only transactions
        # running longer than this duration will be returned.
        self.duration_filter: Final = duration_filter
        # The transactional ID regular expression pattern to filter by: if it is empty or null, all transactions are
        # returned; Otherwise then only the transactions matching the given regular expression will be returned.
        self.transactional_id_pattern: Final = transactional_id_pattern


def _read_list_transactions_request_0(data: Data, at: int) -> tuple[ListTransactionsRequest, int]:
    state_filters, at = read_array(data, at, read_compact_length, read_compact_string)
    producer_id_filters, at = read_numbers(data, at, read_compact_length, "q")
    at = skip_tags(data, at)
    return ListTransactionsRequest(state_filters=state_filters, producer_id_filters=producer_id_filters), at


def _read_list_transactions_request_1(data: Data, at: int) -> tuple[ListTransactionsRequest, int]:
    state_filters, at = read_array(data, at, read_compact_length, read_compact_string)
    producer_id_filters, at = read_numbers(data, at, read_compact_length, "q")
    (duration_filter,) = _r_q(data, at)
    at += 8
    at = skip_tags(data, at)
    return ListTransactionsRequest(
        state_filters=state_filters, producer_id_filters=producer_id_filters, duration_filter=duration_filter
    ), at


def _read_list_transactions_request_2(data: Data, at: int) -> tuple[ListTransactionsRequest, int]:
    state_filters, at = read_array(data, at, read_compact_length, read_compact_string)
    producer_id_filters, at = read_numbers(data, at, read_compact_length, "q")
    (duration_filter,) = _r_q(data, at)
    at += 8
    transactional_id_pattern, at = read_nullable_compact_string(data, at)
    at = skip_tags(data, at)
    return ListTransactionsRequest(
        state_filters=state_filters,
        producer_id_filters=producer_id_filters,
        duration_filter=duration_filter,
        transactional_id_pattern=transactional_id_pattern,
    ), at


LIST_TRANSACTIONS_REQUEST: Final = MessageCodec(
    ListTransactionsRequest,
    66,
    readers={
        0: _read_list_transactions_request_0,
        1: _read_list_transactions_request_1,
        2: _read_list_transactions_request_2,
    },
    writers={},
    flexible_from=0,
)
