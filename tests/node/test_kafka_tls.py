"""TLS of a listener of Kafka's protocol: who is at the other end, and certificates that are replaced."""

from __future__ import annotations

import asyncio
import logging
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from node.boundary.boundary import Boundary
from node.listeners.kafka import kafka_connection, kafka_tls
from node.listeners.kafka.kafka_tls import KafkaTls
from node.security.authorizer import AuditTrail
from node.security.principals import parse_rules
from tests.certificates import Authority
from tests.node.kafka_frames import Connection, fetch, kafka_listener, metadata, produce
from tests.node.kafka_tls_clients import client_of, principal_of, tls_of
from tidelog.clock import MachineClock
from tidelog.types import Millis


def recording() -> tuple[Boundary, list[str]]:
    """A boundary, and the failed authentications that it is told of."""
    failures: list[str] = []

    class Recording(AuditTrail):
        def authentication_failed(
            self, *, listener: str, address: str, mechanism: str, reason: str, claimed_user: str = ""
        ) -> None:
            failures.append(f"{listener} {mechanism}: {reason}")

    return Boundary(audit=Recording()), failures


async def test_the_principal_is_the_subject_of_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    rules = parse_rules("RULE:^CN=(.*)$/$1/U")
    async with kafka_listener(tls=tls_of(replace(authority.node(), mapping_rules=rules))) as listener:
        client = await listener.connect(client_of(authority.client("alice")))
        assert await principal_of(listener, client) == "User:ALICE"
        listener.service.records = bytes(8 << 20)
        client.send(fetch(correlation_id=6))
        assert len(await client.receive()) > 8 << 20


