"""The console as a function: a request and its visitor in, a page out.

Invariants: only a visitor who may change gets a form, and only with the token of the visitor's own forms anything is
changed. Every error of the cluster is a page that says what to do.
Not here: HTTP, cookies and logins (node/listeners/http/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from tidelog.client.admin import Admin
from tidelog.client.replica_reader import ReplicaReader
from tidelog.clock import Clock
from tidelog.console import (
    acl_page,
    changes,
    cluster_page,
    group_pages,
    live_page,
    record_pages,
    spark_page,
    topic_pages,
    transaction_pages,
)
from tidelog.console.group_forms import OffsetReset
from tidelog.console.html import Html, element, field, link
from tidelog.console.layout import ICON_PATH, SCRIPT_PATH, STYLE_PATH, alarm, document, form, hidden, notice
from tidelog.console.live_figures import LiveFigures
from tidelog.console.page_call import Page, PageCall, Shown
from tidelog.console.page_exchange import NEXT_PAGE, PageAnswer, PageRequest, Visitor, login_address
from tidelog.console.script import SCRIPT
from tidelog.console.style_sheet import ICON, STYLE
from tidelog.console.topic_forms import TopicDeletion, TopicForm, TopicMove
from tidelog.errors import ConnectionFailed, RequestTimedOut, TidelogError
from tidelog.protocol.network import Transport

REQUEST_MS: Final = 10_000
PATIENCE_MS: Final = 5_000
"""A person waits no longer for a page; and can ask again."""

_PAGES: Final[Mapping[str, tuple[Page, str]]] = {
    "/": (cluster_page.cluster, "/"),
    "/topics": (topic_pages.topics, "/topics"),
    "/topic": (topic_pages.topic, "/topics"),
    "/records": (record_pages.records, "/topics"),
    "/groups": (group_pages.groups, "/groups"),
    "/group": (group_pages.group, "/groups"),
    "/transactions": (transaction_pages.transactions, "/transactions"),
    "/transaction": (transaction_pages.transaction, "/transactions"),
    "/acls": (acl_page.acls, "/acls"),
    "/spark": (spark_page.spark, "/spark"),
    "/live": (live_page.live, "/live"),
}
"""Each page, with the section that it belongs to."""

_CHANGES: Final[Mapping[str, tuple[changes.ConfirmedChange, str]]] = {
    TopicForm.path: (TopicForm(), "/topics"),
    TopicDeletion.path: (TopicDeletion(), "/topics"),
    TopicMove.path: (TopicMove(), "/topics"),
    OffsetReset.path: (OffsetReset(), "/groups"),
}

_FILES: Final[Mapping[str, tuple[str, str]]] = {
    STYLE_PATH: (STYLE, "text/css; charset=utf-8"),
    SCRIPT_PATH: (SCRIPT, "text/javascript; charset=utf-8"),
    ICON_PATH: (ICON, "image/svg+xml"),
}

_STATUSES: Final[Mapping[str, HTTPStatus]] = {
    "PERMISSION_DENIED": HTTPStatus.FORBIDDEN,
    "UNAUTHENTICATED": HTTPStatus.UNAUTHORIZED,
    "NOT_FOUND": HTTPStatus.NOT_FOUND,
    "INVALID_ARGUMENT": HTTPStatus.BAD_REQUEST,
    "OUT_OF_RANGE": HTTPStatus.BAD_REQUEST,
    "ALREADY_EXISTS": HTTPStatus.CONFLICT,
    "FAILED_PRECONDITION": HTTPStatus.CONFLICT,
    "RESOURCE_EXHAUSTED": HTTPStatus.TOO_MANY_REQUESTS,
    "INTERNAL": HTTPStatus.INTERNAL_SERVER_ERROR,
    "DATA_LOSS": HTTPStatus.INTERNAL_SERVER_ERROR,
}
"""Of the errors of the cluster; others are of a cluster that does not answer now."""


def file(path: str) -> PageAnswer | None:
    """The style sheet or the script, which everybody may have; None for another path."""
    found = _FILES.get(path)
    return None if found is None else PageAnswer(found[0].encode(), kind=found[1])


class Pages:
    """The pages of one node's console."""

    def __init__(
        self,
        bootstrap: str,
        connect: Callable[[Visitor], Transport],
        reading: asyncio.Semaphore,
        live: LiveFigures,
        clock: Clock,
    ) -> None:
        """bootstrap: the address of this node. connect: how a visitor's requests reach the cluster. reading: of the
        node, for all its pages."""
        self._bootstrap, self._connect, self._reading = bootstrap, connect, reading
        self._live, self._clock = live, clock

    async def answer(self, request: PageRequest, visitor: Visitor) -> PageAnswer:
        """The page for a request."""
        change, section = _CHANGES.get(request.path, (None, ""))
        page, section = _PAGES.get(request.path, (None, section))
        is_part = request.path == live_page.PART_PATH
        if change is None and page is None and not is_part:
            return _told(visitor, HTTPStatus.NOT_FOUND, "There is no such page", "The address is wrong.")
        if change is not None and not visitor.may_change:
            return _told(visitor, HTTPStatus.FORBIDDEN, "Log in first", "You are not logged in, and can only look.")
        if change is None and request.form is not None:
            return _told(visitor, HTTPStatus.METHOD_NOT_ALLOWED, "Nothing was changed", "This page has no form.")
        transport = self._connect(visitor)

        def reader() -> ReplicaReader:
            return ReplicaReader(self._bootstrap, transport=transport)

        admin = Admin(self._bootstrap, request_timeout_ms=REQUEST_MS, patience_ms=PATIENCE_MS, transport=transport)
        try:
            async with admin:
                call = PageCall(request, visitor, admin, reader, self._reading, self._live, self._clock.wall_ms())
                if is_part:
                    return PageAnswer(live_page.charts(call).encode())
                if change is not None:
                    shown = await changes.serve(change, call)
                else:
                    assert page is not None, "the path has a page or a change"
                    shown = await page(call)
        except TidelogError as error:
            return refusal(visitor, error)
        return _page(visitor, shown, section)


