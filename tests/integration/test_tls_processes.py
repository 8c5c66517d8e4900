"""Three real nodes with mutual TLS and a listener of their own: failures and new certificates under load lose nothing;
and requests that would end the quorum are refused on every listener."""

from __future__ import annotations

import asyncio
import json
import ssl
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.process.local_cluster import LocalCluster
from node.process.probe import main as probe
from tests.certificates import Authority, settings_of
from tests.integration.load import Load
from tidelog.client.admin import Admin
from tidelog.client.producer import Producer
from tidelog.errors import ClientCertificateRejected, ClusterAuthorizationFailed, InvalidRequest, TidelogError
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.v1 import quorum_pb2
from tidelog.security.tls_files import Tls
from tidelog.types import Endpoint

pytestmark = pytest.mark.integration

TOPIC, PARTITIONS = "orders", 3
CALL_MS = 10_000
AGE_MS = 1_000
STREAM_GRACE_S = 10
EPOCH_MAX = 2**31 - 1


def encrypted(authority: Authority) -> dict[str, Any]:
    """Settings of a cluster with mutual TLS on both listeners; alice administers it. Nodes need no rule."""
    return {
        **settings_of(authority.node()),
        "listener.security.protocol.map": ["GRPC:GRPC_SSL", "INNER:GRPC_SSL"],
        "super.users": ["User:CN=alice"],
        "ssl.connection.max.age.ms": AGE_MS,
    }


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def alice(authority: Authority) -> Tls:
    return authority.client("alice")


