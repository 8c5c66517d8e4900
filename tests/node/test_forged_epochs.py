"""The request that once ended a cluster for good, by every caller on every kind of listener of a real node:
`BeginQuorumEpoch` and `EndQuorumEpoch` with the last epoch, which name no cluster."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any, Final

from node.boundary.boundary import Boundary
from node.listeners.grpc.server import GrpcServer
from node.listeners.grpc.server_tls import ServerTls
from node.requests.gate import Gate
from node.security.sasl_authenticator import SaslAuthenticator
from node.security.sasl_settings import SaslConfig
from replication.controller.scram_users import CLUSTER_USER
from replication.raft.epoch_limits import EPOCH_MAX
from tests.certificates import Authority
from tests.node.hostile_epochs import create_topic
from tests.node.real_nodes import CALL_MS, RealNodes, real_nodes
from tidelog.client.admin import Admin
from tidelog.clock import MachineClock
from tidelog.errors import TidelogError
from tidelog.protocol import methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import Method
from tidelog.protocol.sasl_client import SaslClient
from tidelog.security.sasl_user import Sasl
from tidelog.security.tls_files import Tls
from tidelog.types import Endpoint

FORGED: Final[tuple[Method[Any, Any], ...]] = (
    methods.QUORUM_BEGIN_QUORUM_EPOCH,
    methods.QUORUM_END_QUORUM_EPOCH,
)
SECRET: Final = "the secret of a cluster of test nodes"

ENCRYPTION: Final = ("plain text", "TLS", "mutual TLS")
CERTIFICATES: Final = ("none", "client", "node")
USERS: Final = ("none", "alice", CLUSTER_USER)

NO_CLUSTER: Final = "InvalidRequest"
NOT_FOR_YOU: Final = "ClusterAuthorizationFailed"


def expected(encryption: str, certificate: str, user: str, *, for_nodes: bool, sasl: bool) -> str:
    """The error, by what docs/security.md says about the listener and the caller."""
    if encryption == "mutual TLS" and certificate == "none":
        return "ClientCertificateRequired"
    if sasl and user == "none":
        return "IllegalSaslState"
    proven = user == CLUSTER_USER if sasl else encryption != "mutual TLS" or certificate == "node"
    return NO_CLUSTER if for_nodes and proven else NOT_FOR_YOU


class Forger:
    """Sends the requests to a listener as every caller who can connect to it."""

    def __init__(self, nodes: RealNodes, own: Authority) -> None:
        self._found = nodes.nodes[0]
        node = own.node("node")
        self._tls = {"mutual TLS": node, "TLS": own.node("open", requires=False)}
        self._certificates = {
            "none": Tls(own.ca),
            "client": own.client("client"),
            "node": Tls(own.ca, node.certificate_file, node.key_file),
        }

    async def outcomes(self, encryption: str, *, for_nodes: bool, sasl: bool) -> dict[tuple[str, str], set[str]]:
        """The errors of both requests, by the caller's certificate and user."""
        certificates = ("none",) if encryption == "plain text" else CERTIFICATES
        users = USERS if sasl else USERS[:1]
        async with self._listener(encryption, for_nodes=for_nodes, sasl=sasl) as address:
            return {
                (certificate, user): await self._outcome(address, encryption, certificate, user)
                for certificate, user in product(certificates, users)
            }

    @asynccontextmanager
    async def _listener(self, encryption: str, *, for_nodes: bool, sasl: bool) -> AsyncIterator[Endpoint]:
        """A further listener of the node."""
        tls = None if encryption == "plain text" else ServerTls("further", self._tls[encryption], MachineClock())
        server = GrpcServer("further", boundary=Boundary(), for_nodes=for_nodes, tls=tls)
        address = server.bind(Endpoint("127.0.0.1", 0))
        listeners = ["further"] if sasl else []
        rng = random.Random("nonces of the node")
        users = SaslAuthenticator(SaslConfig(), listeners, clock=MachineClock(), rng=rng, cluster_secret=SECRET)
        assert self._found.node.image is not None
        users.follow(self._found.node.image)
        gates = dict(self._found.node.services)
        gates["Sasl"] = Gate("Sasl", users)
        server.serve(gates, users)
        await server.start()
        try:
            yield address
        finally:
            await server.stop(0)

    async def _outcome(self, address: Endpoint, encryption: str, certificate: str, user: str) -> set[str]:
        password = SECRET if user == CLUSTER_USER else "tulip"
        who = None if user == "none" else SaslClient(Sasl(user, password), random.Random(user))
        tls = None if encryption == "plain text" else self._certificates[certificate]
        transport, found = GrpcTransport(tls=tls, sasl=who), set()
        try:
            for method in FORGED:
                try:
                    request = method.request(leader_id=7, epoch=EPOCH_MAX)
                    await transport.call(address, method, request, timeout_ms=CALL_MS)
                    found.add("believed")
                except TidelogError as error:
                    found.add(type(error).__name__)
        finally:
            await transport.close()
        return found


async def test_the_last_epoch_without_a_cluster_is_refused_to_every_caller_on_every_listener(tmp_path: Path) -> None:
    """And the cluster elects and serves after a restart. A former version ended for good."""
    async with real_nodes(tmp_path) as nodes, Admin(str(nodes.addresses[0])) as admin:
        await admin.set_password("alice", "tulip", iterations=4_096)
        forger = Forger(nodes, Authority(tmp_path / "own"))
        for encryption, for_nodes, sasl in product(ENCRYPTION, (True, False), (True, False)):
            outcomes = await forger.outcomes(encryption, for_nodes=for_nodes, sasl=sasl)
            for (certificate, user), found in outcomes.items():
                wanted = expected(encryption, certificate, user, for_nodes=for_nodes, sasl=sasl)
                assert found == {wanted}, (encryption, certificate, user, for_nodes, sasl)
        metadata = nodes.nodes[0].node._metadata
        assert metadata is not None
        assert metadata.view.leader_epoch < 10
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_whole()
        await create_topic(nodes, "orders")
        assert nodes.past[0].defects == []
