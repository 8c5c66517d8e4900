"""How a visitor of the web console logs in, and where the login leads."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest

from node.listeners.http.http_messages import local_address
from tests.node.console_users import ALL, with_alice
from tests.node.console_world import Browser, console
from tests.node.real_nodes import OPERATOR
from tidelog import Admin
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
