"""The keys of an identity provider as a node has them, in set time: rotation, outages, floods; how they are read."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from node.security import provider_keys
from node.security.bearer_authenticator import BearerAuthenticator
from node.security.json_web_keys import KEY_SET_BYTES_MAX, UnusableKeys
from node.security.key_source import HttpReading
from node.security.provider_keys import FILE_CHECK_MS, LOG_AGAIN_MS, UNKNOWN_KEY_MS
from tests.certificates import Authority
from tests.identity_provider import IdentityProvider, accepting, http_server
from tests.node.sasl_world import SetTime
from tests.node.wires import HeldExecutor
from tidelog.errors import InvalidConfig, NodeNotAvailable, SaslAuthenticationFailed
from tidelog.security.oauth_bearer import first_message

REFRESH_MS = 3_600_000


class World:
    """A node's side of OAUTHBEARER, and the provider."""

    def __init__(self, provider: IdentityProvider, url: str) -> None:
        self.provider, self.clock, self.executor = provider, SetTime(), HeldExecutor()
        self.changes = 0
        self.bearer = BearerAuthenticator(
            accepting(url), clock=self.clock, executor=self.executor, keys_changed=self.changed
        )
        self.keys = self.bearer.keys

    def changed(self) -> None:
        self.changes += 1

    def token(self, **headers: str) -> str:
        return self.provider.token(now_s=self.clock.now / 1_000, lasts_s=10**6, headers=headers)

    async def user_of(self, token: str | None = None) -> str:
        return (await self.bearer.check(first_message(token or self.token()))).user

    async def move(self, ms: int) -> None:
        """In steps, as time passes."""
        while ms > 0:
            await self.clock.move(min(ms, 500))
            ms -= 500


@asynccontextmanager
async def running(provider: IdentityProvider, url: str) -> AsyncIterator[World]:
    world = World(provider, url)
    await world.keys.load()
    task = asyncio.get_running_loop().create_task(world.keys.run())
    await world.clock.move(0)
    try:
        yield world
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_rotated_key_is_known_at_once_and_a_withdrawn_one_is_not_any_more() -> None:
    provider = IdentityProvider()
    with provider.serving() as url:
        async with running(provider, url) as world:
            former = world.token()
            assert (await world.user_of(former), provider.gets, world.changes) == ("alice", 1, 1)
            provider.rotate()
            assert (await world.user_of(), await world.user_of(former)) == ("alice", "alice")
            assert (provider.gets, world.changes) == (2, 2)
            withdrawn = world.token()
            provider.rotate(keep=False)
            await world.move(REFRESH_MS)
            assert (provider.gets, world.changes) == (3, 3)
            assert await world.user_of() == "alice"
            for token in (former, withdrawn):
                with pytest.raises(SaslAuthenticationFailed, match="not among those"):
                    await world.user_of(token)


async def test_tokens_with_made_up_keys_do_not_make_the_node_hammer_the_provider() -> None:
    provider = IdentityProvider()
    with provider.serving() as url:
        async with running(provider, url) as world:
            assert provider.gets == 1
            for interval in range(1, 4):
                flood = [world.user_of(world.token(kid=f"made up {number}")) for number in range(300)]
                refused = await asyncio.gather(*flood, return_exceptions=True)
                assert {type(each) for each in refused} == {SaslAuthenticationFailed}
                for number in range(20):
                    with pytest.raises(SaslAuthenticationFailed):
                        await world.user_of(world.token(kid=f"one after the other {number}"))
                assert provider.gets == 1 + interval
                await world.move(UNKNOWN_KEY_MS)
            assert await world.user_of() == "alice"


async def test_while_an_attempt_is_under_way_all_wait_for_it_and_none_begins_another() -> None:
    provider = IdentityProvider()
    with provider.serving() as url:
        async with running(provider, url) as world:
            provider.rotate()
            world.executor.holding = True
            waiting = [asyncio.get_running_loop().create_task(world.user_of()) for _ in range(50)]
            await world.move(2_000)
            assert not any(each.done() for each in waiting)
            waiting[0].cancel()  # the caller that began it goes away
            world.executor.release()
            await world.clock.move(0)
            assert [await each for each in waiting[1:]] == ["alice"] * 49
            assert provider.gets == 2


async def test_while_the_provider_is_down_known_keys_stay_valid_and_the_log_says_what_to_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "node.security"):
        provider = IdentityProvider()
        with provider.serving() as url:
            async with running(provider, url) as world:
                known = world.token()
                provider.is_down = True
                await world.move(REFRESH_MS + 60_000)
                begun = provider.gets
                await world.move(60_000)
                assert begun < provider.gets <= begun + 7, "at most once in 10 s"
                assert await world.user_of(known) == "alice"
                provider.rotate()
                with pytest.raises(SaslAuthenticationFailed):
                    await world.user_of()
                provider.is_down = False
                await world.move(UNKNOWN_KEY_MS)
                assert await world.user_of() == "alice"
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "not for each attempt"
    assert "HTTP status 503" in errors[0]
    assert "the known ones stay valid" in errors[0]
    assert "sasl.oauthbearer.jwks.endpoint.url" in errors[0]
    assert "can be read again" in caplog.text


async def test_a_failure_that_lasts_is_logged_again() -> None:
    provider = IdentityProvider()
    provider.is_down = True
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("node.security").addHandler(handler)
    try:
        with provider.serving() as url:
            async with running(provider, url) as world:
                await world.move(LOG_AGAIN_MS + 20_000)
    finally:
        logging.getLogger("node.security").removeHandler(handler)
    assert len(records) == 2
    assert "no token is accepted" in records[0]


