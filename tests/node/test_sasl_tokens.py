"""Clients that authenticate with tokens (OAUTHBEARER): whole nodes, real gRPC, an identity provider on loopback."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from node.security import provider_keys
from node.security.sasl_settings import SaslConfig
from tests.certificates import Authority
from tests.identity_provider import IdentityProvider, accepting
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
from tidelog.errors import (
    ClusterAuthorizationFailed,
    IllegalSaslState,
    InvalidConfig,
    InvalidRequest,
    SaslAuthenticationFailed,
    SaslSessionEnded,
    TidelogError,
    TooManyHandshakes,
    TopicAuthorizationFailed,
    UnsupportedSaslMechanism,
)
from tidelog.protocol import methods
from tidelog.protocol.v1 import admin_pb2, controller_pb2, data_pb2, sasl_pb2
from tidelog.security.oauth_bearer import INVALID_TOKEN, first_message
from tidelog.types import Millis, ScramMechanism, TokenMechanism

OAUTHBEARER = TokenMechanism.OAUTHBEARER
QUESTION = admin_pb2.GetMetadataRequest()


def config(url: str, lifetime_ms: int = 3_600_000, failure_delay_ms: int = 50) -> SaslConfig:
    return SaslConfig(
        (*ScramMechanism, OAUTHBEARER),
        lifetime_ms=Millis(lifetime_ms),
        failure_delay_ms=Millis(failure_delay_ms),
        oauth=accepting(url),
    )


@asynccontextmanager
async def token_nodes(
    home: Path, url: str, count: int = 1, lifetime_ms: int = 3_600_000, failure_delay_ms: int = 50
) -> AsyncIterator[RealNodes]:
    """Nodes that accept tokens and passwords on one listener, with the topic orders."""
    async with real_nodes(home, count, sasl=config(url, lifetime_ms, failure_delay_ms)) as nodes:
        async with Admin(inside(nodes)) as admin:
            await repeated(lambda: admin.set_password("alice", "tulip", iterations=4_096))
            await repeated(lambda: admin.create_topic("orders", replication_factor=count))
        await nodes.wait_until(lambda: all(knows_alice(nodes, number) for number in nodes.nodes))
        yield nodes


async def ask(nodes: RealNodes, sasl: Sasl) -> None:
    """One call, with a session of its own."""
    async with transport_of(sasl) as transport:
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, QUESTION, timeout_ms=CALL_MS)


def of(*tokens: str) -> Sasl:
    """A user with these tokens, one after the other; the last one stays."""
    left = list(tokens)
    return Sasl(token=lambda: left.pop(0) if len(left) > 1 else left[0])


async def test_all_clients_log_in_with_tokens_beside_others_with_passwords(tmp_path: Path) -> None:
    """Over three nodes and one listener; the tokens from a file and from a function, the keys from a server."""
    provider, file = IdentityProvider(), tmp_path / "token"
    file.write_text(f"{provider.token('billing')}\n")
    billing = Sasl(token_file=str(file))

    async def token() -> str:
        return provider.token("shop")

    with provider.serving() as url:
        async with token_nodes(tmp_path, url, 3) as nodes:
            async with Producer(outside(nodes), sasl=billing) as producer:
                await producer.send("orders", b"first")
            async with Producer(outside(nodes), sasl=ALICE) as producer:
                await producer.send("orders", b"second")
            await ensure_records_arrive(nodes, Sasl(token=token), [b"first", b"second"])
            assert await topics_of_a_synchronous_client(nodes, billing) == ["orders"]
            users = {user for each in nodes.nodes.values() for user in each.node.sasl.sessions._of_user}
            assert users == {"billing", "shop", "alice"}
            assert provider.gets == 3, "once for each node"


async def test_each_cause_of_a_refusal_is_named_logged_and_recorded_without_the_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = IdentityProvider()
    stranger.rotate()

    with caplog.at_level(logging.INFO):
        provider = IdentityProvider()
        cases = [
            (provider.token(lasts_s=-1), SaslAuthenticationFailed, "has expired"),
            (provider.token(iss="https://other.example.org"), SaslAuthenticationFailed, "another issuer"),
            (provider.token(aud="billing"), SaslAuthenticationFailed, "another audience"),
            (provider.token("cluster"), SaslAuthenticationFailed, "reserved for the nodes"),
            (stranger.token(), SaslAuthenticationFailed, "not among those of sasl.oauthbearer"),
            ("no.jwt.atall", SaslAuthenticationFailed, "not a JSON Web Token"),
            (f"{provider.token()}A", SaslAuthenticationFailed, "OAUTHBEARER"),
        ]
        async with token_nodes(tmp_path, provider.write(tmp_path / "keys")) as nodes:
            for token, error, says in cases:
                with pytest.raises(error, match=says) as refused:
                    await ask(nodes, of(token))
                assert token not in str(refused.value)
            recorded = [json.loads(line) for line in nodes.audit]
            failed = [each for each in recorded if each["event"] == "authentication_failed"]
            suppressed = len(cases) - 1  # of one address and mechanism in 10 s
            assert [each["mechanism"] for each in failed] == ["OAUTHBEARER"]
            assert "has expired" in failed[0]["reason"]
            assert failed[0]["claimed_user"] == "alice", "the signature was verified"
            nodes.nodes[0].boundary.audit.close()  # type: ignore[attr-defined]
            left_out = [json.loads(line) for line in nodes.audit][-1]
            assert (left_out["event"], left_out["count"]) == ("suppressed", suppressed)
            for token, _, _ in cases:
                assert token not in "".join(nodes.audit)
                assert token not in caplog.text
            assert len(nodes.nodes[0].node.sasl.sessions) == 0
            assert not nodes.nodes[0].defects
    logged = [record for record in caplog.records if record.getMessage() == "authentication failed"]
    assert len(logged) == 7
    assert {record.mechanism for record in logged} == {"OAUTHBEARER"}  # type: ignore[attr-defined]
    named = [record.__dict__.get("user") for record in logged]
    assert named == ["alice", None, None, "cluster", None, None, None], "no name without a verified signature"


async def test_a_refused_token_is_answered_as_the_standard_says_and_recorded_though_the_caller_leaves(
    tmp_path: Path,
) -> None:
    provider = IdentityProvider()
    async with token_nodes(tmp_path, provider.write(tmp_path / "keys")) as nodes, transport_of(None) as transport:

        async def send(data: bytes, handshake: bytes = b"") -> sasl_pb2.AuthenticateResponse:
            request = sasl_pb2.AuthenticateRequest(mechanism="OAUTHBEARER", auth_bytes=data, handshake=handshake)
            return await transport.call(nodes.outside[0], methods.SASL_AUTHENTICATE, request, timeout_ms=CALL_MS)

        def recorded() -> list[str]:
            return [line for line in nodes.audit if "authentication_failed" in line]

        answer = await send(first_message(provider.token(lasts_s=-1)))
        assert (answer.auth_bytes, answer.token) == (INVALID_TOKEN, "")
        assert len(recorded()) == 1
        with pytest.raises(SaslAuthenticationFailed, match="expired"):
            await send(b"\x01", answer.handshake)
        with pytest.raises(SaslSessionEnded):
            await send(b"\x01", answer.handshake)
        assert len(recorded()) == 1
        for wrong in (b"", b"n,,\x01\x01", first_message("x" * 16_385), b"\xff"):
            with pytest.raises(InvalidRequest):
                await send(wrong)
        other = first_message(provider.token()).replace(b"n,,", b"n,a=bob,")
        assert (await send(other)).auth_bytes == INVALID_TOKEN
        same = first_message(provider.token()).replace(b"n,,", b"n,a=alice,")
        accepted = await send(same)
        assert (accepted.principal, accepted.auth_bytes, accepted.handshake) == ("User:alice", b"", b"")
        assert 500_000 < accepted.session_lifetime_ms <= 600_000, "by the token, which ends first"


async def test_attempts_with_wrong_tokens_are_bounded_as_those_with_wrong_passwords(tmp_path: Path) -> None:
    """The delay is long enough for all of them to arrive before the first one leaves its place."""
    provider = IdentityProvider()
    async with (
        token_nodes(tmp_path, provider.write(tmp_path / "keys"), failure_delay_ms=4_000) as nodes,
        transport_of(None) as transport,
    ):
        message = first_message(provider.token(lasts_s=-1))
        request = sasl_pb2.AuthenticateRequest(mechanism="OAUTHBEARER", auth_bytes=message)
        sent = [
            transport.call(nodes.outside[0], methods.SASL_AUTHENTICATE, request, timeout_ms=CALL_MS) for _ in range(100)
        ]
        ended = await asyncio.gather(*sent, return_exceptions=True)
        assert sum(isinstance(each, TooManyHandshakes) for each in ended) == 36


async def test_the_keys_rotate_at_the_provider_and_sessions_of_a_withdrawn_key_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_keys, "FILE_CHECK_MS", 200)
    provider, path = IdentityProvider(), tmp_path / "keys"
    async with token_nodes(tmp_path, provider.write(path)) as nodes:
        former, address = provider.token(), nodes.outside[0]
        async with transport_of(of(former)) as transport:
            stream = await transport.open_stream(address, methods.DATA_FETCH_STREAM)
            provider.rotate()
            provider.write(path)
            await ask(nodes, of(provider.token()))
            await ask(nodes, of(former))
            provider.rotate(keep=False)
            provider.write(path)
            with pytest.raises(SaslSessionEnded, match="withdrawn the key"):
                await stream.receive()
            with pytest.raises(SaslAuthenticationFailed, match="not among those"):
                await transport.open_stream(address, methods.DATA_FETCH_STREAM)
        await ask(nodes, of(provider.token()))


async def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    provider = IdentityProvider()
    async with (
        token_nodes(tmp_path, provider.write(tmp_path / "keys")) as nodes,
        transport_of(of(provider.token(lasts_s=3))) as transport,
    ):
        stream = await transport.open_stream(nodes.outside[0], methods.DATA_FETCH_STREAM)
        await stream.send(data_pb2.FetchRequest(max_wait_ms=CALL_MS, min_bytes=1))
        with pytest.raises(SaslSessionEnded, match="User:alice has expired"):
            await stream.receive()
        with pytest.raises(SaslAuthenticationFailed, match="token has expired"):
            await transport.open_stream(nodes.outside[0], methods.DATA_FETCH_STREAM)


async def test_a_consumer_streams_on_while_its_tokens_are_replaced_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each token lasts 2 s; the session is extended by the next one, and its streams go on. It is extended early, so
    that no pause of the machine ends it first."""
    monkeypatch.setattr("tidelog.protocol.sasl_client.RENEW_AFTER", (0.2, 0.3))
    provider, given = IdentityProvider(), list[str]()

    def token() -> str:
        given.append(provider.token("reader", lasts_s=2))
        return given[-1]

    with provider.serving() as url:
        async with (
            token_nodes(tmp_path, url) as nodes,
            Producer(outside(nodes), sasl=ALICE) as producer,
            Consumer(outside(nodes), sasl=Sasl(token=token)) as consumer,
        ):
            consumer.assign([("orders", 0)])
            sessions, read, sent = nodes.nodes[0].node.sasl.sessions, list[bytes | None](), 0
            streams = set[int]()
            while len(given) < 12:  # some 6 s
                await producer.send("orders", b"%d" % sent)
                sent += 1
                read += [record.value for record in await consumer.poll(timeout=0.02)]
                streams |= {id(stream) for session in sessions.of("reader") for stream in session.streams}
            while len(read) < sent:
                read += [record.value for record in await consumer.poll()]
            assert read == [b"%d" % number for number in range(sent)]
            assert len(sessions.of("reader")) == 1
            assert len(streams) == 1, "the stream was never ended"


