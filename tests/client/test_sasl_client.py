"""A client's sessions at a node, in time that jumps: extensions, restarts of the node, answers that cannot be used."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import ConnectionFailed, SaslAuthenticationFailed, TooManyHandshakes
from tidelog.protocol.sasl_client import SaslClient
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.sasl_user import Sasl
from tidelog.security.scram import Claim, ScramServer, credential_of
from tidelog.types import Endpoint, ScramMechanism

SHA_512 = ScramMechanism.SCRAM_SHA_512
TULIP = credential_of(SHA_512, "tulip", bytes(16), 4_096)
ALICE = Sasl("alice", "tulip")
AT = Endpoint("node-0", 9192)
LIFETIME_S = 100
CALL_MS = 1_000


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop that has nothing to do until its next timer is there at once. Threads do not exist in it."""

    def __init__(self) -> None:
        super().__init__(JumpingSelector(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, _executor: Any, function: Callable[..., Any], *arguments: Any
    ) -> Any:
        done = self.create_future()
        done.set_result(function(*arguments))
        return done


class JumpingSelector(selectors.SelectSelector):
    def __init__(self, loop: JumpingLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "the story waits for something that never comes"
        self._loop.now += max(0.0, timeout)
        return super().select(0)


class Node:
    """Accepts alice's password. lifetime_ms, token: what it answers. failures: raised for the next messages."""

    def __init__(self, lifetime_ms: int = LIFETIME_S * 1_000, token: str = "token-{}") -> None:
        self.lifetime_ms, self.token = lifetime_ms, token
        self.failures: list[Exception] = []
        self.renewed: list[str] = []
        """The sessions that handshakes extended; empty for new ones."""
        self._server = ScramServer(SHA_512, "node", lambda name: Claim(name, TULIP, exists=True))

    async def send(
        self, _to: Endpoint, request: sasl_pb2.AuthenticateRequest, _timeout_ms: int
    ) -> sasl_pb2.AuthenticateResponse:
        if self.failures:
            raise self.failures.pop(0)
        if not request.handshake:
            self.renewed.append(request.renewed)
            return sasl_pb2.AuthenticateResponse(handshake=b"1", auth_bytes=self._server.first(request.auth_bytes))
        return sasl_pb2.AuthenticateResponse(
            auth_bytes=self._server.final(request.auth_bytes),
            token=self.token.format(len(self.renewed)),
            session_lifetime_ms=self.lifetime_ms,
        )


def client_of(node: Node, sasl: Sasl = ALICE) -> SaslClient:
    client = SaslClient(sasl, random.Random(3))
    client.connect(node.send)
    return client


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        yield runner.get_loop()


async def let_pass(seconds: float) -> None:
    await asyncio.sleep(seconds)  # noqa: TID251 - time jumps


async def test_a_session_is_extended_once_in_each_lifetime_however_often_its_node_was_restarted() -> None:
    node = Node()
    client = client_of(node)
    client.stream_opened(AT)
    for _ in range(20):
        client.refused(AT, await client.token_of(AT, CALL_MS))
        await let_pass(1)
    await client.token_of(AT, CALL_MS)
    assert node.renewed == [""] * 21
    await let_pass(10 * LIFETIME_S)
    extensions = node.renewed[21:]
    assert 10 <= len(extensions) <= 12
    assert extensions == [f"token-{number}" for number in range(21, 21 + len(extensions))]
    await client.close()
    await let_pass(10 * LIFETIME_S)
    assert node.renewed[21:] == extensions, "a closed client authenticates no more"


async def test_the_end_of_a_stream_of_before_leaves_the_present_session_alive() -> None:
    """An address was forgotten and is used again; gRPC reports the end of the former stream late."""
    node = Node()
    client = client_of(node)
    await client.token_of(AT, CALL_MS)
    former_ended = client.stream_opened(AT)
    await client.forget(AT)
    await client.token_of(AT, CALL_MS)
    ended = client.stream_opened(AT)
    former_ended()
    await let_pass(10 * LIFETIME_S)
    assert len(node.renewed) >= 12
    ended()
    await let_pass(2 * LIFETIME_S)
    extensions = len(node.renewed)
    await let_pass(10 * LIFETIME_S)
    assert len(node.renewed) == extensions, "a session that is not used is left to expire"
    await client.close()


@pytest.mark.parametrize("failure", [ConnectionFailed("gone"), TooManyHandshakes("full")])
async def test_an_extension_that_fails_is_tried_again_while_the_session_lasts(failure: Exception) -> None:
    """A node that cannot be reached for longer than one authentication may take costs no stream."""
    node = Node(lifetime_ms=600_000)
    client = client_of(node)
    client.stream_opened(AT)
    await client.token_of(AT, CALL_MS)
    node.failures = [failure] * 100
    await let_pass(599)
    assert node.renewed == ["", "token-1"]
    node.failures = [failure] * 10_000
    await let_pass(1_200)
    tried = len(node.failures)
    await let_pass(1_200)
    assert len(node.failures) == tried, "it has expired: the next call begins another one"
    await client.close()


async def test_a_call_does_not_fail_because_an_extension_with_the_former_password_is_refused() -> None:
    """The node ended the session while the extension was under way; the password was replaced in time for the call."""
    asked = asyncio.Event()

    class Refusing(Node):
        async def send(
            self, to: Endpoint, request: sasl_pb2.AuthenticateRequest, timeout_ms: int
        ) -> sasl_pb2.AuthenticateResponse:
            if self.failures:
                asked.set()
                await let_pass(3)
            return await super().send(to, request, timeout_ms)

    node = Refusing()
    client = client_of(node)
    token = await client.token_of(AT, CALL_MS)
    client.stream_opened(AT)
    node.failures = [SaslAuthenticationFailed("the password was changed")]
    await asked.wait()  # the extension
    client.refused(AT, token)
    assert await client.token_of(AT, 10 * CALL_MS) == "token-2"
    assert node.failures == []
    node.failures = [SaslAuthenticationFailed("wrong")]
    client.refused(AT, "token-2")
    with pytest.raises(SaslAuthenticationFailed, match="wrong"):
        await client.token_of(AT, 10 * CALL_MS)
    await client.close()


@pytest.mark.parametrize(
    ("lifetime_ms", "token"),
    [(1_000, ""), (1_000, "a\nb"), (1_000, "\u00e9"), (1_000, "x" * 65), (-1, "x"), (2**60, "x")],
)
async def test_a_session_that_cannot_be_used_is_refused_by_name(lifetime_ms: int, token: str) -> None:
    """Without TLS anyone on the way can change it; gRPC would raise ValueError for such a token."""
    client = client_of(Node(lifetime_ms, token))
    with pytest.raises(SaslAuthenticationFailed, match=r"node-0:9192.*use TLS"):
        await client.token_of(AT, CALL_MS)
    await client.close()


async def test_a_refused_user_reads_who_was_refused_where_and_what_to_do(tmp_path: Path) -> None:
    """The path of the password's file is told, its content is not."""
    file = tmp_path / "alice.secret"
    file.write_text("orchid\n", encoding="utf-8")
    client = client_of(Node(), Sasl("alice", password_file=str(file)))
    with pytest.raises(SaslAuthenticationFailed) as first:
        await client.token_of(AT, CALL_MS)
    assert first.value.message == (
        "SASL at node-0:9192: SCRAM-SHA-512: wrong user name or password, or the user has no credential of this "
        f"mechanism (user 'alice', password of the file {file}). Check both, or ask an administrator "
        "(`tidelog user add`)."
    )
    file.write_text("tulip\n", encoding="utf-8")
    client.refused(AT, await client.token_of(AT, CALL_MS))
    file.write_text("orchid\n", encoding="utf-8")
    with pytest.raises(SaslAuthenticationFailed, match="the user was removed, or its password was changed") as later:
        await client.token_of(AT, CALL_MS)
    assert "orchid" not in first.value.message + later.value.message
    await client.close()


async def test_a_node_that_ends_sessions_at_once_does_not_keep_its_clients_busy() -> None:
    node = Node(lifetime_ms=1)
    client = client_of(node)
    client.stream_opened(AT)
    await client.token_of(AT, CALL_MS)
    await let_pass(60)
    assert len(node.renewed) <= 121
    await client.close()
