"""OAUTHBEARER, both sides, without input or output (RFC 7628, RFC 6750, KIP-255).

Invariants: a message and a token are bounded before they are read any further, and read in linear time. No error text
has a token.
Not here: whether a token is valid (node/security/bearer_tokens.py), who obtains it (tidelog/security/sasl_user.py).

    client                                            server
    n,,^Aauth=Bearer TOKEN^A^A                    ->
                                                  <-  (empty: accepted), or {"status":"invalid_token"}
    ^A  (only after the latter)                   ->
                                                  <-  the error
"""

from __future__ import annotations

import re
from typing import Final

from tidelog.errors import InvalidConfig, InvalidRequest

TOKEN_BYTES_MAX: Final = 16_384
"""Tokens with many groups have up to 10 KiB."""
MESSAGE_BYTES_MAX: Final = TOKEN_BYTES_MAX + 1_024
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The answer of a server to a token that it does not accept."""
DUMMY: Final = b"\x01"
"""What a client sends then, so that the server may end the handshake with an error."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+={0,2}")
_KEY: Final = re.compile(r"[A-Za-z]+")
_NAME: Final = re.compile(r"(?:[^=,\x00\x01]|=2C|=3D)+")


def checked_token(text: str, source: str) -> str:
    """The token that a text has. source: names where it is from. Raises InvalidConfig."""
    token = text.strip()
    if not token:
        raise InvalidConfig(f"{source} is empty: it must contain a token")
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidConfig(f"{source} has {len(token)} characters; a token has at most {TOKEN_BYTES_MAX}")
    if _TOKEN.fullmatch(token) is None:
        raise InvalidConfig(f"{source} does not contain a token alone: it has characters that no token has (RFC 6750)")
    return token


def first_message(token: str) -> bytes:
    """The client's first message. token: from `checked_token`."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode("ascii")


def read_first(message: bytes) -> tuple[str, str]:
    """The token of a client's first message, and the authorization id, empty if there is none. Other keys have no
    effect. Raises InvalidRequest."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise InvalidRequest(
            f"an OAUTHBEARER message has at most {MESSAGE_BYTES_MAX} bytes, not {len(message)}: use a token with fewer "
            "claims"
        )
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        raise _malformed("it is not text in UTF-8") from None
    header, *pairs = text.split("\x01")
    if len(pairs) < 2 or pairs[-2:] != ["", ""]:
        raise _malformed("it does not end with two bytes 0x01")
    flag, _, rest = header.partition(",")
    identity, comma, more = rest.partition(",")
    if flag not in ("n", "y") or not comma or more:
        raise _malformed("it does not begin with `n,,`")
    return _token_of(pairs[:-2]), _identity_of(identity)


def _token_of(pairs: list[str]) -> str:
    tokens = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or _KEY.fullmatch(key) is None:
            raise _malformed("it has a part that is no KEY=VALUE")
        if key == "auth":
            tokens.append(value)
    if len(tokens) != 1:
        raise _malformed("it must have the key `auth` once")
    scheme, _, token = tokens[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or _TOKEN.fullmatch(token) is None:
        raise _malformed("the value of `auth` is not `Bearer` and a token")
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidRequest(
            f"a token has at most {TOKEN_BYTES_MAX} bytes, not {len(token)}: use one with fewer claims"
        )
    return token


def _identity_of(field: str) -> str:
    if not field:
        return ""
    if not field.startswith("a=") or _NAME.fullmatch(field[2:]) is None:
        raise _malformed("its authorization id is not `a=NAME`")
    return field[2:].replace("=2C", ",").replace("=3D", "=")


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"the first OAUTHBEARER message is malformed: {why} (RFC 7628)")
