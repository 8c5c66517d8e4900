"""TransactionLogKey, versions 0 to 0. Generated from TransactionLogKey.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_string,
    write_string,
)


class TransactionLogKey(Structure):
    """The message."""

    __slots__ = ("transactional_id",)
    __match_args__ = ("transactional_id",)

    def __init__(
        self,
        transactional_id: str,
    ) -> None:
        # The transactional id of the transaction.
        self.transactional_id: Final = transactional_id


def _read_transaction_log_key_0(data: Data, at: int) -> tuple[TransactionLogKey, int]:
    transactional_id, at = read_string(data, at)
    return TransactionLogKey(transactional_id=transactional_id), at


def _write_transaction_log_key_0(out: Output, value: TransactionLogKey) -> None:
    write_string(out, value.transactional_id)


TRANSACTION_LOG_KEY: Final = MessageCodec(
    TransactionLogKey,
    0,
    readers={0: _read_transaction_log_key_0},
    writers={0: _write_transaction_log_key_0},
)
