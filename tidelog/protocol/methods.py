"""The table of all RPCs, by the name of the service and of the RPC: `DATA_FETCH_STREAM`.

gRPC handlers, channels and the simulated network are built from this table. `make proto` derives it from the proto
files (tests/rpc_table.py). Messages with records are values of `tidelog/record_exchange.py`; `tidelog/protocol/wire.py`
writes and reads all messages.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.protocol.rpc import Method
from tidelog.protocol.v1.rpcs import *  # noqa: F403 (the generated constants)

ALL: Final[tuple[Method[Any, Any], ...]] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Method)
)
"""Every RPC of every service, in the order of the proto files."""


def of_service(service: str) -> tuple[Method[Any, Any], ...]:
    """Return the RPCs of one service, by its full name."""
    return tuple(method for method in ALL if method.service == service)
