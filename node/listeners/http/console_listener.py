"""The console behind the HTTP port: who asks, and whether a form is the visitor's own.

Invariants: nothing is changed but by a POST whose form has the token of the visitor's session, and whose page came from
this address. A page is answered only under a name by which this node is known, so that no other site's name can be
pointed at it (DNS rebinding). A password is taken only over TLS, from the node's own machine, or where the operator
allows insecure connections.
Not here: the pages (tidelog/console/), sessions (visitors.py), the socket (node/observability/metrics_server.py).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from node.api.caller import ANONYMOUS
from node.listeners.http.http_messages import FORM_KIND, HttpHead, fields_of, head_of, local_address, reply
from node.listeners.http.visitors import VisitorIdentity, Visitors
from tidelog.errors import InvalidRequest, SaslAuthenticationFailed, TidelogError
from tidelog.security.hashes import compare_digest
from tidelog.security.loopback import is_loopback
from tidelog.values import dataclass

if TYPE_CHECKING:
    from tidelog.console.page_exchange import PageAnswer, Visitor
    from tidelog.console.pages import Pages

_log = logging.getLogger("node.requests")

PAGE_MS: Final = 30_000
"""How long a page may take: several requests to nodes that do not answer."""
OPEN_MAX: Final = 16
"""Pages that are made at once, and as many logins; further ones are refused, so that no reader of pages slows the
cluster down."""
TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class HttpConnection:
    """How a visitor is connected."""

    host: str
    port: int
    own_port: int = 0
    is_encrypted: bool = False
    certified: str | None = None
    """The principal of the certificate that the visitor has shown."""

    @property
    def cookie(self) -> str:
        """The name of the cookie. Browsers send the cookies of a host to all its ports: several nodes of one machine
        would take each other's."""
        return f"tidelog-console-{self.own_port}"


@dataclass(frozen=True, slots=True)
class Asking:
    """A visitor with what its pages are made for."""

    visitor: Visitor
    host: str
    connection: str


