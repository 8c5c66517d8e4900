"""Validation of client options and arguments, before they are used.

Invariants: a wrong type raises TypeError, a value out of range a TidelogError. Each message names the argument, its
value and the expected values. An accepted value fits into every message that carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Final

from tidelog.client.group_metadata import CommittedOffset
from tidelog.errors import (
    InvalidConfig,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTimestamp,
    InvalidTopic,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from tidelog.records.v2.records_buffer import TIMESTAMP_MS_MAX
from tidelog.types import (
    INT32_MAX,
    INT64_MAX,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    TOPIC_NAME_LENGTH_MAX,
    TOPIC_NAME_RULE,
    Acks,
    Codec,
    LeaderEpoch,
    Millis,
    Offset,
    PartitionIndex,
    TopicPartition,
    is_topic_name,
)

_CLIENT_ID_MAX: Final = 255

SECONDS: Final = range(1_000_000_000, 4_000_000_000)
"""Numbers that are years 2001 to 2096 in seconds since 1970, and 12 January to 16 February 1970 in milliseconds."""

_ACKS: Final = {
    "all": Acks.ALL,
    "-1": Acks.ALL,
    "1": Acks.LEADER,
    "0": Acks.NONE,
    -1: Acks.ALL,
    1: Acks.LEADER,
    0: Acks.NONE,
}


def acks_of(value: str | int | Acks) -> Acks:
    """Return the acks for "all" or -1, 1, 0. Raises InvalidRequiredAcks."""
    try:
        if not isinstance(value, bool):
            return _ACKS[value]
    except (KeyError, TypeError):
        pass
    raise InvalidRequiredAcks(f'acks={value!r}: use "all" (or -1), 1 or 0')


def codec_of(value: str | Codec) -> Codec:
    """Return a codec by name. Raises UnsupportedCompressionType."""
    if isinstance(value, Codec):
        return value
    try:
        return Codec[value.upper()]
    except (KeyError, AttributeError):
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise UnsupportedCompressionType(f"compression={value!r}: use one of {names}") from None


def at_least(least: int, *, most: int = INT32_MAX, **options: object) -> None:
    """Raise InvalidConfig for an option outside `least` to `most`."""
    for name, value in options.items():
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise InvalidConfig(f"{name}={value!r}: use a whole number from {least} to {most}")


def yes_or_no(**options: object) -> None:
    """Raise InvalidConfig for an option that is not a bool; otherwise the text "false" would count as True."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise InvalidConfig(f"{name}={value!r}: use True or False")


def seconds(name: str, value: Any) -> float:
    """Return a number of seconds. Raises TypeError, and InvalidRequest for nan."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(value).__name__}: {value!r}")
    if value != value:
        raise InvalidRequest(f"{name}={value}: use a number of seconds")
    return value


def whole_number(name: str, value: Any, *, least: int = -INT32_MAX - 1, most: int = INT32_MAX) -> int:
    """Return the value as an int; integer types of other libraries are accepted.

    Raises TypeError, and InvalidRequest outside `least` to `most`.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number (int), not {type(value).__name__}: {value!r}")
    number = index(value)
    if not least <= number <= most:
        raise InvalidRequest(f"{name}={number}: use a whole number from {least} to {most}")
    return number