@pytest.fixture
def cluster(authority: Authority, alice: Tls, tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster", settings=encrypted(authority), inner=True, tls=alice) as cluster:
        cluster.wait_healthy()
        yield cluster


@pytest.fixture
def load(cluster: LocalCluster, alice: Tls) -> Load:
    cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
    return Load(cluster.bootstrap, TOPIC, PARTITIONS, tls=alice)


async def healthy(cluster: LocalCluster, *, in_sync: bool = True) -> None:
    await asyncio.to_thread(cluster.wait_healthy, 60, in_sync=in_sync)


def leader_of(cluster: LocalCluster) -> int:
    (topic,) = cluster.metadata(0, TOPIC).topics
    return next(state.leader for state in topic.partitions)


@pytest.mark.deep
async def test_a_cluster_with_mutual_tls_loses_nothing_when_nodes_are_killed_and_restarted(
    cluster: LocalCluster, load: Load, alice: Tls
) -> None:
    """Nodes with TLS are killed and restarted under load."""
    async with load.running():
        await load.wait_more()
        victim = leader_of(cluster)
        cluster.kill(victim)
        await load.wait_for_new_records()
        cluster.start_node(victim)
        await healthy(cluster)
        for node_id in range(3):
            assert await asyncio.to_thread(cluster.stop_node, node_id) == 0
            await load.wait_for_new_records()
            cluster.start_node(node_id)
            await healthy(cluster)
    assert await load.check() >= len(load.acknowledged)
    at = str(cluster.nodes[0].address)
    files = ["--tls-ca", str(alice.ca), "--tls-cert", str(alice.certificate), "--tls-key", str(alice.key)]
    assert (probe(["--ready", at]), probe(["--ready", at, *files])) == (1, 0)


# --- rotation ---------------------------------------------------------------------------------------------------------


def served_by(at: Endpoint, ca: Path, tls: Tls) -> None:
    """Raise ssl.SSLError unless the certificate at this address is signed by an authority in `ca`."""
    assert tls.certificate is not None
    context = ssl.create_default_context(cafile=ca)
    context.load_cert_chain(tls.certificate, tls.key)
    asyncio.run(_handshake(at, context))


async def _handshake(at: Endpoint, context: ssl.SSLContext) -> None:
    _, writer = await asyncio.open_connection(at.host, at.port, ssl=context)
    writer.transport.abort()


def replace_contents(path: str | Path, *sources: str | Path) -> None:
    """Put the contents of some files into a file at once, as a new version of a mounted secret."""
    part = Path(f"{path}.part")
    part.write_bytes(b"".join(Path(source).read_bytes() for source in sources))
    part.replace(path)


@pytest.mark.deep
@pytest.mark.timeout(240)
def test_all_certificates_and_their_authority_are_replaced_under_load_without_a_restart(
    cluster: LocalCluster, load: Load, authority: Authority, alice: Tls, tmp_path: Path
) -> None:
    """Both authorities are trusted, then every certificate is one of the new authority, then only that is trusted. In
    the end a killed node comes back, and has to reach the others, who were never restarted."""
    former = authority.client("former")
    renewed = Authority(tmp_path / "renewed")
    node, client = renewed.node(), renewed.client("alice")
    assert client.key is not None and client.certificate is not None
    assert alice.key is not None and alice.certificate is not None
    replaced = [
        (authority.ca, (authority.ca, renewed.ca)),
        (str(authority.directory / "node.key"), (node.key_file,)),
        (str(authority.directory / "node.pem"), (node.certificate_file,)),
        (alice.key, (client.key,)),
        (alice.certificate, (client.certificate,)),
        (authority.ca, (renewed.ca,)),
    ]
    pids = [node.pid for node in cluster.nodes]

    async def story() -> None:
        async with load.running():
            await load.wait_more()
            for path, sources in replaced:
                replace_contents(path, *sources)
                await load.wait_for_new_records()
            ends = asyncio.get_running_loop().time() + AGE_MS / 1000 + STREAM_GRACE_S
            while asyncio.get_running_loop().time() < ends:  # the last stream with a former certificate ends
                await load.wait_more(100)
            await healthy(cluster)
            assert [node.pid for node in cluster.nodes] == pids
            victim = leader_of(cluster)
            cluster.kill(victim)
            await load.wait_for_new_records()
            cluster.start_node(victim)
            await healthy(cluster)
        assert await load.check() >= len(load.acknowledged)
        with pytest.raises(ClientCertificateRejected):
            async with Admin(
                cluster.bootstrap, patience_ms=0, tls=Tls(renewed.ca, former.certificate, former.key)
            ) as admin:
                await admin.describe_cluster()

    asyncio.run(story())
    for each in cluster.nodes:
        for address in (each.address, each.inner):
            assert address is not None
            served_by(address, Path(renewed.ca), client)


# --- several addresses ------------------------------------------------------------------------------------------------


def test_a_client_gets_the_addresses_of_the_listener_on_which_it_connected(tmp_path: Path) -> None:
    """One listener advertises another name than it binds, as for clients outside; the other one its own address."""
    cluster = LocalCluster(tmp_path, 1, inner=True)
    (node,) = cluster.nodes
    assert node.inner is not None
    with node.config.open("a", encoding="utf-8") as config:
        config.write(f'"advertised.listeners" = ["GRPC://localhost:{node.address.port}"]\n')

    async def addresses(bootstrap: Endpoint) -> list[Endpoint]:
        async with Admin(str(bootstrap)) as admin, Producer(str(bootstrap)) as producer:
            await producer.send(TOPIC, b"through either")
            return [each.endpoint for each in (await admin.describe_cluster()).nodes]

    with cluster:
        cluster.wait_healthy()
        cluster.create_topic(TOPIC, 1, 1)
        assert asyncio.run(addresses(node.address)) == [Endpoint("localhost", node.address.port)]
        assert asyncio.run(addresses(node.inner)) == [node.inner]


# --- moving nodes to a listener of their own --------------------------------------------------------------------------


@pytest.mark.deep
def test_nodes_move_to_a_listener_of_their_own_under_load_in_three_rolling_restarts(tmp_path: Path) -> None:
    """As docs/security.md says. In the end the listener for clients refuses nodes."""
    plain = [node.config.read_text(encoding="utf-8") for node in LocalCluster(tmp_path).nodes]
    cluster = LocalCluster(tmp_path, inner=True)
    moved = [tomllib.loads(node.config.read_text(encoding="utf-8")) for node in cluster.nodes]
    for node, text in zip(cluster.nodes, plain, strict=True):
        node.config.write_text(text, encoding="utf-8")
    steps: list[list[dict[str, Any]]] = [
        [
            {
                **tomllib.loads(text),
                "listeners": last["listeners"],
                "listener.security.protocol.map": last["listener.security.protocol.map"],
                "controller.listener.names": ["GRPC", "INNER"],
            }
            for text, last in zip(plain, moved, strict=True)
        ],
        [{**last, "controller.listener.names": ["INNER", "GRPC"]} for last in moved],
        moved,
    ]

    async def story() -> None:
        cluster.create_topic(TOPIC, PARTITIONS, min_insync_replicas="2")
        load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
        async with load.running():
            for step in steps:
                for node, values in zip(cluster.nodes, step, strict=True):
                    assert await asyncio.to_thread(cluster.stop_node, node.node_id) == 0
                    lines = [f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in values.items()]
                    node.config.write_text("".join(lines), encoding="utf-8")
                    cluster.start_node(node.node_id)
                    await healthy(cluster)
                    await load.wait_for_new_records()
        assert await load.check() >= len(load.acknowledged)
        for node in cluster.nodes:
            assert await refusals(node.address, None, "") == {ClusterAuthorizationFailed}

    with cluster:
        cluster.wait_healthy()
        asyncio.run(story())


# --- what would end the quorum ----------------------------------------------------------------------------------------


def hostile() -> list[tuple[Any, Any]]:
    """Requests of a leader that never existed, in the last epoch that there can be."""
    return [
        (
            methods.QUORUM_BEGIN_QUORUM_EPOCH,
            quorum_pb2.BeginQuorumEpochRequest(leader_id=1, epoch=EPOCH_MAX),
        ),
        (
            methods.QUORUM_END_QUORUM_EPOCH,
            quorum_pb2.EndQuorumEpochRequest(leader_id=1, epoch=EPOCH_MAX),
        ),
    ]


async def refusals(at: Endpoint | None, tls: Tls | None, cluster_id: str) -> set[type[TidelogError]]:
    """The errors of the hostile requests, with and without the id of the cluster."""
    assert at is not None
    found = set()
    transport = GrpcTransport(tls=tls)
    try:
        for method, request in hostile():
            for named in ("", cluster_id):
                request.cluster_id = named
                with pytest.raises(TidelogError) as refused:
                    await transport.call(at, method, request, timeout_ms=CALL_MS)
                found.add(type(refused.value))
    finally:
        await transport.close()
    return found


async def attack(cluster: LocalCluster, callers: dict[str, Tls | None], client: Tls | None) -> None:
    """Send the requests to every listener of every node as each caller; then a new leader must still be elected."""
    async with Admin(cluster.bootstrap, tls=client) as admin:
        cluster_id = (await admin.describe_cluster()).cluster_id
    for node in cluster.nodes:
        for caller, tls in callers.items():
            assert await refusals(node.address, tls, cluster_id) == {ClusterAuthorizationFailed}, caller
            expected = ClusterAuthorizationFailed if caller == "client" else InvalidRequest
            assert await refusals(node.inner, tls, cluster_id) == {expected}, caller
    controller = cluster.describe(0).controller_id
    cluster.kill(controller)
    await healthy(cluster, in_sync=False)
    cluster.start_node(controller)
    await healthy(cluster)


def test_no_listener_with_tls_believes_in_the_last_epoch(
    cluster: LocalCluster, authority: Authority, alice: Tls
) -> None:
    """Not even of a taken over node: it has the certificate of one."""
    asyncio.run(attack(cluster, {"client": alice, "node": authority.node().files}, alice))


def test_no_listener_without_tls_believes_in_the_last_epoch(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, inner=True) as cluster:
        cluster.wait_healthy()
        asyncio.run(attack(cluster, {"anyone": None}, None))
