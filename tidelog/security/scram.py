"""SCRAM-SHA-256 and SCRAM-SHA-512, both sides, without input or output (RFC 5802, RFC 7677, KIP-84).

Invariants: a password never leaves the client, and a server cannot compute it from what it keeps. Client and server
each prove that they know the password or its keys. An unknown user and a wrong password take the same messages and the
same computations, and end with the same error. Messages and iterations are bounded. Proofs and nonces are compared in
constant time.
Not here: how messages travel, who keeps credentials, channel binding (`-PLUS` mechanisms: gRPC does not expose it).

    client                                       server
    n,,n=USER,r=NONCE                        ->
                                             <-  r=NONCE+MORE,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+MORE,p=PROOF              ->
                                             <-  v=SIGNATURE
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tidelog.errors import InvalidRequest, SaslAuthenticationFailed, UnacceptableCredential
from tidelog.security.hashes import compare_digest, digest, hmac_digest, pbkdf2_hmac
from tidelog.security.saslprep import saslprep
from tidelog.types import ScramMechanism

ITERATIONS_MIN: Final = 4_096
"""The least that RFC 7677 allows."""
ITERATIONS: Final = 16_384
"""Default: the most that Kafka allows. A client computes them once for each user and salt, in about 10 ms."""
ITERATIONS_MAX: Final = 600_000
"""Limit for both sides: a node that a client cannot trust yet must not keep its processor busy for long."""
MESSAGE_BYTES_MAX: Final = 4_096
NONCE_MAX: Final = 256
"""Characters of a nonce of one side."""
NAME_BYTES_MAX: Final = 255
SALT_BYTES: Final = 16

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]{1,512}")
_HEADER: Final = "n,,"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server keeps of a password. Nothing of it but the number of iterations is ever shown."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class PasswordKeys:
    """What a client derives of a password for one salt and number of iterations."""

    client_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def digest_of(mechanism: ScramMechanism) -> str:
    """The name of the hash function."""
    return "sha256" if mechanism is ScramMechanism.SCRAM_SHA_256 else "sha512"


def key_bytes(mechanism: ScramMechanism) -> int:
    """The length of the keys."""
    return 32 if mechanism is ScramMechanism.SCRAM_SHA_256 else 64


def derive_keys(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> PasswordKeys:
    """The keys of a password, by PBKDF2: some milliseconds, without the interpreter lock. Raises
    UnacceptableCredential."""
    salted = pbkdf2_hmac(digest_of(mechanism), _prepared("the password", password).encode(), salt, iterations)
    return _keys_of(mechanism, salted)


def credential_of(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS
) -> ScramCredential:
    """What a server keeps of this password. salt: random. Raises UnacceptableCredential."""
    if not _prepared("the password", password):
        raise UnacceptableCredential("the password is empty, or has only characters that SASLprep removes")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise UnacceptableCredential(f"{iterations} iterations: choose {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return _credential_of(derive_keys(mechanism, password, salt, iterations), mechanism, salt, iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What a server keeps of the result of PBKDF2, which clients of Kafka send (KIP-554)."""
    return _credential_of(_keys_of(mechanism, salted_password), mechanism, salt, iterations)


def _keys_of(mechanism: ScramMechanism, salted_password: bytes) -> PasswordKeys:
    function = digest_of(mechanism)
    return PasswordKeys(
        hmac_digest(salted_password, b"Client Key", function), hmac_digest(salted_password, b"Server Key", function)
    )


def _credential_of(keys: PasswordKeys, mechanism: ScramMechanism, salt: bytes, iterations: int) -> ScramCredential:
    return ScramCredential(mechanism, salt, _stored(mechanism, keys), keys.server_key, iterations)


def _stored(mechanism: ScramMechanism, keys: PasswordKeys) -> bytes:
    return digest(digest_of(mechanism), keys.client_key)


def has_password(credential: ScramCredential, password: str) -> bool:
    """Whether this is the password of which the server keeps the credential: some milliseconds, without the interpreter
    lock."""
    mechanism = credential.mechanism
    try:
        keys = derive_keys(mechanism, password, credential.salt, credential.iterations)
    except UnacceptableCredential:  # no credential is made of it
        return False
    return compare_digest(_stored(mechanism, keys), credential.stored_key)


