"""The keys of an identity provider, with which it signs tokens: a JSON Web Key Set (RFC 7517). No input or output.

Invariants: a key verifies only the algorithms of its own type and curve, so no token decides how a key is used: neither
`none` nor a symmetric algorithm exists here (RFC 8725, section 2.1). Keys that are not for signatures, symmetric ones
and private ones are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from tidelog.values import dataclass

KEY_SET_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 100
RSA_BITS: Final = range(2_048, 8_193)
"""Shorter keys are broken (RFC 7518, section 3.3), longer ones take milliseconds for each token."""

_OF_TYPE: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""The algorithms of each type of key and curve (RFC 7518, RFC 8037)."""

ALGORITHMS: Final = frozenset(name for names in _OF_TYPE.values() for name in names)


class UnusableKeys(ValueError):
    """A key set that cannot be read or used; the message says why."""


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key."""

    key_id: str | None
    """None if it has none."""
    digest: str
    """Digest of the key itself."""
    by_algorithm: Mapping[str, PyJWK] = field(repr=False, compare=False)
    """The key for each algorithm that it verifies."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys that are valid now."""

    keys: tuple[VerificationKey, ...]

    @property
    def digests(self) -> frozenset[str]:
        """The digests of all keys."""
        return frozenset(each.digest for each in self.keys)

    def has_id(self, key_id: str | None) -> bool:
        """Whether a key has this id."""
        return any(each.key_id == key_id for each in self.keys)

    def find(self, key_id: str | None, algorithm: str) -> VerificationKey | None:
        """The key of a token. key_id: None: the token names none, and there must be only one key for the algorithm."""
        fitting = [each for each in self.keys if algorithm in each.by_algorithm]
        if key_id is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((each for each in fitting if each.key_id == key_id), None)


def parse_key_set(data: bytes) -> KeySet:
    """Read a key set. Raises UnusableKeys if it is malformed or has no key that can be used."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise UnusableKeys("it is not JSON; it must be a JSON Web Key Set (RFC 7517)") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UnusableKeys('it has no list "keys"; it must be a JSON Web Key Set (RFC 7517)')
    if len(entries) > KEYS_MAX:
        raise UnusableKeys(f"it has {len(entries)} keys; at most {KEYS_MAX} are read")
    found, reasons = [], []
    for number, entry in enumerate(entries):
        try:
            found.append(_key_of(entry))
        except UnusableKeys as error:
            reasons.append(f"key {number} {error}")
    if not found:
        raise UnusableKeys(f"it has no key that can be used: {'; '.join(reasons[:5]) or 'it is empty'}")
    return KeySet(tuple(found))


def _key_of(entry: Any) -> VerificationKey:
    if not isinstance(entry, dict):
        raise UnusableKeys("is not an object")
    if entry.get("use", "sig") != "sig" or "verify" not in _list_of(entry.get("key_ops", ["verify"])):
        raise UnusableKeys("is not for signatures")
    if entry.get("kty") == "oct":
        raise UnusableKeys("is symmetric: who can verify with it can sign")
    if "d" in entry:
        raise UnusableKeys("is a private key: publish the public one, and replace this pair")
    key_type = str(entry.get("kty")), "" if entry.get("kty") == "RSA" else str(entry.get("crv"))
    algorithms = _OF_TYPE.get(key_type, ())
    if "alg" in entry:
        algorithms = tuple(each for each in algorithms if each == entry["alg"])
    if not algorithms:
        raise UnusableKeys("has no type, curve and algorithm that are accepted")
    key_id = entry.get("kid")
    if key_id is not None and not isinstance(key_id, str):
        raise UnusableKeys("has an id that is not text")
    try:
        by_algorithm = {each: PyJWK(entry, algorithm=each) for each in algorithms}
        key = next(iter(by_algorithm.values())).key
        raw = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    except (PyJWTError, UnsupportedAlgorithm, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        raise UnusableKeys("is malformed") from None
    if key_type[0] == "RSA" and key.key_size not in RSA_BITS:
        raise UnusableKeys(f"has {key.key_size} bits; allowed are {RSA_BITS[0]} to {RSA_BITS[-1]}")
    return VerificationKey(key_id, hashlib.sha256(raw).hexdigest(), by_algorithm)


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
