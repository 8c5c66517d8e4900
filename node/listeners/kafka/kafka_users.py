"""DescribeUserScramCredentials and AlterUserScramCredentials of Kafka's protocol (KIP-554).

Clients send the salted password, from which the keys that nodes keep are computed here. Anyone who reads the request on
its way can log in as the user.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Final

from node.api.admin_requests import (
    AlterUsersOneByOne,
    ChangedParts,
    DescribeScramCredentialsAnswer,
    DescribeScramCredentialsRequest,
    ScramCredentialInfo,
)
from node.api.table import ADMIN_ALTER_USERS_ONE_BY_ONE, ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS
from node.listeners.kafka.error_codes import code_of
from node.listeners.kafka.exchange import KafkaApi
from node.runtime.limits import ensure_few
from replication.controller.events import AlterScramCredentials
from replication.controller.metadata_records import ScramCredentialRecord, ScramCredentialRemovalRecord
from replication.controller.scram_users import CHANGES_MAX
from tidelog.errors import DuplicateResource, ResourceNotFound, TidelogError, UnsupportedSaslMechanism
from tidelog.protocol.kafka.messages import alter_user_scram_credentials_request as to_alter
from tidelog.protocol.kafka.messages import alter_user_scram_credentials_response as altered
from tidelog.protocol.kafka.messages import describe_user_scram_credentials_request as asked
from tidelog.protocol.kafka.messages import describe_user_scram_credentials_response as described
from tidelog.security.scram import credential_of_salted
from tidelog.types import ScramMechanism

NAME_SHOWN: Final = 80
"""Characters of a name in an error."""

# --- DescribeUserScramCredentials ---


def _names(message: asked.DescribeUserScramCredentialsRequest) -> tuple[str, ...]:
    """Empty: all users."""
    return tuple(each.name for each in message.users or ())


def _read_describe(
    message: asked.DescribeUserScramCredentialsRequest, _version: int
) -> DescribeScramCredentialsRequest:
    return DescribeScramCredentialsRequest(_names(message))


def _write_described(
    message: asked.DescribeUserScramCredentialsRequest, answer: DescribeScramCredentialsAnswer, _version: int
) -> described.DescribeUserScramCredentialsResponse:
    by_user = {name: tuple(found) for name, found in groupby(answer.credentials, lambda each: each.name)}
    names = _names(message)
    twice = {name for name, count in Counter(names).items() if count > 1}
    return described.DescribeUserScramCredentialsResponse(
        0, code_of(None), None, tuple(_user(name, by_user, twice) for name in dict.fromkeys(names or by_user))
    )


def _user(
    name: str, by_user: dict[str, tuple[ScramCredentialInfo, ...]], twice: set[str]
) -> described.DescribeUserScramCredentialsResult:
    error: TidelogError | None = None
    if name in twice:
        error = DuplicateResource(f"the request names user {name[:NAME_SHOWN]!r} twice: name each once")
    elif name not in by_user:
        error = ResourceNotFound(f"user {name[:NAME_SHOWN]!r} has no SCRAM credentials")
    infos = () if error is not None else by_user[name]
    return described.DescribeUserScramCredentialsResult(
        name,
        code_of(error),
        None if error is None else error.message,
        tuple(described.CredentialInfo(each.mechanism, each.iterations) for each in infos),
    )


def _refuse_describe(
    message: asked.DescribeUserScramCredentialsRequest, error: TidelogError, _version: int
) -> described.DescribeUserScramCredentialsResponse:
    """Kafka repeats the error for each user who is named."""
    code, why = code_of(error), error.message
    each = (
        described.DescribeUserScramCredentialsResult(name, code, why, ()) for name in dict.fromkeys(_names(message))
    )
    return described.DescribeUserScramCredentialsResponse(0, code, why, tuple(each))


DESCRIBE_USER_SCRAM_CREDENTIALS: Final = KafkaApi(
    range(1),
    asked.DESCRIBE_USER_SCRAM_CREDENTIALS_REQUEST,
    described.DESCRIBE_USER_SCRAM_CREDENTIALS_RESPONSE,
    ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS,
    _read_describe,
    _write_described,
    _refuse_describe,
)


# --- AlterUserScramCredentials ---


def _changed(message: to_alter.AlterUserScramCredentialsRequest) -> list[tuple[str, int]]:
    """The user and the number of the mechanism of each change."""
    deleted = [(each.name, each.mechanism) for each in message.deletions]
    return [*deleted, *((each.name, each.mechanism) for each in message.upsertions)]


def _users(message: to_alter.AlterUserScramCredentialsRequest) -> tuple[str, ...]:
    """Each once."""
    return tuple(dict.fromkeys(name for name, _ in _changed(message)))


def _unknown(message: to_alter.AlterUserScramCredentialsRequest) -> dict[str, UnsupportedSaslMechanism]:
    """The users whose changes name a mechanism that there is not."""
    known = tuple(ScramMechanism)
    valid = ", ".join(f"{each.value} ({each.mechanism_name})" for each in known)
    return {
        name: UnsupportedSaslMechanism(
            f"user {name[:NAME_SHOWN]!r}: there is no SCRAM mechanism {mechanism}; use {valid}"
        )
        for name, mechanism in _changed(message)
        if mechanism not in known
    }


def _upserted(upsertion: to_alter.ScramCredentialUpsertion) -> ScramCredentialRecord:
    mechanism, salt = ScramMechanism(upsertion.mechanism), bytes(upsertion.salt)
    made = credential_of_salted(mechanism, bytes(upsertion.salted_password), salt, upsertion.iterations)
    return ScramCredentialRecord(upsertion.name, mechanism, salt, made.stored_key, made.server_key, made.iterations)


def _read_alter(message: to_alter.AlterUserScramCredentialsRequest, _version: int) -> AlterUsersOneByOne:
    ensure_few(_changed(message), "credentials", CHANGES_MAX)  # each costs some HMACs
    unknown = _unknown(message)
    upsertions: dict[str, list[ScramCredentialRecord]] = {}
    deletions: dict[str, list[ScramCredentialRemovalRecord]] = {}
    for upsertion in message.upsertions:
        if upsertion.name not in unknown:
            upsertions.setdefault(upsertion.name, []).append(_upserted(upsertion))
    for deletion in message.deletions:
        if deletion.name not in unknown:
            removal = ScramCredentialRemovalRecord(deletion.name, ScramMechanism(deletion.mechanism))
            deletions.setdefault(deletion.name, []).append(removal)
    return AlterUsersOneByOne(
        tuple(
            AlterScramCredentials(tuple(upsertions.get(name, ())), tuple(deletions.get(name, ())))
            for name in _users(message)
            if name not in unknown
        )
    )


def _outcome(name: str, error: TidelogError | None) -> altered.AlterUserScramCredentialsResult:
    return altered.AlterUserScramCredentialsResult(name, code_of(error), None if error is None else error.message)


def _write_altered(
    message: to_alter.AlterUserScramCredentialsRequest, answer: ChangedParts, _version: int
) -> altered.AlterUserScramCredentialsResponse:
    unknown, errors = _unknown(message), (part.error for part in answer.parts)
    return altered.AlterUserScramCredentialsResponse(
        0, tuple(_outcome(name, unknown[name] if name in unknown else next(errors)) for name in _users(message))
    )


def _refuse_alter(
    message: to_alter.AlterUserScramCredentialsRequest, error: TidelogError, _version: int
) -> altered.AlterUserScramCredentialsResponse:
    return altered.AlterUserScramCredentialsResponse(0, tuple(_outcome(name, error) for name in _users(message)))


ALTER_USER_SCRAM_CREDENTIALS: Final = KafkaApi(
    range(1),
    to_alter.ALTER_USER_SCRAM_CREDENTIALS_REQUEST,
    altered.ALTER_USER_SCRAM_CREDENTIALS_RESPONSE,
    ADMIN_ALTER_USERS_ONE_BY_ONE,
    _read_alter,
    _write_altered,
    _refuse_alter,
)
