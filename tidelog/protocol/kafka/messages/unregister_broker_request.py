"""UnregisterBrokerRequest, versions 0 to 0. Generated from UnregisterBrokerRequest.json of Apache Kafka 4.1.0 by `make schemas`; never edited."""

from __future__ import annotations

from struct import Struct
from typing import Final

from tidelog.protocol.kafka.message_codec import (
    Data,
    MessageCodec,
    Structure,
    skip_tags,
)

_r_i = Struct(">i").unpack_from


class UnregisterBrokerRequest(Structure):
    """The message."""

    __slots__ = ("broker_id",)
    __match_args__ = ("broker_id",)

    def __init__(
        self,
        broker_id: int,
    ) -> None:
        # The broker ID to unregister.
        self.broker_id: Final = broker_id


def _read_unregister_broker_request_0(data: Data, at: int) -> tuple[UnregisterBrokerRequest, int]:
    (broker_id,) = _r_i(data, at)
    at += 4
    at = skip_tags(data, at)
    return UnregisterBrokerRequest(broker_id=broker_id), at


UNREGISTER_BROKER_REQUEST: Final = MessageCodec(
    UnregisterBrokerRequest,
    64,
    readers={0: _read_unregister_broker_request_0},
    writers={},
    flexible_from=0,
)
