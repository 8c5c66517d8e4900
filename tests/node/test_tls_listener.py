"""Listeners with TLS over real connections: who a caller is, what each failing handshake tells, a certificate that is
replaced while the listener runs; and what only nodes may ask, refused on listeners for clients."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from node.boundary.boundary import Boundary
from node.listener_settings import ListenerTls
from node.listeners.grpc.server import GrpcServer
from node.listeners.grpc.server_tls import ServerTls
from node.listeners.listener_certificates import CallerIdentity
from node.requests.context import RequestContext
from node.security.principals import parse_rules
from tests.certificates import Authority
from tests.node.message_services import gates_of, messages_of
from tidelog.clock import Clock, MachineClock
from tidelog.errors import (
    CertificateExpired,
    CertificateNameMismatch,
    ClientCertificateRejected,
    ClientCertificateRequired,
    ClusterAuthorizationFailed,
    ConnectionFailed,
    ConnectionLost,
    InvalidConfig,
    TidelogError,
    TlsNotSpoken,
    TlsRequired,
    UnknownCertificateAuthority,
)
from tidelog.protocol import methods, status, wire
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import CallKind
from tidelog.protocol.v1 import data_pb2, quorum_pb2
from tidelog.security.tls_files import Tls
from tidelog.types import Endpoint, Millis

LOOPBACK = Endpoint("127.0.0.1", 0)
CALL_MS = 10_000
ASK = data_pb2.InitProducerIdRequest()


@dataclass
class Service:
    """Answers every call and notes by whom it was made."""

    principals: list[str] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    connections: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        async def serve(message: Any, context: RequestContext) -> Any:
            self.principals.append(context.principal)
            self.called.append(name)
            self.connections.append(context.connection)
            method = next(each for each in methods.ALL if each.attribute == name)
            empty = wire.reader(method.answer)(b"")
            if not name.endswith("_stream"):
                return empty
            while await message.receive() is not None:
                await message.send(empty)
            return None

        return serve


@asynccontextmanager
async def listening(
    tls: ListenerTls | None, *, for_nodes: bool = True, clock: Clock | None = None
) -> AsyncIterator[tuple[Endpoint, Service, Boundary]]:
    service, boundary = Service(), Boundary()
    made = None if tls is None else ServerTls("client", tls, clock or MachineClock())
    server = GrpcServer("client", boundary=boundary, for_nodes=for_nodes, tls=made)
    address = server.bind(LOOPBACK)
    server.serve(gates_of(dict.fromkeys({method.service for method in methods.ALL}, service)), codec_of=messages_of)
    await server.start()
    try:
        yield address, service, boundary
    finally:
        await server.stop(0)


@asynccontextmanager
async def connected(tls: Tls | None) -> AsyncIterator[GrpcTransport]:
    transport = GrpcTransport(tls=tls)
    try:
        yield transport
    finally:
        await transport.close()


async def call(at: Endpoint, tls: Tls | None) -> None:
    async with connected(tls) as transport:
        await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)


# --- identities -------------------------------------------------------------------------------------------------------


async def test_the_principal_is_the_subject_of_the_verified_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with listening(authority.node()) as (at, service, _):
        await call(at, authority.client("alice"))
        await call(at, authority.client("bob"))
        assert service.principals == ["User:CN=alice", "User:CN=bob"]
    async with listening(authority.node(requires=False)) as (at, service, _):
        await call(at, authority.client("alice"))
        await call(at, Tls(authority.ca))
        assert service.principals == ["User:ANONYMOUS"] * 2, "nothing was proved"


async def test_comments_in_the_file_of_authorities_may_have_any_characters(tmp_path: Path) -> None:
    """As bundles of public authorities have them."""
    authority = Authority(tmp_path)
    tls, alice = authority.node(), authority.client("alice")
    Path(authority.ca).write_bytes("# Főtanúsítvány\n".encode() + Path(authority.ca).read_bytes())
    async with listening(tls) as (at, service, _):
        await call(at, alice)
        assert service.principals == ["User:CN=alice"]


async def test_a_certificate_that_no_rule_maps_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = replace(authority.node(), mapping_rules=parse_rules("RULE:^CN=(a.*)$/$1/U"))
    async with listening(tls) as (at, service, _):
        await call(at, authority.client("alice"))
        assert service.principals == ["User:ALICE"]
        with pytest.raises(ClusterAuthorizationFailed, match="no rule of ssl"):
            await call(at, authority.client("bob"))
        async with connected(authority.client("bob")) as transport:
            with pytest.raises(ClusterAuthorizationFailed):
                stream = await transport.open_stream(at, methods.DATA_FETCH_STREAM)
                await stream.receive()
        assert service.principals == ["User:ALICE"]


class Presented:
    """A call on a connection on which gRPC has verified this certificate."""

    def __init__(self, certificate: bytes) -> None:
        self._certificate = certificate

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self._certificate]}


@pytest.mark.parametrize(
    ("subject", "rules"), [("", "DEFAULT"), ("bob", "RULE:^CN=(a?).*$/$1/")], ids=["empty", "mapped to nothing"]
)
def test_a_certificate_that_names_nobody_is_no_client_but_may_be_a_node(
    tmp_path: Path, subject: str, rules: str
) -> None:
    """An ACL for everyone would hold for `User:`, and none could name it. Nodes are known by their usage."""
    tls = ServerTls("client", replace(Authority(tmp_path).node(), mapping_rules=parse_rules(rules)), MachineClock())
    client, node = (Presented(certificate(subject, usage)) for usage in ("CLIENT_AUTH", "SERVER_AUTH"))
    with pytest.raises(
        ClusterAuthorizationFailed, match=r"certificate names nobody: its subject, .* Replace it by one"
    ):
        tls.identity(client)
    assert tls.identity(node) == CallerIdentity("User:ANONYMOUS", is_node=True)


def certificate(name: str, usage: str) -> bytes:
    """A certificate for this usage, with an empty subject if the name is empty."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    now = dt.datetime.fromtimestamp(MachineClock().wall_ms() / 1000, dt.UTC)
    purpose = x509.ExtendedKeyUsage([getattr(ExtendedKeyUsageOID, usage)])
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + dt.timedelta(days=1))
    signed = builder.add_extension(purpose, critical=False).sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


