"""Three real nodes with mutual TLS between them and a listener SASL_SSL for users: what users do goes on and is kept
when nodes are killed and a password is changed, and nobody else is let in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.api.api import Audience
from node.api.table import APIS
from node.process.local_cluster import LocalCluster
from tests.certificates import Authority, settings_of
from tests.integration.load import Load
from tests.users_listener import outside, serve_users
from tidelog import Admin, Producer, Sasl, Tls, sync
from tidelog.cli import main
from tidelog.client.machine import secure_rng
from tidelog.errors import (
    ClusterAuthorizationFailed,
    IllegalSaslState,
    SaslAuthenticationFailed,
    TidelogError,
    TlsRequired,
    TopicAuthorizationFailed,
    UnknownCertificateAuthority,
)
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.sasl_client import SaslClient
from tidelog.security.acls import AclBinding, AclOperation, AclPermission, PatternType, ResourceType

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "orders", 3
CALL_MS = 10_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def operator(authority: Authority) -> Tls:
    return authority.client("operator")


@pytest.fixture
def alice(tmp_path: Path) -> Sasl:
    (tmp_path / "alice").write_text("tulip\n")
    return Sasl("alice", password_file=str(tmp_path / "alice"))


@pytest.fixture
def cluster(authority: Authority, operator: Tls, tmp_path: Path) -> Iterator[LocalCluster]:
    """Nodes and the operator use the listener GRPC with certificates, users the listener OUTSIDE."""
    cluster = LocalCluster(tmp_path / "cluster", settings=settings_of(authority.node()), inner=True, tls=operator)
    serve_users(cluster)
    with cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
        asyncio.run(add_alice(cluster, operator))
        yield cluster


async def add_alice(cluster: LocalCluster, operator: Tls) -> None:
    async with Admin(cluster.bootstrap, tls=operator) as admin:
        await admin.set_password("alice", "tulip")
        rules = [
            AclBinding(
                ResourceType.TOPIC, TOPIC, PatternType.LITERAL, "User:alice", "*", operation, AclPermission.ALLOW
            )
            for operation in (AclOperation.READ, AclOperation.WRITE)
        ]
        await admin.create_acls(rules)
    for node in cluster.nodes:
        async with Admin(str(node.address), tls=operator) as asked:
            while len(await asked.describe_acls()) < len(rules):  # it has not applied the change yet
                pass


def leader_of(cluster: LocalCluster) -> int:
    (topic,) = cluster.metadata(0, TOPIC).topics
    return next(state.leader for state in topic.partitions)


async def killed_and_restarted(cluster: LocalCluster, load: Load) -> None:
    victim = leader_of(cluster)
    cluster.kill(victim)
    await load.wait_for_new_records()
    cluster.start_node(victim)
    await asyncio.to_thread(cluster.wait_healthy, 60)
    await load.wait_for_new_records()


@pytest.mark.deep
async def test_users_lose_nothing_when_nodes_are_killed_and_their_password_is_changed(
    cluster: LocalCluster, authority: Authority, operator: Tls, alice: Sasl
) -> None:
    """A client whose password file follows the change goes on; the former password opens nothing any more."""
    tls = Tls(authority.ca)
    load = Load(outside(cluster), TOPIC, PARTITIONS, tls=tls, sasl=alice)
    async with load.running():
        await load.wait_more()
        await killed_and_restarted(cluster, load)
        assert alice.password_file is not None
        Path(alice.password_file).write_text("orchid\n")
        async with Admin(cluster.bootstrap, tls=operator) as admin:
            await admin.set_password("alice", "orchid")
        await load.wait_for_new_records()
        await killed_and_restarted(cluster, load)
    assert await load.check() >= len(load.acknowledged)
    async with Producer(outside(cluster), tls=tls, sasl=Sasl("alice", "tulip")) as former:
        with pytest.raises(SaslAuthenticationFailed):
            await former.send(TOPIC, b"with the former password")


def test_the_command_line_and_the_synchronous_clients_authenticate(
    cluster: LocalCluster,
    authority: Authority,
    alice: Sasl,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Several commands, each a process that imports the client."""
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", outside(cluster))
    files = ["--tls-ca", authority.ca, "--sasl-password-file", str(alice.password_file)]

    def tidelog(*arguments: str, user: str = "alice") -> tuple[int, str, str]:
        code = main([*files, "--sasl-username", user, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    tls = Tls(authority.ca)
    with sync.Producer(outside(cluster), tls=tls, sasl=alice) as producer:
        for number in range(3):
            producer.send(TOPIC, b"%d" % number, partition=0)
    code, out, err = tidelog("consume", TOPIC, "-n", "3")
    assert (code, out.splitlines()) == (0, ["0", "1", "2"]), err
    with sync.Consumer(outside(cluster), tls=tls, sasl=alice) as consumer:
        consumer.assign([(TOPIC, 0)])
        assert [record.value for record in consumer.poll(timeout=30)] == [b"0", b"1", b"2"]
    code, _, err = tidelog("topic", "create", "of-alice")
    assert code == 1
    assert "User:alice has no permission to CREATE" in err
    code, _, err = tidelog("topic", "list", user="nobody")
    assert code == 1
    assert "wrong user name or password" in err


async def test_each_cause_of_a_refusal_is_named_and_users_are_no_nodes(
    cluster: LocalCluster, authority: Authority, operator: Tls, alice: Sasl, tmp_path: Path
) -> None:
    tls = Tls(authority.ca)
    stranger = Tls(Authority(tmp_path / "stranger").ca)
    at, inside = str(cluster.nodes[0].inner), str(cluster.nodes[0].address)
    causes: list[tuple[str, Tls | None, Sasl | None, type[TidelogError]]] = [
        (at, tls, None, IllegalSaslState),
        (at, operator, None, IllegalSaslState),  # a certificate is no user
        (at, None, alice, TlsRequired),
        (at, stranger, alice, UnknownCertificateAuthority),
        (at, tls, Sasl("alice", "wrong"), SaslAuthenticationFailed),
        (inside, operator, alice, IllegalSaslState),
    ]
    for address, files, user, error in causes:
        async with Admin(address, patience_ms=0, tls=files, sasl=user) as admin:
            with pytest.raises(error) as refused:
                await admin.list_topics()
            assert "tulip" not in str(refused.value)
    transport = GrpcTransport(tls=tls, sasl=SaslClient(alice, secure_rng()))
    try:
        for method in (each for each in methods.ALL if APIS[str(each)].audience is Audience.NODES):
            with pytest.raises(ClusterAuthorizationFailed, match="for nodes only"):
                endpoint = cluster.nodes[0].inner
                assert endpoint is not None
                await transport.call(endpoint, method, method.request(), timeout_ms=CALL_MS)
    finally:
        await transport.close()
    async with Producer(at, tls=tls, sasl=alice) as producer:
        with pytest.raises(TopicAuthorizationFailed, match="User:alice"):
            await producer.send("of-others", b"not allowed")
    lines = (cluster.nodes[0].directory / "audit.log").read_text().splitlines()
    failed = [event for event in map(json.loads, lines) if event["event"] == "authentication_failed"]
    assert {(event["listener"], event["mechanism"]) for event in failed} == {
        ("OUTSIDE", "SASL"),
        ("OUTSIDE", "SCRAM-SHA-512"),
    }
    assert {event.get("claimed_user") for event in failed if event["mechanism"] != "SASL"} == {"alice"}
    said = "".join([*lines, *(node.log.read_text() for node in cluster.nodes)])
    assert not any(password in said for password in ("tulip", "orchid"))
