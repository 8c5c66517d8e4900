"""A real browser without a screen: Chromium, asked over its pipe in the DevTools protocol.

Source: chromedevtools.github.io/devtools-protocol; `--remote-debugging-pipe` reads messages from file 3 and writes them
to file 4, each with a zero byte behind it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tidelog.clock import MachineClock

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
START_S = 30
STEP_S = 30

_EXEC = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def browser_path() -> str | None:
    """The program; None if this machine has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Tab:
    """A page that is open."""

    chromium: Chromium
    session: str
    complaints: list[str] = field(default_factory=list)
    """What the browser refused or could not do: violations of the policy, errors of scripts, requests that failed."""

    async def call(self, method: str, **parameters: Any) -> Any:
        return await self.chromium.call(method, session=self.session, **parameters)

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def open(self, address: str) -> None:
        """Go to an address, and wait until the page is there."""
        await self.evaluate("window.left = true")
        await self.call("Page.navigate", url=address)
        await self.arrive()

    async def arrive(self) -> None:
        """Wait until the former page, which has been marked, is gone, and its successor is complete."""
        await self.until("!window.left && document.readyState === 'complete'")

    async def until(self, condition: str) -> None:
        """Wait for a condition in the page."""
        clock = MachineClock()
        async with asyncio.timeout(STEP_S):
            while True:
                with suppress(AssertionError, ChromiumError):  # the page is being replaced
                    if await self.evaluate(f"Boolean({condition})"):
                        return
                await clock.sleep_ms(20)

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key and let it go."""
        code = {"Tab": 9, "Enter": 13, "Space": 32}[key]
        text = {"Enter": "\r", "Space": " "}.get(key, "")
        given = {"key": " " if key == "Space" else key, "code": key, "windowsVirtualKeyCode": code}
        given["modifiers"] = 8 if shift else 0
        await self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **given)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    async def type(self, text: str) -> None:
        """Write text where the focus is."""
        await self.call("Input.insertText", text=text)

    async def focus_by_keyboard(self, condition: str) -> None:
        """Press Tab until the element with the focus, `at`, fulfils the condition. Fails if it cannot be reached."""
        for _ in range(150):
            await self.press("Tab")
            if await self.evaluate(f"(at => {condition})(document.activeElement)"):
                return
        raise AssertionError(f"no element with {condition} can be reached by keyboard")

    async def submit(self) -> None:
        """Press Enter, and wait for the next page."""
        await self.evaluate("window.left = true")
        await self.press("Enter")
        await self.arrive()

    @property
    async def text(self) -> str:
        found: str = await self.evaluate("document.body.innerText")
        return " ".join(found.split())

    async def roles(self) -> set[tuple[str, str]]:
        """The accessibility tree, as a screen reader gets it: role and name of each node that it does not skip."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return {
            (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
        }

    async def dark(self, *, is_dark: bool) -> None:
        """Let the browser ask for dark or light pages."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self, path: Path, *, width: int = 1200, height: int = 800) -> None:
        """The upper part of the page as a PNG."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        found = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))


class ChromiumError(Exception):
    """A command that the browser refuses."""


class Chromium:
    """The running browser."""

    def __init__(self, reader: asyncio.StreamReader, write: int) -> None:
        self._reader, self._write = reader, write
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tabs: dict[str, Tab] = {}
        self.requested: list[str] = []
        """The addresses that all pages have asked for."""

    async def call(self, method: str, *, session: str = "", **parameters: Any) -> Any:
        """One command and its answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        os.write(self._write, json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(START_S):
            return await answer

    async def tab(self) -> Tab:
        """A new page."""
        target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
        session = (await self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        tab = self._tabs[session] = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "Audits"):
            await tab.call(f"{domain}.enable")
        return tab

    async def listen(self) -> None:
        """Take what the browser says, until it ends."""
        while True:
            try:
                message = json.loads((await self._reader.readuntil(b"\0"))[:-1])
            except asyncio.IncompleteReadError:
                return
            if "id" in message:
                self._answered(message)
            elif (tab := self._tabs.get(message.get("sessionId", ""))) is not None:
                self._noted(tab, message["method"], message["params"])

    def _answered(self, message: dict[str, Any]) -> None:
        waiting = self._waiting.pop(message["id"])
        if waiting.done():
            return
        if "error" in message:
            waiting.set_exception(ChromiumError(message["error"]["message"]))
        else:
            waiting.set_result(message["result"])

    def _noted(self, tab: Tab, event: str, told: dict[str, Any]) -> None:
        if event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            tab.complaints.append(told["entry"]["text"])
        elif event == "Runtime.exceptionThrown":
            tab.complaints.append(told["exceptionDetails"]["text"])
        elif event == "Audits.issueAdded":
            tab.complaints.append(told["issue"]["code"])
        elif event == "Network.requestWillBeSent":
            tab.chromium.requested.append(told["request"]["url"])


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Chromium]:
    """A browser with a profile of its own, which ends with the context."""
    path = browser_path()
    assert path is not None, "no Chromium (Debian: apt install chromium-headless-shell)"
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _EXEC,
        str(theirs_in),
        str(theirs_out),
        path,
        "--headless",
        "--no-sandbox",  # root in a container has no namespaces for it; it opens our own pages only
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        pass_fds=(theirs_in, theirs_out),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    reader = asyncio.StreamReader(limit=64 << 20)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours_in, "rb", buffering=0)
    )
    browser = Chromium(reader, ours_out)
    try:
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(browser.listen())
            yield browser
            listening.cancel()
    finally:
        transport.close()
        os.close(ours_out)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
