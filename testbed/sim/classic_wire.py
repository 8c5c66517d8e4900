"""Requests that no RPC has, over the simulated network: their values cross it as bytes, like every message.

A listener of Kafka's protocol has codecs of its own; here Python's `pickle` stands for them.
"""

from __future__ import annotations

import pickle
from typing import Any, Final, Generic, Self, TypeVar

from node.api.table import APIS
from node.boundary.boundary import ProtocolCodec
from node.listeners.grpc.codecs import codec_of as rpc_codec_of
from tidelog.protocol.rpc import Method

V = TypeVar("V")


class Pickled(Generic[V]):
    """A value as a message of the network."""

    def __init__(self, value: V) -> None:
        self.value = value

    def SerializeToString(self) -> bytes:
        return pickle.dumps(self.value)

    @classmethod
    def FromString(cls, data: bytes, /) -> Self:
        return cls(pickle.loads(data))


class PickledCodec:
    """The codec of these requests and their answers."""

    tells_throttle = False

    def decode(self, data: bytes, /) -> Any:
        return pickle.loads(data)

    def encode(self, answer: Any, _throttle_time_ms: int, /) -> bytes:
        return pickle.dumps(answer)


PICKLED: Final = PickledCodec()


def codec_of(api: str) -> ProtocolCodec:
    """The codec of an API on simulated nodes."""
    return rpc_codec_of(api) if APIS[api].has_rpc else PICKLED


def _method(name: str) -> Method[Pickled[Any], Pickled[Any]]:
    return Method("tidelog.v1.Groups", name, Pickled, Pickled)


JOIN_GROUP: Final = _method("JoinGroup")
SYNC_GROUP: Final = _method("SyncGroup")
HEARTBEAT: Final = _method("Heartbeat")
LEAVE_GROUP: Final = _method("LeaveGroup")
