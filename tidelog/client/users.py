"""Requests for the SCRAM credentials of users. Passwords are converted to keys here: they never leave the client."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

from tidelog.client.options import text, whole_number
from tidelog.errors import UnsupportedSaslMechanism
from tidelog.protocol.message_mapping import write_message
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.scram import SALT_BYTES, checked_name, credential_of
from tidelog.types import ScramMechanism


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user and one of its mechanisms. The principal of the user is `User:NAME`."""

    name: str
    mechanism: str
    iterations: int


def mechanisms_of(names: object) -> list[ScramMechanism]:
    """The mechanisms with these names, `SCRAM-SHA-256` or `SCRAM-SHA-512`. Raises TypeError,
    UnsupportedSaslMechanism."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"mechanisms must be a list of names, not {type(names).__name__}: {names!r}")
    known = {each.mechanism_name: each for each in ScramMechanism}
    found = []
    for name in names:
        if name not in known:
            raise UnsupportedSaslMechanism(f"mechanism {name!r} has no passwords; use {' or '.join(known)}")
        found.append(known[name])
    return found


def upsertions(
    name: object, password: object, mechanisms: list[ScramMechanism], iterations: object, rng: Random
) -> sasl_pb2.AlterUserScramCredentialsRequest:
    """The request that sets a password. rng: unpredictable. Takes some milliseconds for each mechanism. Raises
    TypeError, UnacceptableCredential."""
    user = checked_name(text("name", name))
    if not isinstance(password, str):
        raise TypeError(f"password must be a str, not {type(password).__name__}")  # never the value: it may be logged
    rounds = whole_number("iterations", iterations)
    made = [credential_of(each, password, rng.randbytes(SALT_BYTES), rounds) for each in mechanisms]
    return sasl_pb2.AlterUserScramCredentialsRequest(
        upsertions=[write_message(sasl_pb2.ScramCredentialUpsertion, each, name=user) for each in made]
    )


def described(credential: sasl_pb2.ScramCredentialInfo) -> UserDescription:
    """The credential in an answer."""
    return UserDescription(credential.name, ScramMechanism(credential.mechanism).mechanism_name, credential.iterations)
