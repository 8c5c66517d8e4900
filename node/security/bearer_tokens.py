"""Whether a bearer token is valid, and whom it names (RFC 7519, RFC 8725, KIP-768). No input or output.

Invariants: nothing of a token is believed before its signature was verified with a key of the identity provider; keys
and addresses that a token itself has (`jwk`, `jku`, `x5u`) have no effect. A token without an end, of another issuer or
for another audience is refused. No token yields the user of the nodes. No error text has a token, or a claim of one.
Not here: the keys (json_web_keys.py), where they come from (provider_keys.py), the messages
(tidelog/security/oauth_bearer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jwt

from node.security.bearer_credential import BearerCredential
from node.security.json_web_keys import ALGORITHMS, KeySet, VerificationKey
from node.security.sasl_settings import OAuthBearerConfig
from replication.controller.scram_users import CLUSTER_USER
from tidelog.errors import SaslAuthenticationFailed, UnacceptableCredential
from tidelog.security.scram import checked_name
from tidelog.types import Millis, TokenMechanism
from tidelog.values import dataclass

_NAME: Final = TokenMechanism.OAUTHBEARER.mechanism_name

TIME_MAX: Final = 10**11
"""Seconds since 1970: the year 5138. Not a number is not below it either."""

_WITHOUT_TIMES: Final[Any] = {
    "require": ["exp", "iss", "aud"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
}
"""Options of PyJWT. It takes the time from the machine, so times are checked here, and `sub` may not be the name."""


class KeyNotKnown(Exception):
    """The token names a key that is not among those of the provider."""


@dataclass(frozen=True, slots=True)
class ValidToken:
    """The principal of a token, and how long the token is valid."""

    user: str
    credential: BearerCredential
    expires_ms: Millis
    """Milliseconds since 1970."""


def check_token(
    token: str, keys: KeySet, config: OAuthBearerConfig, wall_ms: int, names: Callable[[str], object] = str
) -> ValidToken:
    """Validate a token. wall_ms: the present time (ms since 1970). names: called with the text of the claim that names
    the user, once the signature was verified, also if the token is refused for another reason then. Raises
    SaslAuthenticationFailed, KeyNotKnown."""
    key, algorithm = _key_of(token, keys)
    claims = _claims_of(token, key, algorithm, config)
    if isinstance(claimed := claims.get(config.sub_claim), str):
        names(claimed)
    expires_ms = _checked_times(claims, config, wall_ms)
    return ValidToken(_user_of(claims, config), BearerCredential(key.digest), expires_ms)


def _key_of(token: str, keys: KeySet) -> tuple[VerificationKey, str]:
    try:
        header = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise refused("the token is not a JSON Web Token in compact form") from None
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise refused(f"the algorithm of the token's signature is not accepted; use one of {_listed(ALGORITHMS)}")
    found = keys.find(key_id, algorithm)
    if found is None and key_id is None:
        raise refused("the token names no key (`kid`), and not exactly one key of the provider fits its algorithm")
    if found is None and not keys.has_id(key_id):
        raise KeyNotKnown
    if found is None:
        raise refused("the key that the token names is not for the algorithm of its signature")
    return found, algorithm


def _claims_of(token: str, key: VerificationKey, algorithm: str, config: OAuthBearerConfig) -> dict[str, Any]:
    try:
        return jwt.decode(
            token,
            key.by_algorithm[algorithm],
            algorithms=[algorithm],
            audience=list(config.audience),
            issuer=config.issuer,
            options=_WITHOUT_TIMES,
        )
    except jwt.MissingRequiredClaimError as error:
        raise refused(f"the token has no claim {error.claim!r}") from None
    except jwt.InvalidAudienceError:
        raise refused("the token is for another audience than sasl.oauthbearer.expected.audience of the node") from None
    except jwt.InvalidIssuerError:
        raise refused("the token is of another issuer than sasl.oauthbearer.expected.issuer of the node") from None
    except jwt.InvalidSignatureError:
        raise refused("the signature of the token is wrong") from None
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
        raise refused("the token is malformed") from None


def _checked_times(claims: dict[str, Any], config: OAuthBearerConfig, wall_ms: int) -> Millis:
    """When the token expires. The skew of clocks applies to `nbf` and `iat` only: a session cannot last longer than its
    token."""
    expires_ms = _time_of(claims, "exp")
    if expires_ms <= wall_ms:
        raise refused(f"the token has expired {_seconds(wall_ms - expires_ms)} ago: obtain a new one")
    for claim, means in (("nbf", "not valid yet"), ("iat", "issued in the future")):
        if claim in claims and (ahead_ms := _time_of(claims, claim) - wall_ms) > config.clock_skew_s * 1_000:
            raise refused(f"the token is {means}, by {_seconds(ahead_ms)}: compare the clocks")
    return Millis(expires_ms)


def _time_of(claims: dict[str, Any], claim: str) -> int:
    value = claims[claim]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TIME_MAX:
        raise refused(f"the claim {claim!r} of the token is not a time")
    return int(value * 1_000)


def _user_of(claims: dict[str, Any], config: OAuthBearerConfig) -> str:
    """The name of the user, by the rules that all users have. A name that SASLprep would change is refused: two
    subjects of the provider must not become one user."""
    claim = config.sub_claim
    name = claims.get(claim)
    if not isinstance(name, str) or not name:
        raise refused(f"the claim {claim!r}, which names the user, is missing or not text")
    try:
        accepted = checked_name(name) == name and name.isprintable()
    except (UnacceptableCredential, UnicodeError):
        accepted = False
    if not accepted:
        raise refused(
            f"the claim {claim!r} is not a name that a user may have: it is too long, has control characters, or is "
            "not in the form that SASLprep gives names (RFC 4013)"
        )
    if name == CLUSTER_USER:
        raise refused(f"the name {CLUSTER_USER!r} in the claim {claim!r} is reserved for the nodes")
    return name


def _seconds(ms: int) -> str:
    return f"{ms // 1_000} s"


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def refused(why: str) -> SaslAuthenticationFailed:
    """The error for a token that is not accepted."""
    return SaslAuthenticationFailed(f"{_NAME}: {why}")
