"""Clients of a listener that requires SASL: whole nodes, real gRPC, the clients that everyone uses."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from node.security.principals import parse_rules
from node.security.sasl_settings import SaslConfig
from tests.certificates import Authority
from tests.node.real_nodes import CALL_MS, OPERATOR, OUTSIDE, RealNodes, real_nodes, repeated
from tests.node.sasl_nodes import (
    ALICE,
    ensure_records_arrive,
    inside,
    knows_alice,
    outside,
    topics_of_a_synchronous_client,
    transport_of,
)
from tidelog import Admin, Consumer, Producer, Sasl, Tls
from tidelog.client import fetch_core
from tidelog.errors import (
    ConnectionFailed,
    ConnectionLost,
    IllegalSaslState,
    InvalidConfig,
    SaslAuthenticationFailed,
    SaslSessionEnded,
    TidelogError,
    TlsHandshakeFailed,
    TopicAuthorizationFailed,
    UnsupportedSaslMechanism,
)
from tidelog.protocol import grpc_transport, methods
from tidelog.protocol.grpc_transport import GrpcTransport
from tidelog.protocol.rpc import CallKind
from tidelog.protocol.sasl_client import SESSION_KEY, SaslClient
from tidelog.protocol.status import from_rpc_error
from tidelog.protocol.v1 import admin_pb2, data_pb2, sasl_pb2
from tidelog.types import Endpoint, Millis, ScramMechanism

FETCH = data_pb2.FetchRequest(max_wait_ms=CALL_MS, min_bytes=1)


def config(lifetime_ms: int = 3_600_000, *mechanisms: ScramMechanism) -> SaslConfig:
    return SaslConfig(
        mechanisms or tuple(ScramMechanism),
        lifetime_ms=Millis(lifetime_ms),
        failure_delay_ms=Millis(50),
    )


@asynccontextmanager
async def sasl_nodes(home: Path, count: int = 1, sasl: SaslConfig | None = None) -> AsyncIterator[RealNodes]:
    """Nodes with the user alice, and the topic orders."""
    async with real_nodes(home, count, sasl=sasl or config()) as nodes:
        async with Admin(inside(nodes)) as admin:
            await repeated(lambda: admin.set_password("alice", "tulip", iterations=4_096))
            await repeated(lambda: admin.create_topic("orders", replication_factor=count))
        await nodes.wait_until(lambda: all(knows_alice(nodes, number) for number in nodes.nodes))
        yield nodes


async def test_all_clients_log_in_at_every_node_and_records_go_through(tmp_path: Path) -> None:
    """With the asynchronous and the synchronous clients, over three nodes, while one of them is restarted."""
    password = tmp_path / "password"
    password.write_text("tulip\n")
    alice = Sasl("alice", password_file=str(password), mechanism="SCRAM-SHA-256")
    async with sasl_nodes(tmp_path, 3) as nodes:
        async with Admin(outside(nodes), sasl=alice) as admin, Producer(outside(nodes), sasl=alice) as producer:
            assert [user.name for user in await admin.list_users()] == ["alice", "alice"]
            await producer.send("orders", b"first")
            await nodes.stop(1)
            await nodes.start(1)
            await nodes.wait_whole()
            await producer.send("orders", b"second")
        await ensure_records_arrive(nodes, alice, [b"first", b"second"])
        assert await topics_of_a_synchronous_client(nodes, alice) == ["orders"]


@pytest.mark.parametrize(
    ("sasl", "at", "error", "says"),
    [
        (None, "outside", IllegalSaslState, "requires SASL"),
        (Sasl("alice", "wrong"), "outside", SaslAuthenticationFailed, "wrong user name or password"),
        (Sasl("nobody", "tulip"), "outside", SaslAuthenticationFailed, "wrong user name or password"),
        (Sasl("alice", "tulip", mechanism="SCRAM-SHA-512"), "outside", UnsupportedSaslMechanism, "SCRAM-SHA-256"),
        (ALICE, "inside", IllegalSaslState, "has no SASL"),
        (Sasl("alice", password_file="/no/such/file"), "outside", InvalidConfig, "No such file"),
    ],
    ids=["none", "wrong password", "unknown user", "mechanism", "no SASL", "no file"],
)
async def test_each_cause_of_a_refusal_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sasl: Sasl | None,
    at: str,
    error: type[TidelogError],
    says: str,
) -> None:
    monkeypatch.setattr(fetch_core, "REFUSED_CLIENT_MS", 100)  # the node knows its users already
    async with sasl_nodes(tmp_path, sasl=config(60_000, ScramMechanism.SCRAM_SHA_256)) as nodes:
        named = sasl
        if named is not None and error is SaslAuthenticationFailed:
            named = Sasl(named.username, named.password, mechanism="SCRAM-SHA-256")
        address = (nodes.outside if at == "outside" else nodes.addresses)[0]
        async with transport_of(named) as transport:
            with pytest.raises(error, match=says) as refused:
                await transport.call(
                    address, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(), timeout_ms=CALL_MS
                )
            assert "tulip" not in str(refused.value)
            with pytest.raises(error, match=says):
                stream = await transport.open_stream(address, methods.DATA_FETCH_STREAM)
                await stream.receive()
        async with Admin(str(address), sasl=named) as admin:
            with pytest.raises(error, match=says):
                await admin.describe_cluster()
        async with Consumer(str(address), sasl=named) as consumer, Producer(str(address), sasl=named) as producer:
            consumer.assign([("orders", 0)])
            with pytest.raises(error, match=says):
                await producer.send("orders", b"refused")
            with pytest.raises(error, match=says):
                await consumer.poll(timeout=CALL_MS / 1000)


async def test_nothing_of_a_request_is_read_before_its_caller_is_known(tmp_path: Path) -> None:
    """Garbage gets the answer that a request without a session gets, on every RPC, and so does a made-up token."""
    async with sasl_nodes(tmp_path) as nodes:
        async with grpc.aio.insecure_channel(str(nodes.outside[0])) as channel:
            for method in methods.ALL:
                if method.kind is CallKind.STREAM or method is methods.SASL_AUTHENTICATE:
                    continue
                for metadata, error in ((None, IllegalSaslState), (((SESSION_KEY, "x" * 43),), SaslSessionEnded)):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        ask: Any = channel.unary_unary(method.path)
                        await ask(b"\xff" * 100, metadata=metadata)
                    answered = from_rpc_error(refused.value, address=nodes.outside[0], phase=str(method))
                    assert type(answered) is error, method
        assert not nodes.nodes[0].defects


@pytest.mark.parametrize("change", ["removed", "changed"])
async def test_the_streams_of_a_user_end_with_its_credential(tmp_path: Path, change: str) -> None:
    async with sasl_nodes(tmp_path) as nodes, transport_of(ALICE) as transport:
        address = nodes.outside[0]
        stream = await transport.open_stream(address, methods.DATA_FETCH_STREAM)
        await stream.send(FETCH)
        async with Admin(inside(nodes)) as admin:
            if change == "removed":
                await admin.remove_user("alice")
            else:
                await admin.set_password("alice", "orchid", iterations=4_096)
        with pytest.raises(SaslSessionEnded, match="changed, or the user was removed"):
            await stream.receive()
        with pytest.raises(SaslAuthenticationFailed):
            await transport.open_stream(address, methods.DATA_FETCH_STREAM)


async def test_clients_whose_password_file_follows_a_change_go_on_and_lose_nothing(tmp_path: Path) -> None:
    """The node ends their streams; they authenticate with the new password, and each record is there once."""
    password = tmp_path / "password"
    password.write_text("tulip")
    alice = Sasl("alice", password_file=str(password))
    async with sasl_nodes(tmp_path) as nodes, Admin(inside(nodes)) as admin:
        sessions = nodes.nodes[0].node.sasl.sessions
        async with (
            Producer(outside(nodes), sasl=alice) as producer,
            Consumer(outside(nodes), sasl=alice) as consumer,
        ):
            consumer.assign([("orders", 0)])
            await producer.send("orders", b"0")
            read = [record.value for record in await consumer.poll(timeout=CALL_MS / 1000)]
            before = sessions.of("alice")
            assert {len(session.streams) for session in before} == {1}
            password.write_text("orchid")
            await admin.set_password("alice", "orchid", iterations=4_096)
            assert not set(before) & set(sessions.of("alice"))
            sent = await asyncio.gather(*(producer.send("orders", b"%d" % number) for number in range(1, 20)))
            assert sorted(result.offset for result in sent) == list(range(1, 20))
            while len(read) < 20:
                read += [record.value for record in await consumer.poll()]
            assert sorted(read, key=lambda value: int(value or b"")) == [b"%d" % number for number in range(20)]


async def test_sessions_are_extended_before_they_expire_and_nothing_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that is open for several lifetimes, and calls all the while: no error, one session, new tokens. The
    session is extended early, so that no pause of the machine ends it first."""
    monkeypatch.setattr("tidelog.protocol.sasl_client.RENEW_AFTER", (0.2, 0.3))
    async with sasl_nodes(tmp_path, sasl=config(lifetime_ms=2_000)) as nodes, transport_of(ALICE) as transport:
        address, sessions = nodes.outside[0], nodes.nodes[0].node.sasl.sessions
        stream = await transport.open_stream(address, methods.DATA_FETCH_STREAM)
        receiving = asyncio.get_running_loop().create_task(stream.receive())
        assert transport._sasl is not None
        tokens = {await transport._sasl.token_of(address, CALL_MS)}
        while len(tokens) < 10:  # some 5 s
            await transport.call(
                address, methods.ADMIN_GET_METADATA, admin_pb2.GetMetadataRequest(), timeout_ms=CALL_MS
            )
            tokens.add(await transport._sasl.token_of(address, CALL_MS))
            assert not receiving.done()
        assert len(sessions) == 1
        stream.close()
        with pytest.raises(ConnectionLost):
            await receiving


