"""SaslAuthenticateRequest, versions 0 to 2. Generated from SaslAuthenticateRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_bytes,
    read_compact_length,
    read_length,
    skip_tags,
)


class SaslAuthenticateRequest(Structure):
    """The message."""

    __slots__ = ("auth_bytes",)
    __match_args__ = ("auth_bytes",)

    def __init__(
        self,
        auth_bytes: bytes,
    ) -> None:
        # The SASL authentication bytes from the client, as defined by the SASL mechanism.
        self.auth_bytes: Final = auth_bytes


def _read_sasl_authenticate_request_0(data: Data, at: int) -> tuple[SaslAuthenticateRequest, int]:
    auth_bytes, at = read_bytes(data, at, read_length)
    return SaslAuthenticateRequest(auth_bytes=auth_bytes), at


def _read_sasl_authenticate_request_2(data: Data, at: int) -> tuple[SaslAuthenticateRequest, int]:
    auth_bytes, at = read_bytes(data, at, read_compact_length)
    at = skip_tags(data, at)
    return SaslAuthenticateRequest(auth_bytes=auth_bytes), at


SASL_AUTHENTICATE_REQUEST: Final = MessageCodec(
    SaslAuthenticateRequest,
    36,
    readers={
        0: _read_sasl_authenticate_request_0,
        1: _read_sasl_authenticate_request_0,
        2: _read_sasl_authenticate_request_2,
    },
    writers={},
    flexible_from=2,
)
