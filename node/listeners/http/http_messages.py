"""The bytes of HTTP/1.1 to requests for pages, and answers to bytes. One request for each connection.

Source: RFC 9112; what it leaves open to a server (two lengths, a request in pieces) is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from tidelog.errors import InvalidRequest
from tidelog.values import dataclass

FORM_BYTES_MAX: Final = 64 << 10
"""The largest form: the replicas of some thousand partitions."""
LENGTH_DIGITS_MAX: Final = 20
"""More than any length needs, and fewer than Python refuses to read."""
FIELDS_MAX: Final = 100
ADDRESS_CHARACTERS_MAX: Final = 2_000
FORM_KIND: Final = "application/x-www-form-urlencoded"

_ALLOWED: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

HEADERS: Final = (
    # Nothing from elsewhere is loaded, no script but the console's own file runs, and no other site may frame a page or
    # get a form: whatever a name or a record contains.
    ("Content-Security-Policy", _ALLOWED),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),  # with no-referrer, browsers send the forms of a page with the origin null
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
"""Of every answer."""


@dataclass(frozen=True, slots=True)
class HttpHead:
    """The head of a request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By name in lower case."""
    target: str = ""
    """Path and query as they were sent."""

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies."""
        pairs = (each.strip().partition("=") for each in self.headers.get("cookie", "").split(";"))
        return {name: value for name, _, value in pairs if name}

    @property
    def body_bytes(self) -> int:
        """The length of the body. Raises InvalidRequest."""
        if "transfer-encoding" in self.headers:
            raise InvalidRequest("a form in pieces (Transfer-Encoding) is not accepted: send it with its length")
        text = self.headers.get("content-length", "0")
        # All digits count: behind enough zeros, a number of any size would look small.
        is_length = text.isascii() and text.isdecimal() and len(text) <= LENGTH_DIGITS_MAX
        if not is_length or int(text) > FORM_BYTES_MAX:
            raise InvalidRequest(f"a form has at most {FORM_BYTES_MAX} bytes, in Content-Length; it says {text[:20]!r}")
        return int(text)


def head_of(data: bytes) -> HttpHead:
    """Read a head with its empty line. Raises InvalidRequest."""
    first, *others = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise InvalidRequest("this is no request of HTTP/1.1")
    headers: dict[str, str] = {}
    for line in others:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip():
            raise InvalidRequest("a header of the request is malformed")
        if key in headers and key in ("host", "content-length", "transfer-encoding", "cookie", "origin"):
            raise InvalidRequest(f"the header {key} is there twice: which one holds?")
        headers[key] = value.strip()
    try:
        parts = urlsplit(words[1])
    except ValueError:
        raise InvalidRequest("the address of the request is malformed") from None
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return HttpHead(words[0], parts.path, fields_of(parts.query), headers, target)


def form_bytes_of(data: bytes) -> int:
    """The length of the form behind a head; 0 if there is none, and if it is refused: then its answer says why."""
    try:
        head = head_of(data)
        return head.body_bytes if head.method == "POST" else 0
    except InvalidRequest:
        return 0


def local_address(text: str) -> str:
    """A path with its query, if it can only be one of this node: a browser must not be sent to another site, nor get
    another header. "/" for any other text."""
    is_plain = text.isascii() and text.isprintable() and " " not in text and "\\" not in text
    is_local = text.startswith("/") and not text.startswith("//") and len(text) <= ADDRESS_CHARACTERS_MAX
    return text if is_plain and is_local else "/"


def fields_of(text: str) -> dict[str, str]:
    """The fields of a query or of a form. Raises InvalidRequest."""
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
    except ValueError:
        raise InvalidRequest(f"the fields of the request are malformed, or more than {FIELDS_MAX}") from None


def reply(
    status: HTTPStatus, body: bytes, kind: str, more: tuple[tuple[str, str], ...] = (), *, with_body: bool = True
) -> bytes:
    """The bytes of an answer."""
    head = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in (*HEADERS, *more)),
        "Connection: close",
    ]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + (body if with_body else b"")
