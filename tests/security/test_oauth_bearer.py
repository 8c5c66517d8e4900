"""The messages of OAUTHBEARER, both sides, and where a client has its token from."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import Sasl
from tidelog.errors import ConnectionFailed, InvalidConfig, InvalidRequest, SaslAuthenticationFailed
from tidelog.protocol.sasl_client import SaslClient
from tidelog.protocol.token_reader import TokenReader
from tidelog.protocol.v1 import sasl_pb2
from tidelog.security.oauth_bearer import (
    DUMMY,
    INVALID_TOKEN,
    MESSAGE_BYTES_MAX,
    TOKEN_BYTES_MAX,
    checked_token,
    first_message,
    read_first,
)
from tidelog.types import Endpoint

TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"
CALL_MS = 20_000


def test_a_server_reads_what_a_client_writes() -> None:
    assert first_message(TOKEN) == b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01\x01"
    assert read_first(first_message(TOKEN)) == (TOKEN, "")
    # RFC 7628, section 4.1, and what Kafka's client sends with extensions
    message = b"n,a=user@example.com,\x01host=server.example.com\x01port=143\x01auth=bearer vF9dft4qmT==\x01\x01"
    assert read_first(message) == ("vF9dft4qmT==", "user@example.com")
    assert read_first(b"y,a=a=2Cb=3Dc,\x01auth=Bearer  x\x01\x01") == ("x", "a,b=c")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer x\x01",
        b"n,\x01auth=Bearer x\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,,extra\x01auth=Bearer x\x01\x01",
        b"n,b=user,\x01auth=Bearer x\x01\x01",
        b"n,a=a=2Xb,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01host\x01auth=Bearer x\x01\x01",
        b"n,,\x01\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        first_message("x" * (TOKEN_BYTES_MAX + 1)),
        b"n,,\x01host=" + b"x" * MESSAGE_BYTES_MAX + b"\x01auth=Bearer x\x01\x01",
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_first(message)


@given(st.binary(max_size=200) | st.binary(max_size=50).map(lambda data: b"n,,\x01auth=Bearer " + data + b"\x01\x01"))
def test_any_bytes_are_a_message_or_an_invalid_request(message: bytes) -> None:
    try:
        token, identity = read_first(message)
    except InvalidRequest:
        return
    assert checked_token(token, "it") == token
    assert "\x01" not in identity


def test_a_client_says_what_it_is_given_and_shows_no_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    sasl = Sasl(token_file=str(file))
    assert (sasl.mechanism, sasl.is_token, sasl.read_token()) == ("OAUTHBEARER", True, TOKEN)
    assert Sasl("alice", "tulip").mechanism == "SCRAM-SHA-512"
    assert TOKEN not in repr(Sasl(token=lambda: TOKEN))
    for contents in (b"", b"\n", b"one two", b"\xff", f"{TOKEN}\n{TOKEN}".encode(), b"x" * (TOKEN_BYTES_MAX + 1)):
        file.write_bytes(contents)
        with pytest.raises(InvalidConfig, match="token") as refused:
            sasl.read_token()
        assert TOKEN not in refused.value.message
    file.unlink()
    with pytest.raises(InvalidConfig, match="No such file"):
        sasl.read_token()


@pytest.mark.parametrize(
    "arguments",
    [
        {"mechanism": "OAUTHBEARER"},
        {"token_file": "/token", "token": lambda: TOKEN},
        {"token_file": "/token", "username": "alice"},
        {"token_file": "/token", "password": "tulip"},
        {"token_file": "/token", "mechanism": "SCRAM-SHA-512"},
        {"token_file": ""},
        {"token": TOKEN},
    ],
)
def test_what_names_no_token_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Sasl(**arguments)
    assert TOKEN not in refused.value.message


async def test_a_function_for_tokens_may_be_of_any_kind_and_is_called_once_for_many_who_wait() -> None:
    loop_thread, called = threading.get_ident(), []

    def blocking() -> str:
        called.append(threading.get_ident())
        return f" {TOKEN}\n"

    async def asynchronous() -> str:
        called.append(threading.get_ident())
        return TOKEN

    def returning() -> Awaitable[str]:
        return asynchronous()

    for function, is_on_loop in ((blocking, False), (asynchronous, True), (returning, True)):
        called.clear()
        reader = TokenReader(Sasl(token=function))
        assert await asyncio.gather(*(reader.read(CALL_MS) for _ in range(20))) == [TOKEN] * 20
        assert [each == loop_thread for each in called] == [is_on_loop]
        await reader.read(CALL_MS)
        assert len(called) == 2, "a token is not kept"
        await reader.close()


async def test_a_function_that_fails_is_asked_again_and_one_that_returns_no_token_is_not() -> None:
    def fails() -> str:
        raise OSError(f"cannot say {TOKEN}")

    with pytest.raises(ConnectionFailed, match=r"failed \(OSError\)") as failed:
        await TokenReader(Sasl(token=fails)).read(CALL_MS)
    assert TOKEN not in str(failed.value)
    returns: list[Any] = [None, b"x", "", "one two"]
    reader = TokenReader(Sasl(token=returns.pop))
    while returns:
        with pytest.raises(InvalidConfig, match="function for tokens"):
            await reader.read(CALL_MS)


async def test_a_function_that_hangs_ends_the_attempts_and_not_the_program() -> None:
    calls = 0

    async def hangs() -> str:
        nonlocal calls
        calls += 1
        return str(await asyncio.get_running_loop().create_future())

    reader = TokenReader(Sasl(token=hangs))
    for _ in range(3):
        with pytest.raises(ConnectionFailed, match="not returned"):
            await reader.read(1)
    assert calls == 1
    await reader.close()


@pytest.mark.parametrize(
    ("host", "is_encrypted", "allow_insecure", "is_sent"),
    [
        ("127.0.0.1", False, False, True),
        ("localhost", False, False, True),
        ("::1", False, False, True),
        ("node-0.example.org", False, False, False),
        ("10.0.0.1", False, False, False),
        ("10.0.0.1", True, False, True),
        ("10.0.0.1", False, True, True),
    ],
)
async def test_a_token_is_not_sent_in_plain_text_over_a_network(
    host: str, is_encrypted: bool, allow_insecure: bool, is_sent: bool
) -> None:
    sent = []

    async def send(to: Endpoint, request: sasl_pb2.AuthenticateRequest, _ms: int) -> sasl_pb2.AuthenticateResponse:
        sent.append(request.auth_bytes)
        return sasl_pb2.AuthenticateResponse(token="session")

    client = SaslClient(Sasl(token=lambda: TOKEN, allow_insecure=allow_insecure), random.Random(5))
    client.connect(send, is_encrypted=is_encrypted)
    if is_sent:
        assert await client.token_of(Endpoint(host, 9092), CALL_MS) == "session"
    else:
        with pytest.raises(InvalidConfig, match="without TLS") as refused:
            await client.token_of(Endpoint(host, 9092), CALL_MS)
        assert TOKEN not in refused.value.message
    assert sent == ([first_message(TOKEN)] if is_sent else [])
    await client.close()


async def test_a_client_ends_a_refused_handshake_as_the_standard_says() -> None:
    sent = []

    async def send(to: Endpoint, request: sasl_pb2.AuthenticateRequest, _ms: int) -> sasl_pb2.AuthenticateResponse:
        sent.append(request)
        if request.handshake:
            raise SaslAuthenticationFailed("the token has expired")
        return sasl_pb2.AuthenticateResponse(handshake=b"1", auth_bytes=INVALID_TOKEN)

    client = SaslClient(Sasl(token=lambda: TOKEN), random.Random(5))
    client.connect(send)
    with pytest.raises(SaslAuthenticationFailed, match="has expired"):
        await client.token_of(Endpoint("127.0.0.1", 9092), CALL_MS)
    assert [(each.mechanism, each.auth_bytes) for each in sent] == [
        ("OAUTHBEARER", first_message(TOKEN)),
        ("OAUTHBEARER", DUMMY),
    ]
    await client.close()
