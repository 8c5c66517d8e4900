"""Nodes that prove to each other that they know the secret of the cluster, on a listener that clients use too."""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from node.api.api import Audience
from node.api.table import APIS
from node.security.cluster_secret import node_user, read_by_all
from node.security.sasl_settings import SaslConfig
from replication.controller.scram_users import CLUSTER_USER
from tests.node.console_world import console
from tests.node.real_nodes import CALL_MS, RealNodes, repeated
from tests.node.sasl_nodes import transport_of
from tidelog import Admin, Consumer, Producer, Sasl
from tidelog.errors import (
    ClusterAuthorizationFailed,
    IllegalSaslState,
    InvalidConfig,
    SaslAuthenticationFailed,
    TidelogError,
    UnsupportedSaslMechanism,
)
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.sasl_client import SaslClient
from tidelog.protocol.v1 import admin_pb2, data_pb2
from tidelog.types import Millis, ScramMechanism

SECRET = "0123456789abcdef" * 2
ALICE = Sasl("alice", "tulip")


@asynccontextmanager
async def nodes_with_secret(
    home: Path, count: int, secrets: dict[int, str], mechanisms: tuple[ScramMechanism, ...] = tuple(ScramMechanism)
) -> AsyncIterator[RealNodes]:
    sasl = SaslConfig(mechanisms, lifetime_ms=Millis(2_000), failure_delay_ms=Millis(50))
    nodes = RealNodes(home, count, sasl=sasl)
    nodes.secrets = secrets
    await nodes.transport.close()
    nodes.transport = GrpcTransport(sasl=SaslClient(Sasl(CLUSTER_USER, SECRET), random.Random(5)))
    try:
        for number in range(count):
            await nodes.start(number)
        yield nodes
    finally:
        await nodes.kill_all()


async def test_nodes_form_a_cluster_replicate_and_extend_their_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For longer than a session lasts: streams between nodes go on, and acknowledged records are read. Sessions are
    extended early, so that no pause of the machine ends one first."""
    monkeypatch.setattr("tidelog.protocol.sasl_client.RENEW_AFTER", (0.4, 0.5))
    async with nodes_with_secret(tmp_path, 3, dict.fromkeys(range(3), SECRET)) as nodes:
        await nodes.wait_whole()
        address = ",".join(map(str, nodes.addresses))
        async with Admin(address, sasl=Sasl(CLUSTER_USER, SECRET)) as admin:
            await repeated(lambda: admin.set_password("alice", "tulip", iterations=4_096))
            configs = {"min.insync.replicas": "3"}
            await repeated(lambda: admin.create_topic("orders", replication_factor=3, configs=configs))
        images = [found.node for found in nodes.nodes.values()]
        await nodes.wait_until(lambda: all(node.image is not None and node.image.scram for node in images))
        sent, sessions = 0, nodes.nodes[0].node.sasl.sessions
        tokens: set[bytes] = set()
        async with Producer(address, sasl=ALICE) as producer:
            while len(tokens) < 12:  # each node has one session at each other node: some are extended twice
                await producer.send("orders", b"%d" % sent)
                sent += 1
                tokens |= {token for each in sessions.of(CLUSTER_USER) for token in each.tokens}
        async with Consumer(address, sasl=ALICE) as consumer:
            consumer.assign([("orders", 0)])
            read: list[bytes | None] = []
            while len(read) < sent:
                read += [record.value for record in await consumer.poll()]
        assert read == [b"%d" % number for number in range(sent)]
        assert not any(found.defects for found in nodes.nodes.values())


async def test_nodes_know_each_other_whatever_mechanisms_users_have(tmp_path: Path) -> None:
    """A mechanism that is not offered works for nodes only, and tells no more about users than that."""
    secrets = dict.fromkeys(range(2), SECRET)
    async with nodes_with_secret(tmp_path, 2, secrets, (ScramMechanism.SCRAM_SHA_256,)) as nodes:
        await nodes.wait_whole()
        address = str(nodes.addresses[0])
        async with Admin(address, sasl=Sasl(CLUSTER_USER, SECRET)) as admin:
            await admin.set_password("alice", "tulip", iterations=4_096)
        async with Admin(address, sasl=Sasl("alice", "tulip", mechanism="SCRAM-SHA-256")) as admin:
            assert len(await admin.list_users()) == 2
        for name in ("alice", "nobody"):
            async with Admin(address, sasl=Sasl(name, "tulip")) as admin:
                with pytest.raises(UnsupportedSaslMechanism, match="'SCRAM-SHA-512'; use one of SCRAM-SHA-256"):
                    await admin.list_users()


async def test_a_client_on_the_listener_of_the_nodes_is_no_node(tmp_path: Path) -> None:
    async with nodes_with_secret(tmp_path, 1, {0: SECRET}) as nodes:
        await nodes.wait_whole()
        async with Admin(str(nodes.addresses[0]), sasl=Sasl(CLUSTER_USER, SECRET)) as admin:
            await admin.set_password("alice", "tulip", iterations=4_096)
        for sasl, error in ((ALICE, ClusterAuthorizationFailed), (None, IllegalSaslState)):
            async with transport_of(sasl) as transport:
                await ensure_no_node(transport, nodes, error)
        async with transport_of(ALICE) as transport:
            await transport.call(
                nodes.addresses[0], methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(), timeout_ms=CALL_MS
            )
        async with transport_of(Sasl(CLUSTER_USER, SECRET[::-1])) as transport:
            await ensure_no_node(transport, nodes, SaslAuthenticationFailed)


async def ensure_no_node(transport: GrpcTransport, nodes: RealNodes, error: type[TidelogError]) -> None:
    """Every RPC that is for nodes is refused, and so is a fetch that names a replica."""
    address = nodes.addresses[0]
    for method in (each for each in methods.ALL if APIS[str(each)].audience is Audience.NODES):
        with pytest.raises(error):
            await transport.call(address, method, method.request(), timeout_ms=CALL_MS)
    with pytest.raises(error):
        stream = await transport.open_stream(address, methods.DATA_FETCH_STREAM)
        replica = data_pb2.FetchRequest(replica=data_pb2.Replica(node_id=0, incarnation=bytes(16)))
        await stream.send(replica)
        await stream.receive()


@pytest.mark.parametrize(
    "name", [CLUSTER_USER, f"{CLUSTER_USER}\N{SOFT HYPHEN}", "\N{FULLWIDTH LATIN SMALL LETTER C}luster"]
)
async def test_the_secret_is_no_login_of_the_console_under_any_form_of_its_name(tmp_path: Path, name: str) -> None:
    async with nodes_with_secret(tmp_path, 1, {0: SECRET}) as nodes:
        await nodes.wait_whole()
        async with console(nodes) as browser:
            assert (await browser.log_in(name, SECRET)).status == 401
            assert browser.cookies == {}


async def test_a_node_with_another_secret_stays_outside_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "node.security"):
        async with nodes_with_secret(tmp_path, 3, dict.fromkeys(range(3), SECRET)) as nodes:
            await nodes.wait_whole()
            await nodes.stop(2)
            nodes.secrets[2] = SECRET[::-1]
            await nodes.start(2)
            await nodes.wait_until(lambda: len(refusals(caplog)) >= 5)
            await nodes.wait_until(lambda: len(others(caplog)) >= 1)
            assert not nodes.nodes[2].running.done(), "a node does not end because another one does not know it"
            image = nodes.nodes[0].node.image
            assert image is not None
            assert {int(node.node_id) for node in image.nodes.values() if not node.fenced} == {0, 1}
            nodes.nodes[2].running.cancel()
            await asyncio.wait((nodes.nodes[2].running,))
            nodes.secrets[2] = SECRET
            await nodes.start(2)
            await nodes.wait_whole()
            assert len(set(others(caplog))) == len(others(caplog)), "once for each other node, not for each attempt"
            assert set(others(caplog)) <= {str(each) for each in nodes.addresses[:2]}


def others(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The nodes whose secrets differ, as the log has them."""
    found = (
        re.match("cluster.secret.file differs from that of node ([^ ]+): ", each.message) for each in caplog.records
    )
    return [each[1] for each in found if each is not None]


