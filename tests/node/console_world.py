"""Nodes with a console each, and a browser without a screen: it keeps cookies, follows redirects and fills in forms."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from urllib.parse import urlencode, urljoin

from node.listeners.http.http_tls import HttpTls
from node.observability.metrics_server import MetricsServer
from node.process.console import NodeConsole
from tests.node.real_nodes import RealNodes
from tidelog.clock import MachineClock
from tidelog.types import Endpoint


@dataclass
class Answer:
    """An answer of the HTTP port."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def forms(self) -> list[Form]:
        parser = _Forms()
        parser.feed(self.body)
        return parser.forms

    @property
    def text(self) -> str:
        """What is to be read, without markup."""
        parser = _Text()
        parser.feed(self.body)
        return " ".join(" ".join(parser.parts).split())


@dataclass
class Form:
    """A form of a page with the values that it has."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {key: value or "" for key, value in attrs}
        if tag == "form":
            self.forms.append(Form(given["action"], given["method"]))
        elif tag in ("input", "select") and self.forms:
            self.forms[-1].fields[given["name"]] = given.get("value", "")
        elif tag == "textarea":
            self._area = given["name"]
            self.forms[-1].fields[self._area] = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.forms[-1].fields[self._area] += data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = ""


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


@dataclass
class Browser:
    """Asks one node's console."""

    address: Endpoint
    cookies: dict[str, str] = field(default_factory=dict)
    host: str = ""
    """Of the header; empty: the address."""
    tls: ssl.SSLContext | None = None

    async def ask(
        self, path: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request."""
        body = b"" if form is None else urlencode({name: _sent(value) for name, value in form.items()}).encode()
        given = {"Host": self.host or str(self.address), **(headers or {})}
        if self.cookies:
            given["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if form is not None:
            given |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(body))}
        lines = [f"{'GET' if form is None else 'POST'} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in given.items())]
        return await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def send(self, data: bytes) -> Answer:
        """These bytes, as they are."""
        reader, writer = await asyncio.open_connection(self.address.host, self.address.port, ssl=self.tls)
        writer.write(data)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        for line in lines:
            if line.startswith("Set-Cookie: "):
                name, _, value = line.removeprefix("Set-Cookie: ").partition(";")[0].partition("=")
                self.cookies[name] = value
                if not value:
                    del self.cookies[name]
        return Answer(int(status.split()[1]), headers, body.decode())

    async def open(self, path: str) -> Answer:
        """A page, after all redirects."""
        answer = await self.ask(path)
        while answer.status == 303:
            path = urljoin(path, answer.headers["Location"])
            answer = await self.ask(path)
        return answer

    async def fill(self, page: Answer, action: str, **fields: str) -> Answer:
        """Send the form of a page that leads to this path, with these fields changed; after all redirects."""
        form = next(each for each in page.forms if each.action == action)
        answer = await self.ask(action, form={**form.fields, **fields})
        return await self.open(urljoin(action, answer.headers["Location"])) if answer.status == 303 else answer

    async def log_in(self, user: str, password: str) -> Answer:
        return await self.fill(await self.open("/login"), "/login", user=user, password=password)


def _sent(value: str) -> str:
    """A value as browsers send it: with the line breaks of HTTP, whatever the page had."""
    return value.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


@asynccontextmanager
async def console(
    nodes: RealNodes, number: int = 0, *, strangers: bool = True, tls: HttpTls | None = None
) -> AsyncIterator[Browser]:
    """A browser at the console of a node. strangers: whether a visitor may look without a login; here, where clients
    may connect without one, that depends on the address of the port alone."""
    async with AsyncExitStack() as stack:
        found = nodes.nodes[number]
        assert found.config is not None and found.transport is not None
        config = replace(found.config, metrics_bind=Endpoint("127.0.0.1" if strangers else "0.0.0.0", 0))
        node_console = NodeConsole(
            config,
            found.node,
            boundary=found.boundary,
            between_nodes=found.transport,
            clock=MachineClock(),
            rng=random.Random(11),
            host_name="node-of-a-test",
            tls=tls,
        )
        server = MetricsServer(_no_metrics, pages=node_console, tls=None if tls is None else tls.context)
        address = await server.start(Endpoint("127.0.0.1", 0))
        stack.push_async_callback(server.stop)
        async with asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(node_console.run())
            yield Browser(address)
            sampling.cancel()


async def _no_metrics() -> bytes:
    return b"none 1\n"
