"""The caller's side of SASL: one session at each node, kept alive while it is used.

A transport asks for the token of a node before each call and stream, and reports a token that was refused.
Invariants: at most one handshake with a node is under way, and one extension is planned; callers that need the token
wait for it. A session that is in use is extended before it expires, so that its streams go on (KIP-368); one that is
not used is left to expire. Nothing that a node answers makes a client authenticate without a pause. A token of an
identity provider is never sent without TLS, except to loopback, or where its user allows it.
Not here: the messages (tidelog/security/scram.py, oauth_bearer.py), sending (grpc_transport.py), obtaining a token
(token_reader.py).
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from tidelog.errors import (
    ConnectionFailed,
    InvalidConfig,
    RequestTimedOut,
    SaslAuthenticationFailed,
    SaslSessionEnded,
    TooManyHandshakes,
)
from tidelog.protocol.token_reader import TokenReader
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.loopback import is_loopback
from tidelog.security.oauth_bearer import DUMMY, first_message
from tidelog.security.sasl_user import Sasl
from tidelog.security.scram import PasswordKeys, ScramClient, derive_keys
from tidelog.types import Endpoint

SESSION_KEY: Final = "tidelog-session"
"""Metadata key of a call or stream: the token of the caller's session. The node answers an accepted stream with it."""

AUTHENTICATE_MS: Final = 15_000
"""Limit for one authentication with all its attempts; a node delays the answer to a wrong password."""
BACKOFF_S: Final = (0.05, 0.5)
"""Bounds of the random pause before another attempt."""
RENEW_AFTER: Final = (0.85, 0.95)
"""Bounds of the random part of its lifetime after which a session is extended (KIP-368)."""
RENEW_S_MIN: Final = 0.5
"""The least pause between two authentications at one node that no call waits for."""
LIFETIME_MS_MAX: Final = 31_536_000_000
"""A year, as for nodes."""
NONCE_BYTES: Final = 24

_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,64}")
"""What gRPC can carry, and nodes accept."""

Send: TypeAlias = Callable[[Endpoint, sasl_pb2.AuthenticateRequest, int], Awaitable[sasl_pb2.AuthenticateResponse]]
"""Sends a message of a handshake to a node; the number is its timeout in milliseconds."""


@dataclass(slots=True)
class _Session:
    """The session at one node. token: empty before the first handshake, and after the token was refused."""

    token: str = ""
    is_used: bool = False
    """Since the last handshake."""
    streams: int = 0
    handshake: asyncio.Task[str] | None = None
    extends: bool = False
    """Whether the handshake began to extend a session, not because a call waited for it."""
    renewal: asyncio.TimerHandle | None = None
    expires_s: float | None = None
    """By the clock of the event loop; None: never."""


