"""SASL on a listener of Kafka's protocol, in frames: the login, what is served before it, how a session ends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from node.boundary.boundary import Boundary
from node.listeners.kafka import kafka_connection
from node.listeners.kafka.kafka_apis import KAFKA_APIS
from node.listeners.kafka.kafka_connection import LOGIN_BYTES_MAX
from node.listeners.kafka.kafka_tls import KafkaTls
from node.requests.context import RequestContext
from node.security.authorizer import AuditTrail
from node.security.handshake_places import OF_ADDRESS_MAX
from node.security.principals import parse_rules
from node.security.sasl_authenticator import HANDSHAKE_MS
from replication.controller.image import EMPTY
from tests.certificates import Authority
from tests.node.kafka_frames import (
    Connection,
    Listener,
    both_ways,
    decoded,
    framed,
    kafka_listener,
    metadata,
)
from tests.node.kafka_frames import request_frame as frame
from tests.node.kafka_tls_clients import client_of
from tests.node.sasl_world import CONFIG, LIFETIME_MS, SHA_256, SHA_512, World, image_of, user
from tidelog.clock import MachineClock
from tidelog.security.scram import ScramClient, derive_keys
from tidelog.types import Millis, PasswordMechanism, ScramMechanism

DELAY_MS = CONFIG.failure_delay_ms
NONE, UNSUPPORTED, ILLEGAL_STATE, FAILED = 0, 33, 34, 58
WITH_PLAIN = replace(CONFIG, mechanisms=(SHA_256, SHA_512, PasswordMechanism.PLAIN))


class Trail(AuditTrail):
    """Failed authentications: mechanism, claimed user, reason."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str, str]] = []

    def authentication_failed(
        self, *, listener: str, address: str, mechanism: str, reason: str, claimed_user: str = ""
    ) -> None:
        assert listener == "kafka"
        assert address.startswith("127.0.0.1:")
        self.failures.append((mechanism, claimed_user, reason))


@dataclass
class Here:
    """A listener, its users and their clock."""

    world: World
    listener: Listener
    trail: Trail

    async def client(self) -> Client:
        return Client(await self.listener.connect(), self.world)

    @property
    def users(self) -> list[str]:
        """The principals of the requests that came through."""
        return [context.principal for context in self.listener.service.contexts]

    async def sleeper(self) -> None:
        """Until a failed attempt waits."""
        await self.listener.until(lambda: any(not woken.done() for _, woken in self.world.clock.sleepers))


@dataclass
class Client:
    """A client, with the messages of its login."""

    connection: Connection
    world: World
    version: int = 2
    """Of SaslAuthenticate."""

    async def handshake(self, mechanism: str, version: int = 1) -> tuple[int, tuple[str, ...]]:
        message = both_ways("SaslHandshakeRequest").module.SaslHandshakeRequest(mechanism)
        self.connection.send(frame("SaslHandshake", version, message, correlation_id=3))
        number, answer = decoded("SaslHandshake", version, await self.connection.receive())
        assert number == 3
        return answer.error_code, answer.mechanisms

    def send(self, data: bytes) -> None:
        message = both_ways("SaslAuthenticateRequest").module.SaslAuthenticateRequest(data)
        self.connection.send(frame("SaslAuthenticate", self.version, message, correlation_id=4))

    async def receive(self) -> Any:
        number, answer = decoded("SaslAuthenticate", self.version, await self.connection.receive())
        assert number == 4
        return answer

    async def authenticate(self, data: bytes) -> Any:
        self.send(data)
        return await self.receive()

    async def prove(self, name: str, password: str, mechanism: ScramMechanism = SHA_256) -> None:
        """Send both messages of SCRAM; the answer to the latter is not read."""
        scram = ScramClient(mechanism, name, "nonce")
        first = bytes((await self.authenticate(scram.first())).auth_bytes)
        self.send(scram.final(first, derive_keys(mechanism, password, *scram.asked(first))))

    async def log_in(self, name: str = "alice", password: str = "tulip") -> Any:
        assert (await self.handshake("SCRAM-SHA-256"))[0] == NONE
        await self.prove(name, password)
        return await self.receive()

    async def ask(self) -> None:
        self.connection.send(metadata("topic", correlation_id=9))
        assert await self.connection.correlation_id() == 9


