"""An identity provider for tests: its keys, the tokens that it signs, and a server of HTTP that has its keys."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from node.security.sasl_settings import OAuthBearerConfig
from tidelog.clock import MachineClock
from tidelog.types import Millis

ISSUER = "https://login.example.org"
AUDIENCE = "tidelog"


@cache
def rsa_key(number: int = 0, bits: int = 2_048) -> rsa.RSAPrivateKey:
    """A key. number: tells keys apart."""
    return rsa.generate_private_key(65_537, bits)


CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}


@cache
def key_for(algorithm: str) -> Any:
    """A private key for an algorithm."""
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(CURVES[algorithm]) if algorithm in CURVES else rsa_key()


def public_jwk(key: Any, **more: Any) -> dict[str, Any]:
    """The public key, as the provider publishes it."""
    kind: Any = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}
    of = next((kind[each] for each in kind if isinstance(key, each)), OKPAlgorithm)
    return {**json.loads(of.to_jwk(key.public_key())), **more}


class IdentityProvider:
    """Signs with its newest key. Every key that it has is published."""

    def __init__(self) -> None:
        self.keys = {"key-0": rsa_key(0)}
        self.is_down = False
        self.gets = 0

    @property
    def newest(self) -> str:
        return list(self.keys)[-1]

    def rotate(self, *, keep: bool = True) -> None:
        """Sign with a new key from now on. keep: tokens of the former one stay valid."""
        number = int(self.newest.removeprefix("key-")) + 1
        self.keys = {**(self.keys if keep else {}), f"key-{number}": rsa_key(number)}

    def document(self) -> bytes:
        """The key set."""
        return json.dumps({"keys": [public_jwk(key, kid=kid, use="sig") for kid, key in self.keys.items()]}).encode()

    def write(self, path: Path) -> str:
        """Put the key set into a file. Returns its URL."""
        part = path.with_suffix(".part")
        part.write_bytes(self.document())
        part.replace(path)
        return f"file://{path}"

    def token(self, user: str = "alice", *, lasts_s: float = 600, headers: Any = None, **claims: Any) -> str:
        """A token. claims: in place of the usual ones; None: without it."""
        payload = claims_of(user, lasts_s=lasts_s, **claims)
        return jwt.encode(payload, self.keys[self.newest], "RS256", {"kid": self.newest, **(headers or {})})

    @contextmanager
    def issuing(self, user: str, *, lasts_s: float) -> Iterator[str]:
        """Give every client a token for this user, whatever its credentials (RFC 6749, section 4.4). Yields the URL of
        the token endpoint."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                token = provider.token(user, lasts_s=lasts_s)
                answer = {"access_token": token, "token_type": "Bearer", "expires_in": int(lasts_s)}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with http_server(Handler) as address:
            yield f"{address}/token"

    @contextmanager
    def serving(self, certificate: str = "", key: str = "") -> Iterator[str]:
        """Serve the key set; by https with a certificate and its key. Yields its URL."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.gets += 1
                body = b"" if provider.is_down else provider.document()
                self.send_response(503 if provider.is_down else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with http_server(Handler, certificate, key) as address:
            yield f"{address}/keys"


@contextmanager
def http_server(handler: Callable[..., BaseHTTPRequestHandler], certificate: str = "", key: str = "") -> Iterator[str]:
    """A server on loopback; of https with a certificate and its key. Yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign] # a caller that does not trust it
    server.daemon_threads = True
    serving = threading.Thread(  # noqa: TID251 - the provider is another machine
        target=server.serve_forever, args=(0.01,), daemon=True
    )
    serving.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def claims_of(
    user: str = "alice", *, lasts_s: float = 600, now_s: float | None = None, **claims: Any
) -> dict[str, Any]:
    """The claims of a token. claims: in place of the usual ones; None: without it."""
    now = MachineClock().wall_ms() / 1_000 if now_s is None else now_s
    usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": int(now), "exp": now + lasts_s}
    return {name: value for name, value in {**usual, **claims}.items() if value is not None}


def signed_by_hand(header: dict[str, Any], payload: Any, sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    """A token that no library makes."""
    parts = [_part(json.dumps(each).encode()) for each in (header, payload)]
    return ".".join((*parts, _part(sign(".".join(parts).encode()))))


def accepting(url: str, **more: Any) -> OAuthBearerConfig:
    """The settings of a node that accepts the tokens of this provider."""
    return OAuthBearerConfig(url, issuer=ISSUER, audience=("other", AUDIENCE), retry_ms=Millis(20), **more)


def _part(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
