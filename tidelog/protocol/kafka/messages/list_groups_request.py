"""ListGroupsRequest, versions 0 to 5. Generated from ListGroupsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

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


class ListGroupsRequest(Structure):
    """The message."""

    __slots__ = ("states_filter", "types_filter")
    __match_args__ = ("states_filter", "types_filter")

    def __init__(
        self,
        states_filter: tuple[str, ...] = (),
        types_filter: tuple[str, ...] = (),
    ) -> None:
        # The states of the groups we want to list. If empty, all groups are returned with their state.
        self.states_filter: Final = states_filter
        # The types of the groups we want to list. If empty, all groups are returned with their type.
        self.types_filter: Final = types_filter


def _read_list_groups_request_0(data: Data, at: int) -> tuple[ListGroupsRequest, int]:
    return ListGroupsRequest(), at


def _read_list_groups_request_3(data: Data, at: int) -> tuple[ListGroupsRequest, int]:
    at = skip_tags(data, at)
    return ListGroupsRequest(), at


def _read_list_groups_request_4(data: Data, at: int) -> tuple[ListGroupsRequest, int]:
    states_filter, at = read_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return ListGroupsRequest(states_filter=states_filter), at


def _read_list_groups_request_5(data: Data, at: int) -> tuple[ListGroupsRequest, int]:
    states_filter, at = read_array(data, at, read_compact_length, read_compact_string)
    types_filter, at = read_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return ListGroupsRequest(states_filter=states_filter, types_filter=types_filter), at


LIST_GROUPS_REQUEST: Final = MessageCodec(
    ListGroupsRequest,
    16,
    readers={
        0: _read_list_groups_request_0,
        1: _read_list_groups_request_0,
        2: _read_list_groups_request_0,
        3: _read_list_groups_request_3,
        4: _read_list_groups_request_4,
        5: _read_list_groups_request_5,
    },
    writers={},
    flexible_from=3,
)
