"""Rules for the SCRAM credentials of users (KIP-554).

Not here: the mechanism itself, and what makes a name or a password acceptable to a client (tidelog/security/scram.py).
"""

from __future__ import annotations

import random
from typing import Final

from replication.controller.events import AlterScramCredentials
from replication.controller.image import ClusterImage
from replication.controller.metadata_records import MetadataRecord, SaslSecretRecord, ScramCredentialRecord
from tidelog.errors import DuplicateResource, InvalidRequest, ResourceNotFound, UnacceptableCredential
from tidelog.types import ScramMechanism

CLUSTER_USER: Final = "cluster"
"""Reserved for the nodes themselves."""

_RESERVED: Final = {
    CLUSTER_USER: "reserved for the nodes",
    "ANONYMOUS": "that of callers who are not authenticated",
    "*": "that of everyone in ACLs",
}
"""Names that no user can have, and why."""

CHANGES_MAX: Final = 1_000
"""Limit for one request: it is one atomic batch of the metadata log."""

CREDENTIALS_MAX: Final = 20_000
"""Limit for a cluster: 10,000 users with two mechanisms. Every node keeps them in memory."""

SECRET_BYTES: Final = 32
_KEY_BYTES: Final = {ScramMechanism.SCRAM_SHA_256: 32, ScramMechanism.SCRAM_SHA_512: 64}
_SALT_BYTES: Final = range(1, 256)
"""Clients choose the salt. Kafka checks no length; here every node keeps it in memory."""

_ITERATIONS: Final = range(4_096, 600_001)
_NAME_BYTES_MAX: Final = 255


def records_of(image: ClusterImage, request: AlterScramCredentials, rng: random.Random) -> list[MetadataRecord]:
    """The records of the changes. Raises UnacceptableCredential, ResourceNotFound, DuplicateResource,
    InvalidRequest."""
    removed = [(each.name, each.mechanism) for each in request.deletions]
    changed = [*((each.name, each.mechanism) for each in request.upsertions), *removed]
    if len(changed) > CHANGES_MAX:
        raise InvalidRequest(f"{len(changed)} credentials in one request: change at most {CHANGES_MAX} at once")
    if len(set(changed)) < len(changed):
        raise DuplicateResource("one request names the same user and mechanism twice: name each once")
    for upsertion in request.upsertions:
        _ensure_acceptable(upsertion)
    added = sum((each.name, each.mechanism) not in image.scram for each in request.upsertions)
    if added and len(image.scram) + added > CREDENTIALS_MAX:
        raise InvalidRequest(
            f"the cluster has {len(image.scram)} SCRAM credentials, and at most {CREDENTIALS_MAX} are possible: remove "
            "users"
        )
    for name, mechanism in removed:
        if (name, mechanism) not in image.scram:
            raise ResourceNotFound(
                f"user {name!r} has no credential of {mechanism.mechanism_name}; `tidelog user list` shows all"
            )
    records: list[MetadataRecord] = []
    if request.upsertions and not image.sasl_secret:
        records.append(SaslSecretRecord(rng.randbytes(SECRET_BYTES)))
    return [*records, *request.upsertions, *request.deletions]


def _ensure_acceptable(upsertion: ScramCredentialRecord) -> None:
    name = upsertion.name
    if not name or len(name.encode()) > _NAME_BYTES_MAX or not name.isprintable():
        raise UnacceptableCredential(
            f"the user name {name[:_NAME_BYTES_MAX]!r} cannot be used: it must have 1 to {_NAME_BYTES_MAX} bytes in "
            "UTF-8 and no control characters"
        )
    if name in _RESERVED:
        raise UnacceptableCredential(f"the user name {name!r} is {_RESERVED[name]}: choose another one")
    if upsertion.iterations not in _ITERATIONS:
        raise UnacceptableCredential(
            f"user {name!r}: {upsertion.iterations} iterations; allowed are {_ITERATIONS[0]} to {_ITERATIONS[-1]}"
        )
    lengths = {len(upsertion.stored_key), len(upsertion.server_key)}
    if len(upsertion.salt) not in _SALT_BYTES or lengths != {_KEY_BYTES[upsertion.mechanism]}:
        raise UnacceptableCredential(
            f"user {name!r}: the salt must have {_SALT_BYTES[0]} to {_SALT_BYTES[-1]} bytes, and each key of "
            f"{upsertion.mechanism.mechanism_name} {_KEY_BYTES[upsertion.mechanism]}"
        )