@asynccontextmanager
async def listener(world: World | None = None, tls: KafkaTls | None = None) -> AsyncIterator[Here]:
    """A listener with the users alice and bob."""
    trail = Trail()
    known = world or World(audit=trail)
    async with kafka_listener(Boundary(audit=trail), sasl=known.sasl, tls=tls) as listening:
        yield Here(known, listening, trail)


# --- login ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_a_client_that_has_logged_in_is_its_user_until_its_connection_ends(version: int) -> None:
    """The answer says for how long, from version 1 on. Further requests do not go to the authenticator."""
    async with listener() as here:
        client, other = await here.client(), await here.client()
        client.version = version
        done = await client.log_in()
        assert (done.error_code, done.error_message) == (NONE, None)
        assert bytes(done.auth_bytes).startswith(b"v=")
        assert done.session_lifetime_ms == (LIFETIME_MS if version else 0)
        await other.log_in("bob", "rose")
        await client.ask()
        await other.ask()
        assert here.users == ["User:alice", "User:bob"]
        assert here.listener.service.contexts[0].host == "127.0.0.1"
        assert not here.listener.service.contexts[0].for_nodes
        assert len(here.world.sasl.sessions) == 2
        client.connection.writer.close()
        await here.listener.until(lambda: len(here.world.sasl.sessions) == 1)
        await other.ask()
        assert here.trail.failures == []


@pytest.mark.parametrize("kafka", [each for each in KAFKA_APIS if each.key != 36], ids=lambda each: f"key {each.key}")
async def test_before_the_login_every_other_request_ends_the_connection_unread(kafka: Any) -> None:
    """What it contains makes no difference, nor does a handshake that has begun. It is recorded as a failure."""
    async with listener() as here:
        for begun in (False, True):
            client = await here.client()
            if begun:
                assert (await client.handshake("SCRAM-SHA-256"))[0] == NONE
            client.connection.send(
                framed(struct.pack(">hhihs", kafka.key, kafka.versions[-1], 1, 0, b"") + b"\xff" * 50)
            )
            assert await client.connection.is_closed()
        assert here.listener.service.begun == []
        assert [(mechanism, who) for mechanism, who, _ in here.trail.failures] == [("SASL", "")] * 2
        assert "listener 'kafka' requires SASL (SCRAM-SHA-256, SCRAM-SHA-512)" in here.trail.failures[0][2]


async def test_before_the_login_versions_are_answered_and_large_requests_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_connection, "LOGIN_MS", 10**9)  # it would end the connection, too
    async with listener() as here:
        client = await here.client()
        versions = both_ways("ApiVersionsRequest").module.ApiVersionsRequest("test", "1")
        client.connection.send(frame("ApiVersions", 3, versions))
        _, answer = decoded("ApiVersions", 3, await client.connection.receive(), plain=True)
        offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert (offered[17], offered[36]) == ((0, 1), (0, 2))
        client.connection.send(struct.pack(">i", LOGIN_BYTES_MAX + 1))
        assert await client.connection.is_closed()
        other = await here.client()
        await other.log_in()
        other.connection.send(framed(metadata("topic")[4:] + bytes(LOGIN_BYTES_MAX)))  # bytes at the end are ignored
        await other.connection.receive()


async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer_late_and_then_the_end() -> None:
    async with listener() as here:
        answers = []
        for name in ("alice", "nobody"):
            client = await here.client()
            await client.handshake("SCRAM-SHA-256")
            await client.prove(name, "wrong")
            await here.sleeper()
            assert here.trail.failures[-1][:2] == ("SCRAM-SHA-256", name)  # at once
            await here.world.clock.move(DELAY_MS - 1)
            assert not client.connection.reader._buffer  # type: ignore[attr-defined]
            await here.world.clock.move(1)
            answers.append(await client.receive())
            assert await client.connection.is_closed()
        assert answers[0] == answers[1]
        assert answers[0].error_code == FAILED
        assert "wrong user name or password" in answers[0].error_message
        assert len(here.world.sasl.sessions) == 0