async def test_without_a_certificate_or_with_that_of_others_nobody_connects(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log of the node says who tried, and why not."""
    caplog.set_level(logging.INFO, "node.tls")
    boundary, audited = recording()
    authority, other = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    trusting = replace(other.client("mallory"), ca=authority.ca)
    async with kafka_listener(boundary, tls=tls_of(authority.node())) as listener:
        for context in (client_of(trusting, has_certificate=False), client_of(trusting)):
            with pytest.raises((ssl.SSLError, EOFError, ConnectionError)):  # with TLS 1.3 the first read tells
                client = await listener.connect(context)
                client.send(metadata("topic"))
                await client.reader.readexactly(4)
        plain = await listener.connect()
        plain.send(metadata("topic"))
        assert await plain.is_closed()
        assert listener.service.begun == []
        assert await principal_of(listener, await listener.connect(client_of(authority.client()))) == "User:CN=alice"
    said = [record.getMessage() for record in caplog.records]
    assert all(line.startswith("listener 'kafka': TLS with 127.0.0.1:") for line in said)
    reasons = [line.partition(" failed: ")[2] for line in said]
    assert [reason.partition("]")[0] for reason in reasons[:2]] == [
        "[SSL: PEER_DID_NOT_RETURN_A_CERTIFICATE",
        "[SSL: CERTIFICATE_VERIFY_FAILED",
    ]
    assert len(reasons) == 3  # the words for plain text are OpenSSL's, and change with it
    assert audited == [f"kafka SSL: the TLS handshake failed: {reason}" for reason in reasons]


async def test_a_certificate_that_no_rule_names_is_refused_and_recorded(tmp_path: Path) -> None:
    authority, (boundary, refused) = Authority(tmp_path), recording()
    tls = tls_of(replace(authority.node(), mapping_rules=parse_rules("RULE:^CN=nobody$/x/")))
    async with kafka_listener(boundary, tls=tls) as listener:
        client = await listener.connect(client_of(authority.client()))
        client.send(metadata("topic"))
        assert await client.is_closed()
        assert listener.service.begun == []
    assert len(refused) == 1
    assert refused[0].startswith("kafka SSL: listener 'kafka': no rule of ssl.principal.mapping.rules matches")


async def test_a_listener_may_require_no_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node(requires=False))) as listener:
        client = await listener.connect(client_of(authority.client(), has_certificate=False))
        assert await principal_of(listener, client) == "User:ANONYMOUS"


async def test_the_next_connection_sees_the_certificate_that_was_replaced(tmp_path: Path) -> None:
    """Those that are open continue. Files that do not belong together change nothing."""
    authority = Authority(tmp_path)
    tls = tls_of(authority.node())

    def serial(client: Connection) -> bytes:
        found: bytes = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found

    async with kafka_listener(tls=tls) as listener:
        context = client_of(authority.client())
        first = await listener.connect(context)
        authority.node()
        second = await listener.connect(context)
        assert serial(second) != serial(first)
        key = tmp_path / "node.key"
        key.write_bytes(b"no key")
        third = await listener.connect(context)
        assert serial(third) == serial(second)
        for client in (first, second, third):
            assert await principal_of(listener, client) == "User:CN=alice"


async def test_a_connection_ends_at_its_age_when_its_request_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the latest when the certificate of its client expires: nothing else would tell that it has."""
    authority = Authority(tmp_path)
    tls = tls_of(authority.node())
    assert tls.lifetime_ms(None) == 3_600_000
    monkeypatch.setattr(KafkaTls, "lifetime_ms", lambda *_: 0)
    async with kafka_listener(tls=tls) as listener:
        held = listener.service.holds["held"] = asyncio.Event()
        client = await listener.connect(client_of(authority.client()))
        client.send(metadata("held", correlation_id=4))
        await listener.service.until_begun(1)
        (connection,) = listener.state.connections
        connection.check()
        held.set()
        assert await client.correlation_id() == 4
        await listener.until(lambda: not connection.is_busy)
        connection.check()
        assert await client.is_closed()

        late = listener.service.holds["late"] = asyncio.Event()
        client = await listener.connect(client_of(authority.client()))
        client.send(metadata("late"))
        await listener.service.until_begun(2)
        monkeypatch.setattr(kafka_connection, "GRACE_MS", 0)
        (connection,) = listener.state.connections
        connection.check()
        assert await client.is_closed()
        late.set()


def test_a_certificate_that_expires_before_the_age_ends_the_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = KafkaTls("kafka", replace(authority.node(), age_ms_max=Millis(10**9)), MachineClock())
    assert authority.client().certificate is not None
    der = ssl.PEM_cert_to_DER_cert(Path(str(authority.client().certificate)).read_text(encoding="ascii"))
    assert 23 * 3_600_000 < tls.lifetime_ms(der) <= 24 * 3_600_000


async def test_an_answer_that_nobody_reads_is_encrypted_only_as_far_as_the_socket_takes_it(tmp_path: Path) -> None:
    """OpenSSL keeps as much memory for a connection as it has ever had to encrypt at once: a large answer cost more
    than its size until the end of the connection."""
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node())) as listener:
        records = listener.service.records = bytes(range(256)) * (16 << 12)
        client = await listener.connect(client_of(authority.client()))
        client.send(fetch(), metadata("topic", correlation_id=2))
        await listener.until(lambda: any(each._blocked_s is not None for each in listener.state.connections))
        (transport,) = listener.state.accepted.values()
        assert transport.get_protocol()._outgoing.pending <= 2 * kafka_tls.PIECE_BYTES
        assert records in await client.receive()
        assert await client.correlation_id() == 2


async def test_connections_read_into_one_buffer_and_get_their_own_bytes(tmp_path: Path) -> None:
    """asyncio has a buffer of 256 KiB for each, most of which are idle."""
    authority = Authority(tmp_path)
    async with kafka_listener(tls=tls_of(authority.node())) as listener:
        clients = [await listener.connect(client_of(authority.client(name))) for name in ("a", "b")]
        sockets = [each.get_protocol() for each in listener.state.accepted.values()]
        assert sockets[0]._ssl_buffer is sockets[1]._ssl_buffer
        frames = [produce(letter * 500_000) for letter in (b"a", b"b")]
        for begin in range(0, len(frames[0]), 50_000):
            for client, frame in zip(clients, frames, strict=True):
                client.send(frame[begin : begin + 50_000])
                await client.writer.drain()
        await listener.service.until_begun(2)
        found = {bytes(each.partitions[0].records) for each in listener.service.begun}
        assert found == {b"a" * 500_000, b"b" * 500_000}
