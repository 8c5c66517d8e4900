"""Handshakes and sessions of one node, in set time: bounds, expiry, renewal, endings."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace

import pytest

from node.api.sasl_requests import AuthenticateRequest
from node.security import sasl_sessions
from node.security.authorizer import AuditTrail
from node.security.handshake_places import OF_ADDRESS_MAX, OF_LISTENER_MAX
from node.security.sasl_authenticator import HANDSHAKE_MS
from replication.controller.image import EMPTY
from replication.controller.metadata_records import ScramCredentialRecord
from tests.node.sasl_world import CONFIG, LIFETIME_MS, SHA_512, World, caller, image_of, user
from tidelog.errors import (
    IllegalSaslState,
    InvalidRequest,
    NodeNotAvailable,
    SaslAuthenticationFailed,
    SaslSessionEnded,
    TidelogError,
    TooManyHandshakes,
    UnsupportedSaslMechanism,
)
from tidelog.types import Millis


@dataclass(eq=False)
class Stream:
    ended: list[TidelogError] = field(default_factory=list)

    def end_with(self, error: TidelogError) -> None:
        self.ended.append(error)


class Trail(AuditTrail):
    """Failed authentications: mechanism and reason, and the claimed users."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, str]] = []
        self.claimed: list[str] = []

    def authentication_failed(
        self, *, listener: str, address: str, mechanism: str, reason: str, claimed_user: str = ""
    ) -> None:
        self.failures.append((mechanism, reason))
        self.claimed.append(claimed_user)


async def test_a_token_says_who_calls_from_wherever_it_comes() -> None:
    world = World()
    client, first = await world.begin()
    answer = await world.complete(client, first, "tulip", caller(host="10.9.9.9"))
    assert (answer.principal, answer.session_lifetime_ms, answer.handshake) == ("User:alice", LIFETIME_MS, b"")
    assert len(answer.token) == 43
    assert world.principal(answer.token) == "User:alice"
    with pytest.raises(SaslSessionEnded):
        world.principal(answer.token, "other")
    for wrong in ("", "x", answer.token[:-1], answer.token * 100):
        with pytest.raises(SaslSessionEnded) as refused:
            world.principal(wrong)
        assert answer.token not in refused.value.message
    with pytest.raises(IllegalSaslState, match="requires SASL"):
        world.sasl.session_of("outside", None)


async def test_a_wrong_password_and_an_unknown_user_get_the_same_answer_after_the_same_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "node.security"):
        world = World()
        failures = []
        for name in ("alice", "nobody"):
            attempt = asyncio.get_running_loop().create_task(world.log_in(name, "wrong"))
            await world.clock.move(0)
            await world.clock.move(699)
            assert not attempt.done()
            await world.clock.move(1)
            with pytest.raises(SaslAuthenticationFailed) as failed:
                await attempt
            failures.append(failed.value.message)
        assert failures[0] == failures[1]
    assert [record.user for record in caplog.records] == ["alice", "nobody"]  # type: ignore[attr-defined]
    assert "wrong" not in caplog.text


async def test_nothing_is_made_for_a_user_that_exists_and_not_for_one_that_does_not() -> None:
    """That would take measurable time: credentials are made when the node learns of them, and kept."""
    world = World()
    first = world.sasl.session_of("outside", (await world.log_in()).token).credential
    same = world.sasl.session_of("outside", (await world.log_in()).token).credential
    image = image_of(user("carol", "lily"))
    before = world.sasl._image.scram
    world.sasl.follow(replace(image, scram={**before, **image.scram}))
    later = world.sasl.session_of("outside", (await world.log_in()).token).credential
    assert first is same is later


async def test_unknown_users_have_the_iterations_of_others() -> None:
    world = World()
    world.sasl.follow(image_of(user("alice", "tulip", iterations=5_000), user("bob", "rose", iterations=5_000)))
    client, first = await world.begin("nobody")
    assert client.asked(first.auth_bytes)[1] == 5_000


async def test_handshakes_of_one_address_and_of_all_are_bounded_and_end_in_time() -> None:
    world = World()
    for port in range(OF_ADDRESS_MAX):
        await world.begin(at=caller(port=port))
    with pytest.raises(TooManyHandshakes):
        await world.begin()
    late = await world.begin(at=caller(host="10.0.0.2"))
    for number in range(OF_LISTENER_MAX - OF_ADDRESS_MAX - 1):
        await world.begin(at=caller(host=f"10.1.{number // 60}.1"))
    with pytest.raises(TooManyHandshakes, match="in all"):
        await world.begin(at=caller(host="10.0.0.3"))
    await world.log_in(at=caller("other", host="10.0.0.1"))  # strangers at one listener keep nobody out of another
    await world.clock.move(HANDSHAKE_MS)
    with pytest.raises(SaslSessionEnded, match="longer than 10 s"):
        await world.complete(*late, "tulip")
    await world.log_in()