def text(name: str, value: object) -> str:
    """Return a str that can be encoded as UTF-8. Raises TypeError, InvalidRequest."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as cause:
        raise InvalidRequest(
            f"{name}={value!r} cannot be encoded as UTF-8: it has bytes or characters that are no text"
        ) from cause
    return value


def checked_client_id(value: object) -> str:
    """Return a client id: at most 255 printable ASCII characters. Raises TypeError, InvalidConfig."""
    if not isinstance(value, str):
        raise TypeError(f"client_id must be a str, not {type(value).__name__}: {value!r}")
    if len(value) > _CLIENT_ID_MAX or not (value.isascii() and value.isprintable()) or value != value.strip():
        raise InvalidConfig(
            f"client_id={value[:_CLIENT_ID_MAX]!r}: use at most {_CLIENT_ID_MAX} printable ASCII characters, without "
            "spaces around them"
        )
    return value


def topic_name(value: object) -> str:
    """Return a topic name. Raises TypeError, InvalidTopic."""
    if not isinstance(value, str):
        raise TypeError(f"topic must be a str, the name of a topic, not {type(value).__name__}: {value!r}")
    if not is_topic_name(value):
        raise InvalidTopic(f"the topic name {value[: TOPIC_NAME_LENGTH_MAX + 1]!r} is not allowed: {TOPIC_NAME_RULE}")
    return value


def partition_index(value: Any) -> PartitionIndex:
    """Return a partition index. Raises TypeError, and UnknownTopicOrPartition if no partition can have it."""
    try:
        return PartitionIndex(whole_number("partition", value, least=0))
    except InvalidRequest as cause:
        raise UnknownTopicOrPartition(
            f"partition {value} does not exist: partition numbers are 0 to {INT32_MAX}"
        ) from cause


def unchecked_partition(value: Any) -> TopicPartition:
    """Return a partition from a TopicPartition or a (topic, index) pair, also one that there cannot be. Raises
    TypeError."""
    if isinstance(value, TopicPartition):
        return value
    if not isinstance(value, tuple) or len(value) != 2:
        raise TypeError(
            f"a partition must be a TopicPartition or a (topic, index) pair, not {type(value).__name__}: {value!r}"
        )
    return TopicPartition(*value)


def topic_partition(value: Any) -> TopicPartition:
    """Return a partition from a TopicPartition or a (topic, index) pair. Raises TypeError, InvalidTopic,
    UnknownTopicOrPartition."""
    named = unchecked_partition(value)
    return TopicPartition(topic_name(named.topic), partition_index(named.partition))


def topic_partitions(values: object) -> list[TopicPartition]:
    """Return partitions, each as in `topic_partition`. Raises TypeError if `values` is not a list of them."""
    if isinstance(values, TopicPartition) or _is_pair(values):
        raise TypeError(f"partitions must be a list, and this is one partition: write [{values!r}]")
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(
            f"partitions must be a list of TopicPartition or (topic, index) pairs, not {type(values).__name__}: "
            f"{values!r}"
        )
    return [topic_partition(value) for value in values]


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and not isinstance(value[1], str)


def timestamp_ms(value: Any) -> Millis:
    """Return a record timestamp; -1 is none, as in the log. Raises TypeError, InvalidTimestamp."""
    try:
        return ensure_no_seconds(Millis(whole_number("timestamp", value, least=NO_TIMESTAMP, most=TIMESTAMP_MS_MAX)))
    except TypeError as cause:
        raise TypeError(
            f"timestamp must be a whole number of milliseconds since 1970 (int) or None for now, not "
            f"{type(value).__name__}: {value!r}"
        ) from cause
    except InvalidRequest as cause:
        raise InvalidTimestamp(f"timestamp {value}: use milliseconds since 1970, None (now) or -1 (none)") from cause


def ensure_no_seconds(timestamp: Millis) -> Millis:
    """Return the timestamp. Raises InvalidTimestamp for one that can only be seconds: as milliseconds it is in early
    1970, and retention deletes the record at once."""
    if timestamp in SECONDS:
        raise InvalidTimestamp(
            f"timestamp {timestamp} can only be seconds since 1970: use milliseconds, int(time.time() * 1000) for now"
        )
    return timestamp


def offsets_to_commit(offsets: Any) -> dict[TopicPartition, CommittedOffset]:
    """Return checked offsets. Raises TypeError, InvalidRequest."""
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets must be a mapping of partitions to offsets, not {type(offsets).__name__}: {offsets!r}"
        )
    checked = {}
    for partition, offset in offsets.items():
        given = offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
        checked[topic_partition(partition)] = CommittedOffset(
            Offset(whole_number("offset", given.offset, least=0, most=INT64_MAX)),
            LeaderEpoch(whole_number("leader_epoch", given.leader_epoch, least=NO_LEADER_EPOCH)),
            text("metadata", given.metadata),
        )
    return checked
