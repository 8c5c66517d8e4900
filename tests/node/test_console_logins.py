"""How a visitor of the web console logs in, and where the login leads."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest

from node.listeners.http.console_listener import OPEN_MAX, ConsoleListener, HttpConnection
from node.listeners.http.http_messages import local_address
from tests.node.console_users import ALL, with_alice
from tests.node.console_world import Browser, console
from tests.node.real_nodes import OPERATOR
from tidelog import Admin
from tidelog.errors import SaslAuthenticationFailed
from tidelog.types import PasswordMechanism, ScramMechanism


async def test_a_user_logs_in_who_has_a_password_for_one_of_the_mechanisms_only(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            for mechanism in ScramMechanism:
                name = mechanism.mechanism_name
                await admin.set_password(name, "tulip", mechanisms=[name], iterations=4_096)
        image = nodes.nodes[0].node
        await nodes.wait_until(lambda: image.image is not None and len(image.image.scram) == 4)
        for mechanism in ScramMechanism:
            fresh = Browser(browser.address)
            page = await fresh.log_in(mechanism.mechanism_name, "tulip")
            assert mechanism.mechanism_name in page.text and "Log out" in page.text, page.text
            assert (await Browser(browser.address).log_in(mechanism.mechanism_name, "rose")).status == 401


@pytest.mark.parametrize("offered", [*ScramMechanism, *PasswordMechanism])
async def test_a_cluster_may_offer_any_single_mechanism(
    tmp_path: Path, offered: ScramMechanism | PasswordMechanism
) -> None:
    async with with_alice(tmp_path, *ALL, mechanisms=(offered,)) as nodes, console(nodes) as browser:
        assert (await browser.log_in("alice", "rose")).status == 401
        assert (await browser.log_in("nobody", "tulip")).status == 401
        assert "Log out" in (await browser.log_in("alice", "tulip")).text


async def test_a_login_leads_to_the_page_that_was_asked_for_and_to_no_other_site(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes:
        async with console(nodes, strangers=False) as browser:
            login = await browser.open("/topic?name=orders")
            wrong = await browser.fill(login, "/login", user="alice", password="rose")
            page = await browser.fill(wrong, "/login", user="alice", password="tulip")
            assert "Topic orders" in page.text, page.text

            for elsewhere in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/\r\nX: y"):
                visitor = Browser(browser.address)
                login = await visitor.open(f"/login?{urlencode({'next': elsewhere})}")
                (form,) = [each for each in login.forms if each.action == "/login"]
                fields = {**form.fields, "user": "alice", "password": "tulip"}
                for sent in (fields, {**fields, "next": elsewhere}):
                    assert (await visitor.ask("/login", form=sent)).headers["Location"] == "/"
        async with console(nodes) as browser:
            looked = await browser.open("/topic/create")
            assert looked.status == 403 and "/login?next=%2Ftopic%2Fcreate" in looked.body


async def test_a_new_login_of_a_browser_ends_its_former_session(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as browser:
        await browser.log_in("alice", "tulip")
        former = Browser(browser.address, dict(browser.cookies))
        await browser.log_in("alice", "tulip")
        assert "Log out" in (await browser.open("/topics")).text
        assert "Log out" not in (await former.open("/topics")).text


async def test_guesses_of_passwords_take_no_places_of_pages() -> None:
    answered = asyncio.Event()

    async def log_in(*_given: object, **_more: object) -> str:
        await answered.wait()
        raise SaslAuthenticationFailed("wrong")

    visitors: Any = SimpleNamespace(identify=lambda *_: None, log_in=log_in, can_log_in=True)
    pages: Any = None
    listener = ConsoleListener(visitors, pages, names=frozenset(), allow_insecure=False)
    head = b"POST http://localhost/login?x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 19\r\n"
    guess = head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\n", b"user=a&password=abc"
    here = HttpConnection("127.0.0.1", 40_000)
    async with asyncio.TaskGroup() as tasks:
        guesses = [tasks.create_task(listener.answer(*guess, here)) for _ in range(OPEN_MAX + 1)]
        await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)  # the one too many is refused at once
        page = await listener.answer(b"GET /console.css HTTP/1.1\r\nHost: localhost\r\n\r\n", b"", here)
        assert page.startswith(b"HTTP/1.1 200")
        answered.set()
    statuses = Counter(each.result().split()[1] for each in guesses)
    assert statuses == {b"401": OPEN_MAX, b"503": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "topics",
        "//evil.example",
        "/\\evil.example",
        "https://evil.example/",
        "/a b",
        "/\r\nX: y",
        "/\u00fc",
    ],
)
def test_an_address_that_may_be_elsewhere_is_replaced(text: str) -> None:
    assert local_address(text) == "/"
    assert local_address("/topic?name=orders&x=//y") == "/topic?name=orders&x=//y"
