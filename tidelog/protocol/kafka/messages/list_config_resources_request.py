"""ListConfigResourcesRequest, versions 0 to 1. Generated from ListConfigResourcesRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_length,
    read_numbers,
    skip_tags,
)


class ListConfigResourcesRequest(Structure):
    """The message."""

    __slots__ = ("resource_types",)
    __match_args__ = ("resource_types",)

    def __init__(
        self,
        resource_types: tuple[int, ...] = (),
    ) -> None:
        # The list of resource type. If the list is empty, it uses default supported config resource types.
        self.resource_types: Final = resource_types


def _read_list_config_resources_request_0(data: Data, at: int) -> tuple[ListConfigResourcesRequest, int]:
    at = skip_tags(data, at)
    return ListConfigResourcesRequest(), at


def _read_list_config_resources_request_1(data: Data, at: int) -> tuple[ListConfigResourcesRequest, int]:
    resource_types, at = read_numbers(data, at, read_compact_length, "b")
    at = skip_tags(data, at)
    return ListConfigResourcesRequest(resource_types=resource_types), at


LIST_CONFIG_RESOURCES_REQUEST: Final = MessageCodec(
    ListConfigResourcesRequest,
    74,
    readers={0: _read_list_config_resources_request_0, 1: _read_list_config_resources_request_1},
    writers={},
    flexible_from=0,
)
