"""Authenticate: one message of a SASL handshake (KIP-152, KIP-368)."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.types import Millis


@dataclass(frozen=True, slots=True)
class AuthenticateRequest:
    """handshake: from the previous answer; empty: a new handshake. renewed: with a new handshake, the token of the
    session to extend; empty: a new session."""

    mechanism: str
    handshake: bytes = field(repr=False)
    auth_bytes: bytes = field(repr=False)
    renewed: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class AuthenticateAnswer:
    """handshake: for the next request; empty: the handshake is complete, and the other fields say what it yields.
    session_lifetime_ms: 0: the session does not expire."""

    handshake: bytes = field(repr=False)
    auth_bytes: bytes = field(repr=False)
    token: str = field(default="", repr=False)
    session_lifetime_ms: Millis = Millis(0)
    principal: str = ""
