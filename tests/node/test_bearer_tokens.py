"""Which tokens a node accepts: signatures, claims, times, names; and which keys of an identity provider it uses."""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import partial
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from node.security.bearer_tokens import KeyNotKnown, ValidToken, check_token
from node.security.json_web_keys import ALGORITHMS, KEYS_MAX, KeySet, UnusableKeys, parse_key_set
from tests.identity_provider import AUDIENCE, ISSUER, accepting, claims_of, key_for, public_jwk, rsa_key, signed_by_hand
from tidelog.errors import SaslAuthenticationFailed

NOW_S = 1_800_000_000
CONFIG = accepting("file:///keys")
RSA = rsa_key()


def key_set(*entries: dict[str, Any]) -> KeySet:
    return parse_key_set(json.dumps({"keys": entries}).encode())


ONE = key_set(public_jwk(RSA, kid="one", use="sig"))


def token(headers: dict[str, Any] | None = None, **claims: Any) -> str:
    return jwt.encode(claims_of(now_s=NOW_S, **claims), RSA, "RS256", {"kid": "one", **(headers or {})})


def check(given: str, keys: KeySet = ONE, config: Any = CONFIG) -> ValidToken:
    return check_token(given, keys, config, NOW_S * 1_000)


def test_a_token_names_its_user_and_its_end() -> None:
    found = check(token(lasts_s=90.5))
    assert (found.user, found.expires_ms) == ("alice", NOW_S * 1_000 + 90_500)
    assert {found.credential.key} == ONE.digests
    assert check(token(aud=["a", AUDIENCE])).user == "alice"
    assert check(token(iat=None)).user == "alice"
    assert check(token(sub="system:serviceaccount:shop:billing")).user == "system:serviceaccount:shop:billing"
    assert check(token(sub=7, name="alice"), config=accepting("file:///keys", sub_claim="name")).user == "alice"


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_accepted_algorithm_is_verified_with_a_key_of_its_kind_only(algorithm: str) -> None:
    key = key_for(algorithm)
    given = jwt.encode(claims_of(now_s=NOW_S), key, algorithm, {"kid": "k"})
    assert check(given, key_set(public_jwk(key, kid="k"))).user == "alice"
    for other in sorted(ALGORITHMS):
        entry = public_jwk(key_for(other), kid="k")
        allows = {**entry, "alg": other}
        if other != algorithm:
            with pytest.raises(SaslAuthenticationFailed, match="not for the algorithm"):
                check(given, key_set(allows))


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": None}, "no claim 'exp'"),
        ({"exp": NOW_S}, "has expired 0 s ago"),
        ({"exp": NOW_S - 31}, "has expired 31 s ago"),
        ({"exp": "never"}, "'exp' of the token is not a time"),
        ({"exp": True}, "'exp' of the token is not a time"),
        ({"exp": float("inf")}, "not a time"),
        ({"exp": float("nan")}, "not a time"),
        ({"exp": 10**400}, "not a time"),
        ({"exp": -1}, "not a time"),
        ({"nbf": NOW_S + 31}, "not valid yet, by 31 s"),
        ({"nbf": "now"}, "'nbf' of the token is not a time"),
        ({"iat": NOW_S + 31}, "issued in the future"),
        ({"iss": None}, "no claim 'iss'"),
        ({"iss": f"{ISSUER}/"}, "another issuer"),
        ({"aud": None}, "no claim 'aud'"),
        ({"aud": "billing"}, "another audience"),
        ({"aud": []}, "no claim 'aud'"),
        ({"sub": None}, "'sub', which names the user, is missing"),
        ({"sub": ""}, "is missing or not text"),
        ({"sub": 7}, "is missing or not text"),
        ({"sub": ["alice"]}, "is missing or not text"),
        ({"sub": "cluster"}, "reserved for the nodes"),
        ({"sub": "\uff43luster"}, "not in the form"),
        ({"sub": "clu\u00adster"}, "not in the form"),
        ({"sub": "alice\n"}, "control characters"),
        ({"sub": "alice\u202e"}, "control characters"),
        ({"sub": "\ud800"}, "control characters"),
        ({"sub": "a" * 256}, "too long"),
    ],
)
def test_a_token_with_wrong_claims_is_refused_by_name(claims: dict[str, Any], says: str) -> None:
    payload = {**claims_of(now_s=NOW_S), **claims}
    given = signed_by_hand(
        {"alg": "RS256", "kid": "one"}, {name: value for name, value in payload.items() if value is not None}, sign
    )
    with pytest.raises(SaslAuthenticationFailed, match=says) as refused:
        check(given)
    assert given not in refused.value.message


def sign(data: bytes) -> bytes:
    return RSA.sign(data, padding.PKCS1v15(), hashes.SHA256())


def test_clocks_may_differ_by_the_skew_for_the_beginning_and_not_for_the_end() -> None:
    assert check(token(nbf=NOW_S + 30, iat=NOW_S + 30)).user == "alice"
    with pytest.raises(SaslAuthenticationFailed):
        check(token(nbf=NOW_S + 30), config=accepting("file:///keys", clock_skew_s=29))
    with pytest.raises(SaslAuthenticationFailed, match="expired"):
        check(token(lasts_s=-1))


