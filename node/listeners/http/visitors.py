"""Who visits the console: by a session that began with a password, or by a certificate.

A login is a handshake with this node (SCRAM, or PLAIN where that is not offered), which this module makes for the
visitor: so the limits, the delay after a wrong password and the audit log are those of every SASL login, and the
session ends with the password. The token of the session is the cookie; the node keeps only its digest.

Invariants: only a visitor who has proved who it is can change anything. The secret of the nodes is no login. A form
counts only with the token that was made for the visitor's own session.
Not here: sessions (node/security/sasl_sessions.py), cookies and headers (console_listener.py).
"""

from __future__ import annotations

import random
from typing import Final

from node.api.caller import ANONYMOUS, Caller
from node.api.table import SASL_AUTHENTICATE
from node.boundary.boundary import Boundary, Request
from node.listeners.grpc.codecs import codec_of
from node.security.sasl_authenticator import SaslAuthenticator
from replication.controller.scram_users import CLUSTER_USER
from tidelog.errors import SaslAuthenticationFailed, SaslSessionEnded, UnsupportedSaslMechanism
from tidelog.protocol.sasl_client import SaslClient
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.hashes import hmac_digest
from tidelog.security.sasl_user import Sasl
from tidelog.security.saslprep import saslprep
from tidelog.types import Endpoint, PasswordMechanism
from tidelog.values import dataclass

LOGIN_MS: Final = 15_000
"""How long a login may take, with the delay after a wrong password."""

KEY_BYTES: Final = 32
_HERE: Final = Endpoint("this node", 0)


@dataclass(frozen=True, slots=True)
class VisitorIdentity:
    """A visitor, as this node knows it."""

    principal: str
    is_proved: bool
    """By a password or a certificate."""
    form_token: str
    """What a form of this visitor carries; empty if it may send none."""
    is_session: bool = False
    """Known by a session, which can be ended."""


class Visitors:
    """The visitors of one node's console."""

    def __init__(
        self, listener: str, boundary: Boundary, sasl: SaslAuthenticator, rng: random.Random, *, strangers: bool
    ) -> None:
        """listener: the name under which the console's sessions are known. rng: unpredictable. strangers: whether a
        visitor who has not proved who it is may look, as an anonymous client may."""
        self._listener, self._boundary, self._sasl, self._rng = listener, boundary, sasl, rng
        self._strangers = strangers
        self._key = rng.randbytes(KEY_BYTES)

    @property
    def can_log_in(self) -> bool:
        """Whether the cluster has users with passwords."""
        return self._sasl.requires(self._listener) and self._sasl.login_mechanism("") is not None

    def identify(self, token: str | None, certified: str | None) -> VisitorIdentity | None:
        """token: the cookie. certified: the principal of the visitor's certificate. Returns None for one who has to
        log in."""
        if token:
            try:
                session = self._sasl.session_of(self._listener, token)
            except SaslSessionEnded:
                pass
            else:
                return VisitorIdentity(
                    session.principal, is_proved=True, form_token=self._form_token(token), is_session=True
                )
        if certified is not None:
            return VisitorIdentity(certified, is_proved=True, form_token=self._form_token(certified))
        return VisitorIdentity(ANONYMOUS, is_proved=False, form_token="") if self._strangers else None

    async def log_in(self, user: str, password: str, *, host: str, connection: str) -> str:
        """The token of a new session. host, connection: of the visitor. Raises SaslAuthenticationFailed,
        TooManyHandshakes, NodeNotAvailable, UnsupportedSaslMechanism, UnacceptableCredential."""
        # A user may have a password for one of the mechanisms only, as `kafka-configs` adds them.
        mechanism = self._sasl.login_mechanism(user)
        if mechanism is None or not self._sasl.requires(self._listener):
            raise UnsupportedSaslMechanism("this cluster has no users with passwords: show a certificate")
        if not user or _compared(user) == CLUSTER_USER:
            raise SaslAuthenticationFailed("wrong user name or password")
        caller = Caller(self._listener, connection, for_nodes=False, client_id="console", host=host)
        codec = codec_of(SASL_AUTHENTICATE.name)

        async def send(
            _to: Endpoint, message: sasl_pb2.AuthenticateRequest, _timeout_ms: int
        ) -> sasl_pb2.AuthenticateResponse:
            request = Request(message.SerializeToString(), codec)
            answer = await self._boundary.serve(SASL_AUTHENTICATE, request, caller)
            return sasl_pb2.AuthenticateResponse.FromString(answer.data)

        if mechanism == PasswordMechanism.PLAIN.mechanism_name:
            message = f"\0{user}\0{password}".encode()
            request = sasl_pb2.AuthenticateRequest(mechanism=mechanism, auth_bytes=message)
            return (await send(_HERE, request, LOGIN_MS)).token
        client = SaslClient(Sasl(user, password, mechanism=mechanism), self._rng)
        client.connect(send, is_encrypted=True)  # nothing is sent
        try:
            return await client.token_of(_HERE, LOGIN_MS)
        finally:
            await client.close()

    def log_out(self, token: str) -> None:
        """End the session of this token."""
        self._sasl.sessions.end(token)

    def _form_token(self, of: str) -> str:
        return hmac_digest(self._key, of.encode(), "sha256").hex()


def _compared(user: str) -> str:
    """A name as a handshake compares it: letters without width and other forms of letters do not count."""
    try:
        return saslprep(user)
    except ValueError:  # no user's name: the handshake refuses it
        return user
