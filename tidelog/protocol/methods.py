"""The table of all RPCs, by the name of the service and of the RPC: `DATA_FETCH_STREAM`.

gRPC handlers, channels and the simulated network are built from this table. `make proto` derives it from the proto
files (tests/rpc_table.py). ProduceRequest and FetchResponse are the classes of `tidelog/protocol/wire.py`, which have
protobuf's format but do not copy `records`.
"""

from __future__ import annotations

from typing import Final

from tidelog.protocol.rpc import Method, WireMessage
from tidelog.protocol.v1.rpcs import *  # noqa: F403 (the generated constants)

ALL: Final[tuple[Method[WireMessage, WireMessage], ...]] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Method)
)
"""Every RPC of every service, in the order of the proto files."""


def of_service(service: str) -> tuple[Method[WireMessage, WireMessage], ...]:
    """Return the RPCs of one service, by its full name."""
    return tuple(method for method in ALL if method.service == service)
