"""The numbers of errors in Kafka's protocol.

Errors that Kafka has too have its number (tidelog/errors.py). The others get the number by which a Kafka client does
what is right: it retries, looks the leader up again, or fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.errors import (
    KAFKA_CODE_MAX,
    ConnectionFailed,
    CoordinatorNotAvailable,
    CorruptLog,
    DiskFull,
    InconsistentTopicId,
    KafkaStorageError,
    NodeNotAvailable,
    NodeShuttingDown,
    NotLeaderOrFollower,
    RequestTimedOut,
    Retry,
    TidelogError,
    UnknownServerError,
    UnknownTopicId,
    all_errors,
)
from tidelog.tiering.remote_errors import ObjectStoreFull, ObjectStoreUnavailable

NONE: Final = 0

_BY_RETRY: Final = {
    Retry.NEVER: UnknownServerError.code,
    Retry.LATER: RequestTimedOut.code,
    Retry.ELSEWHERE: NotLeaderOrFollower.code,
}
_LIKE: Final[Mapping[type[TidelogError], int]] = {
    DiskFull: KafkaStorageError.code,
    CorruptLog: KafkaStorageError.code,
    # Java's consumer fetches again after it; REQUEST_TIMED_OUT ends its `poll` with an IllegalStateException.
    ObjectStoreUnavailable: KafkaStorageError.code,
    ObjectStoreFull: KafkaStorageError.code,
    # Brokers of Kafka forget the ids of deleted topics. By the other number franz-go would retry without an end.
    InconsistentTopicId: UnknownTopicId.code,
}
_BY_NAME: Final = {each.kafka_name: each.code for each in all_errors() if each.code <= KAFKA_CODE_MAX}


def _code_of(kind: type[TidelogError]) -> int:  # not a table: modules that are imported later have errors, too
    if kind in _LIKE:
        return _LIKE[kind]
    if kind.kafka_name in _BY_NAME:
        return _BY_NAME[kind.kafka_name]
    for base in kind.__mro__:  # as a client that knows only Kafka's errors must understand it
        if issubclass(base, TidelogError) and base is not TidelogError and base.code <= KAFKA_CODE_MAX:
            return base.code
    return _BY_RETRY[kind.retry]


def code_of(error: TidelogError | None) -> int:
    """The number of an error; 0 for none."""
    return NONE if error is None else _code_of(type(error))


def coordinator_code_of(error: TidelogError | None) -> int:
    """As `code_of`, for the answer of a coordinator. Clients repeat a request whose outcome is unknown, as Kafka's
    coordinators ask them to: librdkafka takes REQUEST_TIMED_OUT in answer to EndTxn for a transaction to be aborted."""
    return CoordinatorNotAvailable.code if isinstance(error, RequestTimedOut) else code_of(error)


CLOSES: Final = (NodeShuttingDown, NodeNotAvailable, ConnectionFailed)
"""Errors that clients learn by the end of their connection: they continue with another node. Java takes the number of a
node that is not available yet for the end of a transaction, or of a group's member."""
