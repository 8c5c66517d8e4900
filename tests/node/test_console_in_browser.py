"""The web console in a real browser: by keyboard alone, as a screen reader gets it, in the dark, and without complaints
of the browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.node.chromium import Tab, chromium
from tests.node.console_users import ALL, with_alice
from tests.node.console_world import Browser, console
from tests.node.real_nodes import OPERATOR
from tidelog import Admin

pytestmark = pytest.mark.browser

PAGES = (
    "/",
    "/topics",
    "/topic?name=orders",
    "/records?name=orders&from=start",
    "/groups",
    "/group?id=readers",
    "/transactions",
    "/acls",
    "/spark",
    "/live",
    "/topic/create",
    "/topic/reassign?name=orders",
    "/topic/delete?name=orders",
    "/group/reset?id=readers",
)

CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parts = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = color => {
    const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = color.slice(0, 3).map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found[3]) return found;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(each => each.nodeType === 3 && each.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const [a, b] = [luminance(parts(getComputedStyle(element).color)), luminance(ground(element))];
    const contrast = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (contrast < 4.5) poor.push(`${element.tagName} ${element.textContent.trim().slice(0, 40)}: ${contrast}`);
  }
  return poor;
})()
"""
"""The texts whose contrast is below 4.5 to 1 (WCAG 2.2, 1.4.3), computed as it says."""


async def log_in(tab: Tab, at: str) -> None:
    """By keyboard."""
    await tab.open(f"{at}/login")
    await tab.focus_by_keyboard("at.name === 'user'")
    await tab.type("alice")
    await tab.press("Tab")
    await tab.type("tulip")
    await tab.submit()
    assert "alice" in await tab.text


async def test_a_topic_is_created_and_deleted_by_keyboard_alone(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as here, chromium(tmp_path / "profile") as browser:
        at, tab = _address(here), await browser.tab()
        await log_in(tab, at)

        await tab.open(f"{at}/topics")
        await tab.press("Tab")
        assert await tab.evaluate("document.activeElement.textContent") == "Skip to the content"
        assert await tab.evaluate("document.activeElement.getBoundingClientRect().left >= 0"), (
            "it shows when it is reached"
        )
        await tab.focus_by_keyboard("at.textContent === 'Create a topic'")
        await tab.submit()
        await tab.focus_by_keyboard("at.name === 'name'")
        await tab.type("fresh")
        await tab.focus_by_keyboard("at.textContent === 'Continue'")
        await tab.submit()
        assert "What will happen" in await tab.text
        await tab.focus_by_keyboard("at.textContent === 'Create the topic'")
        await tab.submit()
        assert "The topic is created" in await tab.text

        await tab.open(f"{at}/topic/delete?name=fresh")
        await tab.focus_by_keyboard("at.textContent === 'Delete the topic'")
        await tab.press("Enter")
        assert "What will happen" in await tab.text, "the browser asks for the name"
        await tab.press("Tab", shift=True)
        await tab.type("fresh")
        await tab.submit()
        assert "is deleted" in await tab.text
        assert tab.complaints == []


async def test_every_page_has_landmarks_names_and_contrast_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as here, chromium(tmp_path / "profile") as browser:
        at, tab = _address(here), await browser.tab()
        async with Admin(str(nodes.further[OPERATOR][0])) as admin:
            await admin.alter_group_offsets("readers", {("orders", 0): 1})
        await log_in(tab, at)
        for path in PAGES:
            await tab.open(f"{at}{path}")
            roles = await tab.roles()
            kinds = {role for role, _ in roles}
            assert {"banner", "navigation", "main", "heading"} <= kinds, (path, kinds)
            nameless = {role for role, name in roles if role in ("link", "button", "textbox", "combobox") and not name}
            assert nameless == set(), path
            assert await tab.evaluate("document.querySelectorAll('h1').length") == 1, path
            assert await tab.evaluate("document.documentElement.lang") == "en", path
            for is_dark in (False, True):
                await tab.dark(is_dark=is_dark)
                assert await tab.evaluate(CONTRAST) == [], (path, is_dark)
            narrow = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            assert await tab.evaluate(narrow), f"{path}: the page scrolls sideways"
        assert {urlsplit(each).netloc for each in browser.requested} == {str(here.address)}
        assert tab.complaints == []


async def test_charts_renew_themselves_and_stand_still_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("node.process.console", "tidelog.console.live_page"):
        monkeypatch.setattr(f"{module}.EVERY_MS", 100)
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as here, chromium(tmp_path / "profile") as browser:
        tab = await browser.tab()
        await tab.open(f"{_address(here)}/live")
        await tab.evaluate("document.querySelector('#live figure').id = 'first'")
        await tab.until("!document.getElementById('first')")
        await tab.until("document.querySelectorAll('#live svg').length === 9")
        await tab.until("document.querySelector('#live polyline')")
        await tab.focus_by_keyboard("at.id === 'pause'")
        await tab.press("Space")
        assert await tab.evaluate("document.getElementById('pause').getAttribute('aria-pressed')") == "true"
        asked = len(browser.requested)
        await tab.evaluate("new Promise(done => setTimeout(done, 500))")
        assert len(browser.requested) == asked
        drawn = [name for role, name in await tab.roles() if role == "image"]
        assert any(name.startswith("Bytes in: now 0, lowest 0, highest 0 bytes/s") for name in drawn), drawn


async def test_a_hostile_record_runs_no_script(tmp_path: Path) -> None:
    async with with_alice(tmp_path, *ALL) as nodes, console(nodes) as here, chromium(tmp_path / "profile") as browser:
        tab = await browser.tab()
        await log_in(tab, _address(here))
        await tab.open(f"{_address(here)}/records?name=orders&from=start")
        inline = "made.textContent = 'window.ran = true'; document.body.append(made);"
        await tab.evaluate(f"(made => {{ {inline} }})(document.createElement('script'))")
        assert await tab.evaluate("window.ran") is None, "the policy allows no inline script"
        assert any("Content Security Policy" in each or "ContentSecurityPolicy" in each for each in tab.complaints)


def _address(browser: Browser) -> str:
    return f"http://{browser.address}"
