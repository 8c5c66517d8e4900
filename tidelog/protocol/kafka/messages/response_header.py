"""ResponseHeader, versions 0 to 1. Generated from ResponseHeader.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Output,
    Structure,
    skip_tags,
)

_r_i = Struct(">i").unpack_from
_w_i = Struct(">i").pack


class ResponseHeader(Structure):
    """The message."""

    __slots__ = ("correlation_id",)
    __match_args__ = ("correlation_id",)

    def __init__(
        self,
        correlation_id: int,
    ) -> None:
        # The correlation ID of this response.
        self.correlation_id: Final = correlation_id


def _read_response_header_0(data: Data, at: int) -> tuple[ResponseHeader, int]:
    (correlation_id,) = _r_i(data, at)
    at += 4
    return ResponseHeader(correlation_id=correlation_id), at


def _read_response_header_1(data: Data, at: int) -> tuple[ResponseHeader, int]:
    (correlation_id,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return ResponseHeader(correlation_id=correlation_id), at


def _write_response_header_0(out: Output, value: ResponseHeader) -> None:
    out += _w_i(value.correlation_id)


def _write_response_header_1(out: Output, value: ResponseHeader) -> None:
    out += _w_i(value.correlation_id)
    out.append(0)


RESPONSE_HEADER: Final = MessageCodec(
    ResponseHeader,
    -1,
    readers={0: _read_response_header_0, 1: _read_response_header_1},
    writers={0: _write_response_header_0, 1: _write_response_header_1},
)
