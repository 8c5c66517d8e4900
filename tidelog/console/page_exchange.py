"""A request for a page and the answer, without the protocol that carries them; and who asks."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import urlencode

from tidelog.errors import InvalidRequest

PAGE: Final = "text/html; charset=utf-8"
NEXT_PAGE: Final = "next"
"""The field of the login that names the page to show after it."""
EXACT: Final = "exact."
"""Begins the names of the form fields that nobody types, whose values are encoded: see `exact_field`."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The person at the browser."""

    principal: str
    may_change: bool = False
    """False: the visitor has not proved who it is, and only looks."""
    form_token: str = ""
    """What each form of this visitor carries; the node has checked it when a form arrives here."""
    can_log_in: bool = False
    """Whether there is a page to log in with a password."""
    has_session: bool = False
    """Whether there is a session to end."""
    asked: str = ""
    """The page of this node to which a login leads; empty: the first one."""


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What is asked for."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    """The fields of a form that was sent; None if a page is asked for."""

    def text(self, name: str, default: str = "") -> str:
        """A field of the form, or of the query, that a person may have typed: without space around it. Raises
        InvalidRequest."""
        return self.exact(name, default).strip()

    def exact(self, name: str, default: str = "") -> str:
        """A field of the form, or of the query, as it was sent. Raises InvalidRequest."""
        fields = self.query if self.form is None else self.form
        encoded = fields.get(EXACT + name)
        return fields.get(name, default) if encoded is None else _decoded(name, encoded)


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = PAGE


def exact_field(name: str, value: str) -> tuple[str, str]:
    """A field whose value comes back as it is. HTML and browsers change others: line breaks become CR LF, a NUL is
    replaced, and a page shows characters that are not printable as escapes. The change of an id would change another
    thing than the one that was confirmed."""
    return EXACT + name, urlsafe_b64encode(value.encode()).decode("ascii").rstrip("=")


def login_address(asked: str) -> str:
    """The address of the page to log in. asked: the page of this node to show then; empty: the first one."""
    return "/login" if asked in ("", "/") else f"/login?{urlencode({NEXT_PAGE: asked})}"


def _decoded(name: str, encoded: str) -> str:
    try:
        return urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except ValueError:
        raise InvalidRequest(f"the hidden field {name!r} is malformed: nothing was changed. Begin again") from None