def login_page(visitor: Visitor, *, user: str = "", wrong: str = "", is_private: bool = True) -> PageAnswer:
    """The form to log in. wrong: why the last attempt failed. is_private: whether a password may be sent over this
    connection."""
    if not visitor.can_log_in:
        body: Html = notice(
            element(
                "p",
                "This cluster has no users with passwords. Show the certificate of a client to this address, "
                "if it has TLS.",
            )
        )
    elif not is_private:
        body = alarm(
            element(
                "p",
                "A password is not accepted over this connection: others could read it. Open this page with "
                "TLS (https), or on the node's own machine.",
            )
        )
    else:
        body = form(
            "/login",
            visitor,
            hidden([(NEXT_PAGE, visitor.asked)]),
            field("User", "user", user, required=True),
            element(
                "p",
                element("label", "Password", for_="password"),
                element(
                    "input",
                    id="password",
                    name="password",
                    type="password",
                    required=True,
                    autocomplete="current-password",
                ),
            ),
            button="Log in",
        )
    failed = alarm(element("p", wrong)) if wrong else None
    status = HTTPStatus.UNAUTHORIZED if wrong else HTTPStatus.OK
    return _page(visitor, Shown("Log in", [failed, body]), "", status)


def refusal(visitor: Visitor, error: TidelogError) -> PageAnswer:
    """The page for an error of the cluster."""
    status = _STATUSES.get(error.status, HTTPStatus.SERVICE_UNAVAILABLE)
    if isinstance(error, ConnectionFailed | RequestTimedOut):
        status = HTTPStatus.SERVICE_UNAVAILABLE
    name = error.kafka_name or type(error).__name__
    body = alarm(element("p", error.message), element("p", element("small", name)))
    return _page(visitor, Shown("That did not work", [body]), "", status)


def _told(visitor: Visitor, status: HTTPStatus, title: str, sentence: str) -> PageAnswer:
    can_log_in = visitor.can_log_in and not visitor.may_change
    more = element("p", link(login_address(visitor.asked), "Log in")) if can_log_in else None
    return _page(visitor, Shown(title, [element("p", sentence), more]), "", status)


def _page(visitor: Visitor, shown: Shown, section: str, status: HTTPStatus = HTTPStatus.OK) -> PageAnswer:
    body = [each for each in shown.body if each is not None]
    return PageAnswer(document(shown.title, visitor, body, section=section).encode(), status)