def hmac_of(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def test_no_token_chooses_how_it_is_verified() -> None:
    """`none`, key confusion, and keys in the token: what other validators have fallen for (RFC 8725)."""
    claims = claims_of(now_s=NOW_S)
    public = RSA.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    forged = [signed_by_hand({"alg": alg, "kid": "one"}, claims) for alg in ("none", "None", "", None, 5, ["RS256"])]
    forged += [
        signed_by_hand({"alg": "HS256", "kid": "one"}, claims, partial(hmac_of, key))
        for key in (pem, pem.strip(), der, json.dumps(public_jwk(RSA)).encode())
    ]
    for each in forged:
        with pytest.raises(SaslAuthenticationFailed, match="algorithm of the token's signature is not accepted"):
            check(each)
    other = rsa_key(9)
    own = {"jwk": public_jwk(other), "jku": "https://attacker.example.org/keys", "x5u": "https://attacker.example.org"}
    for each in (
        jwt.encode(claims, other, "RS256", {"kid": "one", **own}),
        signed_by_hand({"alg": "RS256", "kid": "one"}, claims),
        signed_by_hand({"alg": "RS256", "kid": "one"}, claims, lambda data: sign(data)[:-1] + b"\0"),
        signed_by_hand({"alg": "RS512", "kid": "one"}, claims, sign),
    ):
        with pytest.raises(SaslAuthenticationFailed, match="signature of the token is wrong"):
            check(each)
    tampered = token().split(".")
    tampered[1] = token(sub="bob").split(".")[1]
    with pytest.raises(SaslAuthenticationFailed, match="signature of the token is wrong"):
        check(".".join(tampered))


@pytest.mark.parametrize(
    "headers",
    [{"crit": ["exp"], "exp": 1}, {"b64": False, "crit": ["b64"]}, {"b64": False}, {"kid": 5}, {"kid": ["one"]}],
)
def test_headers_that_are_not_understood_are_not_ignored(headers: dict[str, Any]) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        check(signed_by_hand({"alg": "RS256", "kid": "one", **headers}, claims_of(now_s=NOW_S), sign))


def test_a_token_names_its_key_or_there_is_only_one() -> None:
    two = key_set(public_jwk(RSA, kid="one"), public_jwk(rsa_key(1), kid="two"))
    without = jwt.encode(claims_of(now_s=NOW_S), RSA, "RS256")
    assert check(without).user == "alice"
    assert check(token(), two).user == "alice"
    with pytest.raises(SaslAuthenticationFailed, match="names no key"):
        check(without, two)
    with pytest.raises(KeyNotKnown):
        check(token({"kid": "three"}), two)


@given(st.text(max_size=100) | st.text("eyJhbGciOiJSUzI1NiIsImtpZCI6Im9uZSJ9._-=", max_size=100))
def test_any_text_is_refused_as_a_token(text: str) -> None:
    with pytest.raises((SaslAuthenticationFailed, KeyNotKnown)):
        check(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMED = st.dictionaries(st.sampled_from(["alg", "kid", "crit", "b64", "typ", "exp", "iss", "aud", "sub", "nbf"]), JSON)


@given(JSON | NAMED, JSON | NAMED)
def test_any_json_is_refused_as_a_header_and_also_as_claims_that_are_signed(header: Any, claims: Any) -> None:
    for head in (header, {"alg": "RS256", "kid": "one"}):
        with pytest.raises((SaslAuthenticationFailed, KeyNotKnown)):
            check(signed_by_hand(head, claims, sign))


def test_deep_json_is_refused_and_does_not_end_the_process() -> None:
    deep = "[" * 6_000
    given = ".".join((*(jwt.utils.base64url_encode(part).decode() for part in (deep.encode(), b"{}")), "AAAA"))
    with pytest.raises(SaslAuthenticationFailed, match="not a JSON Web Token"):
        check(given)
    head = jwt.utils.base64url_encode(b'{"alg":"RS256","kid":"one"}').decode()
    signed = f"{head}.{jwt.utils.base64url_encode(deep.encode()).decode()}"
    with pytest.raises(SaslAuthenticationFailed, match="malformed"):
        check(f"{signed}.{jwt.utils.base64url_encode(sign(signed.encode())).decode()}")


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_that_are_not_for_signatures_are_left_out() -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(2)))
    found = key_set(
        {"kty": "oct", "k": "AAAA", "kid": "symmetric"},
        {**private, "kid": "private"},
        public_jwk(rsa_key(3), kid="enc", use="enc"),
        public_jwk(rsa_key(3), kid="ops", key_ops=["sign"]),
        public_jwk(rsa_key(4, 1_024), kid="short"),
        public_jwk(rsa_key(3), kid="alg", alg="RSA-OAEP"),
        public_jwk(rsa_key(3), kid=5),
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": "secp256k1", "x": "AAAA", "y": "AAAA"},
        {"kty": ["RSA"]},
        public_jwk(RSA, kid="one", alg="PS256", key_ops=["verify"]),
    )
    assert [each.key_id for each in found.keys] == ["one"]
    assert list(found.keys[0].by_algorithm) == ["PS256"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 10_000, "not JSON"),
        (b"[]", 'no list "keys"'),
        (b'{"keys": {}}', 'no list "keys"'),
        (b'{"keys": []}', "it is empty"),
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', "key 0 is symmetric"),
        (b'{"keys": [7]}', "key 0 is not an object"),
        (b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "d": "AQAB"}]}', "key 0 is a private key"),
        (json.dumps({"keys": [{}] * (KEYS_MAX + 1)}).encode(), "at most 100"),
    ],
)
def test_a_set_without_a_usable_key_says_why(data: bytes, says: str) -> None:
    with pytest.raises(UnusableKeys, match=says):
        parse_key_set(data)


@given(st.binary(max_size=100) | st.builds(lambda keys: json.dumps({"keys": keys}).encode(), st.lists(JSON | NAMED)))
def test_any_bytes_are_refused_as_keys(data: bytes) -> None:
    with pytest.raises(UnusableKeys):
        parse_key_set(data)


def test_the_digest_of_a_key_is_that_of_the_key_and_not_of_its_name() -> None:
    der = RSA.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key_set(public_jwk(RSA, kid="renamed")).digests == ONE.digests == {hashlib.sha256(der).hexdigest()}
