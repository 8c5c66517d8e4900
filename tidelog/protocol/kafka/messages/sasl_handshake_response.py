"""SaslHandshakeResponse, versions 0 to 1. Generated from SaslHandshakeResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_array,
    write_length,
    write_string,
)

_w_h = Struct(">h").pack


class SaslHandshakeResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "mechanisms")
    __match_args__ = ("error_code", "mechanisms")

    def __init__(
        self,
        error_code: int,
        mechanisms: tuple[str, ...],
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The mechanisms enabled in the server.
        self.mechanisms: Final = mechanisms


def _write_sasl_handshake_response_0(out: Output, value: SaslHandshakeResponse) -> None:
    out += _w_h(value.error_code)
    write_array(out, value.mechanisms, write_length, write_string)


SASL_HANDSHAKE_RESPONSE: Final = MessageCodec(
    SaslHandshakeResponse,
    17,
    readers={},
    writers={0: _write_sasl_handshake_response_0, 1: _write_sasl_handshake_response_0},
)
