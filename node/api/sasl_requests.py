"""Authenticate: one message of a SASL handshake (KIP-152, KIP-368)."""

from __future__ import annotations

from dataclasses import field

from tidelog.types import Millis
from tidelog.values import dataclass


@dataclass(frozen=True, slots=True)
class AuthenticateRequest:
    """The client's next message of a handshake."""

    mechanism: str
    handshake: bytes = field(repr=False)
    """The handshake named by the previous answer; empty for a new one."""
    auth_bytes: bytes = field(repr=False)
    renewed: str = field(default="", repr=False)
    """With a new handshake, the token of the session to extend; empty for a new session."""


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    """The node's answer to a message of a handshake."""

    handshake: bytes = field(repr=False)
    """For the next request. Empty if the handshake is complete: then the other fields are set."""
    auth_bytes: bytes = field(repr=False)
    token: str = field(default="", repr=False)
    session_lifetime_ms: Millis = Millis(0)
    """0 for a session that does not expire."""
    principal: str = ""