async def test_a_session_that_is_not_used_is_left_to_expire(tmp_path: Path) -> None:
    async with sasl_nodes(tmp_path, sasl=config(lifetime_ms=1_500)) as nodes, transport_of(ALICE) as transport:
        sessions = nodes.nodes[0].node.sasl.sessions
        question = admin_pb2.GetMetadataRequest()
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, question, timeout_ms=CALL_MS)
        assert len(sessions) == 1
        await nodes.wait_until(lambda: len(sessions) == 0)
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, question, timeout_ms=CALL_MS)


async def test_a_restarted_node_costs_a_client_one_more_handshake_and_no_request(tmp_path: Path) -> None:
    async with sasl_nodes(tmp_path) as nodes, transport_of(ALICE) as transport:
        question = admin_pb2.GetMetadataRequest()
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, question, timeout_ms=CALL_MS)
        await nodes.stop(0)
        await nodes.start(0)
        await nodes.wait_until(lambda: knows_alice(nodes, 0))
        sessions = nodes.nodes[0].node.sasl.sessions
        assert len(sessions) == 0
        stream = await transport.open_stream(nodes.outside[0], methods.DATA_FETCH_STREAM)
        assert len(sessions) == 1
        stream.close()
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, question, timeout_ms=CALL_MS)


async def test_many_calls_at_once_wait_for_one_handshake(tmp_path: Path) -> None:
    async with sasl_nodes(tmp_path) as nodes, transport_of(ALICE) as transport:
        question = admin_pb2.GetMetadataRequest()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(100):
                call = transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, question, timeout_ms=CALL_MS)
                tasks.create_task(call)
        assert len(nodes.nodes[0].node.sasl.sessions) == 1