async def test_a_node_starts_while_the_provider_is_down_and_refuses_tokens_until_it_is_back() -> None:
    provider = IdentityProvider()
    provider.is_down = True
    with provider.serving() as url:
        async with running(provider, url) as world:
            with pytest.raises(NodeNotAvailable, match="use another node"):
                await world.user_of()
            provider.is_down = False
            await world.move(10_000)
            assert await world.user_of() == "alice"


async def test_a_provider_that_does_not_answer_costs_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = IdentityProvider()
    with provider.serving() as url:
        async with running(provider, url) as world:
            monkeypatch.setattr(provider_keys, "ATTEMPT_S", 0.01)
            world.executor.holding = True
            provider.rotate()
            with pytest.raises(SaslAuthenticationFailed, match="not among those"):
                await world.user_of()
            world.executor.release()  # what was given up has no effect, and does not use the network
            assert provider.gets == 1


async def test_a_file_is_read_again_when_it_changes_and_kept_while_it_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider, path = IdentityProvider(), tmp_path / "keys.json"
    async with running(provider, provider.write(path)) as world:
        former = world.token()
        assert (await world.user_of(), world.changes) == ("alice", 1)
        provider.rotate(keep=False)
        provider.write(path)
        assert await world.user_of() == "alice", "an unknown key is reason to look at once"
        with pytest.raises(SaslAuthenticationFailed):
            await world.user_of(former)
        path.write_text("half a doc")
        await world.move(2 * FILE_CHECK_MS)
        path.unlink()
        await world.move(4 * FILE_CHECK_MS)
        assert (await world.user_of(), world.changes) == ("alice", 2)
        provider.rotate()
        provider.write(path)
        await world.move(4 * FILE_CHECK_MS)
        assert (world.changes, len(world.keys.digests)) == (3, 2)
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert ["it is not JSON" in each for each in errors] == [True, False]
    assert "No such file" in errors[1]


@pytest.mark.parametrize("contents", [None, b"", b'{"keys": []}', b" " * (KEY_SET_BYTES_MAX + 1)])
def test_a_node_does_not_start_with_a_file_that_it_cannot_use(tmp_path: Path, contents: bytes | None) -> None:
    path = tmp_path / "keys.json"
    if contents is not None:
        path.write_bytes(contents)
    with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url: file:/.*Write the keys"):
        asyncio.run(World(IdentityProvider(), f"file:{path}").keys.load())


# --- reading ----------------------------------------------------------------------------------------------------------


def answering(write: Any) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            write(self)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


def redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/elsewhere")
    handler.end_headers()


def much(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):  # the other side has read enough
        while True:
            handler.wfile.write(b" " * 100_000)


def garbage(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-secret\r\n\r\n")


@pytest.mark.parametrize(
    ("write", "says"),
    [(redirect, "302. It is not followed: name the final address"), (much, "more than"), (garbage, "BadStatusLine")],
)
def test_answers_are_bounded_and_go_nowhere_else(write: Any, says: str) -> None:
    with http_server(answering(write)) as address, pytest.raises(UnusableKeys, match=says) as refused:
        HttpReading(address, "").run()
    assert "secret" not in str(refused.value)


def test_what_cannot_be_reached_or_trusted_says_why(tmp_path: Path) -> None:
    provider = IdentityProvider()
    with provider.serving() as url:
        for wrong, ca, says in (
            ("http://127.0.0.1:1/keys", "", "Connection refused"),
            (url.replace("http:", "https:"), "", "(?i)wrong.version|record layer"),
            (url.replace("http:", "https:"), "/no/such/ca.pem", "No such file"),
        ):
            with pytest.raises(UnusableKeys, match=says):
                HttpReading(wrong, ca).run()
        assert HttpReading(f"{url}?tenant=7", "").run() == provider.document()


def test_keys_come_by_https_from_who_the_authorities_vouch_for(tmp_path: Path) -> None:
    provider, trusted, other = IdentityProvider(), Authority(tmp_path / "trusted"), Authority(tmp_path / "other")
    own = trusted.node("provider")
    with provider.serving(own.certificate_file, own.key_file) as url:
        assert url.startswith("https:")
        assert HttpReading(url, trusted.ca).run() == provider.document()
        for ca in (other.ca, ""):
            with pytest.raises(UnusableKeys, match="its certificate is not accepted"):
                HttpReading(url, ca).run()
    elsewhere = trusted.node("elsewhere", "login.example.org")
    with (
        provider.serving(elsewhere.certificate_file, elsewhere.key_file) as url,
        pytest.raises(UnusableKeys, match=r"its certificate is not accepted: .*127\.0\.0\.1"),
    ):
        HttpReading(url, trusted.ca).run()


def test_an_attempt_that_hangs_is_ended_from_outside() -> None:
    arrived, over = threading.Event(), threading.Event()

    def hang(_handler: BaseHTTPRequestHandler) -> None:
        arrived.set()
        over.wait(20)

    with http_server(answering(hang)) as address:
        reading, failed = HttpReading(address, ""), list[UnusableKeys]()

        def attempt() -> None:
            try:
                reading.run()
            except UnusableKeys as error:
                failed.append(error)

        worker = threading.Thread(target=attempt)  # noqa: TID251 - as an executor of the node
        worker.start()
        assert arrived.wait(20)
        reading.abort()
        worker.join(20)
        over.set()
    assert not worker.is_alive()
    assert len(failed) == 1
