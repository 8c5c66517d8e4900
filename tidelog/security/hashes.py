"""Hash functions of the standard library, loaded at their first use: with those of OpenSSL they take 0.7 MiB, which a
process that authenticates nobody by SASL does not need.
"""

from __future__ import annotations


def digest(function: str, data: bytes) -> bytes:
    """The digest of the data. function: the name of the hash function, `sha256`."""
    import hashlib

    return hashlib.new(function, data).digest()


def hmac_digest(key: bytes, data: bytes, function: str) -> bytes:
    """The keyed digest of the data (RFC 2104)."""
    import hmac

    return hmac.digest(key, data, function)


def pbkdf2_hmac(function: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """The key that is derived of a password (RFC 8018), without the interpreter lock."""
    import hashlib

    return hashlib.pbkdf2_hmac(function, password, salt, iterations)


def compare_digest(one: bytes, other: bytes) -> bool:
    """Compare in a time that does not tell where they differ."""
    import hmac

    return hmac.compare_digest(one, other)
