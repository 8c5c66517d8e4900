"""SaslAuthenticateResponse, versions 0 to 2. Generated from SaslAuthenticateResponse.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    MessageCodec,
    Output,
    Structure,
    write_bytes,
    write_compact_length,
    write_compact_string,
    write_length,
    write_string,
)

_w_h = Struct(">h").pack
_w_q = Struct(">q").pack


class SaslAuthenticateResponse(Structure):
    """The message."""

    __slots__ = ("error_code", "error_message", "auth_bytes", "session_lifetime_ms")
    __match_args__ = ("error_code", "error_message", "auth_bytes", "session_lifetime_ms")

    def __init__(
        self,
        error_code: int,
        error_message: str | None,
        auth_bytes: bytes,
        session_lifetime_ms: int = 0,
    ) -> None:
        # The error code, or 0 if there was no error.
        self.error_code: Final = error_code
        # The error message, or null if there was no error.
        self.error_message: Final = error_message
        # The SASL authentication bytes from the server, as defined by the SASL mechanism.
        self.auth_bytes: Final = auth_bytes
        # Number of milliseconds after which only re-authentication over the existing connection to create a new
        # session can occur.
        self.session_lifetime_ms: Final = session_lifetime_ms


def _write_sasl_authenticate_response_0(out: Output, value: SaslAuthenticateResponse) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    write_bytes(out, value.auth_bytes, write_length)


def _write_sasl_authenticate_response_1(out: Output, value: SaslAuthenticateResponse) -> None:
    out += _w_h(value.error_code)
    write_string(out, value.error_message)
    write_bytes(out, value.auth_bytes, write_length)
    out += _w_q(value.session_lifetime_ms)


def _write_sasl_authenticate_response_2(out: Output, value: SaslAuthenticateResponse) -> None:
    out += _w_h(value.error_code)
    write_compact_string(out, value.error_message)
    write_bytes(out, value.auth_bytes, write_compact_length)
    out += _w_q(value.session_lifetime_ms)
    out.append(0)


SASL_AUTHENTICATE_RESPONSE: Final = MessageCodec(
    SaslAuthenticateResponse,
    36,
    readers={},
    writers={
        0: _write_sasl_authenticate_response_0,
        1: _write_sasl_authenticate_response_1,
        2: _write_sasl_authenticate_response_2,
    },
    flexible_from=2,
)
