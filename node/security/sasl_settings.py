"""Settings of SASL, by Kafka's names where Kafka has them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from typing import Final
from urllib.parse import SplitResult, urlsplit

from tidelog.security.loopback import is_loopback
from tidelog.settings import InvalidValue, millis, number, setting, settings_of, text, texts
from tidelog.types import Millis, PasswordMechanism, SaslMechanism, ScramMechanism, TokenMechanism
from tidelog.values import dataclass

_KNOWN: Final[dict[str, SaslMechanism]] = {
    each.mechanism_name: each for each in (*ScramMechanism, *TokenMechanism, *PasswordMechanism)
}


def _mechanisms_of(items: list[str]) -> tuple[SaslMechanism, ...]:
    for item in items:
        if item not in _KNOWN:
            raise InvalidValue(f"{item!r} is not a mechanism of this version; choose of {', '.join(_KNOWN)}")
    return tuple(dict.fromkeys(_KNOWN[item] for item in items))


@dataclass(frozen=True, slots=True)
class OAuthBearerConfig:
    """Which tokens a node accepts with the mechanism OAUTHBEARER (KIP-768)."""

    url: str = setting("sasl.oauthbearer.jwks.endpoint.url", "", text())
    """OAUTHBEARER: where the keys of the identity provider are (a JSON Web Key Set): `https://...`, or `file:` and an
    absolute path. `http://` is accepted for loopback, and with `allow.insecure`"""
    ca_file: str = setting("sasl.oauthbearer.jwks.endpoint.ca.file", "", text())
    """Tidelog's own: the authorities of the identity provider's certificate (PEM). If not set: those of the system"""
    issuer: str = setting("sasl.oauthbearer.expected.issuer", "", text())
    """OAUTHBEARER: the claim `iss` that tokens must have. Required (in Kafka it is not)"""
    audience: tuple[str, ...] = setting("sasl.oauthbearer.expected.audience", (), texts("audiences", tuple, ",".join))
    """OAUTHBEARER: the claim `aud` of tokens must have one of these. Required (in Kafka it is not): tokens of the same
    issuer for other services would be accepted"""
    sub_claim: str = setting("sasl.oauthbearer.sub.claim.name", "sub", text())
    """OAUTHBEARER: the claim that names the user"""
    clock_skew_s: int = setting("sasl.oauthbearer.clock.skew.seconds", 30, number(0, 3_600, unit="s"))
    """OAUTHBEARER: how far the clock of the identity provider may be ahead, for the claims `nbf` and `iat`. A token and
    its session end at `exp` by the clock of the node"""
    refresh_ms: Millis = setting(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", Millis(3_600_000), millis(10_000, 2_592_000_000)
    )
    """OAUTHBEARER: interval of fetching the keys. A token with an unknown key causes a fetch too, at most every 10 s. A
    file is read when it was changed, within 5 s"""
    retry_ms: Millis = setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Millis(1_000), millis(1, 600_000))
    """OAUTHBEARER: pause after the first failed fetch; it doubles with each further one (Kafka: 100)"""
    retry_max_ms: Millis = setting(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Millis(10_000), millis(1, 3_600_000)
    )
    """OAUTHBEARER: longest pause after a failed fetch"""

    @property
    def mistake(self) -> tuple[str, str] | None:
        """A setting that is missing or cannot be used, and why; None if there is none."""
        keys = {name: each.name for name, each in settings_of(OAuthBearerConfig).items()}
        missing = next((name for name in ("url", "issuer", "audience", "sub_claim") if not getattr(self, name)), None)
        if missing is not None:
            return keys[
                missing
            ], "missing: sasl.enabled.mechanisms has OAUTHBEARER, which needs it. Set it, or remove the mechanism"
        wrong = _mistake_of(self.url)
        if wrong:
            return keys["url"], f"{wrong}; write https://HOST/PATH, or file:///PATH for a file"
        if self.ca_file and not self.url.startswith("https:"):
            return keys["ca_file"], f"has no effect: {keys['url']} is not https. Remove it, or use https"
        if self.retry_max_ms < self.retry_ms:
            return keys["retry_max_ms"], f"is less than {keys['retry_ms']}: raise it"
        return None

    @property
    def is_forgeable(self) -> bool:
        """Whether others than the identity provider can replace the keys on their way."""
        return self.url.startswith("http:") and not is_loopback(urlsplit(self.url).hostname or "")


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """How callers of listeners with SASL authenticate."""

    mechanisms: tuple[SaslMechanism, ...] = setting(
        "sasl.enabled.mechanisms",
        tuple(ScramMechanism),
        texts("mechanisms", _mechanisms_of, lambda all_: ",".join(each.mechanism_name for each in all_)),
    )
    """the mechanisms that listeners with SASL offer: SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, PLAIN. The last two
    send tokens and passwords as they are, and need TLS"""
    lifetime_ms: Millis = setting("connections.max.reauth.ms", Millis(3_600_000), millis(0, 31_536_000_000))
    """how long a session lasts; clients authenticate again before it ends, and nothing is interrupted. 0: without limit
    (as in Kafka by default)"""
    secret_file: str = setting("cluster.secret.file", "", text())
    """the file whose first line is the secret of the cluster, the same on every node: nodes authenticate with it among
    themselves. Required if the listener between nodes has SASL"""
    failure_delay_ms: Millis = setting("connection.failed.authentication.delay.ms", Millis(500), millis(0, 10_000))
    """how long the answer to a wrong password or token is delayed (Kafka: 100)"""
    oauth: OAuthBearerConfig = field(default_factory=OAuthBearerConfig)

    @property
    def has_tokens(self) -> bool:
        """Whether OAUTHBEARER is offered."""
        return TokenMechanism.OAUTHBEARER in self.mechanisms

    @property
    def has_passwords(self) -> bool:
        """Whether PLAIN is offered."""
        return PasswordMechanism.PLAIN in self.mechanisms

    def mistake(self, given: Collection[str], *, allow_insecure: bool, plain: str) -> tuple[str, str] | None:
        """A setting for tokens or passwords that cannot be used, and why; None if there is none. given: the settings
        that were set. plain: a listener with SASL and without TLS that other machines reach; empty: there is none."""
        if not self.has_tokens:
            unused = next((each.name for each in settings_of(OAuthBearerConfig).values() if each.name in given), None)
            if unused is not None:
                return unused, "has no effect: add OAUTHBEARER to sasl.enabled.mechanisms, or remove this"
        elif (wrong := self.oauth.mistake) is not None:
            return wrong
        if allow_insecure:
            return None
        if self.has_tokens and self.oauth.is_forgeable:
            return settings_of(OAuthBearerConfig)["url"].name, (
                "the keys come over the network in plain text, and anyone who replaces them there can be any user: use "
                "https, or set allow.insecure = true"
            )
        open_ones = {"OAUTHBEARER sends tokens": self.has_tokens, "PLAIN sends passwords": self.has_passwords}
        for what, is_offered in open_ones.items():
            if plain and is_offered:
                return "sasl.enabled.mechanisms", (
                    f"{what} as they are, and listener {plain!r} is in plain text: give it a protocol with TLS "
                    "(SASL_SSL, GRPC_SASL_SSL), bind 127.0.0.1, or set allow.insecure = true where the network encrypts"
                )
        return None


def _mistake_of(url: str) -> str:
    """Why keys cannot come from this URL; empty if they can."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"is not a URL ({error})"
    if parts.scheme == "file":
        return "" if _names_file(parts) else "names no file of this machine by its whole path"
    if parts.scheme not in ("http", "https"):
        return "is neither a file nor an address of http or https"
    if parts.username is not None or parts.password is not None:
        return "has a password, which would be shown in logs"
    if not parts.hostname or port == 0 or not url.isascii() or not url.isprintable() or " " in url:
        return "names no host, or has characters that a URL must escape"
    return ""


def _names_file(parts: SplitResult) -> bool:
    return parts.netloc in ("", "localhost") and parts.path.startswith("/") and not (parts.query or parts.fragment)
