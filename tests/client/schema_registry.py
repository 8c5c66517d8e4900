"""A schema registry for tests: the part of Confluent's HTTP API that its serializers use; it has schemas in memory."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import UUID

_SUBJECT: Final = re.compile(r"/subjects/([^/]+)(/versions)?")
_SCHEMA: Final = re.compile(r"/schemas/(ids|guids)/([^/]+)")


class SchemaRegistry:
    """Its schemas, and what it was asked."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.requests: list[str] = []
        """Method and path of each request."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(  # noqa: TID251 - the registry is another machine
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()

    def close(self) -> None:
        """End it. Idempotent."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request; None if nothing is there."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            if method == "POST" and (subject := _SUBJECT.fullmatch(path)):
                return self._with_schema(unquote(subject[1]), body, is_new=subject[2] is not None)
            if method == "GET" and (schema := _SCHEMA.fullmatch(path)):
                field = "id" if schema[1] == "ids" else "guid"
                return next((each for each in self.schemas if str(each[field]) == schema[2]), None)
            return None

    def _with_schema(self, subject: str, body: dict[str, Any], *, is_new: bool) -> dict[str, Any] | None:
        given: dict[str, Any] = {name: body[name] for name in ("schema", "schemaType", "references") if name in body}
        for each in self.schemas:
            if each["subject"] == subject and all(each.get(name) == value for name, value in given.items()):
                return each
        if not is_new:
            return None
        number = len(self.schemas) + 1
        version = 1 + sum(each["subject"] == subject for each in self.schemas)
        registered: dict[str, Any] = {
            **given,
            "id": number,
            "guid": str(UUID(int=number)),
            "subject": subject,
            "version": version,
        }
        self.schemas.append(registered)
        return registered

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer = self.answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                found = answer(self.command, urlsplit(self.path).path, body)
                self.send_response(200 if found is not None else 404)
                data = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler


@contextmanager
def schema_registry() -> Iterator[SchemaRegistry]:
    """Run a registry in a thread."""
    registry = SchemaRegistry()
    try:
        yield registry
    finally:
        registry.close()
