"""A request for a page and the answer, without the protocol that carries them; and who asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

PAGE: Final = "text/html; charset=utf-8"


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


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What is asked for."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] | None = None
    """The fields of a form that was sent; None if a page is asked for."""

    def text(self, name: str, default: str = "") -> str:
        """A field of the form, or of the query."""
        return (self.query if self.form is None else self.form).get(name, default).strip()


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What is answered."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    kind: str = PAGE