async def test_a_mechanism_that_is_not_offered_is_answered_with_those_that_are() -> None:
    async with listener() as here:
        client = await here.client()
        assert await client.handshake("GSSAPI") == (UNSUPPORTED, ("SCRAM-SHA-256", "SCRAM-SHA-512"))
        assert await client.connection.is_closed()


@pytest.mark.parametrize("data", [b"", b"n,,n=alice", b"\xff" * 40, b"p=tls-unique,,n=alice,r=x"])
async def test_what_no_mechanism_understands_is_a_failed_authentication(data: bytes) -> None:
    """As of Kafka's nodes. Its clients know no other error here."""
    async with listener() as here:
        client = await here.client()
        await client.handshake("SCRAM-SHA-256")
        answer = await client.authenticate(data)
        assert answer.error_code == FAILED
        assert "malformed" in answer.error_message or "UTF-8" in answer.error_message
        assert await client.connection.is_closed()


async def test_a_login_without_a_handshake_is_an_illegal_state() -> None:
    async with listener() as here:
        client = await here.client()
        answer = await client.authenticate(b"n,,n=alice,r=x")
        assert (answer.error_code, "SaslHandshake" in answer.error_message) == (ILLEGAL_STATE, True)
        assert await client.connection.is_closed()


async def test_a_listener_without_sasl_says_so_to_a_client_that_wants_it() -> None:
    world = World(listeners=("outside",))
    async with kafka_listener(sasl=world.sasl) as listening:
        client = Client(await listening.connect(), world)
        assert await client.handshake("SCRAM-SHA-256") == (ILLEGAL_STATE, ())
        assert await client.connection.is_closed()
        client = Client(await listening.connect(), world)
        assert (await client.authenticate(b"\0alice\0tulip")).error_code == ILLEGAL_STATE
        assert await client.connection.is_closed()


async def test_what_passes_by_itself_ends_the_connection_without_an_answer() -> None:
    """Clients take every error of a login for final, and try again when their connection has ended."""

    async def ensure_closed(here: Here) -> None:
        client = await here.client()
        await client.handshake("SCRAM-SHA-256")
        client.send(b"n,,n=alice,r=nonce")
        assert await client.connection.is_closed()

    async with listener() as here:
        here.world.sasl.follow(EMPTY)  # the node is starting
        await ensure_closed(here)
        here.world.sasl.follow(image_of(user("alice", "tulip")))
        for port in range(OF_ADDRESS_MAX):
            await here.world.begin(at=RequestContext("kafka", f"127.0.0.1:{port}"))
        await ensure_closed(here)
        await here.world.clock.move(HANDSHAKE_MS)
        assert (await (await here.client()).log_in()).error_code == NONE


async def test_a_client_that_does_not_log_in_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_connection, "LOGIN_MS", 0)
    async with listener() as here:
        client, silent = await here.client(), await here.client()
        await client.log_in()
        for connection in list(here.listener.state.connections):
            connection.check()
        assert await silent.connection.is_closed()
        await client.ask()


# --- bare tokens ------------------------------------------------------------------------------------------------------


async def bare(client: Client, data: bytes) -> bytes:
    client.connection.send(framed(data))
    return await client.connection.receive()


async def test_after_the_first_version_of_the_handshake_messages_have_no_header() -> None:
    """As clients before Kafka 1.0 send them: SaslHandshake 0."""
    async with listener() as here:
        client = await here.client()
        assert (await client.handshake("SCRAM-SHA-256", version=0))[0] == NONE
        scram = ScramClient(SHA_256, "alice", "nonce")
        first = await bare(client, scram.first())
        keys = derive_keys(SHA_256, "tulip", *scram.asked(first))
        scram.verify(await bare(client, scram.final(first, keys)))
        await client.ask()
        assert here.users == ["User:alice"]
        assert (await client.handshake("SCRAM-SHA-256", version=0))[0] == ILLEGAL_STATE  # it cannot extend a session
        assert await client.connection.is_closed()


