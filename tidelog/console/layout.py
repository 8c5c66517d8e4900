"""What all pages have in common: head, navigation, notices, and the way to log in and out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tidelog.console.html import Content, Html, element, link
from tidelog.console.page_exchange import Visitor, exact_field, login_address

STYLE_PATH: Final = "/console.css"
SCRIPT_PATH: Final = "/console.js"
ICON_PATH: Final = "/console.svg"

ROWS_SHOWN_MAX: Final = 500
"""Of a table: a page with more takes the browser seconds, and the node too. A filter and the command line reach the
others."""
CELL_TEXTS_MAX: Final = 20

SECTIONS: Final = (
    ("/", "Cluster"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/transactions", "Transactions"),
    ("/acls", "Permissions"),
    ("/spark", "Spark"),
    ("/live", "Live"),
)
"""The navigation: path and name."""


def document(title: str, visitor: Visitor, *body: Content, section: str = "") -> Html:
    """A whole page. section: the path of the part of the navigation that it belongs to."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} - Tidelog"),
        element("link", rel="stylesheet", href=STYLE_PATH),
        element("link", rel="icon", href=ICON_PATH, type="image/svg+xml"),
        element("script", "", src=SCRIPT_PATH, defer=True),
    )
    content = element(
        "body",
        link("#content", "Skip to the content", class_="skip"),
        element("header", element("p", link("/", "Tidelog"), class_="name"), _navigation(section), _account(visitor)),
        element("main", element("h1", title), body, id="content", tabindex=-1),
    )
    return Html("<!doctype html>\n" + element("html", head, content, lang="en"))


def form(to: str, visitor: Visitor, *content: Content, button: str, dangerous: bool = False) -> Html:
    """A form that is sent to this path. It carries the token of the visitor."""
    token = element("input", type="hidden", name="form_token", value=visitor.form_token)
    send = element("button", button, type="submit", class_="danger" if dangerous else None)
    return element("form", token, content, element("p", send), method="post", action=to)


def search(to: str, *content: Content, button: str) -> Html:
    """A form that changes nothing: its fields become the query of the page."""
    send = element("button", button, type="submit")
    return element("form", content, element("p", send), method="get", action=to, class_="search")


def hidden(fields: Iterable[tuple[str, str]]) -> list[Html]:
    """Fields that nobody types. Their values come back unchanged: `PageRequest.exact`."""
    sent = [exact_field(name, value) for name, value in fields]
    return [element("input", type="hidden", name=name, value=value) for name, value in sent]


def not_shown(count: int, more: str = "") -> Html | None:
    """How many rows of a table are left out, if it has more than `ROWS_SHOWN_MAX`. more: how to see the others."""
    if count <= ROWS_SHOWN_MAX:
        return None
    left_out = count - ROWS_SHOWN_MAX
    return element("p", f"The first {ROWS_SHOWN_MAX} of {count}; {left_out} are not shown. {more}".strip())


def few(texts: Sequence[str]) -> str:
    """The first of some texts in one cell, and how many others there are."""
    rest = f" and {len(texts) - CELL_TEXTS_MAX} more" if len(texts) > CELL_TEXTS_MAX else ""
    return ", ".join(texts[:CELL_TEXTS_MAX]) + rest


def notice(*content: Content) -> Html:
    """Something to be noticed; a screen reader says it at once."""
    return element("div", content, class_="notice", role="status")


def alarm(*content: Content) -> Html:
    """Something that is wrong."""
    return element("div", content, class_="alarm", role="alert")


def read_only(visitor: Visitor) -> Html | None:
    """Why a page has no buttons to change anything; None if it has them."""
    if visitor.may_change:
        return None
    how = link(login_address(visitor.asked), "Log in") if visitor.can_log_in else "Show a certificate of a client"
    return notice(element("p", "You are not logged in, so that you can only look. ", how, " to change anything."))


def _navigation(section: str) -> Html:
    entries = [
        element("li", link(path, name, aria_current="page" if path == section else None)) for path, name in SECTIONS
    ]
    return element("nav", element("ul", entries), aria_label="Sections")


def _account(visitor: Visitor) -> Html:
    who = element("span", visitor.principal.removeprefix("User:"))
    if visitor.has_session:
        return element("div", who, form("/logout", visitor, button="Log out"), class_="account")
    entry = link(login_address(visitor.asked), "Log in") if visitor.can_log_in and not visitor.may_change else None
    return element("div", who, entry, class_="account")