# --- failing handshakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "client", "error", "words"),
    [
        ("expired", "trusting", CertificateExpired, "has expired .* Renew it on the node"),
        ("elsewhere", "trusting", CertificateNameMismatch, "is not for '127.0.0.1' .* Connect by a name"),
        ("foreign", "trusting", UnknownCertificateAuthority, "signed by no authority in .*ca.pem .* Name the file"),
        ("open", "plain", TlsRequired, "this side sent plain text. Configure TLS"),
        ("strict", "plain", TlsRequired, "this side sent plain text. Configure TLS"),
        ("plain", "trusting", TlsNotSpoken, "plain text at this port, and this side began TLS. Use the address of"),
        ("strict", "trusting", ClientCertificateRequired, "requires a certificate of the client. Name a certificate"),
        ("strict", "foreign", ClientCertificateRejected, "does not accept the certificate .*alice.pem"),
        (
            "strict",
            "expired",
            ClientCertificateRejected,
            r"your certificate expired on 20\d\d-\d\d-\d\d .* UTC\. Renew it",
        ),
    ],
)
async def test_each_failing_handshake_names_its_cause_and_the_next_step(
    tmp_path: Path, server: str, client: str, error: type[TidelogError], words: str
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    servers: dict[str, Callable[[], ListenerTls | None]] = {
        "expired": lambda: ours.node(age_days=5, requires=False),
        "elsewhere": lambda: ours.node("node", "node-7.example.org", requires=False),
        "foreign": lambda: theirs.node(requires=False),
        "open": lambda: ours.node(requires=False),
        "strict": ours.node,
        "plain": lambda: None,
    }
    clients: dict[str, Callable[[], Tls | None]] = {
        "trusting": lambda: Tls(ours.ca),
        "plain": lambda: None,
        "foreign": lambda: replace(theirs.client(), ca=ours.ca),
        "expired": lambda: ours.client(age_days=5),
    }
    async with listening(servers[server]()) as (at, service, _), connected(clients[client]()) as transport:
        with pytest.raises(error, match=words):
            await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        with pytest.raises(error, match=words):
            await transport.open_stream(at, methods.DATA_PRODUCE_STREAM)
        assert service.called == []


@pytest.fixture
def reporting_the_refused_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC tries `localhost` at ::1 and 127.0.0.1, and reports whichever failed last: here always the first, at which
    nothing listens."""

    def refused(_error: Exception, *, address: Endpoint, phase: str) -> ConnectionFailed:
        return ConnectionFailed(f"{phase} at {address}: no connection (Connection refused (111)).")

    monkeypatch.setattr(status, "from_rpc_error", refused)


async def ask(transport: GrpcTransport, host: str, port: int) -> None:
    await transport.call(Endpoint(host, port), methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)


async def test_at_a_name_with_several_addresses_the_refused_one_hides_no_cause(
    tmp_path: Path, reporting_the_refused_address: None
) -> None:
    authority = Authority(tmp_path)
    async with listening(None) as (at, _, _), connected(Tls(authority.ca)) as transport:
        with pytest.raises(TlsNotSpoken, match="plain text at this port, and this side began TLS"):
            await ask(transport, "localhost", at.port)
        with pytest.raises(ConnectionFailed, match="Connection refused"):  # it has no other address: it is the cause
            await ask(transport, "127.0.0.1", at.port)


async def test_what_accepts_connections_and_is_no_node_does_not_refuse_them(
    reporting_the_refused_address: None,
) -> None:
    """As the listener for Kafka's protocol, at which programs of Kafka point their clients."""

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as server, connected(None) as transport:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectionFailed, match="nothing at another one answers as a node"):
            await ask(transport, "localhost", port)
    async with connected(None) as transport:
        with pytest.raises(ConnectionFailed, match="Connection refused"):
            await ask(transport, "localhost", port)


