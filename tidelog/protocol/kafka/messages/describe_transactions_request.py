"""DescribeTransactionsRequest, versions 0 to 0. Generated from DescribeTransactionsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    skip_tags,
)


class DescribeTransactionsRequest(Structure):
    """The message."""

    __slots__ = ("transactional_ids",)
    __match_args__ = ("transactional_ids",)

    def __init__(
        self,
        transactional_ids: tuple[str, ...],
    ) -> None:
        # Array of transactionalIds to include in describe results. If empty, then no results will be returned.
        self.transactional_ids: Final = transactional_ids


def _read_describe_transactions_request_0(data: Data, at: int) -> tuple[DescribeTransactionsRequest, int]:
    transactional_ids, at = read_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return DescribeTransactionsRequest(transactional_ids=transactional_ids), at


DESCRIBE_TRANSACTIONS_REQUEST: Final = MessageCodec(
    DescribeTransactionsRequest,
    65,
    readers={0: _read_describe_transactions_request_0},
    writers={},
    flexible_from=0,
)
