"""SASL on a connection of a Kafka client: the handshake, its messages, and the session that they begin.

    SaslHandshake 1     mechanism ->  SaslAuthenticate, as often as the mechanism has messages
    SaslHandshake 0     mechanism ->  the messages of the mechanism, each with its size and nothing else

A client that repeats this extends its session (KIP-368): it stays the same user, with the same mechanism. The session
belongs to the connection, so that both end together.
Source: KIP-43, KIP-152, KIP-368.
Not here: mechanisms, delays, bounds and sessions (node/security/sasl_authenticator.py), which requests are served
before a client has logged in (kafka_connection.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from node.api import table
from node.api.sasl_requests import AuthenticateAnswer, AuthenticateRequest
from node.listeners.kafka.error_codes import NONE, code_of
from node.listeners.kafka.exchange import ELEMENTS_MAX, Head, KafkaAnswer, KafkaApi, answer_of, client_of, sized
from node.security.sasl_authenticator import SaslAuthenticator
from node.security.sasl_sessions import SaslSession
from tidelog.errors import (
    IllegalSaslState,
    InvalidRequest,
    Retry,
    SaslAuthenticationFailed,
    TidelogError,
    UnsupportedSaslMechanism,
)
from tidelog.protocol.kafka.message_codec import Data
from tidelog.protocol.kafka.messages.sasl_authenticate_request import (
    SASL_AUTHENTICATE_REQUEST,
    SaslAuthenticateRequest,
)
from tidelog.protocol.kafka.messages.sasl_authenticate_response import (
    SASL_AUTHENTICATE_RESPONSE,
    SaslAuthenticateResponse,
)
from tidelog.protocol.kafka.messages.sasl_handshake_request import SASL_HANDSHAKE_REQUEST
from tidelog.protocol.kafka.messages.sasl_handshake_response import SASL_HANDSHAKE_RESPONSE, SaslHandshakeResponse

HANDSHAKE_KEY: Final = SASL_HANDSHAKE_REQUEST.api_key
HANDSHAKE_VERSIONS: Final = range(2)
"""SaslHandshake is answered by the connection, whose state it is; the boundary has no part in it."""

_MESSAGES_FROM: Final = 1
"""Version of SaslHandshake from which the messages of the mechanism are SaslAuthenticate requests."""


def _read(message: SaslAuthenticateRequest, _version: int) -> AuthenticateRequest:
    return AuthenticateRequest("", b"", bytes(message.auth_bytes))


def _write(_message: SaslAuthenticateRequest, answer: AuthenticateAnswer, _version: int) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(NONE, None, answer.auth_bytes, answer.session_lifetime_ms)


def _refuse(_message: SaslAuthenticateRequest, error: TidelogError, _version: int) -> SaslAuthenticateResponse | None:
    if error.retry is not Retry.NEVER:
        return None  # any error in an answer is final for clients; after the end of a connection they try again
    as_kafka = SaslAuthenticationFailed(error.message) if isinstance(error, InvalidRequest) else error
    return SaslAuthenticateResponse(code_of(as_kafka), error.message, b"")


SASL_AUTHENTICATE: Final = KafkaApi(
    range(3),
    SASL_AUTHENTICATE_REQUEST,
    SASL_AUTHENTICATE_RESPONSE,
    table.SASL_AUTHENTICATE,
    _read,
    _write,
    _refuse,
    ends_if_refused=True,
)


class BareToken:
    """A message of a mechanism without the header of a request, as the codec of the boundary: after SaslHandshake 0."""

    __slots__ = ("_login",)

    tells_throttle = False

    def __init__(self, login: SaslLogin) -> None:
        self._login = login

    def decode(self, frame: Data, /) -> AuthenticateRequest:
        """The value of a frame."""
        return self._login.next_message(bytes(frame))

    def encode(self, answer: AuthenticateAnswer, _throttle_time_ms: int, /) -> KafkaAnswer:
        """The answer of the mechanism."""
        return sized(answer.auth_bytes)

    def refuse(self, _error: TidelogError) -> None:
        """The protocol has no form for it: the connection is closed."""


class SaslLogin:
    """The state of one connection: its handshake, and its session."""

    __slots__ = (
        "_handshake",
        "_listener",
        "_mechanism",
        "_of_session",
        "_sasl",
        "_session",
        "_token",
        "authenticate",
        "sends_tokens",
    )

    def __init__(self, listener: str, sasl: SaslAuthenticator | None) -> None:
        """sasl: None: the listener has no SASL."""
        self._listener, self._sasl = listener, sasl
        self._mechanism = ""
        """Of the handshake under way; empty if there is none."""
        self._handshake = b""
        """The name of the handshake, from its second message on."""
        self._session: SaslSession | None = None
        self._of_session = self._token = ""
        """The mechanism and the token of the session."""
        self.sends_tokens = False
        """True if the next frame is a message of the mechanism without a header."""
        self.authenticate = SASL_AUTHENTICATE if sasl is None else replace(SASL_AUTHENTICATE, read=self._read)
        """The row of the table for SaslAuthenticate on this connection."""

    @property
    def is_due(self) -> bool:
        """True if the client has yet to log in."""
        return self._sasl is not None and self._session is None

    @property
    def refusal(self) -> TidelogError | None:
        """Why other requests are refused before the login; None if the listener has no SASL."""
        return None if self._sasl is None else self._sasl.no_session(self._listener)

    def handshake(self, frame: Data, head: Head) -> tuple[KafkaAnswer, bool]:
        """The answer to SaslHandshake, and whether the connection goes on. Raises MalformedMessage."""
        _, body_at = client_of(frame, is_flexible=False)
        request, _ = SASL_HANDSHAKE_REQUEST.decode(frame, head.version, body_at, elements_max=ELEMENTS_MAX)
        offered = () if self._sasl is None else self._sasl.mechanisms
        error: TidelogError | None = None
        if self._sasl is None or (self._session is not None and head.version < _MESSAGES_FROM):
            error = IllegalSaslState("the listener has no SASL, or the client has logged in")
        elif request.mechanism not in offered:
            error = UnsupportedSaslMechanism("it is not offered")
        else:
            self._mechanism, self._handshake = request.mechanism, b""
            self.sends_tokens = head.version < _MESSAGES_FROM
        body = SASL_HANDSHAKE_RESPONSE.encode_parts(SaslHandshakeResponse(code_of(error), offered), head.version)
        return answer_of(body, head.correlation_id, is_flexible=False), error is None

    def next_message(self, auth_bytes: bytes) -> AuthenticateRequest:
        """The value of the client's next message. Raises IllegalSaslState, SaslAuthenticationFailed."""
        if not self._mechanism:
            raise IllegalSaslState(
                f"listener {self._listener!r}: SaslHandshake, which names the mechanism, comes first"
            )
        if self._session is not None and self._mechanism != self._of_session:
            raise SaslAuthenticationFailed(
                f"the session was begun with {self._of_session} and cannot be extended with {self._mechanism} "
                "(KIP-368): connect again"
            )
        return AuthenticateRequest(self._mechanism, self._handshake, auth_bytes, "" if self._handshake else self._token)

    def answered(self, answer: AuthenticateAnswer) -> SaslSession | None:
        """A message was answered. Returns the session if it was the last one of a first login. Raises
        SaslSessionEnded."""
        assert self._sasl is not None, "without SASL no message is answered"
        self._handshake = answer.handshake
        if answer.handshake:
            return None
        self._of_session, self._mechanism, self._token = self._mechanism, "", answer.token
        self.sends_tokens = False
        if self._session is not None:
            return None
        self._session = self._sasl.session_of(self._listener, answer.token)
        return self._session

    def end(self) -> None:
        """The connection has ended, and nobody else has the token of its session."""
        if self._session is not None and self._sasl is not None:
            self._sasl.sessions.end(self._token)

    def _read(self, message: SaslAuthenticateRequest, _version: int) -> AuthenticateRequest:
        return self.next_message(bytes(message.auth_bytes))