async def test_a_node_that_only_pretends_gets_no_token_used(tmp_path: Path) -> None:
    """It relays the messages of a real node up to the proof, and cannot prove that it knows the credential."""
    async with sasl_nodes(tmp_path) as nodes:
        client = SaslClient(ALICE, random.Random(5))
        async with transport_of(None) as transport:

            async def pretend(to: Any, request: Any, timeout_ms: int) -> sasl_pb2.AuthenticateResponse:
                if not request.handshake:
                    return await transport.call(to, methods.SASL_AUTHENTICATE, request, timeout_ms=timeout_ms)
                return sasl_pb2.AuthenticateResponse(auth_bytes=b"v=AAAA", token="x")

            client.connect(pretend)
            with pytest.raises(SaslAuthenticationFailed, match="did not prove"):
                await client.token_of(nodes.outside[0], CALL_MS)
            await client.close()


async def test_a_node_that_never_accepts_a_stream_does_not_hold_up_its_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is connected, and gRPC's threads answer its pings: only the event loop of the node hangs."""

    class Hanging(grpc.GenericRpcHandler):
        def service(self, _details: Any) -> Any:
            async def never(_requests: Any, _call: Any) -> None:
                await asyncio.get_running_loop().create_future()

            return grpc.stream_stream_rpc_method_handler(never)

    class LoggedIn(SaslClient):
        async def token_of(self, to: Endpoint, timeout_ms: int) -> str:
            return "a token"

    monkeypatch.setattr(grpc_transport, "ACCEPT_TIMEOUT_MS", 100)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Hanging(),))
    at = Endpoint("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    transport = GrpcTransport(sasl=LoggedIn(ALICE, random.Random(5)))
    with pytest.raises(ConnectionFailed, match=f"{at}: the node does not accept the stream within 100 ms"):
        await transport.open_stream(at, methods.DATA_FETCH_STREAM)
    await transport.close()
    await server.stop(0)


async def test_with_tls_the_user_is_the_principal_whatever_certificate_the_connection_has(tmp_path: Path) -> None:
    """As in Kafka. No rule maps the certificate to a principal, and none is needed: it only opens the connection."""
    authority = Authority(tmp_path / "certificates")
    tls = replace(authority.node(), mapping_rules=parse_rules("RULE:CN=nobody/other/"))
    async with real_nodes(tmp_path, tls={OUTSIDE: tls}, sasl=config()) as nodes:
        async with Admin(str(nodes.further[OPERATOR][0])) as operator:
            await operator.set_password("alice", "tulip", iterations=4_096)
        bob = authority.client("bob")
        async with Producer(outside(nodes), tls=bob, sasl=ALICE) as producer:
            with pytest.raises(TopicAuthorizationFailed, match="User:alice has no permission"):
                await producer.send("orders", b"refused")
        for files, user, error in ((bob, None, IllegalSaslState), (Tls(authority.ca), ALICE, TlsHandshakeFailed)):
            async with Admin(outside(nodes), patience_ms=0, tls=files, sasl=user) as admin:
                with pytest.raises(error):
                    await admin.describe_cluster()


async def test_failures_to_authenticate_are_recorded_and_the_end_of_a_session_is_none(tmp_path: Path) -> None:
    async with sasl_nodes(tmp_path) as nodes:
        question = admin_pb2.GetMetadataRequest()
        for user, error in ((None, IllegalSaslState), (Sasl("alice", "wrong"), SaslAuthenticationFailed)):
            async with transport_of(user) as transport:
                with pytest.raises(error):
                    await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, question, timeout_ms=CALL_MS)
        async with grpc.aio.insecure_channel(str(nodes.outside[0])) as channel:
            ask: Any = channel.unary_unary(methods.ADMIN_GET_METADATA.path)
            with pytest.raises(grpc.aio.AioRpcError):
                await ask(b"", metadata=((SESSION_KEY, "of no session"),))
        failed = [event for event in map(json.loads, nodes.audit) if event["event"] != "change"]
        assert [(event["event"], event["listener"], event["mechanism"]) for event in failed] == [
            ("authentication_failed", "outside", "SASL"),
            ("authentication_failed", "outside", "SCRAM-SHA-512"),
        ]
        assert "wrong user name or password" in failed[1]["reason"]