def refusals(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.message == "authentication failed"]


def test_a_secret_is_long_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    user = node_user(str(file))
    assert (user.username, user.read_password()) == (CLUSTER_USER, SECRET)
    assert SECRET not in repr(user)
    file.write_text("short")
    with pytest.raises(InvalidConfig, match="openssl rand") as refused:
        node_user(str(file))
    assert "short" not in refused.value.message


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (b"", "is empty"),
        (b"\n" + SECRET.encode(), "is empty"),
        (b"\xff" * 32, "not text in UTF-8"),
        ("\u00ad".encode() * 40, "has 0 characters"),
        ("\u0221".encode() * 40, "RFC 4013"),
    ],
)
def test_a_file_without_a_usable_secret_is_named(tmp_path: Path, contents: bytes, says: str) -> None:
    """The fourth has characters that SASLprep removes: anyone would log in with an empty secret."""
    file = tmp_path / "secret"
    file.write_bytes(contents)
    with pytest.raises(InvalidConfig, match=f"cluster.secret.file.*{file}.*{says}"):
        node_user(str(file))


@pytest.mark.parametrize("secret", ["a" * 40, "changeme" * 5])
def test_a_long_secret_of_few_characters_is_refused(tmp_path: Path, secret: str) -> None:
    file = tmp_path / "secret"
    file.write_text(secret)
    with pytest.raises(InvalidConfig, match=r"is not random.*openssl rand -hex 32 > FILE") as refused:
        node_user(str(file))
    assert secret not in refused.value.message


def test_a_missing_file_is_named_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"secret file .*nowhere cannot be read.*openssl rand -hex 32 > FILE") as no:
        node_user(str(tmp_path / "nowhere"))
    assert "password" not in no.value.message


@pytest.mark.parametrize("secret", ["0123456789abcdef" * 4, "Q2x1c3Rlci9TZWNyZXQ+d2l0aC9zbGFzaGVz/wABAgM="])
def test_a_secret_in_place_of_its_file_is_not_shown(secret: str) -> None:
    with pytest.raises(InvalidConfig, match=r"The setting names a file.*openssl rand -hex 32 > FILE") as refused:
        node_user(secret)
    assert secret not in refused.value.message


def test_a_secret_that_everyone_on_the_machine_can_read_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    found = []
    for mode in (0o600, 0o640, 0o644):
        file.chmod(mode)
        found.append(read_by_all(["", str(tmp_path / "missing"), str(file), str(file)]))
    assert found == [[], [], [str(file)]]
