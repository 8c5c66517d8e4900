"""Sessions of callers that authenticated by SASL: who a token belongs to. No input or output.

A session is known to one node and one listener. Its token is 32 random bytes, of which the node keeps only the digest:
no secret is shared among nodes, neither memory nor logs have a token, and a restart ends all sessions. A client
authenticates at each node; see docs/security.md for why.

Invariants: a token that is not known, or whose time is over, is refused. A session never changes its user, and does not
outlast its credential. When a session ends, its streams are ended with SaslSessionEnded. The number of sessions of each
user, and of all, is bounded: the one that was unused for longest, and has no streams, makes room; where the node is
full, one of the user that has most, so that no users keep another one out.
Source: KIP-368 (re-authentication).
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from dataclasses import field
from typing import Final, Protocol, TypeAlias

from node.security.bearer_credential import BearerCredential
from tidelog.errors import SaslAuthenticationFailed, SaslSessionEnded, TidelogError, TooManyHandshakes
from tidelog.security.hashes import digest
from tidelog.security.scram import ScramCredential
from tidelog.types import Millis
from tidelog.values import dataclass

TOKEN_BYTES: Final = 32
TOKEN_CHARACTERS_MAX: Final = 64
"""Longer ones are not even hashed."""

OF_USER_MAX: Final = 2_000
"""Sessions of one user: each client has one at each node, and each run of a command leaves one until it expires."""
SESSIONS_MAX: Final = 50_000
"""Sessions of a node. One takes about 1 KiB."""


SaslCredential: TypeAlias = ScramCredential | BearerCredential


class SessionStream(Protocol):
    """A stream that ends with its session."""

    def end_with(self, error: TidelogError) -> None: ...


@dataclass(eq=False, slots=True)
class SaslSession:
    """The session of a caller that has authenticated."""

    user: str
    listener: str
    credential: SaslCredential
    """What the proof was checked against; the session ends with it."""
    expires_ms: Millis | None
    """None: never."""
    tokens: list[bytes] = field(default_factory=list, repr=False)
    """Digests, the former one last: calls that were sent with it may still arrive."""
    streams: set[SessionStream] = field(default_factory=set, repr=False)

    @property
    def principal(self) -> str:
        """In Kafka's form."""
        return f"User:{self.user}"


class SaslSessions:
    """The sessions of a node."""

    def __init__(self, lifetime_ms: Millis, rng: random.Random) -> None:
        """lifetime_ms: 0: sessions do not expire. rng: unpredictable."""
        self._lifetime_ms, self._rng = lifetime_ms, rng
        self._by_token: dict[bytes, SaslSession] = {}
        self._of_user: dict[str, dict[SaslSession, None]] = {}
        """In the order of their last use."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def of(self, user: str) -> tuple[SaslSession, ...]:
        """The sessions of a user."""
        return tuple(self._of_user.get(user, ()))

    def begin(
        self, listener: str, user: str, credential: SaslCredential, at: Millis, until_ms: Millis | None = None
    ) -> str:
        """A new session. until_ms: when its credential expires; None: never. Returns its token. Raises
        TooManyHandshakes."""
        others = self._of_user.get(user, {})
        if len(others) >= OF_USER_MAX:
            self._make_room(user, [others])
        elif self._count >= SESSIONS_MAX:
            self._make_room(user, sorted(self._of_user.values(), key=len, reverse=True))
        session = SaslSession(user, listener, credential, None)
        self._of_user.setdefault(user, {})[session] = None
        self._count += 1
        return self._extend(session, at, until_ms)

    def renew(
        self,
        listener: str,
        token: str,
        user: str,
        credential: SaslCredential,
        at: Millis,
        until_ms: Millis | None = None,
    ) -> str:
        """Extend the session of a token, whose streams continue. Returns its new token. Raises SaslSessionEnded,
        SaslAuthenticationFailed if it belongs to another user."""
        session = self.find(listener, token, at)
        if session.user != user:
            raise SaslAuthenticationFailed(
                f"the session belongs to another user and cannot be extended by User:{user} (KIP-368): begin a new one"
            )
        session.credential = credential
        return self._extend(session, at, until_ms)

    def find(self, listener: str, token: str, at: Millis) -> SaslSession:
        """The session of a token. Raises SaslSessionEnded."""
        session = self._by_token.get(_digest(token)) if len(token) <= TOKEN_CHARACTERS_MAX else None
        if session is None or session.listener != listener:
            raise SaslSessionEnded(
                f"listener {listener!r} of this node does not know the session: it has expired, its user was changed "
                "or removed, or the node was restarted. Authenticate again"
            )
        if session.expires_ms is not None and at >= session.expires_ms:
            raise self._end(session, _expired(session))
        sessions = self._of_user[session.user]
        del sessions[session]
        sessions[session] = None
        return session

    def end(self, token: str) -> None:
        """End the session of a token that nobody will use again, if it has not ended."""
        session = self._by_token.get(_digest(token))
        if session is not None:
            self._end(session, SaslSessionEnded("the connection of the session has ended"))

    def expire(self, at: Millis) -> None:
        """End the sessions whose time is over."""
        self.end_if(lambda each: each.expires_ms is not None and at >= each.expires_ms, _expired)

    def end_if(
        self, is_over: Callable[[SaslSession], bool], error_of: Callable[[SaslSession], SaslSessionEnded]
    ) -> None:
        """End sessions, and their streams."""
        every = [session for sessions in self._of_user.values() for session in sessions]
        for session in every:
            if is_over(session):
                self._end(session, error_of(session))

    def _extend(self, session: SaslSession, at: Millis, until_ms: Millis | None) -> str:
        raw = self._rng.randbytes(TOKEN_BYTES)
        token = base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
        session.tokens.insert(0, _digest(token))
        for outdated in session.tokens[2:]:
            del self._by_token[outdated]
        del session.tokens[2:]
        self._by_token[session.tokens[0]] = session
        lasts_until = Millis(at + self._lifetime_ms) if self._lifetime_ms else until_ms
        session.expires_ms = lasts_until if until_ms is None or lasts_until is None else min(lasts_until, until_ms)
        return token

    def _make_room(self, user: str, crowded: list[dict[SaslSession, None]]) -> None:
        """End a session without streams of the first of these users who has one."""
        idle = next((session for sessions in crowded for session in sessions if not session.streams), None)
        if idle is None:
            raise TooManyHandshakes(
                f"{len(self.of(user))} sessions of User:{user}, {self._count} in all: close clients that are not needed"
            )
        self._end(idle, SaslSessionEnded("the session was unused for longest, and another one took its place"))

    def _end(self, session: SaslSession, error: SaslSessionEnded) -> SaslSessionEnded:
        for token in session.tokens:
            del self._by_token[token]
        sessions = self._of_user[session.user]
        del sessions[session]
        if not sessions:
            del self._of_user[session.user]
        self._count -= 1
        for stream in list(session.streams):
            stream.end_with(error)
        return error


def _expired(session: SaslSession) -> SaslSessionEnded:
    return SaslSessionEnded(f"the session of {session.principal} has expired: authenticate again")


def _digest(token: str) -> bytes:
    return digest("sha256", token.encode())