async def test_a_failed_handshake_without_files_to_look_for_its_cause_is_still_a_failed_connection(
    tmp_path: Path,
) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    async with listening(theirs.node()) as (at, _, _), connected(ours.client()) as transport:
        Path(ours.ca).unlink()
        with pytest.raises(ConnectionFailed, match=r"InitProducerId at 127\.0\.0\.1"):
            await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
async def test_an_older_tls_than_1_2_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.ca)
    context.set_ciphers("ALL:@SECLEVEL=0")  # otherwise OpenSSL itself would refuse

    async def handshake(at: Endpoint, version: ssl.TLSVersion) -> str | None:
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = version
        _, writer = await asyncio.open_connection(at.host, at.port, ssl=context)
        found: str | None = writer.get_extra_info("ssl_object").version()
        writer.transport.abort()
        return found

    async with listening(authority.node(requires=False)) as (at, _, _):
        assert await handshake(at, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        assert await handshake(at, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await handshake(at, ssl.TLSVersion.TLSv1_1)


# --- rotation ---------------------------------------------------------------------------------------------------------


def replace_files(old: Tls, new: Tls) -> None:
    for former, present in ((old.key, new.key), (old.certificate, new.certificate)):
        assert former is not None and present is not None
        Path(present).replace(former)


async def test_a_certificate_replaced_on_disk_is_used_by_the_next_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first certificate is for another host, so that only the second one lets a client in."""
    authority = Authority(tmp_path)
    tls = authority.node("node", "node-7.example.org", requires=False)
    caplog.set_level(logging.INFO, "node.tls")
    async with listening(tls) as (at, _, _):
        with pytest.raises(CertificateNameMismatch):
            await call(at, Tls(authority.ca))
        Path(tls.key_file).write_text("half a file")
        with pytest.raises(CertificateNameMismatch):
            await call(at, Tls(authority.ca))
        assert "keeps its certificate: the files have changed and cannot be used" in caplog.text
        authority.node("node")
        await call(at, Tls(authority.ca))
        assert "uses the certificate that was replaced on disk" in caplog.text


async def test_an_expired_certificate_is_an_error_in_the_log_of_its_own_node_until_it_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Found while nobody connects, and the next connection has the new certificate."""
    authority = Authority(tmp_path)
    tls = authority.node(age_days=5, requires=False)

    def errors() -> int:
        return sum("expired on" in record.message and record.levelname == "ERROR" for record in caplog.records)

    async with listening_with(ServerTls("client", tls, MachineClock())) as (at, made):
        assert errors() == 1
        authority.node(age_days=4)
        made.look()
        assert errors() == 2
        made.look()
        assert errors() == 2
        authority.node()
        made.look()
        assert errors() == 2
        assert made.expiry.not_after_s is not None
        assert made.expiry.not_after_s * 1_000 > MachineClock().wall_ms()
        await call(at, Tls(authority.ca))


@asynccontextmanager
async def listening_with(made: ServerTls) -> AsyncIterator[tuple[Endpoint, ServerTls]]:
    server = GrpcServer("client", boundary=Boundary(), tls=made)
    address = server.bind(LOOPBACK)
    server.serve(gates_of({methods.DATA: Service()}), codec_of=messages_of)
    await server.start()
    try:
        yield address, made
    finally:
        await server.stop(0)


async def test_a_client_connects_with_the_certificate_that_is_on_disk_now(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    mine = replace(theirs.client(), ca=ours.ca)  # the node does not know who signed it
    async with listening(ours.node()) as (at, service, _), connected(mine) as transport:
        for _ in range(2):
            with pytest.raises(ClientCertificateRejected):
                await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        replace_files(mine, ours.client("alice"))
        with pytest.raises(TidelogError):  # the failure is the occasion to look at the files
            await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        assert service.principals == ["User:CN=alice"]


async def test_a_call_uses_a_replaced_certificate_without_a_failure_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    mine = authority.client("alice")
    async with listening(authority.node()) as (at, service, _), connected(mine) as transport:
        await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        replace_files(mine, authority.client("bob"))
        await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        assert service.principals == ["User:CN=alice"] * 2, "the files were looked at a moment ago"
        monkeypatch.setattr("tidelog.protocol.grpc_transport.LOOK_AGAIN_S", 0)
        await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        assert service.principals[2:] == ["User:CN=bob"]


async def test_an_open_stream_survives_a_replaced_certificate_and_the_next_one_has_the_new_identity(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    alice = authority.client("alice")
    async with listening(authority.node()) as (at, service, _), connected(alice) as transport:
        first = await transport.open_stream(at, methods.DATA_FETCH_STREAM)
        await first.send(data_pb2.FetchRequest())
        await first.receive()
        replace_files(alice, authority.client("bob"))
        second = await transport.open_stream(at, methods.DATA_FETCH_STREAM)
        await second.send(data_pb2.FetchRequest())
        await second.receive()
        assert service.principals == ["User:CN=alice", "User:CN=bob"]
        await first.send(data_pb2.FetchRequest())
        assert await first.receive() is not None


async def test_a_connection_ends_at_its_age_and_the_next_call_makes_another_one(tmp_path: Path) -> None:
    """A call that crosses the end has an unknown outcome, as on every connection that breaks."""
    authority = Authority(tmp_path)
    tls = replace(authority.node(), age_ms_max=Millis(1_000))
    async with listening(tls) as (at, service, _), connected(authority.client()) as transport:
        async with asyncio.timeout(30):
            while len(set(service.connections)) < 2:
                with suppress(ConnectionLost):
                    await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)


class Advanced(MachineClock):
    """The clock of this machine, some time later."""

    days = 0

    def wall_ms(self) -> Millis:
        return Millis(super().wall_ms() + self.days * 86_400_000)


async def test_a_certificate_that_expires_while_connected_is_refused_at_the_next_call(tmp_path: Path) -> None:
    """gRPC verifies it in the handshake only, and not at all in that of a resumed session."""
    authority, clock = Authority(tmp_path), Advanced()
    async with (
        listening(authority.node(), clock=clock) as (at, service, _),
        connected(authority.client()) as transport,
    ):
        await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        clock.days = 2
        with pytest.raises(ClientCertificateRejected, match=r"has expired since it connected\. Replace it"):
            await transport.call(at, methods.DATA_INIT_PRODUCER_ID, ASK, timeout_ms=CALL_MS)
        with pytest.raises(ClientCertificateRejected):
            stream = await transport.open_stream(at, methods.DATA_FETCH_STREAM)
            await stream.receive()
        assert service.principals == ["User:CN=alice"]


async def test_a_session_is_not_resumed_once_its_authority_was_removed(tmp_path: Path) -> None:
    """With the certificate of the former authority only an abbreviated handshake could succeed."""
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    alice = ours.client("alice")
    assert alice.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # the session is complete with the handshake
    context.load_verify_locations(alice.ca)
    context.load_cert_chain(alice.certificate, alice.key)

    def handshake(at: Endpoint, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
        with (
            socket.create_connection((at.host, at.port), timeout=10) as connection,
            context.wrap_socket(connection, server_hostname=at.host, session=session) as secured,
        ):
            return secured.session, secured.session_reused

    async with listening(ours.node()) as (at, _, _):
        session, _ = handshake(at, None)
        assert handshake(at, session)[1], "the session can be resumed"
        Path(theirs.ca).replace(ours.ca)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            handshake(at, session)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda tls: Path(tls.key_file).unlink(), "node.key: cannot be read"),
        (lambda tls: Path(tls.ca_file).write_text("no PEM"), "ca.pem: contains no certificates in PEM form"),
        (lambda tls: Path(tls.certificate_file).write_text("no PEM"), "are not a certificate and its key"),
        (lambda tls: Path(tls.key_file).write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----"), "key is encrypted"),
    ],
)
def test_a_listener_does_not_start_with_files_that_cannot_be_used(tmp_path: Path, spoil: Any, words: str) -> None:
    tls = Authority(tmp_path).node()
    spoil(tls)
    with pytest.raises(InvalidConfig, match=f"listener 'client': .*{words}"):
        ServerTls("client", tls, MachineClock())


# --- what only nodes may ask ------------------------------------------------------------------------------------------


def is_for_nodes(method: object) -> bool:
    single = (
        "Data.GetReplicaLogInfo",
        "Data.WriteTxnMarkers",
        "Data.LookAtEnds",
        "Transactions.AddOrVerifyPartitions",
        "Transactions.HoldCommits",
    )
    return str(method).startswith(("Quorum.", "Controller.", "RemoteLogs.")) or str(method) in single


async def answers_to_garbage(at: Endpoint, tls: Tls | None) -> dict[str, str]:
    """What each unary RPC answers to bytes that are no message: the class of its error, by the RPC."""
    credentials = None
    if tls is not None:
        credentials = grpc.ssl_channel_credentials(
            _contents(tls.ca), private_key=_contents(tls.key), certificate_chain=_contents(tls.certificate)
        )
    options = [("grpc.enable_http_proxy", 0)]
    channel: Any = (
        grpc.aio.insecure_channel(str(at), options)
        if credentials is None
        else grpc.aio.secure_channel(str(at), credentials, options)
    )
    found = {}
    async with channel:
        for method in methods.ALL:
            if method.kind is CallKind.UNARY:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await channel.unary_unary(method.path)(b"\xff\xff\xff\xff", timeout=10)
                found[str(method)] = type(status.from_rpc_error(refused.value, address=at, phase="")).__name__
    return found


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_listener_for_clients_refuses_what_only_nodes_may_ask_before_it_is_parsed(
    tmp_path: Path, encrypted: bool
) -> None:
    """Every RPC gets bytes that are no message: those for nodes are refused for their name alone, even to a node."""
    authority = Authority(tmp_path)
    tls = authority.node() if encrypted else None
    async with listening(tls, for_nodes=False) as (at, service, boundary):
        for name, answer in (await answers_to_garbage(at, None if tls is None else tls.files)).items():
            assert answer == ("ClusterAuthorizationFailed" if is_for_nodes(name) else "InvalidRequest"), name
        assert service.called == []
        assert boundary.meters.of("Quorum.Vote").errors == {"CLUSTER_AUTHORIZATION_FAILED": 1}


async def test_a_client_with_a_certificate_is_no_node_on_a_listener_for_both(tmp_path: Path) -> None:
    """One authority signs for nodes and clients, and both use one listener: only nodes have certificates of servers."""
    authority = Authority(tmp_path)
    node = authority.node()
    async with listening(node) as (at, service, _):
        for name, answer in (await answers_to_garbage(at, authority.client())).items():
            assert answer == ("ClusterAuthorizationFailed" if is_for_nodes(name) else "InvalidRequest"), name
        assert set((await answers_to_garbage(at, node.files)).values()) == {"InvalidRequest"}
        assert service.called == []
        async with connected(node.files) as transport:
            await transport.call(at, methods.QUORUM_VOTE, quorum_pb2.VoteRequest(), timeout_ms=CALL_MS)
        assert service.principals == ["User:CN=node"]


@pytest.mark.parametrize("encrypted", [False, True])
async def test_a_listener_for_nodes_serves_them(tmp_path: Path, encrypted: bool) -> None:
    """Without required certificates nothing proves who calls: everyone there counts as a node."""
    authority = Authority(tmp_path)
    tls = authority.node(requires=False) if encrypted else None
    async with (
        listening(tls) as (at, service, _),
        connected(None if tls is None else Tls(tls.ca_file)) as transport,
    ):
        await transport.call(at, methods.QUORUM_VOTE, quorum_pb2.VoteRequest(), timeout_ms=CALL_MS)
        assert service.called == ["vote"]


def _contents(path: str | Path | None) -> bytes:
    assert path is not None
    return Path(path).read_bytes()
