"""ApiVersionsRequest, versions 0 to 4. Generated from ApiVersionsRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_compact_string,
    skip_tags,
)


class ApiVersionsRequest(Structure):
    """The message."""

    __slots__ = ("client_software_name", "client_software_version")
    __match_args__ = ("client_software_name", "client_software_version")

    def __init__(
        self,
        client_software_name: str = "",
        client_software_version: str = "",
    ) -> None:
        # The name of the client.
        self.client_software_name: Final = client_software_name
        # The version of the client.
        self.client_software_version: Final = client_software_version


def _read_api_versions_request_0(data: Data, at: int) -> tuple[ApiVersionsRequest, int]:
    return ApiVersionsRequest(), at


def _read_api_versions_request_3(data: Data, at: int) -> tuple[ApiVersionsRequest, int]:
    client_software_name, at = read_compact_string(data, at)
    client_software_version, at = read_compact_string(data, at)
    at = skip_tags(data, at)
    return ApiVersionsRequest(
        client_software_name=client_software_name, client_software_version=client_software_version
    ), at


API_VERSIONS_REQUEST: Final = MessageCodec(
    ApiVersionsRequest,
    18,
    readers={
        0: _read_api_versions_request_0,
        1: _read_api_versions_request_0,
        2: _read_api_versions_request_0,
        3: _read_api_versions_request_3,
        4: _read_api_versions_request_3,
    },
    writers={},
    flexible_from=3,
)
