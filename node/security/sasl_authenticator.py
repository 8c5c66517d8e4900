"""SASL of a node's listeners: handshakes, and the principal of each call by the token of its session.

Independent of gRPC: a listener of another protocol that keeps the state of its connection passes the same messages.
Invariants: handshakes under way are bounded at each listener and for each address there, in number and in bytes, and
end after `HANDSHAKE_MS`. An answer never says whether a user exists. A failed attempt is recorded at once and keeps its
place in the bound for as long as its answer is delayed, even if its caller goes away: the delay costs time for the
caller, and none for the event loop. A session ends with the credential that it was proven with, as soon as this node
has applied the change.
Not here: the mechanisms (tidelog/security/scram.py, bearer_authenticator.py), tokens of sessions (sasl_sessions.py),
what a principal may do.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from node.api.caller import Caller
from node.api.sasl_requests import AuthenticateAnswer, AuthenticateRequest
from node.runtime.work import run_in
from node.security.authorizer import AuditTrail
from node.security.bearer_credential import BearerCredential
from node.security.cluster_secret import NODE_MECHANISM, cluster_credentials
from node.security.handshake_places import HandshakePlaces
from node.security.sasl_sessions import TOKEN_CHARACTERS_MAX, SaslCredential, SaslSession, SaslSessions
from node.security.sasl_settings import SaslConfig
from replication.controller.image import EMPTY, ClusterImage
from replication.controller.metadata_records import ScramCredentialRecord
from replication.controller.scram_users import CLUSTER_USER
from storage.files.disk_executor import Executor
from tidelog.clock import Clock
from tidelog.errors import (
    IllegalSaslState,
    InvalidRequest,
    NodeNotAvailable,
    SaslAuthenticationFailed,
    SaslSessionEnded,
    UnsupportedSaslMechanism,
)
from tidelog.security.hashes import digest
from tidelog.security.oauth_bearer import INVALID_TOKEN
from tidelog.security.plain import read_message
from tidelog.security.saslprep import saslprep
from tidelog.security.scram import ITERATIONS, Claim, ScramCredential, ScramServer, decoy, has_password
from tidelog.types import Millis, PasswordMechanism, ScramMechanism, TokenMechanism
from tidelog.values import dataclass

if TYPE_CHECKING:
    from node.security.bearer_authenticator import BearerAuthenticator

_log = logging.getLogger("node.security")

HANDSHAKE_MS: Final = 10_000
"""Time between the first message and the last one. A client needs some milliseconds for its keys."""
SWEEP_MS: Final = 1_000
"""Interval of ending sessions that have expired."""
NONCE_BYTES: Final = 24
HANDSHAKE_ID_BYTES: Final = 16
NAME_CHARACTERS_MAX: Final = 256
"""Of a claimed name in the log."""


@dataclass(frozen=True, slots=True)
class _Handshake:
    server: ScramServer
    mechanism: ScramMechanism
    listener: str
    host: str
    renewed: str
    began_ms: Millis


@dataclass(frozen=True, slots=True)
class _RefusedToken:
    """A handshake of OAUTHBEARER that ends with an error, once the client has seen that its token was not accepted."""

    reason: str
    listener: str
    host: str
    began_ms: Millis


class SaslAuthenticator:
    """One for a node. Until `follow` was called with an image of the cluster, no user is known."""

    def __init__(
        self,
        config: SaslConfig,
        listeners: Iterable[str],
        *,
        clock: Clock,
        rng: random.Random,
        cluster_secret: str = "",
        executors: Callable[[str], Executor] | None = None,
        audit: AuditTrail | None = None,
    ) -> None:
        """listeners: the names of those whose callers must authenticate. rng: unpredictable. cluster_secret: with which
        other nodes authenticate; empty: they cannot. executors: makes those on which keys for tokens are read and
        passwords are checked; None: there are neither. audit: records the failures."""
        self._audit = audit or AuditTrail()
        self._config, self._clock, self._rng = config, clock, rng
        self._listeners = frozenset(listeners)
        self._offered = {each.mechanism_name: each for each in config.mechanisms}
        self._image = EMPTY
        self._of_cluster = cluster_credentials(cluster_secret) if cluster_secret else {}
        self._of_users: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        """Made in advance: a user that exists must not take longer than one that does not."""
        self._iterations: dict[ScramMechanism, list[int]] = {}
        """The numbers of iterations that users have."""
        self._handshakes: dict[bytes, _Handshake | _RefusedToken] = {}
        """By their random id, the oldest first."""
        self._places = HandshakePlaces()
        self.sessions = SaslSessions(config.lifetime_ms, rng)
        self._tokens: BearerAuthenticator | None = None
        if config.has_tokens and self._listeners and executors is not None:
            from node.security.bearer_authenticator import BearerAuthenticator  # loads PyJWT and an HTTP client

            self._tokens = BearerAuthenticator(
                config.oauth, clock=clock, executor=executors("keys"), keys_changed=self._keys_changed
            )
        self._passwords: Executor | None = None
        """Of one thread: guesses take at most one processor."""
        if config.has_passwords and self._listeners and executors is not None:
            self._passwords = executors("passwords")

    async def load(self) -> None:
        """Read the keys for tokens, if they are in a file. Raises InvalidConfig."""
        if self._tokens is not None:
            await self._tokens.keys.load()

    @property
    def handshakes_under_way(self) -> int:
        """Number of handshakes that have begun, and of failed ones whose answer is delayed."""
        return self._places.taken(self._clock.monotonic_ms())

    def requires(self, listener: str) -> bool:
        """Whether callers of the listener must authenticate."""
        return listener in self._listeners

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The names of those that users may choose of."""
        return tuple(self._offered)

    def login_mechanism(self, user: str) -> str | None:
        """The mechanism by which a password of this user can be checked; None if none is offered. For a name that no
        user has it is one that others have."""
        offered = [each for each in self._config.mechanisms if isinstance(each, ScramMechanism)]
        with suppress(ValueError):
            user = saslprep(user)
        found = next((each for each in offered if (user, each) in self._of_users), None)
        if found is None and self._passwords is not None:
            return PasswordMechanism.PLAIN.mechanism_name
        if found is None:
            found = max(offered, key=lambda each: bool(self._iterations.get(each)), default=None)
        return None if found is None else found.mechanism_name

    def no_session(self, listener: str) -> IllegalSaslState:
        """The error of a caller of the listener that has not authenticated."""
        return IllegalSaslState(
            f"listener {listener!r} requires SASL ({', '.join(self._offered)}): give the client a user name and a "
            "password, or with OAUTHBEARER a token"
        )

    def session_of(self, listener: str, token: str | None) -> SaslSession:
        """The session of a call to a listener that requires one. token: None: the call has none. Raises
        IllegalSaslState, SaslSessionEnded."""
        if token is None:
            raise self.no_session(listener)
        return self.sessions.find(listener, token, self._clock.monotonic_ms())

    def follow(self, image: ClusterImage) -> None:
        """Use this image. Sessions end whose credential it has not any more."""
        before, self._image = self._image, image
        if image.scram is not before.scram:
            self._of_users = {
                key: self._of_users[key] if before.scram.get(key) is record else _credential_in(record)
                for key, record in image.scram.items()
            }
            self._iterations = {
                mechanism: sorted({each.iterations for (_, kind), each in image.scram.items() if kind is mechanism})
                for mechanism in ScramMechanism
            }
            self.sessions.end_if(
                lambda session: (
                    isinstance(session.credential, ScramCredential)
                    and self._present(session.user, session.credential.mechanism) != session.credential
                ),
                lambda session: SaslSessionEnded(
                    f"the password of {session.principal} was changed, or the user was removed: authenticate again"
                ),
            )

    async def run(self) -> None:
        """End sessions and handshakes in time, and keep the keys for tokens present, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            if self._tokens is not None:
                tasks.create_task(self._tokens.keys.run(), name="keys of tokens")
            while True:
                await self._clock.sleep_ms(SWEEP_MS)
                at = self._clock.monotonic_ms()
                self.sessions.expire(at)
                self._drop_handshakes(at)

    def _keys_changed(self) -> None:
        """End the sessions whose tokens were signed with a key that the identity provider has withdrawn."""
        assert self._tokens is not None, "only they have keys"
        valid = self._tokens.keys.digests
        self.sessions.end_if(
            lambda session: isinstance(session.credential, BearerCredential) and session.credential.key not in valid,
            lambda session: SaslSessionEnded(
                f"the identity provider has withdrawn the key that signed the token of {session.principal}: "
                "authenticate again with a new token"
            ),
        )

    async def authenticate(self, request: AuthenticateRequest, caller: Caller) -> AuthenticateAnswer:
        """One message of a handshake. Raises IllegalSaslState, UnsupportedSaslMechanism, TooManyHandshakes,
        SaslSessionEnded, NodeNotAvailable, InvalidRequest, and after a delay SaslAuthenticationFailed."""
        if not self.requires(caller.listener):
            raise IllegalSaslState(
                f"listener {caller.listener!r} has no SASL: leave the user name and the password out, or use a "
                "listener with SASL"
            )
        if len(request.renewed) > TOKEN_CHARACTERS_MAX:  # it is kept until the handshake ends
            raise InvalidRequest(f"a token has at most {TOKEN_CHARACTERS_MAX} characters, not {len(request.renewed)}")
        if not request.handshake:
            if self._tokens is not None and request.mechanism == TokenMechanism.OAUTHBEARER.mechanism_name:
                return await self._check_token(self._tokens, request, caller)
            if self._passwords is not None and request.mechanism == PasswordMechanism.PLAIN.mechanism_name:
                return await self._check_password(self._passwords, request, caller)
            return self._begin(request, caller)
        at = self._clock.monotonic_ms()
        self._drop_handshakes(at)
        handshake = self._handshakes.pop(request.handshake, None)
        if handshake is None:
            raise _unknown_handshake()
        place = handshake.listener, handshake.host
        if handshake.listener != caller.listener:
            self._places.leave(*place)
            raise _unknown_handshake()
        if isinstance(handshake, _RefusedToken):
            self._places.leave(*place)
            raise SaslAuthenticationFailed(handshake.reason)
        try:
            answer = self._complete(handshake, request)
        except SaslAuthenticationFailed as error:
            mechanism = handshake.mechanism.mechanism_name
            self._record_failure(error, mechanism, caller, handshake.server.claim.username)
            await self._delay_failure(place)
            raise
        except BaseException:
            self._places.leave(*place)
            raise
        self._places.leave(*place)
        return answer

    def _begin(self, request: AuthenticateRequest, caller: Caller) -> AuthenticateAnswer:
        mechanism = self._offered.get(request.mechanism)
        if mechanism is None and self._of_cluster and request.mechanism == NODE_MECHANISM.mechanism_name:
            mechanism = NODE_MECHANISM  # for nodes: `_claim` refuses others
        if not isinstance(mechanism, ScramMechanism):
            raise self._unsupported(request.mechanism)
        at = self._clock.monotonic_ms()
        host = caller.connection.rpartition(":")[0]
        self._drop_handshakes(at)
        self._places.ensure_room(caller.listener, host, at)
        nonce = base64.b64encode(self._rng.randbytes(NONCE_BYTES)).decode("ascii")
        server = ScramServer(mechanism, nonce, lambda name: self._claim(mechanism, name))
        answer = server.first(request.auth_bytes)
        handshake_id = self._rng.randbytes(HANDSHAKE_ID_BYTES)
        self._handshakes[handshake_id] = _Handshake(server, mechanism, caller.listener, host, request.renewed, at)
        self._places.enter(caller.listener, host)
        return AuthenticateAnswer(handshake_id, answer)

    def _complete(self, handshake: _Handshake, request: AuthenticateRequest) -> AuthenticateAnswer:
        answer = handshake.server.final(request.auth_bytes)
        claim = handshake.server.claim
        user, credential = claim.username, claim.credential
        if self._present(user, handshake.mechanism) != credential:
            raise _password_changed(user)
        return self._authenticated(handshake.listener, handshake.renewed, user, credential, answer=answer)

    async def _check_token(
        self, tokens: BearerAuthenticator, request: AuthenticateRequest, caller: Caller
    ) -> AuthenticateAnswer:
        """A handshake of OAUTHBEARER: one message, and after a failure another one that changes nothing. The failure is
        recorded and delayed at once, whether or not the other message comes."""
        place = caller.listener, caller.connection.rpartition(":")[0]
        at = self._clock.monotonic_ms()
        self._drop_handshakes(at)
        self._places.ensure_room(*place, at)
        self._places.enter(*place)
        named: list[str] = []
        try:
            valid = await tokens.check(request.auth_bytes, named.append)
            answer = self._authenticated(
                caller.listener, request.renewed, valid.user, valid.credential, until_ms=tokens.end_of(valid)
            )
        except SaslAuthenticationFailed as error:
            reason = error.message
            self._record_failure(error, request.mechanism, caller, *named[-1:])
            await self._delay_failure(place)
        except BaseException:
            self._places.leave(*place)
            raise
        else:
            self._places.leave(*place)
            return answer
        handshake_id = self._rng.randbytes(HANDSHAKE_ID_BYTES)
        self._handshakes[handshake_id] = _RefusedToken(reason, *place, self._clock.monotonic_ms())
        self._places.enter(*place)
        return AuthenticateAnswer(handshake_id, INVALID_TOKEN)

    async def _check_password(
        self, passwords: Executor, request: AuthenticateRequest, caller: Caller
    ) -> AuthenticateAnswer:
        """The one message of PLAIN. The password is checked against what SCRAM needs of it."""
        user, password = read_message(request.auth_bytes)
        if not self._image.cluster_id:
            raise _starting()
        place = caller.listener, caller.connection.rpartition(":")[0]
        at = self._clock.monotonic_ms()
        self._drop_handshakes(at)
        self._places.ensure_room(*place, at)
        self._places.enter(*place)
        claim = self._password_of(user)
        try:
            is_right = await run_in(passwords, lambda: has_password(claim.credential, password))
            if not (is_right and claim.exists):
                raise SaslAuthenticationFailed("PLAIN: wrong user name or password")
            if self._present(user, claim.credential.mechanism) != claim.credential:
                raise _password_changed(user)
            answer = self._authenticated(caller.listener, request.renewed, user, claim.credential)
        except SaslAuthenticationFailed as error:
            self._record_failure(error, request.mechanism, caller, user)
            await self._delay_failure(place)
            raise
        except asyncio.CancelledError:  # the work goes on without its caller, who could begin another attempt
            self._places.leave_at(Millis(self._clock.monotonic_ms() + self._config.failure_delay_ms), *place)
            raise
        except BaseException:
            self._places.leave(*place)
            raise
        self._places.leave(*place)
        return answer

    def _password_of(self, user: str) -> Claim:
        """What the password of a user is checked against, or as much work for one who does not exist. The secret of the
        nodes is not sent by PLAIN."""
        for mechanism in sorted(ScramMechanism, reverse=True):
            credential = self._of_users.get((user, mechanism))
            if credential is not None:
                return Claim(user, credential, exists=True)
        usual = max((each for each, used in self._iterations.items() if used), default=ScramMechanism.SCRAM_SHA_512)
        fake = decoy(usual, user, self._image.sasl_secret, self._usual_iterations(usual, user))
        return Claim(user, fake, exists=False)

    def _authenticated(
        self,
        listener: str,
        renewed: str,
        user: str,
        credential: SaslCredential,
        *,
        answer: bytes = b"",
        until_ms: Millis | None = None,
    ) -> AuthenticateAnswer:
        """The last answer of a handshake. until_ms: when the credential expires; None: never."""
        at = self._clock.monotonic_ms()
        if renewed:
            token = self.sessions.renew(listener, renewed, user, credential, at, until_ms)
        else:
            token = self.sessions.begin(listener, user, credential, at, until_ms)
        expires_ms = self.sessions.find(listener, token, at).expires_ms
        lifetime_ms = Millis(0) if expires_ms is None else Millis(expires_ms - at)
        return AuthenticateAnswer(b"", answer, token, lifetime_ms, f"User:{user}")

    async def _delay_failure(self, place: tuple[str, str]) -> None:
        """Wait as long as the answer to a failed attempt is delayed. The attempt keeps its place for this time, also if
        its caller goes away."""
        delay_ms = self._config.failure_delay_ms
        self._places.leave_at(Millis(self._clock.monotonic_ms() + delay_ms), *place)
        await self._clock.sleep_ms(delay_ms)

    def _record_failure(self, error: SaslAuthenticationFailed, mechanism: str, caller: Caller, user: str = "") -> None:
        """user: whom the caller claims to be, empty if that is not known."""
        listener, peer, reason = caller.listener, caller.connection, error.message
        who = {"user": user[:NAME_CHARACTERS_MAX]} if user else {}
        _log.info(
            "authentication failed",
            extra={**who, "mechanism": mechanism, "listener": listener, "peer": peer, "reason": reason},
        )
        self._audit.authentication_failed(
            listener=listener, address=peer, mechanism=mechanism, reason=reason, claimed_user=user
        )

    def _present(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        """The credential of a user, or of the nodes."""
        if user == CLUSTER_USER:
            return self._of_cluster.get(mechanism)
        return self._of_users.get((user, mechanism))

    def _claim(self, mechanism: ScramMechanism, name: str) -> Claim:
        """The credential of the user, or its decoy, which is computed in both cases. Raises NodeNotAvailable,
        UnsupportedSaslMechanism."""
        if not self._image.cluster_id and name != CLUSTER_USER:  # nodes authenticate to form the cluster
            raise _starting()
        if mechanism.mechanism_name not in self._offered and name != CLUSTER_USER:
            raise self._unsupported(mechanism.mechanism_name)
        fake = decoy(mechanism, name, self._image.sasl_secret, self._usual_iterations(mechanism, name))
        credential = self._present(name, mechanism)
        return Claim(name, credential or fake, exists=credential is not None)

    def _unsupported(self, name: str) -> UnsupportedSaslMechanism:
        return UnsupportedSaslMechanism(
            f"the node does not offer the mechanism {name[:64]!r}; use one of {', '.join(self._offered)}"
        )

    def _usual_iterations(self, mechanism: ScramMechanism, name: str) -> int:
        """A number of iterations that users of the mechanism have, always the same for one name."""
        used = self._iterations.get(mechanism)
        return used[digest("sha256", name.encode())[0] % len(used)] if used else ITERATIONS

    def _drop_handshakes(self, at: Millis) -> None:
        while self._handshakes:
            handshake_id, oldest = next(iter(self._handshakes.items()))
            if at - oldest.began_ms < HANDSHAKE_MS:
                break
            del self._handshakes[handshake_id]
            self._places.leave(oldest.listener, oldest.host)


def _credential_in(record: ScramCredentialRecord) -> ScramCredential:
    return ScramCredential(record.mechanism, record.salt, record.stored_key, record.server_key, record.iterations)


def _starting() -> NodeNotAvailable:
    return NodeNotAvailable("the node is starting and does not know the users yet: use another node")


def _password_changed(user: str) -> SaslSessionEnded:
    return SaslSessionEnded(f"the password of User:{user} was changed meanwhile: authenticate again")


def _unknown_handshake() -> SaslSessionEnded:
    return SaslSessionEnded(
        f"the handshake is not known, or took longer than {HANDSHAKE_MS // 1000} s: authenticate again"
    )
