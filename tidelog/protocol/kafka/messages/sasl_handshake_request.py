"""SaslHandshakeRequest, versions 0 to 1. Generated from SaslHandshakeRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    read_string,
)


class SaslHandshakeRequest(Structure):
    """The message."""

    __slots__ = ("mechanism",)
    __match_args__ = ("mechanism",)

    def __init__(
        self,
        mechanism: str,
    ) -> None:
        # The SASL mechanism chosen by the client.
        self.mechanism: Final = mechanism


def _read_sasl_handshake_request_0(data: Data, at: int) -> tuple[SaslHandshakeRequest, int]:
    mechanism, at = read_string(data, at)
    return SaslHandshakeRequest(mechanism=mechanism), at


SASL_HANDSHAKE_REQUEST: Final = MessageCodec(
    SaslHandshakeRequest,
    17,
    readers={0: _read_sasl_handshake_request_0, 1: _read_sasl_handshake_request_0},
    writers={},
)