def checked_name(name: str) -> str:
    """The prepared name of a user. Raises UnacceptableCredential."""
    prepared = _prepared("the user name", name)
    if not prepared or len(prepared.encode()) > NAME_BYTES_MAX:
        raise UnacceptableCredential(f"a user name has 1 to {NAME_BYTES_MAX} bytes in UTF-8, not {len(name.encode())}")
    return prepared


def decoy(mechanism: ScramMechanism, name: str, secret: bytes, iterations: int) -> ScramCredential:
    """The credential that a server shows for a user that does not exist: always the same for one name. secret: of the
    cluster, so that all nodes show the same. No password fits it."""

    def derived(label: bytes) -> bytes:
        return hmac_digest(secret, b"\0".join((label, mechanism.mechanism_name.encode(), name.encode())), "sha512")

    length = key_bytes(mechanism)
    return ScramCredential(
        mechanism, derived(b"salt")[:SALT_BYTES], derived(b"stored")[:length], derived(b"server")[:length], iterations
    )


def _prepared(what: str, text: str) -> str:
    try:
        return saslprep(text)
    except (ValueError, UnicodeError) as error:
        raise UnacceptableCredential(f"{what} cannot be used: it {error}") from None


# --- client -----------------------------------------------------------------------------------------------------------


class ScramClient:
    """The client's side of one handshake: `first`, `asked`, `final` and `verify`, in this order."""

    def __init__(self, mechanism: ScramMechanism, username: str, nonce: str) -> None:
        """nonce: random, printable, without a comma. Raises UnacceptableCredential."""
        self._digest, self._nonce = digest_of(mechanism), nonce
        name = checked_name(username).replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"{_HEADER}{self._bare}".encode()

    def asked(self, server_first: bytes) -> tuple[bytes, int]:
        """The salt and the number of iterations with which the keys of the password are derived. Raises
        SaslAuthenticationFailed for a message that is malformed or beyond the bounds."""
        nonce, salt, iterations = _server_first(_text(server_first, SaslAuthenticationFailed))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslAuthenticationFailed("the node did not continue this client's nonce: it is not to be trusted")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise SaslAuthenticationFailed(
                f"the node asks for {iterations} iterations; allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        return salt, iterations

    def final(self, server_first: bytes, keys: PasswordKeys) -> bytes:
        """The answer to the server's first message, which `asked` has accepted. keys: from `derive_keys`."""
        text = server_first.decode()
        nonce, _, _ = _server_first(text)
        without_proof = f"c={_base64(_HEADER.encode())},r={nonce}"
        auth_message = f"{self._bare},{text},{without_proof}".encode()
        stored_key = digest(self._digest, keys.client_key)
        proof = _xor(keys.client_key, hmac_digest(stored_key, auth_message, self._digest))
        self._signature = hmac_digest(keys.server_key, auth_message, self._digest)
        return f"{without_proof},p={_base64(proof)}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the keys of the password. Raises SaslAuthenticationFailed."""
        text = _text(server_final, SaslAuthenticationFailed)
        given = _decoded(text.partition(",")[0].removeprefix("v=")) if text.startswith("v=") else None
        if not self._signature or given is None or not compare_digest(given, self._signature):
            raise SaslAuthenticationFailed(
                "the node did not prove that it knows the credential of this user: it is not to be trusted. Check the "
                "address"
            )


def _server_first(text: str) -> tuple[str, bytes, int]:
    found = re.fullmatch(r"r=([^,]+),s=([^,]+),i=([1-9]\d{0,8})(?:,.*)?", text)
    salt = None if found is None else _decoded(found[2])
    if found is None or salt is None or not salt or _NONCE.fullmatch(found[1]) is None:
        raise SaslAuthenticationFailed(
            "the node's first SCRAM message is malformed: does another program listen there?"
        )
    return found[1], salt, int(found[3])


# --- server -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """The user that a client claims to be, and the keys to check its proof. exists: False for a decoy."""

    username: str
    credential: ScramCredential
    exists: bool


class ScramServer:
    """The server's side of one handshake: `first` and `final`, in this order. Both take microseconds: the server has
    the salted keys."""

    def __init__(self, mechanism: ScramMechanism, nonce: str, claim: Callable[[str], Claim]) -> None:
        """nonce: random, printable, without a comma. claim: the credential of a user name, or its decoy."""
        self._digest, self._key_bytes = digest_of(mechanism), key_bytes(mechanism)
        self._mechanism, self._more, self._find = mechanism, nonce, claim
        self._claim: Claim | None = None
        self._header = self._own = self._nonce = self._messages = ""

    @property
    def claim(self) -> Claim:
        """The user that the client claims to be; proven once `final` has returned."""
        assert self._claim is not None, "`first` comes first"
        return self._claim

    def first(self, client_first: bytes) -> bytes:
        """The answer to the client's first message. Raises InvalidRequest if it is malformed."""
        text = _text(client_first, InvalidRequest)
        found = re.fullmatch(r"((?:n|y),(?:a=([^,]*))?,)(n=([^,]+),r=([^,]+)(?:,[^\x00]*)?)", text)
        if found is None or _NONCE.fullmatch(found[5]) is None or len(found[5]) > NONCE_MAX:
            raise InvalidRequest(
                "the first SCRAM message is malformed, or asks for channel binding, which this listener does not have"
            )
        name = _unescaped(found[4])
        if found[2] is not None and _unescaped(found[2]) not in ("", name):
            raise InvalidRequest("a client cannot act for another user: leave the authorization id empty")
        self._header, self._own, self._nonce = found[1], found[5], found[5] + self._more
        self._claim = self._find(name)
        shown = self._claim.credential
        server_first = f"r={self._nonce},s={_base64(shown.salt)},i={shown.iterations}"
        self._messages = f"{found[3]},{server_first}"
        return server_first.encode()

    def final(self, client_final: bytes) -> bytes:
        """The answer that proves the server's knowledge. Raises SaslAuthenticationFailed if the user does not exist or
        the password is wrong, InvalidRequest if the message is malformed."""
        text = _text(client_final, InvalidRequest)
        found = re.fullmatch(r"(c=([^,]+),r=([^,]+)(?:,[^\x00]*)?),p=([^,]+)", text)
        header = None if found is None else _decoded(found[2])
        proof = None if found is None else _decoded(found[4])
        if found is None or proof is None or len(proof) != self._key_bytes:
            raise InvalidRequest("the final SCRAM message is malformed")
        claim = self.claim
        credential = claim.credential
        auth_message = f"{self._messages},{found[1]}".encode()
        client_key = _xor(proof, hmac_digest(credential.stored_key, auth_message, self._digest))
        known = compare_digest(digest(self._digest, client_key), credential.stored_key)
        # librdkafka before 2.6.1 puts its own nonce in front once more, and could not log in. Its proof covers that.
        repeated = compare_digest(found[3].encode(), (self._own + self._nonce).encode())
        same = compare_digest(found[3].encode(), self._nonce.encode()) or repeated
        bound = header == self._header.encode()
        signature = hmac_digest(credential.server_key, auth_message, self._digest)
        if not (known and same and bound and claim.exists):
            raise SaslAuthenticationFailed(
                f"{self._mechanism.mechanism_name}: wrong user name or password, or the user has no credential of this "
                "mechanism"
            )
        return f"v={_base64(signature)}".encode()


# --- encoding ---------------------------------------------------------------------------------------------------------


def _text(message: bytes, error: type[InvalidRequest | SaslAuthenticationFailed]) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise error(f"a SCRAM message has at most {MESSAGE_BYTES_MAX} bytes, not {len(message)}")
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        raise error("a SCRAM message is text in UTF-8") from None
    if "\0" in text:
        raise error("a SCRAM message has no zero bytes")
    return text


def _unescaped(name: str) -> str:
    """The name in a message. Raises InvalidRequest."""
    if re.search(r"=(?!2C|3D)", name):
        raise InvalidRequest("a user name in a SCRAM message has an `=` that is not escaped")
    plain = name.replace("=2C", ",").replace("=3D", "=")
    try:
        prepared = saslprep(plain)
    except ValueError as error:
        raise InvalidRequest(f"the user name cannot be used: it {error}") from None
    if len(prepared.encode()) > NAME_BYTES_MAX:
        raise InvalidRequest(f"a user name has at most {NAME_BYTES_MAX} bytes in UTF-8")
    return prepared


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(len(one))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(text: str) -> bytes | None:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        return None