class SaslClient:
    """Belongs to one transport and its running event loop."""

    def __init__(self, sasl: Sasl, rng: Random) -> None:
        """rng: unpredictable."""
        self._sasl, self._rng = sasl, rng
        self._sessions: dict[Endpoint, _Session] = {}
        self._keys: tuple[tuple[str, bytes, int], PasswordKeys] | None = None
        """The keys that were derived last: all nodes have the same salt for a user."""
        self._tokens = TokenReader(sasl) if sasl.is_token else None
        self._send: Send | None = None
        self._is_encrypted = False
        self._was_accepted = False
        """A node has accepted the user and its password before."""

    def connect(self, send: Send, *, is_encrypted: bool = False) -> None:
        """Use this function to reach nodes; called once by the transport. is_encrypted: by TLS."""
        self._send, self._is_encrypted = send, is_encrypted

    async def token_of(self, to: Endpoint, timeout_ms: int) -> str:
        """The token of the session at a node; authenticates if there is none. Raises SaslAuthenticationFailed,
        UnsupportedSaslMechanism, IllegalSaslState, InvalidConfig, RequestTimedOut, and what the node answers."""
        session, end = self._sessions.setdefault(to, _Session()), asyncio.get_running_loop().time() + timeout_ms / 1000
        session.is_used = True
        if session.token:
            return session.token
        if session.handshake is not None and session.extends:
            with suppress(SaslAuthenticationFailed):  # it began with an earlier password or token than there is now
                return await self._result(to, session.handshake, end, timeout_ms)
        return await self._result(to, session.handshake or self._start_handshake(to, session), end, timeout_ms)

    async def _result(self, to: Endpoint, handshake: asyncio.Task[str], end: float, timeout_ms: int) -> str:
        await asyncio.wait((handshake,), timeout=max(0, end - asyncio.get_running_loop().time()))
        if not handshake.done():
            raise RequestTimedOut(f"SASL at {to}: not authenticated within {timeout_ms} ms; try again")
        if handshake.cancelled():
            raise ConnectionFailed(f"SASL at {to}: this side closed the connection")
        return handshake.result()

    def refused(self, to: Endpoint, token: str) -> None:
        """The node does not know the token: the next call authenticates again."""
        session = self._sessions.get(to)
        if session is not None and session.token == token:
            session.token = ""

    def stream_opened(self, to: Endpoint) -> Callable[[], None]:
        """A stream was opened with the present token: the session is kept alive. Returns what to call at its end."""
        session = self._sessions.setdefault(to, _Session())
        session.streams += 1

        def ended() -> None:
            session.streams -= 1  # of this session, also if the address was forgotten and has another one

        return ended

    async def forget(self, to: Endpoint) -> None:
        """The address is not used any more."""
        session = self._sessions.pop(to, None)
        if session is not None:
            await self._stop([session])

    async def close(self) -> None:
        """End all handshakes. Sessions expire at the nodes."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        await self._stop(sessions)
        if self._tokens is not None:
            await self._tokens.close()

    async def _stop(self, sessions: list[_Session]) -> None:
        tasks = [session.handshake for session in sessions if session.handshake is not None]
        for session in sessions:
            session.token = ""
            if session.renewal is not None:
                session.renewal.cancel()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start_handshake(self, to: Endpoint, session: _Session) -> asyncio.Task[str]:
        task = asyncio.get_running_loop().create_task(self._authenticate(to, session), name=f"SASL at {to}")
        session.handshake, session.extends = task, bool(session.token)
        task.add_done_callback(lambda ended: self._handshake_ended(to, session, ended))
        return task

    def _handshake_ended(self, to: Endpoint, session: _Session, task: asyncio.Task[str]) -> None:
        session.handshake = None
        if task.cancelled() or task.exception() is None or session.expires_s is None or not session.token:
            return
        # An extension has failed, and no one waits for it: try again while the session lasts.
        left_s = session.expires_s - asyncio.get_running_loop().time()
        if left_s > RENEW_S_MIN:
            self._plan_renewal(to, session, left_s / 2)

    def _plan_renewal(self, to: Endpoint, session: _Session, delay_s: float) -> None:
        if session.renewal is not None:
            session.renewal.cancel()
        loop = asyncio.get_running_loop()
        session.renewal = loop.call_later(max(RENEW_S_MIN, delay_s), self._renew, to, session)

    def _renew(self, to: Endpoint, session: _Session) -> None:
        session.renewal = None
        if session.handshake is None and (session.is_used or session.streams):
            self._start_handshake(to, session)

    async def _authenticate(self, to: Endpoint, session: _Session) -> str:
        """Try until it succeeds or is refused."""
        loop = asyncio.get_running_loop()
        end = loop.time() + AUTHENTICATE_MS / 1000
        while True:
            try:
                answer = await self._handshake(to, session.token, end)
                break
            except (SaslSessionEnded, TooManyHandshakes, ConnectionFailed) as error:
                is_renewal = bool(session.token)
                if isinstance(error, SaslSessionEnded):
                    session.token = ""
                elif isinstance(error, ConnectionFailed) and not is_renewal:
                    raise  # the caller chooses another node, or repeats
                if loop.time() + BACKOFF_S[1] >= end:
                    raise
            await self._pause(loop)
        session.token, session.is_used = answer.token, False
        lifetime_s = answer.session_lifetime_ms / 1000
        session.expires_s = loop.time() + lifetime_s if lifetime_s else None
        if lifetime_s:
            self._plan_renewal(to, session, lifetime_s * self._rng.uniform(*RENEW_AFTER))
        return answer.token

    async def _pause(self, loop: asyncio.AbstractEventLoop) -> None:
        over: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(self._rng.uniform(*BACKOFF_S), over.set_result, None)
        try:
            await over
        finally:
            timer.cancel()

    async def _handshake(self, to: Endpoint, renewed: str, end: float) -> sasl_pb2.AuthenticateResponse:
        """One handshake. renewed: the token of the session to extend, or empty."""
        assert self._send is not None, "`connect` comes first"
        if self._tokens is not None:
            return await self._present_token(self._tokens, to, renewed, end)
        sasl = self._sasl
        password = sasl.read_password()
        nonce = base64.b64encode(self._rng.randbytes(NONCE_BYTES)).decode("ascii")
        client = ScramClient(sasl.scram, sasl.username, nonce)
        first = sasl_pb2.AuthenticateRequest(mechanism=sasl.mechanism, auth_bytes=client.first(), renewed=renewed)
        challenge = await self._send(to, first, _left_ms(end))
        keys = await self._derive(password, *client.asked(challenge.auth_bytes))
        proof = client.final(challenge.auth_bytes, keys)
        final = sasl_pb2.AuthenticateRequest(mechanism=sasl.mechanism, handshake=challenge.handshake, auth_bytes=proof)
        try:
            answer = await self._send(to, final, _left_ms(end))
        except SaslAuthenticationFailed as refusal:
            raise SaslAuthenticationFailed(self._refused_by(to, refusal)) from None
        client.verify(answer.auth_bytes)
        if _TOKEN.fullmatch(answer.token) is None or not 0 <= answer.session_lifetime_ms <= LIFETIME_MS_MAX:
            raise SaslAuthenticationFailed(
                f"SASL at {to}: the session that the node answers cannot be used. Check the address, and use TLS: what "
                "comes after the handshake can be changed on the way"
            )
        self._was_accepted = True
        return answer

    def _refused_by(self, to: Endpoint, refusal: SaslAuthenticationFailed) -> str:
        """What a refused user reads: who was refused where, and what to do."""
        file = self._sasl.password_file
        given = f"user {self._sasl.username!r}" + (f", password of the file {file}" if file is not None else "")
        before = "A node accepted them before: the user was removed, or its password was changed. "
        return (
            f"SASL at {to}: {refusal.message} ({given}). {before if self._was_accepted else ''}"
            "Check both, or ask an administrator (`tidelog user add`)."
        )

    async def _present_token(
        self, tokens: TokenReader, to: Endpoint, renewed: str, end: float
    ) -> sasl_pb2.AuthenticateResponse:
        """A handshake of OAUTHBEARER: one message, and after a failure another one, which the node answers with the
        error."""
        assert self._send is not None, "`connect` comes first"
        mechanism = self._sasl.mechanism
        if not (self._is_encrypted or self._sasl.allow_insecure or is_loopback(to.host)):
            raise InvalidConfig(
                f"the token is not sent to {to} without TLS: anyone who reads it on the way is this user. Connect with "
                "TLS to a listener with GRPC_SASL_SSL, or set allow_insecure=True where the network encrypts"
            )
        message = first_message(await tokens.read(_left_ms(end)))
        answer = await self._send(
            to, sasl_pb2.AuthenticateRequest(mechanism=mechanism, auth_bytes=message, renewed=renewed), _left_ms(end)
        )
        if answer.handshake:
            dummy = sasl_pb2.AuthenticateRequest(mechanism=mechanism, handshake=answer.handshake, auth_bytes=DUMMY)
            await self._send(to, dummy, _left_ms(end))
            raise SaslAuthenticationFailed(f"the node at {to} does not accept the token, and does not say why")
        return answer

    async def _derive(self, password: str, salt: bytes, iterations: int) -> PasswordKeys:
        """The keys of the password, on a thread unless they were derived before."""
        inputs = password, salt, iterations
        if self._keys is not None and self._keys[0] == inputs:
            return self._keys[1]
        loop = asyncio.get_running_loop()
        keys = await loop.run_in_executor(None, derive_keys, self._sasl.scram, password, salt, iterations)
        self._keys = inputs, keys
        return keys


def _left_ms(end: float) -> int:
    return max(1, int((end - asyncio.get_running_loop().time()) * 1000))