async def test_a_failed_attempt_keeps_its_place_while_its_answer_is_delayed() -> None:
    """Otherwise an attacker could guess as fast as the node computes."""
    world = World()
    attempts = [asyncio.get_running_loop().create_task(world.log_in(password="wrong")) for _ in range(OF_ADDRESS_MAX)]
    await world.clock.move(0)
    with pytest.raises(TooManyHandshakes):
        await world.log_in()
    await world.log_in(at=caller(host="10.0.0.2"))
    await world.clock.move(700)
    assert all(isinstance(attempt.exception(), SaslAuthenticationFailed) for attempt in attempts)
    await world.log_in()


async def test_a_caller_that_does_not_wait_for_its_refusal_gains_nothing_by_it() -> None:
    """A right password is answered at once, so an attacker need not wait for the answers to the wrong ones: each guess
    still takes a place for as long as the answer is delayed, and is recorded."""
    trail, at = Trail(), caller()
    world = World(audit=trail)
    for _ in range(OF_ADDRESS_MAX):
        guess = asyncio.get_running_loop().create_task(world.log_in(password="wrong", at=at))
        await world.clock.move(0)
        guess.cancel()
        await asyncio.wait((guess,))
    assert [mechanism for mechanism, _ in trail.failures] == ["SCRAM-SHA-256"] * OF_ADDRESS_MAX
    await world.clock.move(699)
    with pytest.raises(TooManyHandshakes):
        await world.begin(at=at)
    await world.clock.move(1)
    for _ in range(OF_ADDRESS_MAX):
        await world.begin(at=at)


async def test_a_handshake_keeps_nothing_large_until_it_ends() -> None:
    """The token to renew is the only part of the first message that is kept as it is."""
    world = World()
    with pytest.raises(InvalidRequest, match="64 characters"):
        await world.begin(renewed="x" * 65)
    for _ in range(OF_ADDRESS_MAX):  # a refused one keeps no place either
        await world.begin()


async def test_handshakes_that_end_in_any_way_leave_their_places() -> None:
    world = World()
    for _ in range(OF_ADDRESS_MAX + 1):
        await world.log_in()
        _, first = await world.begin()
        with pytest.raises(InvalidRequest):
            await world.sasl.authenticate(AuthenticateRequest("", first.handshake, b"garbage"), caller())
        client, first = await world.begin()
        with pytest.raises(SaslSessionEnded):
            await world.complete(client, first, "tulip", caller("other"))


async def test_a_handshake_is_used_once_and_at_its_listener() -> None:
    world = World()
    client, first = await world.begin()
    with pytest.raises(SaslSessionEnded):
        await world.complete(client, first, "tulip", caller("other"))
    with pytest.raises(SaslSessionEnded):
        await world.complete(client, first, "tulip")
    with pytest.raises(UnsupportedSaslMechanism, match="SCRAM-SHA-256, SCRAM-SHA-512"):
        await world.sasl.authenticate(AuthenticateRequest("PLAIN", b"", b""), caller())
    with pytest.raises(InvalidRequest):
        await world.sasl.authenticate(AuthenticateRequest("SCRAM-SHA-256", b"", b"garbage"), caller())
    with pytest.raises(IllegalSaslState, match="has no SASL"):
        await world.log_in(at=caller("client"))


async def test_a_node_that_does_not_know_the_users_yet_says_so() -> None:
    world = World()
    world.sasl.follow(EMPTY)
    with pytest.raises(NodeNotAvailable):
        await world.log_in()


async def test_a_session_expires_with_its_streams() -> None:
    world = World()
    token = (await world.log_in()).token
    stream = Stream()
    world.sasl.session_of("outside", token).streams.add(stream)
    sweeping = asyncio.get_running_loop().create_task(world.sasl.run())
    await world.clock.move(LIFETIME_MS - 1)
    assert world.principal(token) == "User:alice"
    await world.clock.move(1)
    with pytest.raises(SaslSessionEnded, match="expired"):
        world.principal(token)
    assert [type(each) for each in stream.ended] == [SaslSessionEnded]
    unused = Stream()
    world.sasl.session_of("outside", (await world.log_in()).token).streams.add(unused)
    await world.clock.move(LIFETIME_MS + 1_000)
    assert unused.ended, "the sweep ends it although no one asks"
    assert len(world.sasl.sessions) == 0
    sweeping.cancel()


