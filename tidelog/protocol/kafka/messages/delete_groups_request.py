"""DeleteGroupsRequest, versions 0 to 2. Generated from DeleteGroupsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_array,
    read_compact_length,
    read_compact_string,
    read_length,
    read_string,
    skip_tags,
)


class DeleteGroupsRequest(Structure):
    """The message."""

    __slots__ = ("groups_names",)
    __match_args__ = ("groups_names",)

    def __init__(
        self,
        groups_names: tuple[str, ...],
    ) -> None:
        # The group names to delete.
        self.groups_names: Final = groups_names


def _read_delete_groups_request_0(data: Data, at: int) -> tuple[DeleteGroupsRequest, int]:
    groups_names, at = read_array(data, at, read_length, read_string)
    return DeleteGroupsRequest(groups_names=groups_names), at


def _read_delete_groups_request_2(data: Data, at: int) -> tuple[DeleteGroupsRequest, int]:
    groups_names, at = read_array(data, at, read_compact_length, read_compact_string)
    at = skip_tags(data, at)
    return DeleteGroupsRequest(groups_names=groups_names), at


DELETE_GROUPS_REQUEST: Final = MessageCodec(
    DeleteGroupsRequest,
    42,
    readers={0: _read_delete_groups_request_0, 1: _read_delete_groups_request_0, 2: _read_delete_groups_request_2},
    writers={},
    flexible_from=2,
)
