"""Users over nodes: set through any node, described without keys, kept by snapshots, hidden in dumps."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.metadata.metadata_codec import encode_batch
from replication.controller.metadata_records import (
    SaslSecretRecord,
    ScramCredentialRecord,
    ScramCredentialRemovalRecord,
)
from tests.node.metadata_world import MetadataWorld
from tests.storage.dumped import command
from tidelog.errors import ResourceNotFound, UnacceptableCredential
from tidelog.protocol import methods
from tidelog.protocol.v1 import sasl_pb2
from tidelog.types import LeaderEpoch, Millis, ScramMechanism

SHA_256 = sasl_pb2.SCRAM_MECHANISM_SHA_256


def upsertion(name: str = "alice", iterations: int = 4_096) -> sasl_pb2.AlterUserScramCredentialsRequest:
    credential = sasl_pb2.ScramCredentialUpsertion(
        name=name,
        mechanism=SHA_256,
        salt=b"salt of 16 bytes",
        stored_key=b"s" * 32,
        server_key=b"v" * 32,
        iterations=iterations,
    )
    return sasl_pb2.AlterUserScramCredentialsRequest(upsertions=[credential])


def test_a_user_set_through_one_node_is_described_by_every_node_without_its_keys() -> None:
    with MetadataWorld() as world:
        world.begin()
        world.call(2, methods.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, upsertion())
        assert ("alice", ScramMechanism.SCRAM_SHA_256) in world.image(2).scram, "the answer waits until it is applied"
        with pytest.raises(UnacceptableCredential, match="4095 iterations"):
            world.call(1, methods.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, upsertion(iterations=4_095))
        everyone = sasl_pb2.DescribeUserScramCredentialsRequest()
        answer = world.call(2, methods.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS, everyone)
        assert list(answer.credentials) == [
            sasl_pb2.ScramCredentialInfo(name="alice", mechanism=SHA_256, iterations=4_096)
        ]
        nobody = sasl_pb2.DescribeUserScramCredentialsRequest(users=["bob"])
        assert not world.call(2, methods.ADMIN_DESCRIBE_USER_SCRAM_CREDENTIALS, nobody).credentials
        deletion = sasl_pb2.ScramCredentialDeletion(name="alice", mechanism=SHA_256)
        removal = sasl_pb2.AlterUserScramCredentialsRequest(deletions=[deletion])
        world.call(0, methods.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, removal)
        with pytest.raises(ResourceNotFound):
            world.call(0, methods.ADMIN_ALTER_USER_SCRAM_CREDENTIALS, removal)


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_dump_of_the_metadata_log_shows_that_there_is_a_secret_but_not_the_secret(
    tmp_path: Path, form: tuple[str, ...]
) -> None:
    stored, server, secret = b"stored-key-of-alice", b"server-key-of-alice", b"secret-for-decoys"
    alice = ScramCredentialRecord("alice", ScramMechanism.SCRAM_SHA_256, b"salt", stored, server, 4_096)
    removal = ScramCredentialRemovalRecord("removed", ScramMechanism.SCRAM_SHA_256)
    batch = encode_batch([SaslSecretRecord(secret), alice, removal], leader_epoch=LeaderEpoch(0), timestamp=Millis(5))
    log = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    log.parent.mkdir()
    log.write_bytes(batch)
    code, out = command(log, "--records", *form)
    assert code == 0
    hidden = [data.hex() if form else data.decode() for data in (stored, server, secret)]
    assert not any(each in out for each in hidden)
    shown = b"a secret, not shown"
    assert out.count(shown.hex() if form else shown.decode()) == 2
    assert b"removed".hex() in out
