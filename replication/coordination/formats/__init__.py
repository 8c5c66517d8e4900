"""Keys and values of the internal topics as bytes, identical with those of Apache Kafka 4.1.

Public: `decode_group`, `encode_group`, `decode_transaction` and `encode_transaction`.
"""

from __future__ import annotations

from replication.coordination.formats.group_formats import decode_group, encode_group
from replication.coordination.formats.transaction_formats import decode_transaction, encode_transaction

__all__ = ["decode_group", "decode_transaction", "encode_group", "encode_transaction"]
