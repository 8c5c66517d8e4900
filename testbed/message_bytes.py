"""Messages as the wire has them."""

from __future__ import annotations

from typing import Any

from tidelog.protocol import wire


def bytes_of(message: Any) -> bytes:
    """The message as it is sent: a protobuf message, or a value of `tidelog/record_exchange.py`."""
    return wire.writer(type(message))(message)