def arrive(listener: Listener, data: bytes) -> None:
    """Let bytes arrive at the only connection, all in one turn of the loop."""
    (connection,) = listener.state.connections
    while data:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        connection.buffer_updated(count)
        data = data[count:]


@pytest.mark.parametrize("data", [b"", b"123456789"])
async def test_a_token_behind_the_login_is_no_request(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It has arrived while the last message was handled, and is shorter than any request: a defect."""
    async with listener() as here:
        client = await here.client()
        await client.handshake("SCRAM-SHA-256", version=0)
        scram = ScramClient(SHA_256, "alice", "nonce")
        first = await bare(client, scram.first())
        final = scram.final(first, derive_keys(SHA_256, "tulip", *scram.asked(first)))
        arrive(here.listener, framed(final) + framed(data))
        scram.verify(await client.connection.receive())
        assert await client.connection.is_closed()
        assert here.listener.state.budget.used == 0
        await (await here.client()).log_in()
    assert "a defect" not in caplog.text


@pytest.mark.parametrize("data", [b"", b"n", b"\xff" * 100])
async def test_a_bare_message_that_is_wrong_ends_the_connection(data: bytes) -> None:
    async with listener() as here:
        client = await here.client()
        await client.handshake("SCRAM-SHA-256", version=0)
        client.connection.send(framed(data))
        assert await client.connection.is_closed()
        assert here.listener.state.budget.used == 0


# --- sessions ---------------------------------------------------------------------------------------------------------


async def test_a_login_on_the_same_connection_extends_the_session() -> None:
    """Requests go on before, meanwhile and after (KIP-368)."""
    async with listener() as here:
        client = await here.client()
        await client.log_in()
        (session,) = here.world.sasl.sessions.of("alice")
        await here.world.clock.move(LIFETIME_MS - 1)
        await client.handshake("SCRAM-SHA-256")
        await client.prove("alice", "tulip")
        assert (await client.receive()).session_lifetime_ms == LIFETIME_MS
        assert here.world.sasl.sessions.of("alice") == (session,)
        await here.world.clock.move(LIFETIME_MS - 1)
        here.world.sasl.sessions.expire(here.world.clock.monotonic_ms())
        await client.ask()
        assert here.users == ["User:alice"]


@pytest.mark.parametrize(
    ("name", "password", "mechanism", "says"),
    [
        ("bob", "rose", SHA_256, "belongs to another user and cannot be extended by User:bob"),
        ("alice", "tulip", SHA_512, "was begun with SCRAM-SHA-256 and cannot be extended with SCRAM-SHA-512"),
    ],
    ids=["user", "mechanism"],
)
async def test_another_user_or_mechanism_cannot_extend_a_session(
    name: str, password: str, mechanism: ScramMechanism, says: str
) -> None:
    async with listener() as here:
        here.world.sasl.follow(image_of(user("alice", "tulip"), user("alice", "tulip", SHA_512), user("bob", "rose")))
        client = await here.client()
        await client.log_in()
        assert (await client.handshake(mechanism.mechanism_name))[0] == NONE
        if mechanism is SHA_256:
            await client.prove(name, password)
            await here.sleeper()
            await here.world.clock.move(DELAY_MS)
            answer = await client.receive()
        else:
            answer = await client.authenticate(ScramClient(mechanism, name, "nonce").first())
        assert answer.error_code == FAILED
        assert says in answer.error_message
        assert await client.connection.is_closed()
        await here.listener.until(lambda: len(here.world.sasl.sessions) == 0)


@pytest.mark.parametrize("end", ["expired", "changed"])
async def test_a_connection_ends_with_its_session_once_its_request_is_answered(end: str) -> None:
    async with listener() as here:
        held = here.listener.service.holds["held"] = asyncio.Event()
        client, other = await here.client(), await here.client()
        await client.log_in()
        if end == "expired":
            await here.world.clock.move(LIFETIME_MS // 2)
        await other.log_in("bob", "rose")
        client.connection.send(metadata("held", correlation_id=5), metadata("never", correlation_id=6))
        await here.listener.service.until_begun(1)
        if end == "expired":
            await here.world.clock.move(LIFETIME_MS // 2)
            here.world.sasl.sessions.expire(here.world.clock.monotonic_ms())
        else:
            here.world.sasl.follow(image_of(user("alice", "orchid"), user("bob", "rose")))
        held.set()
        assert await client.connection.correlation_id() == 5
        assert await client.connection.is_closed()
        await other.ask()
        assert len(here.listener.service.begun) == 2
        assert here.trail.failures == []


# --- PLAIN ------------------------------------------------------------------------------------------------------------


async def plain(here: Here, message: bytes) -> Client:
    """A client whose password has been checked, and who has not read the answer."""
    client = await here.client()
    assert (await client.handshake("PLAIN"))[0] == NONE
    client.send(message)
    await here.listener.until(lambda: here.world.executor.work)
    here.world.executor.run()
    return client


async def test_a_password_is_checked_against_what_scram_needs_of_it() -> None:
    """Of the strongest mechanism that the user has."""
    trail = Trail()
    async with listener(World(WITH_PLAIN, trail)) as here:
        here.world.sasl.follow(image_of(user("alice", "tulip"), user("bob", "rose"), user("bob", "lily", SHA_512)))
        for message in (b"\0alice\0tulip", b"alice\0alice\0tulip", b"\0bob\0lily"):
            client = await plain(here, message)
            done = await client.receive()
            assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (NONE, b"", LIFETIME_MS)
            await client.ask()
        assert here.users == ["User:alice", "User:alice", "User:bob"]
        assert trail.failures == []


async def test_a_wrong_password_by_plain_is_refused_as_an_unknown_user_is_and_shown_nowhere() -> None:
    trail = Trail()
    async with listener(World(WITH_PLAIN, trail)) as here:
        answers = []
        for name in (b"alice", b"nobody", b"cluster"):
            client = await plain(here, b"\0" + name + b"\0wr0ng")
            await here.sleeper()
            assert trail.failures[-1] == ("PLAIN", name.decode(), "PLAIN: wrong user name or password")
            await here.world.clock.move(DELAY_MS)
            answers.append(await client.receive())
            assert await client.connection.is_closed()
        assert {(each.error_code, each.error_message) for each in answers} == {
            (FAILED, "PLAIN: wrong user name or password")
        }


async def test_a_caller_that_leaves_while_its_password_is_checked_keeps_its_place() -> None:
    """Otherwise a caller that never waits could have any number of passwords checked."""
    async with listener(World(WITH_PLAIN, Trail())) as here:
        client = await here.client()
        await client.handshake("PLAIN")
        client.send(b"\0alice\0wrong")
        await here.listener.until(lambda: here.world.executor.work)
        client.connection.writer.close()
        await here.listener.until(lambda: not here.listener.state.connections)
        assert here.world.sasl.handshakes_under_way == 1
        await here.world.clock.move(DELAY_MS)
        assert here.world.sasl.handshakes_under_way == 0


@pytest.mark.parametrize("data", [b"", b"\0alice", b"\0\0tulip", b"\0alice\0", b"bob\0alice\0tulip", b"\0\xff\0x"])
async def test_a_message_that_is_not_one_of_plain_is_refused(data: bytes) -> None:
    async with listener(World(WITH_PLAIN, Trail())) as here:
        client = await here.client()
        await client.handshake("PLAIN")
        answer = await client.authenticate(data)
        assert answer.error_code == FAILED
        assert "tulip" not in answer.error_message


# --- with certificates ------------------------------------------------------------------------------------------------


async def test_where_certificates_are_required_too_the_user_is_the_principal(tmp_path: Path) -> None:
    """The certificate is only checked: no rule must give it a principal."""
    authority = Authority(tmp_path)
    config = replace(authority.node(), mapping_rules=parse_rules("RULE:^CN=nobody$/x/"), age_ms_max=Millis(10**9))
    async with listener(tls=KafkaTls("kafka", config, MachineClock())) as here:
        connection = await here.listener.connect(client_of(authority.client("carol")))
        client = Client(connection, here.world)
        assert (await client.log_in()).error_code == NONE
        await client.ask()
        assert here.users == ["User:alice"]
