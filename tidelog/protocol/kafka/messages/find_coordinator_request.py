"""FindCoordinatorRequest, versions 0 to 6. Generated from FindCoordinatorRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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
    read_string,
    skip_tags,
)

_r_b = Struct(">b").unpack_from


class FindCoordinatorRequest(Structure):
    """The message."""

    __slots__ = ("key", "key_type", "coordinator_keys")
    __match_args__ = ("key", "key_type", "coordinator_keys")

    def __init__(
        self,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: tuple[str, ...] = (),
    ) -> None:
        # The coordinator key.
        self.key: Final = key
        # The coordinator key type. (group, transaction, share).
        self.key_type: Final = key_type
        # The coordinator keys.
        self.coordinator_keys: Final = coordinator_keys


def _read_find_coordinator_request_0(data: Data, at: int) -> tuple[FindCoordinatorRequest, int]:
    key, at = read_string(data, at)
    return FindCoordinatorRequest(key=key), at


def _read_find_coordinator_request_1(data: Data, at: int) -> tuple[FindCoordinatorRequest, int]:
    key, at = read_string(data, at)
    (key_type,) = _r_b(data, at)
    at += 1
    return FindCoordinatorRequest(key=key, key_type=key_type), at


def _read_find_coordinator_request_3(data: Data, at: int) -> tuple[FindCoordinatorRequest, int]:
    key, at = read_compact_string(data, at)
    (key_type,) = _r_b(data, at)
    at += 1
    at = skip_tags(data, at)
    return FindCoordinatorRequest(key=key, key_type=key_type), at


def _read_find_coordinator_request_4(data: Data, at: int) -> tuple[FindCoordinatorRequest, int]:
    (key_type,) = _r_b(data, at)
    at += 1
    coordinator_keys, at = read_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=coordinator_keys), at


FIND_COORDINATOR_REQUEST: Final = MessageCodec(
    FindCoordinatorRequest,
    10,
    readers={
        0: _read_find_coordinator_request_0,
        1: _read_find_coordinator_request_1,
        2: _read_find_coordinator_request_1,
        3: _read_find_coordinator_request_3,
        4: _read_find_coordinator_request_4,
        5: _read_find_coordinator_request_4,
        6: _read_find_coordinator_request_4,
    },
    writers={},
    flexible_from=3,
)