class ConsoleListener:
    """Answers requests for pages."""

    def __init__(
        self,
        visitors: Visitors,
        pages: Callable[[], Callable[[Asking], Pages]],
        *,
        names: frozenset[str],
        allow_insecure: bool,
    ) -> None:
        """pages: called with the first request, so that a node whose console nobody uses does not load it; returns the
        pages of a visitor. names: the host names of this node, in lower case. allow_insecure: accept passwords without
        TLS."""
        self._visitors, self._load = visitors, pages
        self._pages_of: Callable[[Asking], Pages] | None = None
        self._names, self._allow_insecure = names, allow_insecure
        self._open: Counter[str] = Counter()

    async def answer(self, head: bytes, body: bytes, connection: HttpConnection) -> bytes:
        """The bytes of an answer. head: of the request, with the empty line; body: its form. The form is here before a
        page takes its place: else as many slow senders as there are places would stop the console."""
        try:
            asked = head_of(head)
        except InvalidRequest as error:
            return reply(HTTPStatus.BAD_REQUEST, f"{error.message}\n".encode(), TEXT)
        # A wrong password is answered late: guesses must not take the places of pages.
        kind = "login" if (asked.method, asked.path) == ("POST", "/login") else "page"
        if self._open[kind] >= OPEN_MAX:
            busy = f"{OPEN_MAX} pages are being made, as many as a node makes at once: try again\n".encode()
            return reply(HTTPStatus.SERVICE_UNAVAILABLE, busy, TEXT, (("Retry-After", "2"),))
        self._open[kind] += 1
        try:
            async with asyncio.timeout(PAGE_MS / 1_000):
                return await self._answer(asked, body, connection)
        except InvalidRequest as error:
            return reply(HTTPStatus.BAD_REQUEST, f"{error.message}\n".encode(), TEXT)
        except TimeoutError:
            return reply(HTTPStatus.GATEWAY_TIMEOUT, b"the cluster does not answer in time: try again\n", TEXT)
        except Exception:  # noqa: BLE001 (a defect: the visitor gets an answer, the log its traceback)
            _log.exception("console: a page failed by a defect")
            return reply(HTTPStatus.INTERNAL_SERVER_ERROR, b"the page failed by a defect: see the node's log\n", TEXT)
        finally:
            self._open[kind] -= 1

    async def _answer(self, head: HttpHead, body: bytes, connection: HttpConnection) -> bytes:
        from tidelog.console.page_exchange import PageRequest, login_address
        from tidelog.console.pages import file

        if head.method not in ("GET", "HEAD", "POST"):
            return reply(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and POST\n", TEXT, (("Allow", "GET, HEAD, POST"),))
        if not self._is_known(head.headers.get("host", "")):
            return reply(HTTPStatus.MISDIRECTED_REQUEST, _UNKNOWN_NAME, TEXT)
        if (found := file(head.path)) is not None:
            return _page_reply(found, head)
        form = _form_of(head, body) if head.method == "POST" else None
        token = head.cookies.get(connection.cookie)
        if form is not None and not _is_own(head):
            return reply(HTTPStatus.FORBIDDEN, b"the form comes from another site: nothing was changed\n", TEXT)
        identity = self._visitors.identify(token, connection.certified)
        if head.path == "/login":
            return await self._login(head, form, identity, connection)
        asked = "" if head.method == "POST" else local_address(head.target)
        if identity is None:
            return _moved(login_address(asked))
        if form is not None and not _is_of(identity, form.pop("form_token", "")):
            return reply(HTTPStatus.FORBIDDEN, b"the form is too old: nothing was changed. Load its page again\n", TEXT)
        if head.path == "/logout" and form is not None:
            self._visitors.log_out(token or "")
            return _moved("/login", _cookie("", connection))
        asking = Asking(self._visitor(identity, asked), connection.host, f"{connection.host}:{connection.port}")
        request = PageRequest(head.path, head.query, form)
        return _page_reply(await self._pages(asking).answer(request, asking.visitor), head)

    def _pages(self, asking: Asking) -> Pages:
        if self._pages_of is None:
            self._pages_of = self._load()
        return self._pages_of(asking)

    def _visitor(self, identity: VisitorIdentity | None, asked: str) -> Visitor:
        """asked: the page that is asked for; empty: none to which a login could lead."""
        from tidelog.console.page_exchange import Visitor

        can_log_in = self._visitors.can_log_in
        if identity is None:
            return Visitor(ANONYMOUS, can_log_in=can_log_in, asked=asked)
        return Visitor(
            identity.principal,
            may_change=identity.is_proved,
            form_token=identity.form_token,
            can_log_in=can_log_in,
            has_session=identity.is_session,
            asked=asked,
        )

    async def _login(
        self, head: HttpHead, form: dict[str, str] | None, identity: VisitorIdentity | None, connection: HttpConnection
    ) -> bytes:
        """The form to log in, or the outcome of a login. It has no token: its visitor has no session yet, and a
        page that sends it for the visitor would need a password."""
        from tidelog.console.page_exchange import NEXT_PAGE, PageRequest
        from tidelog.console.pages import login_page

        is_private = connection.is_encrypted or is_loopback(connection.host) or self._allow_insecure
        asked = local_address(PageRequest(head.path, head.query, form).exact(NEXT_PAGE))
        visitor = self._visitor(identity, asked)
        if form is None or not is_private or not visitor.can_log_in:
            return _page_reply(login_page(visitor, is_private=is_private), head)
        user, former = form.get("user", ""), head.cookies.get(connection.cookie)
        try:
            token = await self._visitors.log_in(
                user,
                form.get("password", ""),
                host=connection.host,
                connection=f"{connection.host}:{connection.port}",
            )
        except SaslAuthenticationFailed:
            wrong = "The user name or the password is wrong."
        except TidelogError as error:
            wrong = error.message
        else:
            if former is not None:
                self._visitors.log_out(former)
            return _moved(asked, _cookie(token, connection))
        return _page_reply(login_page(replace(visitor, may_change=False), user=user, wrong=wrong), head)

    def _is_known(self, host: str) -> bool:
        """Whether the name in the address is one of this node, or a number."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name == "localhost" or name in self._names
        return True


_UNKNOWN_NAME: Final = (
    b"this node does not have this name: open its console by an IP address, by localhost, or by a host name that\n"
    b"advertised.listeners or metrics.listener has\n"
)


def _is_own(head: HttpHead) -> bool:
    """Whether a form was sent from a page of this address. Browsers say so by themselves."""
    if head.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = head.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == head.headers.get("host", "")
    except ValueError:
        return False


def _is_of(identity: VisitorIdentity, form_token: str) -> bool:
    """Whether a form was made for this visitor."""
    return identity.is_proved and compare_digest(form_token.encode(), identity.form_token.encode())


def _form_of(head: HttpHead, body: bytes) -> dict[str, str]:
    kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM_KIND:
        raise InvalidRequest(f"a form is sent as {FORM_KIND}, not as {kind[:100]!r}")
    if len(body) != head.body_bytes:
        raise InvalidRequest(f"the form has {len(body)} bytes, not {head.body_bytes}")
    return fields_of(body.decode("latin-1"))


def _page_reply(answer: PageAnswer, head: HttpHead) -> bytes:
    return reply(answer.status, answer.body, answer.kind, with_body=head.method != "HEAD")


def _moved(to: str, *more: tuple[str, str]) -> bytes:
    return reply(HTTPStatus.SEE_OTHER, b"", TEXT, (("Location", to), *more))


def _cookie(token: str, connection: HttpConnection) -> tuple[str, str]:
    """Not for scripts, not for other sites, and over TLS only where there is TLS."""
    ends = "; Max-Age=0" if not token else ""
    secure = "; Secure" if connection.is_encrypted else ""
    return "Set-Cookie", f"{connection.cookie}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}"
