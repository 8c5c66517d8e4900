"""RequestHeader, versions 1 to 2. Generated from RequestHeader.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    read_nullable_string,
    skip_tags,
    write_string,
)

_r_hhi = Struct(">hhi").unpack_from
_w_hhi = Struct(">hhi").pack


class RequestHeader(Structure):
    """The message."""

    __slots__ = ("request_api_key", "request_api_version", "correlation_id", "client_id")
    __match_args__ = ("request_api_key", "request_api_version", "correlation_id", "client_id")

    def __init__(
        self,
        request_api_key: int,
        request_api_version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        # The API key of this request.
        self.request_api_key: Final = request_api_key
        # The API version of this request.
        self.request_api_version: Final = request_api_version
        # The correlation ID of this request.
        self.correlation_id: Final = correlation_id
        # The client ID string.
        self.client_id: Final = client_id


def _read_request_header_1(data: Data, at: int) -> tuple[RequestHeader, int]:
    request_api_key, request_api_version, correlation_id = _r_hhi(data, at)
    at += 8
    client_id, at = read_nullable_string(data, at)
    return RequestHeader(
        request_api_key=request_api_key,
        request_api_version=request_api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    ), at


def _read_request_header_2(data: Data, at: int) -> tuple[RequestHeader, int]:
    request_api_key, request_api_version, correlation_id = _r_hhi(data, at)
    at += 8
    client_id, at = read_nullable_string(data, at)
    at = skip_tags(data, at)
    return RequestHeader(
        request_api_key=request_api_key,
        request_api_version=request_api_version,
        correlation_id=correlation_id,
        client_id=client_id,
    ), at


def _write_request_header_1(out: Output, value: RequestHeader) -> None:
    out += _w_hhi(value.request_api_key, value.request_api_version, value.correlation_id)
    write_string(out, value.client_id)


def _write_request_header_2(out: Output, value: RequestHeader) -> None:
    out += _w_hhi(value.request_api_key, value.request_api_version, value.correlation_id)
    write_string(out, value.client_id)
    out.append(0)


REQUEST_HEADER: Final = MessageCodec(
    RequestHeader,
    -1,
    readers={1: _read_request_header_1, 2: _read_request_header_2},
    writers={1: _write_request_header_1, 2: _write_request_header_2},
)
