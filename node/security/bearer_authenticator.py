"""The server's side of OAUTHBEARER: the token of a message, checked with the keys of the identity provider.

Not here: handshakes, sessions and delays (sasl_authenticator.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from node.security.bearer_tokens import KeyNotKnown, ValidToken, check_token, refused
from node.security.provider_keys import ProviderKeys
from node.security.sasl_settings import OAuthBearerConfig
from storage.files.disk_executor import Executor
from tidelog.clock import Clock
from tidelog.errors import NodeNotAvailable
from tidelog.security.oauth_bearer import read_first
from tidelog.types import Millis

LIFETIME_MS_MAX: Final = 31_536_000_000
"""Of a session: a year, as the longest `connections.max.reauth.ms`."""


class BearerAuthenticator:
    """One for a node."""

    def __init__(
        self, config: OAuthBearerConfig, *, clock: Clock, executor: Executor, keys_changed: Callable[[], None]
    ) -> None:
        """executor: for disk and network. keys_changed: called when the provider has other keys."""
        self._config, self._clock = config, clock
        self.keys = ProviderKeys(config, clock=clock, executor=executor, changed=keys_changed)

    async def check(self, message: bytes, names: Callable[[str], object] = str) -> ValidToken:
        """The token of a client's first message. Waits for the provider if it may have a new key. names: as of
        `check_token`. Raises InvalidRequest, SaslAuthenticationFailed, NodeNotAvailable."""
        token, identity = read_first(message)
        try:
            found = self._check(token, names)
        except KeyNotKnown:
            await self.keys.look_again()
            try:
                found = self._check(token, names)
            except KeyNotKnown:
                if self.keys.present is None:
                    raise NodeNotAvailable(
                        "the node could not fetch the keys of the identity provider yet: use another node. The log of "
                        "this node says why"
                    ) from None
                raise refused(
                    "the key that the token names is not among those of sasl.oauthbearer.jwks.endpoint.url: obtain the "
                    "token from that identity provider; if the key is new, try again in some seconds"
                ) from None
        if identity not in ("", found.user):
            raise refused("a client cannot act for another user: leave the authorization id empty")
        return found

    def end_of(self, token: ValidToken) -> Millis:
        """When the token expires, by the clock that never jumps."""
        left_ms = token.expires_ms - self._clock.wall_ms()
        return Millis(self._clock.monotonic_ms() + min(max(left_ms, 0), LIFETIME_MS_MAX))

    def _check(self, token: str, names: Callable[[str], object]) -> ValidToken:
        if self.keys.present is None:
            raise KeyNotKnown
        return check_token(token, self.keys.present, self._config, self._clock.wall_ms(), names)
