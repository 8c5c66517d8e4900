"""The credentials of users as the controller decides on them: all of a request or none, and back from a snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from replication.controller import features, scram_users
from replication.controller.events import AlterScramCredentials, ScramCredentialsAltered
from replication.controller.image import EMPTY, apply
from replication.controller.image_records import records_of
from replication.controller.metadata_records import (
    SaslSecretRecord,
    ScramCredentialRecord,
    ScramCredentialRemovalRecord,
)
from tests.replication.controlled import Controlled
from tidelog.errors import (
    CorruptLog,
    DuplicateResource,
    InvalidRequest,
    ResourceNotFound,
    TidelogError,
    UnacceptableCredential,
    UnsupportedVersion,
)
from tidelog.types import Offset, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = ScramCredentialRecord("alice", SHA_256, b"salt-of-alice", b"s" * 32, b"v" * 32, 4_096)


def world_of_one(level: int = features.LATEST) -> Controlled:
    world = Controlled(level=level)
    world.start(1)
    return world


def set_users(world: Controlled, *upsertions: ScramCredentialRecord) -> object:
    return world.ask(AlterScramCredentials(upsertions))


def remove(world: Controlled, name: str, mechanism: ScramMechanism = SHA_256) -> object:
    return world.ask(AlterScramCredentials((), (ScramCredentialRemovalRecord(name, mechanism),)))


def test_a_credential_is_set_changed_and_removed() -> None:
    world = world_of_one()
    assert set_users(world, ALICE) == ScramCredentialsAltered(world.end)
    assert world.image.scram["alice", SHA_256].stored_key == b"s" * 32
    set_users(world, replace(ALICE, stored_key=b"t" * 32))
    assert world.image.scram["alice", SHA_256].stored_key == b"t" * 32
    assert remove(world, "alice") == ScramCredentialsAltered(world.end)
    assert not world.image.scram


def test_the_secret_for_decoys_is_made_once() -> None:
    """Users that do not exist keep their salts: otherwise an attacker could tell them by asking again."""
    world = world_of_one()
    assert world.image.sasl_secret == b""
    set_users(world, ALICE)
    secret = world.image.sasl_secret
    assert len(secret) == 32
    set_users(world, replace(ALICE, name="bob"))
    remove(world, "alice")
    assert world.image.sasl_secret == secret
    assert sum(isinstance(record, SaslSecretRecord) for _, record in world.log) == 1


def test_a_snapshot_has_the_credentials_and_the_secret() -> None:
    world = world_of_one()
    set_users(world, ALICE, replace(ALICE, mechanism=SHA_512, stored_key=b"s" * 64, server_key=b"v" * 64))
    records = list(records_of(world.image))
    again = apply(EMPTY, [(Offset(index), record) for index, record in enumerate(records)])
    assert (again.scram, again.sasl_secret) == (world.image.scram, world.image.sasl_secret)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (replace(ALICE, name=""), UnacceptableCredential),
        (replace(ALICE, name="a\nb"), UnacceptableCredential),
        (replace(ALICE, name="x" * 256), UnacceptableCredential),
        (replace(ALICE, name="cluster"), UnacceptableCredential),
        (replace(ALICE, name="ANONYMOUS"), UnacceptableCredential),
        (replace(ALICE, name="*"), UnacceptableCredential),
        (replace(ALICE, iterations=4_095), UnacceptableCredential),
        (replace(ALICE, iterations=600_001), UnacceptableCredential),
        (replace(ALICE, salt=b""), UnacceptableCredential),
        (replace(ALICE, salt=b"x" * 256), UnacceptableCredential),
        (replace(ALICE, stored_key=b"s" * 31), UnacceptableCredential),
        (replace(ALICE, mechanism=SHA_512), UnacceptableCredential),
        (replace(ALICE, name="bob"), DuplicateResource),
    ],
)
def test_one_bad_credential_refuses_the_whole_request(bad: ScramCredentialRecord, error: type[TidelogError]) -> None:
    world = world_of_one()
    end = world.end
    assert isinstance(set_users(world, replace(ALICE, name="bob"), bad), error)
    assert (world.end, world.image.scram) == (end, {})


@pytest.mark.parametrize("size", [1, 4, 255])
def test_a_salt_may_have_1_to_255_bytes(size: int) -> None:
    """Kafka accepts any length that clients choose; 4 bytes, as a test of librdkafka has, were refused."""
    world = world_of_one()
    short = replace(ALICE, salt=b"x" * size)
    set_users(world, short)
    assert world.image.scram == {("alice", SHA_256): short}


def test_what_does_not_exist_is_not_removed() -> None:
    world = world_of_one()
    set_users(world, ALICE)
    refused = remove(world, "alice", SHA_512)
    assert isinstance(refused, ResourceNotFound)
    assert "SCRAM-SHA-512" in refused.message
    assert isinstance(remove(world, "bob"), ResourceNotFound)
    many = AlterScramCredentials(tuple(replace(ALICE, name=f"user-{n}") for n in range(1_001)))
    assert isinstance(world.ask(many), InvalidRequest)
    with pytest.raises(CorruptLog, match="user bob has no credential"):
        apply(world.image, [(world.end, ScramCredentialRemovalRecord("bob", SHA_256))])


def test_a_cluster_has_a_bounded_number_of_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram_users, "CREDENTIALS_MAX", 2)
    world = world_of_one()
    set_users(world, ALICE, replace(ALICE, name="bob"))
    refused = set_users(world, replace(ALICE, name="carol"), replace(ALICE, stored_key=b"t" * 32))
    assert isinstance(refused, InvalidRequest)
    assert "at most 2" in refused.message
    set_users(world, replace(ALICE, stored_key=b"t" * 32))
    assert world.image.scram["alice", SHA_256].stored_key == b"t" * 32
    remove(world, "bob")
    assert isinstance(set_users(world, replace(ALICE, name="carol")), ScramCredentialsAltered)


def test_nodes_of_an_earlier_version_get_no_credentials() -> None:
    world = world_of_one(level=3)
    assert isinstance(set_users(world, ALICE), UnsupportedVersion)


def test_no_text_has_the_keys() -> None:
    """Neither requests, records nor images, which may get into logs and error texts."""
    world = world_of_one()
    set_users(world, ALICE)
    secret = repr(world.image.sasl_secret)[2:-1]
    shown = "".join(map(repr, (ALICE, AlterScramCredentials((ALICE,)), world.log, world.image)))
    assert "alice" in shown
    for hidden in ("s" * 32, "v" * 32, "salt-of-alice", secret):
        assert hidden not in shown