async def test_a_renewed_session_keeps_its_streams_and_gets_a_new_token() -> None:
    world = World()
    first = (await world.log_in()).token
    stream = Stream()
    session = world.sasl.session_of("outside", first)
    session.streams.add(stream)
    await world.clock.move(LIFETIME_MS - 1)
    second = (await world.log_in(renewed=first)).token
    assert world.sasl.session_of("outside", second) is session
    assert world.principal(first) == "User:alice", "calls that are under way may still have it"
    await world.clock.move(LIFETIME_MS - 1)
    third = (await world.log_in(renewed=second)).token
    assert world.principal(third) == "User:alice"
    with pytest.raises(SaslSessionEnded):
        world.principal(first)
    assert not stream.ended
    assert len(world.sasl.sessions) == 1


async def test_a_session_is_not_extended_by_another_user_or_after_its_end() -> None:
    world = World(replace(CONFIG, failure_delay_ms=Millis(0)))
    token = (await world.log_in()).token
    attempt = asyncio.get_running_loop().create_task(world.log_in("bob", "rose", renewed=token))
    await world.clock.move(0)
    await world.clock.move(0)
    with pytest.raises(SaslAuthenticationFailed, match="another user"):
        await attempt
    assert world.principal(token) == "User:alice"
    await world.clock.move(LIFETIME_MS)
    with pytest.raises(SaslSessionEnded):
        await world.log_in(renewed=token)


@pytest.mark.parametrize("now", [(), (user("alice", "orchid"),), (user("alice", "tulip", SHA_512),)])
async def test_a_session_ends_with_its_credential_and_the_others_go_on(now: tuple[ScramCredentialRecord, ...]) -> None:
    """The user is removed, its password changed, or the credential of its mechanism removed."""
    world = World()
    alice, bob = (await world.log_in()).token, (await world.log_in("bob", "rose")).token
    streams = [Stream(), Stream()]
    for token, stream in zip((alice, bob), streams, strict=True):
        world.sasl.session_of("outside", token).streams.add(stream)
    world.sasl.follow(image_of(*now, user("bob", "rose")))  # equal, and another object, as from a snapshot
    assert [len(stream.ended) for stream in streams] == [1, 0]
    with pytest.raises(SaslSessionEnded):
        world.principal(alice)
    assert world.principal(bob) == "User:bob"


async def test_a_password_that_changes_during_a_handshake_yields_no_session() -> None:
    world = World()
    client, first = await world.begin()
    world.sasl.follow(image_of(user("alice", "orchid")))
    with pytest.raises(SaslSessionEnded, match="changed meanwhile"):
        await world.complete(client, first, "tulip")
    assert len(world.sasl.sessions) == 0


async def test_sessions_of_one_user_are_bounded_the_one_unused_for_longest_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sasl_sessions, "OF_USER_MAX", 3)
    world = World()
    tokens = [(await world.log_in()).token for _ in range(3)]
    world.sasl.session_of("outside", tokens[0]).streams.add(Stream())
    world.principal(tokens[1])
    fourth = (await world.log_in()).token
    with pytest.raises(SaslSessionEnded):
        world.principal(tokens[2])
    for token in (tokens[0], tokens[1], fourth):
        world.sasl.session_of("outside", token).streams.add(Stream())
    with pytest.raises(TooManyHandshakes, match="User:alice"):
        await world.log_in()
    await world.log_in("bob", "rose")


async def test_users_with_many_sessions_keep_no_one_else_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the node is full, the user with most sessions makes room, not the one who comes: it may be a node."""
    monkeypatch.setattr(sasl_sessions, "SESSIONS_MAX", 4)
    world = World()
    alice = [(await world.log_in()).token for _ in range(3)]
    bob = [(await world.log_in("bob", "rose")).token]
    world.sasl.session_of("outside", alice[0]).streams.add(Stream())
    bob.append((await world.log_in("bob", "rose")).token)
    with pytest.raises(SaslSessionEnded):
        world.principal(alice[1])
    assert [world.principal(token) for token in (alice[0], alice[2], *bob)] == ["User:alice"] * 2 + ["User:bob"] * 2
    for token in (alice[2], *bob):
        world.sasl.session_of("outside", token).streams.add(Stream())
    with pytest.raises(TooManyHandshakes, match="4 in all"):
        await world.log_in("bob", "rose")


async def test_sessions_without_a_limit_of_time_stay() -> None:
    world = World(replace(CONFIG, lifetime_ms=Millis(0)))
    answer = await world.log_in()
    await world.clock.move(10**9)
    assert (world.principal(answer.token), answer.session_lifetime_ms) == ("User:alice", 0)


async def test_no_text_has_a_token() -> None:
    world = World()
    answer = await world.log_in()
    assert answer.token not in repr(answer)
    assert answer.token not in repr(AuthenticateRequest("x", b"", b"", answer.token))
    session = world.sasl.session_of("outside", answer.token)
    assert repr(session.tokens[0]) not in repr(session)
