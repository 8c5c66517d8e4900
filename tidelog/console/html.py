"""HTML as values: markup is `Html`, everything else is text and is escaped where it is put in.

Invariant: a name, an id or a record never becomes markup, whatever is in it. Characters that are not printable are
shown as escapes, so that no text hides or reorders what is around it.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final, TypeAlias
from urllib.parse import urlencode

from tidelog.printable import printable

_VOID: Final = frozenset({"br", "hr", "img", "input", "link", "meta"})


class Html(str):
    """Markup. Only this module makes it of text."""

    __slots__ = ()


Content: TypeAlias = "Html | str | int | float | Iterable[Content] | None"
"""What is put into an element: markup as it is, other text escaped, None as nothing."""


def markup(content: Content) -> Html:
    """The markup of a content."""
    if content is None:
        return Html("")
    if isinstance(content, Html):
        return content
    if isinstance(content, str | int | float):
        return Html(html.escape(printable(str(content))))
    return Html("".join(markup(each) for each in content))


def element(tag: str, /, *content: Content, **attributes: str | int | bool | None) -> Html:
    """An element. attributes: `class_` is `class`, `aria_label` is `aria-label`; True is an attribute without a value,
    False and None leave it out."""
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_quoted(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{tag}{shown}>" if tag in _VOID else f"<{tag}{shown}>{markup(content)}</{tag}>")


def lines(texts: Iterable[str]) -> Html:
    """Text of several lines, for `pre`."""
    return Html("\n".join(markup(each) for each in texts))


def address(path: str, **query: str | int | None) -> str:
    """The address of a page with its query. None leaves a part out."""
    given = {key.rstrip("_"): value for key, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def link(to: str, *content: Content, **attributes: str | int | bool | None) -> Html:
    """A link. to: from `address`."""
    return element("a", *content, href=to, **attributes)


def table(caption: str, columns: Iterable[str], rows: Iterable[Iterable[Content]], *, empty: str = "none") -> Html:
    """A table; numbers are aligned to the right. The first cell of a row is its heading. empty: what is said in place
    of a table without rows."""
    body = [
        element(
            "tr",
            [
                element("th", cell, scope="row") if not index else element("td", cell, class_=_kind_of(cell))
                for index, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    if not body:
        return element("section", element("h2", caption), element("p", empty))
    head = element("tr", [element("th", column, scope="col") for column in columns])
    # A wide table scrolls by itself: it must be reachable by keyboard, and so it has a name.
    return element(
        "div",
        element("table", element("caption", caption), element("thead", head), element("tbody", body)),
        class_="wide",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def facts(pairs: Iterable[tuple[str, Content]]) -> Html:
    """Names with their values."""
    return element("dl", [(element("dt", name), element("dd", value)) for name, value in pairs])


def items(contents: Iterable[Content]) -> Html:
    """A list."""
    return element("ul", [element("li", each) for each in contents])


def field(label: str, name: str, value: str = "", *, hint: str = "", **attributes: str | int | bool | None) -> Html:
    """A field of a form, with its label. hint: what may be written there."""
    identity = f"field-{name}"
    described = f"{identity}-hint" if hint else None
    given = element(
        "input", id=identity, name=name, value=value, aria_describedby=described, autocomplete="off", **attributes
    )
    told = element("small", hint, id=described) if hint else None
    return element("p", element("label", label, for_=identity), given, told)


def choice(label: str, name: str, options: Iterable[tuple[str, str]], chosen: str = "") -> Html:
    """A field with fixed values. options: each value with what is shown for it."""
    identity = f"field-{name}"
    entries = [element("option", shown, value=value, selected=value == chosen) for value, shown in options]
    return element("p", element("label", label, for_=identity), element("select", entries, id=identity, name=name))


def _quoted(value: str | int) -> str:
    return html.escape(printable(str(value)))


def _kind_of(cell: Content) -> str | None:
    return "number" if isinstance(cell, int) and not isinstance(cell, bool) else None