async def test_a_consumer_whose_session_ended_goes_on_with_a_new_token_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is replaced too late to extend the session: the node ends the stream, and the client begins again."""
    provider, file = IdentityProvider(), tmp_path / "token"
    file.write_text(provider.token("reader", lasts_s=3))
    async with (
        token_nodes(tmp_path, provider.write(tmp_path / "keys")) as nodes,
        Producer(outside(nodes), sasl=ALICE) as producer,
    ):
        file.write_text(provider.token("reader", lasts_s=3))
        async with Consumer(outside(nodes), sasl=Sasl(token_file=str(file))) as consumer:
            consumer.assign([("orders", 0)])
            await producer.send("orders", b"0")
            read = [record.value for record in await consumer.poll(timeout=CALL_MS / 1000)]
            (session,) = nodes.nodes[0].node.sasl.sessions.of("reader")
            await producer.send("orders", b"1")
            sessions = nodes.nodes[0].node.sasl.sessions
            (stream,) = session.streams
            end = type(stream).end_with

            def end_with(ended: Any, error: TidelogError) -> None:
                file.write_text(provider.token("reader"))
                end(ended, error)

            monkeypatch.setattr(type(stream), "end_with", end_with)
            while len(read) < 2 or session in sessions.of("reader"):
                read += [record.value for record in await consumer.poll(timeout=0.05)]
            await producer.send("orders", b"2")
            while len(read) < 3:
                read += [record.value for record in await consumer.poll()]
            assert read == [b"0", b"1", b"2"]


async def test_changes_of_passwords_do_not_end_sessions_of_tokens(tmp_path: Path) -> None:
    """Not even where both name the same user."""
    provider = IdentityProvider()
    async with (
        token_nodes(tmp_path, provider.write(tmp_path / "keys")) as nodes,
        transport_of(of(provider.token("alice"))) as transport,
        Admin(inside(nodes)) as admin,
    ):
        sessions = nodes.nodes[0].node.sasl.sessions
        await ask(nodes, ALICE)
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, QUESTION, timeout_ms=CALL_MS)
        assert len(sessions.of("alice")) == 2
        await admin.set_password("alice", "orchid", iterations=4_096)
        assert len(sessions.of("alice")) == 1
        await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, QUESTION, timeout_ms=CALL_MS)
        assert len(sessions.of("alice")) == 1


async def test_another_user_cannot_extend_a_session(tmp_path: Path) -> None:
    provider = IdentityProvider()
    async with token_nodes(tmp_path, provider.write(tmp_path / "keys")) as nodes, transport_of(None) as transport:
        address = nodes.outside[0]

        async def log_in(token: str, renewed: str = "") -> sasl_pb2.AuthenticateResponse:
            request = sasl_pb2.AuthenticateRequest(
                mechanism="OAUTHBEARER", auth_bytes=first_message(token), renewed=renewed
            )
            return await transport.call(address, methods.SASL_AUTHENTICATE, request, timeout_ms=CALL_MS)

        alice = await log_in(provider.token("alice"))
        refused = await log_in(provider.token("bob"), alice.token)
        assert (refused.token, refused.auth_bytes) == ("", INVALID_TOKEN)
        assert len(nodes.nodes[0].node.sasl.sessions) == 1
        longer = await log_in(provider.token("alice", lasts_s=3_000), alice.token)
        assert longer.session_lifetime_ms > 2_900_000
        assert len(nodes.nodes[0].node.sasl.sessions) == 1


async def test_the_user_of_a_token_has_its_permissions_and_is_no_node(tmp_path: Path) -> None:
    """Over TLS, where tokens belong."""
    provider, authority = IdentityProvider(), Authority(tmp_path / "certificates")
    sasl, tls = config(provider.write(tmp_path / "keys")), {OUTSIDE: authority.node(requires=False)}
    billing = of(provider.token("billing"))
    async with real_nodes(tmp_path, tls=tls, sasl=sasl) as nodes:
        async with Admin(str(nodes.further[OPERATOR][0])) as operator:
            await operator.create_topic("orders", replication_factor=1)
        async with Producer(outside(nodes), tls=Tls(authority.ca), sasl=billing) as producer:
            with pytest.raises(TopicAuthorizationFailed, match="User:billing has no permission"):
                await producer.send("orders", b"refused")
    async with (
        token_nodes(tmp_path / "other", provider.write(tmp_path / "keys")) as nodes,
        transport_of(billing) as transport,
    ):
        with pytest.raises(ClusterAuthorizationFailed, match="User:billing"):
            await transport.call(
                nodes.outside[0],
                methods.CONTROLLER_REGISTER_NODE,
                controller_pb2.RegisterNodeRequest(),
                timeout_ms=CALL_MS,
            )


async def test_a_listener_says_what_it_does_not_offer(tmp_path: Path) -> None:
    provider = IdentityProvider()
    async with real_nodes(tmp_path, sasl=SaslConfig()) as nodes:
        with pytest.raises(UnsupportedSaslMechanism, match="'OAUTHBEARER'; use one of SCRAM-SHA-256, SCRAM-SHA-51"):
            await ask(nodes, of(provider.token()))
    async with (
        token_nodes(tmp_path / "other", provider.write(tmp_path / "keys")) as nodes,
        transport_of(None) as transport,
    ):
        with pytest.raises(IllegalSaslState, match="a password, or with OAUTHBEARER a token"):
            await transport.call(nodes.outside[0], methods.ADMIN_GET_METADATA, QUESTION, timeout_ms=CALL_MS)


async def test_a_node_without_the_keys_of_its_file_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        async with token_nodes(tmp_path, f"file://{tmp_path}/none"):
            pass
